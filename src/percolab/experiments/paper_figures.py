"""Figures of a reproduction: the paper's Figs. 4, 5 and 7, with controls and intervals; power; learning."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas

from percolab.experiments.paper_findings import Measured, blocks, by_fom, power_laws
from percolab.intervals import Estimate
from percolab.model.forest import Forest
from percolab.nn.networks.activations import RAW, label
from percolab.nn.probing import controls
from percolab.nn.probing.controls import RANDOM, TRAINED, UNTRAINED, ByKind
from percolab.nn.probing.errors import LEAST_BASELINE, ProbeErrors
from percolab.nn.probing.probed_latents import TARGETS, TRUE_TARGETS
from percolab.show import dot_rows, style
from percolab.show.dot_rows import Mark, Panel
from percolab.show.style import GREY, INK, PALETTE, PURPLE
from percolab.study.estimates import Row, band, layers_of, row, select
from percolab.study.pictures import by_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STREAMS = (("residual", "o", "-"), ("hidden", "s", "--"))
KINDS = (TRAINED, UNTRAINED)
FRESH = "fresh values"


def of_probes(
    forest: Forest, by_protocol: Mapping[str, ByKind], title: str, fit_from: float | None = None
) -> dict[str, Figure]:
    """Return the figures of probed networks and their controls, by the names of their files."""
    random, subtree = by_protocol["random"], by_protocol.get("subtree", {})
    measured = measures(forest, random)
    seen, unseen = ([*error_rows(controls.table(kinds, ("z", "z_redrawn")))] for kinds in (random, subtree))
    return {
        "memorising": memorising(seen, unseen, title),
        "fig4": fig4(measured, title, fit_from),
        "fig5": fig5(random, title),
        "fig7": fig7(measured, title, fit_from),
    }


def error_rows(table: Sequence[Mapping[str, Any]], part: str = "") -> Iterator[Row]:
    """Return the relative errors of `controls.table` as estimates, by kind, representation and target."""
    for line in table:
        names = {"kind": line["kind"], "layer": line["representation"], "part": part}
        for target in (target for target in TARGETS if target in line):
            kind = row if target in TRUE_TARGETS else band
            yield kind(Estimate(**line[target]), target=target, **names)
        for target, ratio in line.get("over_untrained", {}).items():
            yield row(Estimate(**ratio), target=target, **{**names, "part": f"{part}, over untrained"})


def measures(forest: Forest, random: ByKind) -> dict[str, dict[str, Measured]]:
    """Return errors under the paper's protocol, by target and kind."""
    kinds = [kind for kind in (*KINDS, RANDOM) if kind in random]
    return {
        target: {kind: Measured(forest, random[kind], random[RAW][0], target) for kind in kinds}
        for target in TRUE_TARGETS
    }


# ---------------------------------------------------------------------- by figure of merit


def fig4(measured: Mapping[str, Mapping[str, Measured]], title: str, fit_from: float | None = None) -> Figure:
    """Figure 4. Probes of single latent values against FOM, for trained and untrained networks and for random features.

    Random features have the same widths. Markers are medians over latents in logarithmic bins, means over networks;
    thick bars their 95% intervals, thin bars the quartiles over latents; filled circles: residual stream, open squares:
    hidden layers, crosses: permuted targets. Thin lines: power laws over all bins; thick ones: over the latents above
    FOM {fit_from:g}. Below: each latent's error over its error on the raw input, with the number of latents, and over
    its error on fresh values.
    """
    return _by_fom(measured["z"], f"{title}: probes of the latent value $z$", fit_from)


def fig7(measured: Mapping[str, Mapping[str, Measured]], title: str, fit_from: float | None = None) -> Figure:
    """Figure 7. As Figure 4, for the sum of the values from the top of the cluster down to the latent."""
    return _by_fom(measured["sum"], f"{title}: probes of the sum of $z$ down to the latent", fit_from)


