"""Curves of a reproduction: what held-out subtrees can detect, by strength; learning, by epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas

from percolab.nn.networks.activations import label
from percolab.nn.probing.controls import TRAINED
from percolab.show import style
from percolab.show.style import BLUE, GREY, ORANGE, PALETTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def power(found: Mapping[str, Any], held_out: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Draw what held-out subtrees can detect: how often a planted signal is found, and the error, by its strength."""
    with style.sheet():
        figure = style.new_figure(9.2, 3.6)
        left, right = figure.subplots(1, 2)
        figure.suptitle(f"{title}: what held-out subtrees can detect", x=0.02, ha="left", fontsize=10)
        strengths = found.get("strengths", [])
        x = [row["strength"] for row in strengths]
        if not x:
            left.set_axis_off()
            right.set_axis_off()
            return figure
        left.plot(x, [row["found"] for row in strengths], "o-", color=BLUE)
        left.axhline(0.05, color=GREY, linestyle=":", linewidth=1.6)
        above = {"xytext": (0, 3), "textcoords": "offset points", "ha": "right", "color": GREY}
        left.annotate("without a signal: 5%", (x[-1], 0.05), **above)
        left.set(ylim=(-0.02, 1.04), ylabel="share of draws in which\nthe planted values are found")
        low, _, high = found["null"]
        right.axhspan(low, high, color=GREY, alpha=0.2, linewidth=0, label="values that were not planted, 95%")
        right.errorbar(
            x, [row["error"] for row in strengths],
            yerr=[[row["error"] - row["low"] for row in strengths], [row["high"] - row["error"] for row in strengths]],
            fmt="o-", color=BLUE, elinewidth=1, label="planted values, median and 95%",
        )  # fmt: skip
        own = [row for row in held_out if (row["kind"], row["representation"]) == (TRAINED, found["representation"])]
        for row in own:
            right.axhline(row["error"], color=ORANGE, label="true z, as the networks are")
        right.set_ylabel("MSE / MSE of the\ntraining mean")
        right.legend()
        for axes in (left, right):
            axes.set_xscale("log")
            axes.set_xticks(x, [f"{one:g}" for one in x], minor=False)
            axes.minorticks_off()
            axes.set_xlabel(f"strength of the signal, in standard deviations\nof {label(found['representation'])}")
    return figure


def learning_curves(
    history: pandas.DataFrame,
    shorter: pandas.DataFrame | None,
    lines: Mapping[str, float],
    title: str,
) -> Figure:
    """Draw R² of training and validation rows by epoch: means over networks, bands their range; and named levels."""
    with style.sheet():
        figure = style.new_figure(7.4, 4.0)
        axes = figure.subplots()
        runs = [(history, "-", "")]
        if shorter is not None:
            runs.append((shorter, "--", f", {int(shorter['epoch'].max()):,} epochs"))
        for table, line, words in runs:
            for part, colour in (("train", PALETTE[0]), ("validation", PALETTE[5])):
                wide = table.pivot(index="epoch", columns="seed", values=f"{part}_r2")
                axes.fill_between(wide.index, wide.min(axis=1), wide.max(axis=1), color=colour, alpha=0.2, linewidth=0)
                name = {"train": "training rows", "validation": "validation rows"}[part] + words
                axes.plot(wide.index, wide.mean(axis=1), line, color=colour, label=name)
        for (name, level), line in zip(lines.items(), (":", "-."), strict=False):
            axes.axhline(level, color=GREY, linestyle=line, linewidth=1.4, label=name)
        levels = [*lines.values(), float(history["validation_r2"].max())]
        axes.set_ylim(max(0.0, min(levels) - 0.25), 1.0)
        axes.set_xlabel("epoch")
        axes.set_ylabel("R²")
        networks = history["seed"].nunique()
        axes.set_title(f"{title}: training of {networks} network{'s' if networks > 1 else ''}", loc="left")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
