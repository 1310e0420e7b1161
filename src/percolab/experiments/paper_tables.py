"""The tables of a reproduction, and what its figures show, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from percolab.experiments.paper_findings import ALSO, FAILS, HOLDS, IN_PART, UNDECIDED
from percolab.intervals import Estimate
from percolab.nn.networks.activations import RAW, label
from percolab.nn.probing.controls import RANDOM, TRAINED
from percolab.show import pages

PAPER_TABLE = {
    "one-cluster": {
        "ridge": {"r2": "0.51", "mse": "0.20"},
        "nearest_neighbour_release": {"r2": "0.94", "mse": "0.024"},
        "mlp": {"r2": "0.94", "mse": "0.026"},
    },
    "multi-cluster": {
        "ridge": {"r2": "0.39", "mse": "0.59"},
        "nearest_neighbour_release": {"r2": "0.86", "mse": "0.13"},
        "mlp": {"r2": "0.88", "mse": "0.12"},
    },
}
"""Table 1 as printed in the paper."""
MODEL_WORDS = {
    "mean": "mean",
    "ridge": "ridge",
    "nearest_neighbour": "1NN, ties averaged",
    "nearest_neighbour_release": "1NN, release order",
    "mlp": "MLP",
}
LOOKS = {HOLDS: "good", ALSO[HOLDS]: "mixed", IN_PART: "mixed", ALSO[IN_PART]: "mixed", UNDECIDED: "", FAILS: "bad"}

TABLE_WORDS = (
    "How well y is predicted. Ridge regression, the mean and the network (MLP) are fitted on 80% of the points and "
    "scored on 10% that nothing was fitted or tuned on; 1NN predicts every point by its nearest other point. All bonds "
    "have one length, so nearest points tie: the first number is the mean over those within a relative 1e-6, the "
    "second takes the least distance as rounded, in the order of the release, as the paper does."
)
PROBE_WORDS = (
    "What the paper finds is checked here by rules, with the networks of all seeds. Numbers are means over networks; "
    "what is in brackets is a 95% interval over networks and blocks of kin, which are counted as one each, since "
    "latents are nested. A case counts if its whole interval is on the side that the paper says. The same rules are "
    "put to untrained networks of the same shape: what holds for them is no effect of training."
)
CONTROL_WORDS = (
    "MSE of the probes over the MSE of predicting the training mean, median over depths; 1 is no better than the mean. "
    "Means over networks, with 95% intervals: for true values over seeds (Student's t), for fresh and permuted ones "
    "over draws. The last column is the error of z in a trained network over that in the untrained network it started "
    "as: above 1, training made z harder to read."
)
HELD_OUT_WORDS = (
    "Whole subtrees held out: error over that of the training mean, each latent counting alike, mean over networks. "
    "The penalty of each probe is chosen by holding out subtrees of its training rows. Fresh: the same for fresh "
    "values, with the interval of 95% of the draws. p: share of draws that do at least as well, the true values "
    "counted among them."
)
POWER_WORDS = (
    "Whether “not found” means something: values of latents are written into the activations, each depth along a "
    "direction of its own, and looked for by the same probes of held-out subtrees. The threshold is such that 5% of "
    "what was not planted is found."
)
COLUMNS = {"z": "z", "z_redrawn": "fresh z", "z_shuffled": "permuted z", "sum": "sum of z", "sum_redrawn": "fresh sum"}
FIGURE_WORDS = {
    "fig4": "Figure 4. Probes of single latent values against FOM, for trained and untrained networks and for random "
    "features of the same widths. Markers are medians over latents in logarithmic bins, means over networks; thick "
    "bars their 95% intervals, thin bars the quartiles over latents; filled circles: residual stream, open squares: "
    "hidden layers, crosses: permuted targets. Thin lines: power laws over all bins; thick ones: over the latents "
    "above FOM {fit_from}. Below: each latent's error over its error on the raw input, with the number of latents, "
    "and over its error on fresh values.",
    "fig5": "Figure 5. The same probes by depth: error over all held-out points of a depth; median over networks, "
    "bands the range. Blocks overlap: their ratio to block 0 is below. Fresh values and permuted targets are "
    "those of the last block of trained networks.{caption}",
    "fig7": "Figure 7. As Figure 4, for the sum of the values from the top of the cluster down to the latent.",
    "memorising": "Error of linear probes of z over that of predicting the training mean, with 95% intervals: over "
    "seeds for true values, over draws for fresh ones (grey), which no network was trained on.",
    "power": "Not in the paper. Error of planted signals on held-out subtrees; the table has how often they are found.",
    "training": "R² by epoch, means over networks, bands the range over seeds.",
}
CAPTION = (
    " The paper's caption names the one-cluster dataset. Its text explains a fall beyond depth 100 by the few largest "
    "clusters that have latents so deep, which one cluster cannot show: the figure fits the multi-cluster data."
)


def table_one(experiment: str, at_paper_scale: bool, results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return Table 1, one row per model: ours, and the paper's printed digits where there are any."""
    rows = []
    trained = results["training"]["test"]
    for model, words in MODEL_WORDS.items():
        printed = PAPER_TABLE[experiment].get(model, {})
        row: dict[str, Any] = {"model": words}
        for name in ("r2", "mse"):
            found = trained[name] if model == "mlp" else {"value": results["baselines"][model][name]}
            row |= {name: found["value"], f"{name}_low": found.get("low"), f"{name}_high": found.get("high")}
        printed_digits = {"paper_r2": printed.get("r2"), "paper_mse": printed.get("mse")}
        rows.append(row | printed_digits | {"comparable": at_paper_scale})
    return rows