def _by_fom(measured: Mapping[str, Measured], title: str, fit_from: float | None) -> Figure:
    """Draw MSE per latent against FOM, and below it the ratios to the raw input and to fresh values, by kind.

    Power laws are fitted to the medians of the last block.
    """
    kinds = [kind for kind in (*KINDS, RANDOM) if kind in measured]
    bins = {kind: by_fom(measured[kind]) for kind in kinds}
    with style.sheet():
        figure = style.new_figure(0.8 + 3.7 * len(kinds), 8.4)
        grid = figure.subplots(3, len(kinds), sharex=True, sharey="row", height_ratios=(2.3, 1, 0.8), squeeze=False)
        for column, kind in enumerate(kinds):
            _fom_column(list(grid[:, column]), measured[kind], bins[kind], fit_from)
            networks = len(measured[kind].mse)
            heading = f"random features ({networks} draws)" if kind == RANDOM else f"{kind} networks ({networks})"
            grid[0, column].set_title(heading, loc="left", color=GREY)
            grid[2, column].set_xlabel(r"FOM $= s_\mathrm{latent} / \sqrt{s_\mathrm{cluster}}$")
        for row, shown, highest in ((1, "ratio", 2.0), (2, "own", 3.0)):
            tops = [np.nanmax(stats[name][f"{shown}_q75"]) for stats in bins.values() for name in _series(stats)]
            grid[row, 0].set_ylim(0, max(1.15, min(highest, 1.05 * float(max(tops)))))
        bottom, top = grid[0, 0].get_ylim()
        grid[0, 0].set_ylim(bottom, top * (top / bottom) ** 0.2)  # leaves room for the slopes
        grid[0, 0].set_ylabel("MSE of a latent")
        grid[1, 0].set_ylabel("MSE / MSE on\nraw input")
        grid[2, 0].set_ylabel("MSE / MSE on\nfresh values")
        figure.suptitle(title, x=0.02, ha="left", fontsize=10)
        _legend_of_streams(figure, grid[0, 0])
    return figure


def _legend_of_streams(figure: Figure, axes: Axes) -> None:
    """Put a legend below the figure, with the two streams one below the other."""
    from matplotlib.lines import Line2D

    by_name = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    rows = [[name for name in by_name if part in name] for part, _, _ in STREAMS]
    rest = [name for name in by_name if not any(name in row for row in rows)]
    pairs = [(*rest, "")[:2], *itertools.zip_longest(*rows, fillvalue="")]
    names = [name for pair in pairs for name in pair]
    handles = [by_name.get(name, Line2D([], [], linestyle="")) for name in names]
    figure.legend(handles, names, loc="outside lower center", ncols=len(pairs))


def _streams(names: Iterable[str]) -> list[tuple[str, str, str, list[str]]]:
    """Return part, marker, line and names of the two streams; for random features, the narrow and the wide ones."""
    known = list(names)
    random = sorted((name for name in known if name.startswith("random.")), key=lambda name: int(name[7:]))
    if random:
        return [(*stream, [name]) for stream, name in zip(STREAMS, random, strict=False)]
    return [(*stream, blocks(known, stream[0])) for stream in STREAMS]


def _series(bins: Mapping[str, Any]) -> list[str]:
    return [name for *_, names in _streams(bins) for name in names if "own" in bins[name]]


