"""The report of a reproduction: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from percolab.ground.progress import clock
from percolab.nn.recording import label
from percolab.show import pages

PAPER_TABLE = {
    "one-cluster": {
        "ridge": {"r2": "0.51", "mse": "0.20"},
        "nearest_neighbour": {"r2": "0.94", "mse": "0.024"},
        "mlp": {"r2": "0.94", "mse": "0.026"},
    },
    "multi-cluster": {
        "ridge": {"r2": "0.39", "mse": "0.59"},
        "nearest_neighbour": {"r2": "0.86", "mse": "0.13"},
        "mlp": {"r2": "0.88", "mse": "0.12"},
    },
}
"""Table 1 as printed in the paper."""
MODEL_WORDS = {"mean": "mean", "ridge": "ridge", "nearest_neighbour": "1NN", "mlp": "MLP"}
LOOKS = {"holds": "good", "holds in part": "mixed", "does not hold": "bad"}

REDUCED = (
    "This is a reduced run: a smaller dataset and a smaller, shorter-trained network. It shows that every stage works. "
    "Its numbers are not those of the paper."
)
TABLE_WORDS = (
    "How well y is predicted. Ridge regression, the mean and the network (MLP) are fitted on 80% of the points and "
    "scored on 10% that nothing was fitted or tuned on; 1NN predicts every point by its nearest other point."
)
PROBE_WORDS = (
    "A linear probe is a ridge regression from a layer's activations to the value z of the latent that a point belongs "
    "to at some depth. Its error is taken for each latent by itself. FOM, the figure of merit, is the size of a latent "
    "over the square root of the size of its cluster. The paper states five findings; each is checked here by a rule."
)
PLACE_WORDS = (
    "With points held out at random, as in the paper, every latent has points on both sides of the split, so a probe "
    "can do well by learning where each latent is. Two controls tell this apart from reading values. Fresh values: "
    "every latent gets a new random z that the network never saw. Held-out subtrees: the probe is scored on latents "
    "none of whose points it has seen. A probe that reads values does worse on fresh values and as well on held-out "
    "subtrees. One that has learned places does as well on fresh values, and no better than the mean on subtrees."
)
CONTROL_COLUMNS = (
    ("z", "random", "z"),
    ("fresh z", "random", "z_redrawn"),
    ("z, subtrees held out", "subtree", "z"),
    ("sum of z", "random", "sum"),
    ("sum of z, subtrees held out", "subtree", "sum"),
)
"""Heading, protocol and target of each column of the table of controls."""
FIGURE_WORDS = {
    "fig4": "Figure 4. Probes of single latent values against FOM. Markers are medians over latents in logarithmic "
    "bins, bars the quartiles; filled circles: residual stream, open squares: hidden layers. Below: each latent's "
    "error over its error on the raw input.",
    "fig5": "Figure 5. The same probes by depth: error over all held-out points of a depth.",
    "fig7": "Figure 7. As Figure 4, for the sum of the values from the top of the cluster down to the latent.",
    "memorising": "Not in the paper. Error of the probes of z relative to predicting the training mean, median over "
    "latents.",
    "training": "Training and validation loss.",
}


def table_one(experiment: str, at_paper_scale: bool, scores: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """Return Table 1, a row a model: ours, and the paper's printed digits where there are any."""
    rows = []
    for model, words in MODEL_WORDS.items():
        printed = PAPER_TABLE[experiment].get(model, {})
        rows.append({
            "model": words, "r2": scores[model]["r2"], "mse": scores[model]["mse"],
            "paper_r2": printed.get("r2"), "paper_mse": printed.get("mse"), "comparable": at_paper_scale,
        })  # fmt: skip
    return rows


