"""The tables of a reproduction. A section is a function: its docstring is the heading, and the text below it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from percolab.experiments.paper_findings import ALSO, FAILS, HOLDS, IN_PART, UNDECIDED, Finding, Findings
from percolab.ground.text import counted
from percolab.intervals import Estimate
from percolab.nn.networks.activations import RAW, label
from percolab.nn.probing.controls import RANDOM, TRAINED
from percolab.show import pages
from percolab.study.estimates import Row, select
from percolab.study.report import section

#: Table 1 as printed in the paper.
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
MODEL_WORDS = {
    "mean": "mean",
    "ridge": "ridge",
    "nearest_neighbour": "1NN, ties averaged",
    "nearest_neighbour_release": "1NN, release order",
    "mlp": "MLP",
}
LOOKS = {HOLDS: "good", ALSO[HOLDS]: "mixed", IN_PART: "mixed", ALSO[IN_PART]: "mixed", UNDECIDED: "", FAILS: "bad"}
COLUMNS = {"z": "z", "z_redrawn": "fresh z", "z_shuffled": "permuted z", "sum": "sum of z", "sum_redrawn": "fresh sum"}

#: All numbers of a reproduction; beside them `rows`, its estimates, and `checked`, the findings of each draw.
Results = Mapping[str, Any]


def table_one(experiment: str, at_paper_scale: bool, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return Table 1, one row per model: our numbers, and the paper's printed digits if there are any."""
    table = []
    for model, title in MODEL_WORDS.items():
        printed = PAPER_TABLE[experiment].get(model, {})
        line: dict[str, Any] = {"model": title, "comparable": at_paper_scale}
        for name, ours in _scores(rows, model).items():
            line |= {name: ours.value, f"{name}_low": ours.low, f"{name}_high": ours.high}
            line[f"paper_{name}"] = printed.get(name)
        table.append(line)
    return table


def _scores(rows: Sequence[Row], model: str) -> dict[str, Estimate]:
    """Return R² and MSE of a model of Table 1."""
    return {row["measure"]: row.estimate for row in select(rows, part="table 1", model=model)}


def sections(results: Results, rows: Sequence[Row], checked: Sequence[Findings]) -> list[str]:
    """Return the paper's tables, from all numbers, the estimates, and the findings of each draw of the data."""
    chosen = [_performance, _findings, _values_or_places, *([_never_seen] if results["held_out"] else [])]
    chosen += [_power] if results["held_out"] and results["power"].get("strengths") else []
    known = {**results, "rows": rows, "checked": checked}
    body = [part for make in chosen for part in section(make, known)]
    return [*body, *(pages.paragraph(f"Not probed: {word}.", quiet=True) for word in results["probes"]["skipped"])]


def _performance(results: Results) -> Iterable[str]:
    """Table 1: performance.

    How well y is predicted. Ridge regression, the mean and the network (MLP) are fitted on 80% of the points and scored
    on 10% that nothing was fitted or tuned on; 1NN predicts every point by its nearest other point. All bonds have one
    length, so nearest points tie: the first number is the mean over those within a relative 1e-6, the second takes the
    least distance as rounded, in the order of the release, as the paper does.
    """
    if len(results["checked"]) > 1:
        yield pages.paragraph("The tables below are of the first draw of the data.")
    cells = []
    for model, title in MODEL_WORDS.items():
        ours, printed = _scores(results["rows"], model), PAPER_TABLE[results["experiment"]].get(model, {})
        name = f"{title}, {counted(len(results['seeds']), 'seed')}" if model == "mlp" else title
        r2, mse = ours["r2"].text(".3f"), ours["mse"].text(".4f")
        cells.append((name, r2, printed.get("r2", ""), mse, printed.get("mse", "")))
    paper = "paper" if results["table_1"][0]["comparable"] else "paper, full scale"
    yield pages.table(cells, ("model", "R²", paper, "MSE", paper), numbers=range(1, 5))
    if "shorter_training" in results:
        runs = [results["training"], results["shorter_training"]]
        (long, r2), (short, other) = (
            (run["config"]["epochs"], Estimate(**run["test"]["r2"]).text(".3f")) for run in runs
        )
        in_paper = PAPER_TABLE["multi-cluster"]["mlp"]["r2"]
        yield pages.paragraph(
            f"With the {long:,} epochs that the paper names, test R² is {r2}, where it prints {in_paper}. With "
            f"{short:,} epochs, and a learning rate that decays over as many, it is {other}."
        )


def _findings(results: Results) -> Iterable[str]:
    """The paper's findings about probes.

    What the paper finds is checked here by rules, with the networks of all seeds. Numbers are means over networks; what
    is in brackets is a 95% interval over networks and blocks of kin, which are counted as one each, since latents are
    nested. A case counts if its whole interval is on the side that the paper says. The same rules are put to untrained
    networks of the same shape: what holds for them is no effect of training.
    """
    checked: Sequence[Findings] = results["checked"]
    yield _table_of_findings(checked[0].z)
    if len(checked) > 1:
        yield _by_draw([findings.z for findings in checked])
    yield pages.folded("The same findings for sums of z", [_table_of_findings(checked[0].sum)])