def _fom_column(panels: Sequence[Axes], measured: Measured, bins: Mapping[str, Any], fit_from: float | None) -> None:
    main, ratio, fresh = panels
    streams = _streams(bins)
    count = len(streams[0][3])
    fom = bins["FOM"]
    _bars(main, fom, bins[RAW], "MSE", 1.0, INK, "D", True, label(RAW))
    for at, (part, marker, line, names) in enumerate(streams):
        for i, name in enumerate(names):
            # Side by side, since markers of one bin would hide each other.
            shift = 1.11 ** (at * count + i - count + 0.5 + (0.6 if at else -0.6))
            colour = INK if name.startswith("random.") else PALETTE[i % len(PALETTE)]
            look = (shift, colour, marker, part == "residual", label(name).replace(" stream", ""))
            for axes, column in ((main, "MSE"), (ratio, "ratio"), (fresh, "own")):
                if column in bins[name]:
                    _bars(axes, fom, bins[name], column, *look)
        if blocks(names, part):
            _draw_fits(main, measured, names[-1], line, PALETTE[(count - 1) % len(PALETTE)], part, fit_from)
    widest = bins[streams[-1][3][-1]]
    if "permuted" in widest:
        main.plot(fom, widest["permuted"], "x", color=GREY, markersize=5, label="permuted targets")
    for axes in (ratio, fresh):
        axes.axhline(1, color=INK, linewidth=1)
    main.set_xscale("log")
    main.set_yscale("log")
    # Above the axes, so that the text overlaps neither markers nor another number.
    for x, n in zip(fom, bins["n"], strict=True):
        ratio.annotate(
            f"{n:,}", (x, 1), xycoords=("data", "axes fraction"), xytext=(0, 2), textcoords="offset points",
            ha="center", va="bottom", fontsize=7, color=GREY,
        )  # fmt: skip
    ratio.annotate(
        "latents", (0, 1), xycoords="axes fraction", xytext=(-3, 2), textcoords="offset points", ha="right",
        va="bottom", fontsize=7, color=GREY,
    )  # fmt: skip


def _bars(
    axes: Axes, fom: Any, own: Mapping[str, Any], column: str, shift: float, colour: str, marker: str, filled: bool,
    name: str,
) -> None:  # fmt: skip
    """Draw medians with quartiles over latents, thin, and the interval of the median, thick."""
    x, middle = fom * shift, own[column]
    axes.vlines(x, own[f"{column}_q25"], own[f"{column}_q75"], color=colour, linewidth=0.8, alpha=0.7)
    axes.vlines(x, own[f"{column}_low"], own[f"{column}_high"], color=colour, linewidth=3, alpha=0.45)
    axes.plot(
        x, middle, marker, color=colour, markersize=5, markerfacecolor=colour if filled else "white",
        markeredgewidth=1.3, label=name,
    )  # fmt: skip


def _draw_fits(
    axes: Axes, measured: Measured, name: str, line: str, colour: str, part: str, fit_from: float | None
) -> None:
    """Draw the power law of all latents and of those above `fit_from`, with slopes and their intervals."""
    notes = []
    for least in (0.0, *([fit_from] if fit_from else [])):
        fit = power_laws(measured, name, least)
        slope, intercept = fit["slope"], fit["intercept"]
        if not np.isfinite(slope.value):
            continue
        x = measured.bins(least)[1]
        text = None if least else f"power law, {part}"
        width = 2.6 if least else 1.2
        axes.plot(x, 10**intercept.value * x**slope.value, line, color=colour, linewidth=width, label=text, zorder=1.5)
        above = f", above {least:g}" if least else ""
        notes.append(rf"{part}{above}: FOM$^{{{slope.value:.2f}}}$ ({slope.low:.2f} to {slope.high:.2f})")
    axes.annotate(
        "\n".join(notes), (0.99, 0.99), xycoords="axes fraction",
        xytext=(0, 0 if part == "residual" else -26), textcoords="offset points", ha="right", va="top", fontsize=7,
        color=colour,
    )  # fmt: skip


# ---------------------------------------------------------------------- by depth