def page(results: dict[str, Any], figures: dict[str, bytes]) -> bytes:
    """Return the report as one HTML page with its figures, PNGs by name, inside."""
    experiment, scale, data = results["experiment"], results["scale"], results["dataset"]
    lead = (
        f"{data['n_points']:,} points in {data['dim']} dimensions, clusters: {data['n_clusters']:,}, latents: "
        f"{data['n_latents']:,}. Made on {results['provenance']['device']} in "
        f"{clock(sum(results['seconds'].values()))} (minutes:seconds)."
    )

    def shown(*names: str) -> list[str]:
        return [pages.image(figures[name], FIGURE_WORDS[name], wide=True) for name in names]

    body = [
        *([] if scale == "paper" else [pages.paragraph(REDUCED)]),
        pages.heading("Table 1: performance"),
        pages.paragraph(TABLE_WORDS),
        _table_one(results["table_1"]),
        pages.heading("The paper's findings about probes"),
        pages.paragraph(PROBE_WORDS),
        _findings(results["findings"]["random"]["z"]),
        *shown("fig4", "fig5", "fig7"),
        pages.heading("Reading a value or remembering a place?"),
        pages.paragraph(PLACE_WORDS),
        *shown("memorising"),
        *_controls(results["controls"]),
        pages.heading("Training"),
        *shown("training"),
        pages.heading("How it was made"),
        *_making(results),
    ]
    return pages.page(f"percolab reproduce {experiment}, {scale} scale", lead, body)


def _table_one(rows: list[dict[str, Any]]) -> str:
    paper = "paper" if rows[0]["comparable"] else "paper, full scale"
    cells = [
        (row["model"], f"{row['r2']:.3f}", row["paper_r2"] or "", f"{row['mse']:.4f}", row["paper_mse"] or "")
        for row in rows
    ]
    return pages.table(cells, ("model", "R²", paper, "MSE", paper), numbers=range(1, 5))


def _findings(findings: list[dict[str, Any]]) -> str:
    if not findings:
        return pages.paragraph("Too few latents to check them.")
    rows = [(f["claim"], f["numbers"], f"Holds if {f['rule']}.", f["verdict"]) for f in findings]
    looks = [LOOKS[finding["verdict"]] for finding in findings]
    return pages.table(rows, ("finding", "measured", "rule", "here"), looks, stack=True)


def _controls(controls: list[dict[str, Any]]) -> list[str]:
    """Return the errors that tell values from places, and in a sentence those that must come out as chance."""
    found = {(row["protocol"], row["target"], row["representation"]): row for row in controls}
    columns = [column for column in CONTROL_COLUMNS if any(key[:2] == column[1:] for key in found)]
    rows = [
        (label(name), *(_number(found.get((*column[1:], name))) for column in columns))
        for name in dict.fromkeys(row["representation"] for row in controls)
    ]
    parts = [
        pages.paragraph(
            "MSE of the probes over the MSE of predicting the training mean, median over depths; 1 is no better than "
            "the mean. Depths where a probe could only give the mean are left out."
        ),
        pages.table(rows, ("representation", *(name for name, _, _ in columns)), numbers=range(1, 1 + len(columns))),
    ]
    shuffled = [row["median_r2"] for row in controls if row["target"].endswith("_shuffled")]
    if shuffled:
        words = (
            f"Targets dealt to the wrong rows give R² from {min(shuffled):.3f} to {max(shuffled):.3f}, as they must."
        )
        parts.append(pages.paragraph(words, quiet=True))
    return parts


def _number(row: dict[str, Any] | None) -> str:
    value = None if row is None else row["median_relative_mse"]
    return "" if value is None or value != value else f"{value:.3f}"


def _making(results: dict[str, Any]) -> Iterable[str]:
    yield pages.code(results["command"])
    yield pages.table((name, f"{value:.1f} s") for name, value in results["seconds"].items())
    for word in results["skipped"]:
        yield pages.paragraph(f"Not probed: {word}.", quiet=True)
    settings = {
        "Recipe of the dataset": results["recipe"],
        "Training": results["training"]["config"],
        "Probes": results["probe_config"],
        "Versions and machine": results["training"]["provenance"] | results["provenance"],
    }
    for name, values in settings.items():
        yield pages.folded(name, [pages.settings(values)])
    yield pages.paragraph(
        "All numbers are in results.json, the errors of every latent in probes/per_latent.csv.", quiet=True
    )