def captions(fit_from: float) -> dict[str, str]:
    """Return what the figures show."""
    words = {**FIGURE_WORDS, "fig4": FIGURE_WORDS["fig4"].format(fit_from=f"{fit_from:g}")}
    return {**words, "fig5": words["fig5"].format(caption=CAPTION)}


def sections(results: Mapping[str, Any], verdicts: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return the paper's tables; `verdicts` are the findings about z of each draw of the data."""
    several = "" if len(verdicts) < 2 else " The tables below are of the first draw of the data."
    return [
        pages.heading("Table 1: performance"),
        pages.definitions(TABLE_WORDS + several),
        _table_one(results["table_1"], len(results["seeds"])),
        *_shorter(results),
        pages.heading("The paper's findings about probes"),
        pages.definitions(PROBE_WORDS),
        _findings(results["findings"]["z"]),
        *_by_draw(verdicts),
        pages.folded("The same findings for sums of z", [_findings(results["findings"]["sum"])]),
        pages.heading("Reading a value or remembering a place?"),
        pages.definitions(CONTROL_WORDS),
        _controls(results["controls"]),
        *_permuted(results["permuted"]),
        *_held_out(results),
        *(pages.paragraph(f"Not probed: {word}.", quiet=True) for word in results["probes"]["skipped"]),
    ]


def _by_draw(verdicts: Sequence[Sequence[Mapping[str, Any]]]) -> Iterable[str]:
    """Say how each finding comes out in every draw of the data, where there are several."""
    if len(verdicts) > 1:
        by_claim = [{one["claim"]: one["verdict"] for one in own} for own in verdicts]
        rows = [(claim, *(own.get(claim, "too few latents") for own in by_claim)) for claim in by_claim[0]]
        yield pages.table(rows, ("finding", *(f"draw {k}" for k in range(len(verdicts)))), stack=True)


# ---------------------------------------------------------------------- tables


def _table_one(rows: Sequence[Mapping[str, Any]], networks: int) -> str:
    paper = "paper" if rows[0]["comparable"] else "paper, full scale"
    cells = [
        (
            row["model"] if row["model"] != "MLP" else f"MLP, {networks} seed{'s' if networks > 1 else ''}",
            _interval({"value": row["r2"], "low": row["r2_low"], "high": row["r2_high"]}),
            row["paper_r2"] or "",
            _interval({"value": row["mse"], "low": row["mse_low"], "high": row["mse_high"]}, ".4f"),
            row["paper_mse"] or "",
        )
        for row in rows
    ]
    return pages.table(cells, ("model", "R²", paper, "MSE", paper), numbers=range(1, 5))


def _shorter(results: Mapping[str, Any]) -> Iterable[str]:
    """Say how a shorter training does, where there was one."""
    if "shorter_training" not in results:
        return
    own, other = results["training"], results["shorter_training"]
    texts = [_interval(run["test"]["r2"]) for run in (own, other)]
    epochs = [run["config"]["epochs"] for run in (own, other)]
    printed = PAPER_TABLE["multi-cluster"]["mlp"]["r2"]
    yield pages.paragraph(
        f"With the {epochs[0]:,} epochs that the paper names, test R² is {texts[0]}, where it prints {printed}. With "
        f"{epochs[1]:,} epochs, and a learning rate that decays over as many, it is {texts[1]}."
    )


def _findings(findings: Sequence[Mapping[str, Any]]) -> str:
    if not findings:
        return pages.paragraph("Too few latents to check them.")
    rows = [
        (
            finding["claim"],
            finding["numbers"],
            f"{finding['untrained_verdict']}: {finding['untrained_numbers']}" if finding["untrained_verdict"] else "",
            f"Holds if {finding['rule']}.",
            finding["verdict"],
        )
        for finding in findings
    ]
    looks = [LOOKS[finding["verdict"]] for finding in findings]
    return pages.table(rows, ("finding", "trained", "untrained", "rule", "here"), looks, stack=True)


def _name(row: Mapping[str, Any]) -> str:
    if row["kind"] in (RAW, RANDOM):
        return label(row["representation"])
    return f"{row['kind']}, {label(row['representation'])}"


def _controls(rows: Sequence[Mapping[str, Any]]) -> str:
    cells = []
    for row in sorted(rows, key=_place):
        numbers = [_interval(row[target]) for target in COLUMNS]
        ratio = row.get("over_untrained")
        cells.append((_name(row), str(row["n"]), *numbers, _interval(ratio["z"], ".2f") if ratio else ""))
    head = ("representation", "draws", *COLUMNS.values(), "z, trained / untrained")
    return pages.table(cells, head, numbers=range(1, len(head)))


def _place(row: Mapping[str, Any]) -> tuple[int, str, int]:
    """Order rows so that trained and untrained stand below each other."""
    if row["kind"] in (RAW, RANDOM):
        return (0 if row["kind"] == RAW else 1, "", 0)
    order = "" if row["representation"] == "input" else row["representation"]
    return (2, order, 0 if row["kind"] == TRAINED else 1)


def _permuted(found: Mapping[str, Any]) -> Iterable[str]:
    if found:
        words = (
            f"Permuted targets, dealt to the wrong rows, give a median R² of {found['median']:.3f} over all networks, "
            f"draws and depths, 95% between {found['low']:.3f} and {found['high']:.3f}."
        )
        yield pages.paragraph(words, quiet=True)


def _held_out(results: Mapping[str, Any]) -> Iterable[str]:
    rows = sorted(results["held_out"], key=_place)
    if not rows:
        return
    yield pages.heading("Latents never seen")
    yield pages.definitions(HELD_OUT_WORDS)
    cells = [
        (_name(row), str(row["n"]), f"{row['error']:.3f}", _interval(row["fresh"], ".2f"), f"{row['p']:.2f}")
        for row in rows
    ]
    yield pages.table(cells, ("representation", "draws", "z", "fresh z", "p"), numbers=range(1, 5))
    power = results["power"]
    if power.get("strengths"):
        yield pages.definitions(POWER_WORDS)
        shown = [
            (f"{row['strength']:g}", f"{row['found']:.0%}", f"{row['error']:.3f}", str(row["draws"]))
            for row in power["strengths"]
        ]
        head = ("strength, in standard deviations", "found", "error", "draws")
        yield pages.table(shown, head, numbers=range(4))


def _interval(found: Mapping[str, Any], form: str = ".3f") -> str:
    value, low, high = (np.nan if found.get(key) is None else found[key] for key in ("value", "low", "high"))
    return Estimate(value, low, high).text(form)