def _table_of_findings(findings: Sequence[Finding]) -> str:
    if not findings:
        return pages.paragraph("Too few latents to check them.")
    rows = []
    for finding in findings:
        untrained = f"{finding.untrained_verdict}: {finding.untrained_numbers}" if finding.untrained_verdict else ""
        rows.append((finding.claim, finding.numbers, untrained, f"Holds if {finding.rule}.", finding.verdict))
    looks = [LOOKS[finding.verdict] for finding in findings]
    return pages.table(rows, ("finding", "trained", "untrained", "rule", "here"), looks, stack=True)


def _by_draw(verdicts: Sequence[Sequence[Finding]]) -> str:
    """Say how each finding comes out in every draw of the data."""
    by_draw = [{finding.claim: finding.verdict for finding in findings} for findings in verdicts]
    rows = [(claim, *(claims.get(claim, "too few latents") for claims in by_draw)) for claim in by_draw[0]]
    return pages.table(rows, ("finding", *(f"draw {k}" for k in range(len(verdicts)))), stack=True)


def _values_or_places(results: Results) -> Iterable[str]:
    """Reading a value or remembering a place?

    MSE of the probes over the MSE of predicting the training mean, median over depths; 1 is no better than the mean.
    Means over networks, with 95% intervals: for true values over seeds (Student's t), for fresh and permuted ones over
    draws. The last column is the error of z in a trained network over that in the untrained network it started as:
    above 1, training made z harder to read.
    """
    table: dict[tuple[str, str], dict[str, Estimate]] = {}
    for row in select(results["rows"], part="controls"):
        table.setdefault((row["kind"], row["layer"]), {})[row["target"]] = row.estimate
    for row in select(results["rows"], part="controls, over untrained", target="z"):
        table[row["kind"], row["layer"]]["ratio"] = row.estimate
    cells = []
    for (kind, layer), errors in sorted(table.items(), key=lambda item: _place(*item[0])):
        numbers = [errors[target].text(".3f") for target in COLUMNS]
        ratio = errors["ratio"].text(".2f") if "ratio" in errors else ""
        cells.append((_name(kind, layer), str(errors["z"].seeds), *numbers, ratio))
    head = ("representation", "draws", *COLUMNS.values(), "z, trained / untrained")
    yield pages.table(cells, head, numbers=range(1, len(head)))
    if permuted := results["permuted"]:
        text = (
            f"Permuted targets, dealt to the wrong rows, give a median R² of {permuted['median']:.3f} over all "
            f"networks, draws and depths, 95% between {permuted['low']:.3f} and {permuted['high']:.3f}."
        )
        yield pages.paragraph(text, quiet=True)


def _never_seen(results: Results) -> Iterable[str]:
    """Latents never seen.

    Whole subtrees held out: error over that of the training mean, each latent counting alike, mean over networks. The
    penalty of each probe is chosen by holding out subtrees of its training rows. Fresh: the same for fresh values, with
    the interval of 95% of the draws. p: share of draws that do at least as well, the true values counted among them.
    """
    cells = []
    for row in sorted(results["held_out"], key=lambda row: _place(row["kind"], row["representation"])):
        fresh, name = Estimate(**row["fresh"]).text(".2f"), _name(row["kind"], row["representation"])
        cells.append((name, str(row["n"]), f"{row['error']:.3f}", fresh, f"{row['p']:.2f}"))
    yield pages.table(cells, ("representation", "draws", "z", "fresh z", "p"), numbers=range(1, 5))


def _power(results: Results) -> Iterable[str]:
    """What held-out subtrees can detect.

    Whether “not found” means something: values of latents are written into the activations, each depth along a
    direction of its own, and looked for by the same probes of held-out subtrees. The threshold is such that 5% of what
    was not planted is found.
    """
    rows = [
        (f"{row['strength']:g}", f"{row['found']:.0%}", f"{row['error']:.3f}", str(row["draws"]))
        for row in results["power"]["strengths"]
    ]
    yield pages.table(rows, ("strength, in standard deviations", "found", "error", "draws"), numbers=range(4))


def _name(kind: str, layer: str) -> str:
    return label(layer) if kind in (RAW, RANDOM) else f"{kind}, {label(layer)}"


def _place(kind: str, layer: str) -> tuple[int, str, int]:
    """Order rows so that trained and untrained networks are one below the other."""
    if kind in (RAW, RANDOM):
        return (0 if kind == RAW else 1, "", 0)
    return (2, "" if layer == "input" else layer, 0 if kind == TRAINED else 1)