def fig5(by_kind: ByKind, title: str, target: str = "z") -> Figure:
    """Figure 5. The same probes by depth: error over all held-out points of a depth.

    Lines are medians over networks, bands the range. Blocks overlap: their ratio to block 0 is below. Fresh values and
    permuted targets are those of the last block of trained networks. Depths of a constant target are left out. The
    paper's caption names the one-cluster dataset. Its text explains a fall beyond depth 100 by the few largest clusters
    that have latents so deep, which one cluster cannot show: the figure fits the multi-cluster data.
    """
    raw = by_kind[RAW][0]
    there = _mean_error(raw, target) >= LEAST_BASELINE
    depths = raw.depths[there]

    def errors(kind: str, name: str) -> Any:
        return np.stack([_by_depth(network, name, target)[there] for network in by_kind[kind]])

    with style.sheet():
        figure = style.new_figure(9.2, 6.6)
        grid = figure.subplots(2, 2, sharex=True, sharey="row", height_ratios=(1.7, 1))
        names = list(by_kind[TRAINED][0].squared)
        middles: list[Any] = []
        for column, (part, marker, _) in enumerate(STREAMS):
            top, bottom = grid[:, column]
            top.plot(depths, _mean_error(raw, target)[there], ":", color=GREY, linewidth=1.6, label="training mean")
            top.plot(depths, _by_depth(raw, RAW, target)[there], "-", color=INK, linewidth=1, label=label(RAW))
            layers = blocks(names, part)
            for kind, line in ((UNTRAINED, "--"), (TRAINED, "-")):
                if kind not in by_kind:
                    continue
                first = errors(kind, layers[0])
                for i, name in enumerate(layers):
                    values, colour = errors(kind, name), PALETTE[i % len(PALETTE)]
                    shade = colour if kind == TRAINED else _lighter(colour)
                    text = f"block {i}, {kind}"
                    _band(top, depths, values, line, shade, text, marker if kind == TRAINED else "")
                    if i:
                        _band(bottom, depths, values / first, line, shade, text, marker if kind == TRAINED else "")
                        middles.append(np.median(values / first, 0))
            _other_controls(top, by_kind, layers[-1], column, depths, there, target)
            bottom.axhline(1, color=PALETTE[0], linewidth=1)
            top.set_yscale("log")
            top.set_title("residual stream" if part == "residual" else "hidden layer", loc="left", color=GREY)
            bottom.set_xlabel("depth of the latent")
        grid[0, 0].set_ylabel("MSE over held-out points")
        grid[1, 0].set_ylabel("MSE / MSE at block 0")
        if middles:
            # A probe of few rows may have an extreme error; the limits keep the others visible.
            ratios = np.concatenate(middles)
            low, high = np.quantile(ratios, [0.02, 0.98])
            low, high = max(ratios.min(), low / 1.5), min(ratios.max(), high * 1.5)
            grid[1, 0].set_ylim(min(0.9, low - 0.1), max(1.1, high + 0.1))
        figure.suptitle(f"{title}: probes of the latent value $z$ by depth", x=0.02, ha="left", fontsize=10)
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _other_controls(axes: Axes, by_kind: ByKind, name: str, column: int, depths: Any, there: Any, target: str) -> None:
    """Draw random features of the same width, and fresh values and permuted targets on the last block."""
    trained = by_kind[TRAINED]
    draws = len(trained[0].at(f"{target}_redrawn"))
    for kind, colour, line, text in (
        ("redrawn", PURPLE, "-.", "last block, fresh values"),
        ("shuffled", GREY, "--", "last block, permuted targets"),
    ):
        values = [
            np.mean([_by_depth(network, name, f"{target}_{kind}", draw)[there] for network in trained], 0)
            for draw in range(draws)
        ]
        if values:
            _band(axes, depths, np.stack(values), line, colour, text, "")
    random = by_kind.get(RANDOM, ())
    if random:
        wide = list(random[0].squared)[column]
        values = [_by_depth(network, wide, target)[there] for network in random]
        _band(axes, depths, np.stack(values), "-.", INK, "random features", "")


def _by_depth(errors: ProbeErrors, name: str, target: str, draw: int = 0) -> Any:
    k = errors.at(target)[draw]
    with np.errstate(invalid="ignore"):
        return errors.by_depth(errors.squared[name][:, k]) / errors.by_depth(errors.n)


def _mean_error(errors: ProbeErrors, target: str) -> Any:
    k = errors.at(target)[0]
    with np.errstate(invalid="ignore"):
        return errors.by_depth(errors.baseline[:, k] * errors.n) / errors.by_depth(errors.n)


