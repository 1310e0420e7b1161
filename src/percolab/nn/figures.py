"""Figures of the probing experiments, in the manner of the paper's Figs. 4, 5 and 7."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas

from percolab.ground.files import replacing
from percolab.ground.progress import Progress, silent
from percolab.nn.findings import LEAST_BASELINE, blocks, by_fom, power_law, select
from percolab.nn.recording import RAW, label
from percolab.show import style
from percolab.show.style import GREY, INK, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TARGET_WORDS = {"z": "latent value $z$", "sum": "sum of $z$ down to the latent"}
PNG_DPI = 160


def of_probes(per_latent: pandas.DataFrame, per_depth: pandas.DataFrame, title: str) -> dict[str, Figure]:
    """Return the figures of a set of probes, by the names of their files."""
    return {
        "fig4": probes_by_fom(per_latent, title, target="z"),
        "fig5": probes_by_depth(per_depth, title),
        "fig7": probes_by_fom(per_latent, title, target="sum"),
        "memorising": memorising(per_latent, title),
    }


def write(drawn: dict[str, Figure], folder: Path, progress: Progress = silent) -> None:
    """Write figures as PNG into a folder, each under its name."""
    for done, (name, figure) in enumerate(drawn.items()):
        progress("figures", done, len(drawn))
        with style.sheet(), replacing(folder / f"{name}.png") as partial:
            figure.savefig(partial, dpi=PNG_DPI)
    progress("figures", len(drawn), len(drawn))


def probes_by_fom(per_latent: pandas.DataFrame, title: str, *, target: str = "z", protocol: str = "random") -> Figure:
    """Draw per-latent MSE against FOM, and below it the ratio to the raw input (Fig. 4; Fig. 7 with target "sum").

    Markers are medians in 5 logarithmic bins, bars the quartiles; filled circles are the residual stream, open squares
    the hidden layers. Lines are power laws fitted to the last block's medians.
    """
    table = select(per_latent, protocol, target)
    bins = by_fom(table)
    with style.sheet():
        figure = style.new_figure(6.4, 6.2)
        main, ratio = figure.subplots(2, 1, sharex=True, height_ratios=(2.3, 1))
        streams = [("residual", "o", "-"), ("hidden", "s", "--")]
        count = len(blocks(bins["representation"].unique(), "residual"))
        _errorbars(main, bins[bins["representation"] == RAW], "MSE", 1.0, INK, "D", True, "raw input")
        for at, (part, marker, line) in enumerate(streams):
            names = blocks(bins["representation"].unique(), part)
            for i, name in enumerate(names):
                # Side by side: markers of one bin would hide each other.
                shift = 1.11 ** (at * count + i - count + 0.5 + (0.6 if at else -0.6))
                own = bins[bins["representation"] == name]
                look = (shift, PALETTE[i % len(PALETTE)], marker, part == "residual", label(name))
                _errorbars(main, own, "MSE", *look)
                _errorbars(ratio, own, "ratio", *look)
            _draw_fit(main, bins[bins["representation"] == names[-1]], line, PALETTE[(count - 1) % len(PALETTE)], part)
        ratio.axhline(1, color=INK, linewidth=1)
        for axes in (main, ratio):
            axes.set_xscale("log")
        main.set_yscale("log")
        main.set_ylabel("MSE of a latent")
        ratio.set_ylabel("MSE / MSE on\nraw input")
        ratio.set_ylim(0, max(1.1, min(2.0, 1.05 * float(bins["ratio_q75"].max()))))
        ratio.set_xlabel(r"FOM $= s_\mathrm{latent} / \sqrt{s_\mathrm{cluster}}$")
        main.set_title(f"{title}: probes of the {TARGET_WORDS[target]}", loc="left")
        # Lines come first in a legend; here what was measured does.
        handles, names = main.get_legend_handles_labels()
        fits = sum("FOM" in name for name in names)
        main.legend(
            handles[fits:] + handles[:fits], names[fits:] + names[:fits], loc="upper left", bbox_to_anchor=(1, 1)
        )
        counts = bins[bins["representation"] == RAW]
        for x, n in zip(counts["FOM"], counts["n"], strict=True):
            ratio.annotate(
                f"n={n}", (x, 0), xytext=(0, 2), textcoords="offset points", ha="center", fontsize=8, color=GREY
            )
    return figure


def _errorbars(
    axes: Axes, own: pandas.DataFrame, column: str, shift: float, colour: str, marker: str, filled: bool, name: str
) -> None:
    middle = own[column]
    spread = [middle - own[f"{column}_q25"], own[f"{column}_q75"] - middle]
    axes.errorbar(
        own["FOM"] * shift,
        middle,
        yerr=spread,
        fmt=marker,
        color=colour,
        markersize=5.5,
        markerfacecolor=colour if filled else "white",
        markeredgewidth=1.3,
        elinewidth=1,
        label=name,
    )


def _draw_fit(axes: Axes, own: pandas.DataFrame, line: str, colour: str, part: str) -> None:
    fit = power_law(own["FOM"], own["MSE"])
    if fit is None:
        return
    x = own["FOM"].to_numpy()
    text = rf"{part} $\propto$ FOM$^{{{fit.slope:.2f} \pm {fit.slope_error:.2f}}}$"
    axes.plot(x, 10**fit.intercept * x**fit.slope, line, color=colour, linewidth=1.4, label=text, zorder=1.5)


def probes_by_depth(per_depth: pandas.DataFrame, title: str, *, target: str = "z", protocol: str = "random") -> Figure:
    """Draw the MSE over all held-out rows of a depth against depth (Fig. 5); depths of constant target are left out."""
    table = per_depth[(per_depth["protocol"] == protocol) & (per_depth["target"] == target)]
    table = table[table["mean_MSE"] >= LEAST_BASELINE]
    with style.sheet():
        figure = style.new_figure(6.4, 4.2)
        axes = figure.subplots()
        raw = table[table["representation"] == RAW]
        axes.plot(raw["depth"], raw["mean_MSE"], ":", color=GREY, linewidth=1.6, label="training mean")
        axes.plot(raw["depth"], raw["MSE"], "-D", color=INK, markersize=3.5, linewidth=1, label="raw input")
        for part, marker, line in [("residual", "o", "-"), ("hidden", "s", "--")]:
            for i, name in enumerate(blocks(table["representation"].unique(), part)):
                own = table[table["representation"] == name]
                colour = PALETTE[i % len(PALETTE)]
                face = colour if part == "residual" else "white"
                axes.plot(
                    own["depth"], own["MSE"], line, marker=marker, color=colour, markerfacecolor=face, markersize=3.5,
                    linewidth=1, label=label(name),
                )  # fmt: skip
        axes.set_xlabel("depth of the latent")
        axes.set_ylabel("MSE over held-out points")
        axes.set_yscale("log")
        axes.set_title(f"{title}: probes of the {TARGET_WORDS[target]} by depth", loc="left")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def memorising(per_latent: pandas.DataFrame, title: str) -> Figure:
    """Draw, by representation, the error on latents seen in training, with true and fresh values, and on unseen ones.

    A probe that reads a value does as well on unseen latents and worse on fresh values; one that has learned where
    latents are does as well on fresh values and no better than the mean on unseen latents.
    """
    cases = [
        ("random", "z", "o", PALETTE[0], "true values, latents seen in training (the paper's protocol)"),
        ("random", "z_redrawn", "s", PALETTE[1], "fresh values that the network never saw"),
        ("subtree", "z", "^", PALETTE[5], "true values, whole subtrees held out"),
    ]
    names = list(per_latent["representation"].unique())
    with style.sheet():
        figure = style.new_figure(6.4, 4.4)
        axes = figure.subplots()
        for k, (protocol, target, marker, colour, text) in enumerate(cases):
            table = select(per_latent, protocol, target)
            if table.empty:
                continue
            relative = (table["MSE"] / table["baseline"]).groupby(table["representation"]).median().reindex(names)
            x = [i + 0.16 * (k - 1) for i in range(len(names))]
            axes.plot(x, relative, marker, color=colour, markersize=7, label=text)
        axes.axhline(1, color=GREY, linestyle=":", linewidth=1.6, label="no better than the training mean")
        axes.set_yscale("log")
        axes.set_xticks(
            range(len(names)),
            [label(n).replace(", ", "\n").replace(" stream", "") for n in names],
            fontsize=8,
            rotation=0,
        )
        axes.set_ylabel("MSE / MSE of the training mean\n(median over latents)")
        axes.set_title(f"{title}: does a probe read a value or a place?", loc="left")
        axes.grid(axis="x", visible=False)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=1)
    return figure


def training_curve(history: pandas.DataFrame, title: str) -> Figure:
    """Draw training and validation loss by epoch."""
    with style.sheet():
        figure = style.new_figure(6.4, 3.6)
        axes = figure.subplots()
        axes.plot(history["epoch"], history["train_loss"], color=PALETTE[0], label="training")
        axes.plot(history["epoch"], history["validation_loss"], color=PALETTE[5], label="validation")
        axes.set_yscale("log")
        axes.set_xlabel("epoch")
        axes.set_ylabel("mean squared error")
        axes.set_title(title, loc="left")
        axes.legend()
    return figure
