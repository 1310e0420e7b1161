"""Draw the pictures that open the pages here, from the JSON files beside them.

    python docs/results/make_pictures.py

The commands on each page make the JSON files; this program computes nothing. The same role has the same colour in all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from make_tables import HIDDEN, LAYERS, SAES, STREAM, TASKS, estimate_of, lines, read
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from percolab.show import style

HERE = Path(__file__).parent
LARGER = 1.25
"""Fonts against those of reports: the pictures are also for slides."""
NAMES = {"raw": "raw input", "other": "other target"}


def main() -> None:
    """Write every picture."""
    folder = HERE / "pictures"
    folder.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        with style.sheet(), _larger():
            draw().savefig(folder / f"{name}.png", dpi=150)


def _larger() -> Any:
    import matplotlib

    sizes = {name: value * LARGER for name, value in style.SHEET.items() if name.endswith("size")}
    return matplotlib.rc_context({**style.SHEET, **sizes})


def dots(axes: Axes, rows: Sequence[tuple[str, Mapping[str, Mapping[str, Any] | None]]], *, apart: float = 0.2) -> None:
    """Draw one line per row and one dot per role, with its 95% interval where there is one."""
    roles = [role for role in style.ROLES if any(values.get(role) for _, values in rows)]
    for i, (_, values) in enumerate(rows):
        for j, role in enumerate(roles):
            found, y = values.get(role), i + apart * (j - (len(roles) - 1) / 2)
            if not found or found["value"] is None:
                continue
            if found.get("low") is not None:
                axes.plot([found["low"], found["high"]], [y, y], color=style.ROLES[role], linewidth=2)
            axes.plot(found["value"], y, "o", color=style.ROLES[role], markersize=6)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


def legend(figure: Figure, roles: Sequence[str] | Mapping[str, str]) -> None:
    """Name the roles above the panels, each in its colour."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=style.ROLES[role], marker="o", markersize=6, linestyle="") for role in roles]
    names = roles if isinstance(roles, Mapping) else NAMES
    figure.legend(handles, [names.get(role, role) for role in roles], loc="outside upper center", ncols=len(roles))


def probes() -> Figure:
    """Draw the errors of probes of z by layer, trained beside untrained networks and the raw input."""
    figure = style.new_figure(9.5, 4.6)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, data in zip(panels, ("one-cluster", "multi-cluster"), strict=True):
        by: dict[str, dict[str, Any]] = {}
        for row in read(f"{data}/results.json")["controls"]:
            by.setdefault(row["representation"], {})[row["kind"]] = row["z"]
        order = [name for pair in zip(STREAM, HIDDEN, strict=True) for name in pair]
        rows = [("raw input", {"raw": by["raw"]["raw"]})]
        rows += [(LAYERS[name], {role: by[name][role] for role in ("trained", "untrained")}) for name in order]
        dots(axes, rows)
        axes.set_xlim(0)
        axes.set_title({"one-cluster": "one cluster", "multi-cluster": "many clusters"}[data], loc="left")
        axes.set_xlabel("error of a linear probe of z\n(1: no better than the mean)")
    legend(figure, ("trained", "untrained", "raw"))
    return figure


def recovery() -> Figure:
    """Draw recovery by method in every task: trained and untrained networks, and the raw input."""
    figure = style.new_figure(9.5, 7.4)
    panels = figure.subplots(2, 2)
    for axes, (task, name) in zip(panels.flat, TASKS.items(), strict=True):
        found = {line["method"]: line["values"] for line in lines("results", task)}
        columns = {"trained": "recovery", "untrained": "untrained", "raw": "raw"}
        rows = [
            (method, {role: found[method].get(column) for role, column in columns.items()})
            for method in SAES
            if method in found
        ]
        dots(axes, rows)
        axes.set_xlim(0)
        axes.set_title(name, loc="left")
    for axes in panels[1]:
        axes.set_xlabel("recovery: mean best F1 of a concept")
    legend(figure, ("trained", "untrained", "raw"))
    return figure


def contrasts() -> Figure:
    """Draw the estimate that answers each experiment's question, beside its control."""
    blocks = "blocks.2"
    slope = {"measure": "slope", "dose": 1.0, "layer": "blocks.1", "direction": "own", "network": "trained"}
    cases = (
        ("trained: error on z, log ratio\nto untrained (below 0: easier)", "trained", "trained",
         {"measure": "log ratio, error on z", "layer": blocks, "epoch": 500},
         {"measure": "log ratio, error on fresh z", "layer": blocks, "epoch": 500}),
        ("crossed: error on own over others'\nvalues, log ratio (below 0: holds them)", "crossed", "trained",
         {"part": "all", "target": "z", "layer": blocks}, {"part": "null", "target": "z", "layer": blocks}),
        ("relevance: separation, log ratio\nrelevant over irrelevant (above 0: sees it)", "relevance-4", "trained",
         {"part": "all", "measure": "separation", "layer": blocks, "epoch": 200},
         {"part": "null", "measure": "separation", "layer": blocks, "epoch": 200}),
        ("dose: slope of the response\n(1: as the truth says)", "dose", "trained",
         {"case": "relevant", **slope}, {"case": "irrelevant", **slope}),
        ("edit: shared cosine of learned changes,\nslope taken out (above 0: shared)", "edit", "trained",
         {"measure": "shared cosine, rest", "case": "edit", "layer": "blocks.1"},
         {"measure": "shared cosine, rest", "case": "null", "layer": "blocks.1"}),
    )  # fmt: skip
    figure = style.new_figure(9.5, 4.8)
    axes = figure.subplots()
    rows = [
        (words, {role: estimate_of(file, **own), "permuted": estimate_of(file, **control)})
        for words, file, role, own, control in cases
    ]
    dots(axes, rows)
    axes.axvline(0, color=style.INK, linewidth=0.9)
    axes.set_xlabel("estimate, with its 95% interval: blue; its control: grey")
    return figure


def documents() -> Figure:
    """Draw what each reader finds in documents: own lexicon, other lexicon, untrained networks, raw input."""
    found = read("documents/results.json")
    first = found["settings"]["options"]["layers"][0]
    levels = [row for row in found["estimates"] if row["part"] == "level" and row["layer"] in (first, row["role"])]
    words = {
        "beliefs": "exact beliefs,\nlinear probe (R²)",
        "kmeans": "contexts,\nk-means (F1)",
        "neurons": "contexts,\nneurons (F1)",
    }
    names = {
        "trained": "trained on it",
        "other": "trained on another lexicon",
        "untrained": "untrained",
        "raw": "raw input",
        "permuted": "permuted",
    }
    rows = [
        (name, {row["role"]: row for row in levels if row["reader"] == reader and row["role"] in names})
        for reader, name in words.items()
    ]
    figure = style.new_figure(8.6, 3.4)
    axes = figure.subplots()
    dots(axes, rows, apart=0.17)
    axes.axvline(0, color=style.INK, linewidth=0.9)
    axes.set_xlim(-0.05, 1)
    axes.set_xlabel("how well it is found (1: perfectly)")
    legend(figure, names)
    return figure


PICTURES = {"documents": documents, "probes": probes, "recovery": recovery, "contrasts": contrasts}

if __name__ == "__main__":
    main()