def _band(axes: Axes, x: Any, values: Any, line: str, colour: str, words: str, marker: str) -> None:
    axes.fill_between(x, values.min(0), values.max(0), color=colour, alpha=0.18, linewidth=0)
    axes.plot(x, np.median(values, 0), line, marker=marker, color=colour, markersize=3, linewidth=1.1, label=words)


def _lighter(colour: str) -> str:
    """Return a colour halfway to white."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{(part + 255) // 2:02x}" for part in parts)


# ---------------------------------------------------------------------- values or places


def memorising(seen: Sequence[Row], unseen: Sequence[Row], title: str) -> Figure:
    """Error of linear probes of z over that of predicting the training mean, with 95% intervals.

    Intervals are over seeds for true values, over draws for fresh ones (grey), which no network was trained on. Above:
    latents seen in training. Below: whole subtrees held out. A probe that reads a value does as well on unseen latents
    and worse on fresh values; one that has learned where latents are does as well on fresh values and no better than
    the mean on unseen latents.
    """
    unit = "error over that of the training mean (1: no better)"
    panels = [Panel(*_errors(seen), unit, f"{title}: latents seen in training, as in the paper", 1.0, log=True)]
    if unseen:
        panels.append(Panel(*_errors(unseen), unit, "whole subtrees held out, tuned penalty", 1.0))
    return dot_rows.draw(*panels)


def _errors(rows: Sequence[Row]) -> tuple[list[str], dict[str, dict[str, Mark]]]:
    """Return the representations, and by series the error on each: true values by role, and fresh values."""
    series: dict[str, dict[str, Mark]] = {TRAINED: {}, UNTRAINED: {}, "no network": {}, FRESH: {}}
    for r in select(rows, part=""):
        kind = r["kind"] if r["kind"] in series else "no network"
        if r["target"] == "z" or r["kind"] != UNTRAINED:
            e = r.estimate
            series[kind if r["target"] == "z" else FRESH][label(r["layer"])] = Mark(e.value, e.low, e.high)
    return [label(name) for name in layers_of(rows)], {k: v for k, v in series.items() if v}


# ---------------------------------------------------------------------- curves


def power(found: Mapping[str, Any], held_out: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Not in the paper. Error of planted signals on held-out subtrees; the table has how often they are found."""
    strengths, layer = found.get("strengths", ()), found.get("representation", "")
    measured = [row for row in held_out if (row["kind"], row["representation"]) == (TRAINED, layer)]
    series: dict[str, list[Row]] = {}
    for at in strengths:
        low, middle, high = found["null"]
        estimates = {
            "planted values": Estimate(at["error"], at["low"], at["high"]),
            "values that were not planted (null)": Estimate(middle, low, high),
        }
        if measured:
            estimates["true z, as the networks are"] = Estimate(measured[0]["error"], np.nan, np.nan)
        for name, estimate in estimates.items():
            series.setdefault(name, []).append(Row(estimate, {"at": at["strength"]}))
    axis = f"strength of the signal, in standard deviations of {label(layer)}"
    error = "MSE / MSE of the\ntraining mean"
    return by_number(
        series, "at", f"{title}: what held-out subtrees can detect", axis, error, zero=None, ticks=bool(strengths)
    )


def training(
    history: pandas.DataFrame, shorter: pandas.DataFrame | None, lines: Mapping[str, float], title: str
) -> Figure:
    """R² by epoch, means over networks, bands the range over seeds."""
    with style.sheet():
        figure = style.new_figure(7.4, 4.0)
        axes = figure.subplots()
        runs = [(history, "-", "")]
        if shorter is not None:
            runs.append((shorter, "--", f", {int(shorter['epoch'].max()):,} epochs"))
        for table, line, suffix in runs:
            for part, colour in (("train", PALETTE[0]), ("validation", PALETTE[5])):
                wide = table.pivot(index="epoch", columns="seed", values=f"{part}_r2")
                axes.fill_between(wide.index, wide.min(axis=1), wide.max(axis=1), color=colour, alpha=0.2, linewidth=0)
                name = {"train": "training rows", "validation": "validation rows"}[part] + suffix
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
