"""Figures of the samplers of trees: uniform trees and their degrees (9), and the time that a tree takes (10)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from percolab import theory
from percolab.engines import paper
from percolab.engines.clusters import Clusters
from percolab.engines.native import growth, split_forest
from percolab.engines.paper.coalescent import cyclic_coalescent
from percolab.ground import parallel
from percolab.ground.arrays import Floats, Ints
from percolab.ground.progress import silent
from percolab.model.forest import Forest
from percolab.model.recipe import Seeds
from percolab.show import style

if TYPE_CHECKING:
    import networkx
    from matplotlib.axes import Axes


TREES, TREE_POINTS, LARGE_TREE = 500_000, 6, 1_000_000
Sampler = Callable[[int, int], Any]
ENGINE_OF = {"cyclic coalescent": "paper", "top-down splitting": "native"}

TRIALS = 5
#: Least and largest number of points, and how many numbers in between, ends included.
OURS, BASELINES = (100, 1_000_000, 9), (100, 100_000, 7)
SLOPE_FROM = 3000  #: Least size in the fit of slopes: below it, the function call takes most of the time.


def uniformity(panels: Any, quick: bool) -> None:
    """Draw counts of Prüfer codes of 500,000 trees of 6 points, and degrees of a tree of a million."""
    codes, degrees = panels
    _draw_codes(codes, TREES // 10 if quick else TREES)
    _draw_degrees(degrees, LARGE_TREE // 20 if quick else LARGE_TREE)


def _draw_codes(axes: Axes, n_trees: int) -> None:
    from scipy.stats import poisson

    cells = theory.tree_count(TREE_POINTS)
    mean = n_trees / cells
    width = max(1, round(mean**0.5 / 3))
    reach = int(4.5 * mean**0.5 / width) * width
    edges = np.arange(round(mean) - reach, round(mean) + reach + 1, width) - 0.5
    middle = (edges[1:] + edges[:-1]) / 2
    counts = {}
    for name, engine in ENGINE_OF.items():
        times = tree_counts(small_forest(engine, TREE_POINTS, n_trees, 0), TREE_POINTS)
        counts[name], _ = np.histogram(np.append(times, np.zeros(cells - times.size)), edges)
    _draw_counts(axes, middle, counts, 0.3 * width)
    expected = cells * np.diff(poisson.cdf(edges, mean))
    axes.plot(middle, expected, ":", color=style.BLACK, label=f"Poisson, mean {mean:.1f}")
    axes.set(
        xlabel=f"times a code occurred, of {n_trees:,} trees",
        ylabel=f"number of codes, of {cells:,}",
        ylim=(0, axes.get_ylim()[1] * 1.3),
    )
    axes.legend(loc="upper right")
    style.panel_letter(axes, "a", f"Prüfer codes, n = {TREE_POINTS}")


def small_forest(engine: str, size: int, n_trees: int, seed: int) -> Forest:
    """Return a forest of many clusters of the same size, grown by the sampler of an engine as in a dataset."""
    table = Clusters(np.arange(n_trees + 1) * size, np.arange(n_trees), np.arange(n_trees * size))
    threads = parallel.thread_count(None)
    if engine == "native":
        return growth.grow_forest(table, np.uint64(seed), threads)
    grown, _ = paper.grow(Seeds.from_int(seed), table, 0, "float64", threads, silent)
    return grown.forest


def tree_counts(forest: Forest, size: int) -> Ints:
    """Return how often each labelled tree that occurs does so, in a forest of clusters of one size.

    Each tree has one Prüfer code, so the codes are counted. Labels are the ranks of birth numbers.
    """
    label = np.argsort(np.argsort(forest.point_id.reshape(-1, size))).ravel()
    bonds = np.sort(label[forest.bond]).reshape(-1, size - 1, 2) @ [size, 1]
    return np.unique(np.sort(bonds) @ (size * size) ** np.arange(size - 1), return_counts=True)[1]


def _draw_degrees(axes: Axes, n: int) -> None:
    k = np.arange(1, 12)
    degrees = {name: np.bincount(TREE_METHODS[name].sample(n, 0).bond.ravel(), minlength=n) for name in ENGINE_OF}
    _draw_counts(axes, k, {name: np.bincount(degree, minlength=12)[1:12] for name, degree in degrees.items()}, 0.16)
    axes.plot(k, n * theory.degree_law(k), ":", color=style.BLACK, label="1 + Poisson(1)")
    axes.set(yscale="log", ylim=(0.3, 3 * n), xticks=k, xlabel="degree", ylabel="number of points")
    axes.legend(loc="upper right")
    style.panel_letter(axes, "b", f"degrees, n = {n:,}")


def _draw_counts(axes: Axes, x: NDArray[Any], counts: dict[str, Ints], apart: float) -> None:
    """Draw the counts of each sampler with their standard errors, side by side; counts of 0 are left out."""
    for i, (name, count) in enumerate(counts.items()):
        seen = count > 0
        place = (x + (i - 0.5) * apart)[seen]
        axes.errorbar(place, count[seen], np.sqrt(count[seen]), capsize=1.5, label=name, **TREE_METHODS[name].look)


# ---------------------------------------------------------------------- timing
#
# Figure 10: the time to sample a tree, for both samplers and two linear baselines.


def plain_loop(n: int, seed: int) -> networkx.Graph:
    """Return a graph with n - 1 random edges, added one by one: a baseline for the cost of building a graph."""
    import networkx

    graph = networkx.empty_graph(n)
    for a, b in np.random.default_rng(seed).integers(0, n, size=(n - 1, 2)).tolist():
        graph.add_edge(a, b)
    return graph


def networkx_tree(n: int, seed: int) -> networkx.Graph:
    """Return a uniform labelled tree, from a Prüfer code."""
    import networkx

    return networkx.random_labeled_tree(n, seed=seed)


class Method(NamedTuple):
    """A way to sample a tree, the sizes at which it is timed, and its style in the figure."""

    sample: Sampler
    sizes: tuple[int, int, int]
    colour: str
    mark: str

    @property
    def look(self) -> dict[str, Any]:
        """Marks, for matplotlib's errorbar."""
        return {"fmt": self.mark, "markersize": 4.5, "color": self.colour}


TREE_METHODS = {
    "cyclic coalescent": Method(cyclic_coalescent, OURS, style.BLUE, "o"),
    "top-down splitting": Method(split_forest, OURS, style.ORANGE, "s"),
    "networkx random_labeled_tree": Method(networkx_tree, BASELINES, style.GREEN, "^"),
    "plain graph-building loop": Method(plain_loop, BASELINES, style.PURPLE, "D"),
}


def measure(sample: Sampler, sizes: Ints, trials: int) -> Floats:
    """Return the seconds of each trial at each size; a first call, which may compile, is not counted."""
    sample(16, 0)
    seconds = np.empty((sizes.size, trials))
    for trial in range(trials):  # all sizes in turn, so that a busy moment does not affect only one size
        for i, n in enumerate(sizes.tolist()):
            start = time.perf_counter()
            sample(n, trial)
            seconds[i, trial] = time.perf_counter() - start
    return seconds


def timing(panels: Any, quick: bool) -> None:
    """Draw seconds against n for all methods, with fitted slopes, and all methods relative to the plain loop."""
    absolute, relative = panels
    *others, base = TREE_METHODS
    measured = {}
    for name, method in TREE_METHODS.items():
        least, most, count = method.sizes
        sizes = np.unique(np.geomspace(least, 3000 if quick else most, 4 if quick else count).astype(int))
        measured[name] = sizes, measure(method.sample, sizes, 2 if quick else TRIALS)
        _draw_times(absolute, name, *measured[name])
    base_sizes, base_seconds = measured[base]
    for name in others:
        sizes, seconds = measured[name]
        shared = np.isin(sizes, base_sizes)
        ratio = np.median(seconds[shared], axis=1) / np.median(base_seconds[np.isin(base_sizes, sizes)], axis=1)
        relative.errorbar(sizes[shared], ratio, linestyle="-", label=name, **TREE_METHODS[name].look)
    relative.axhline(1, color=TREE_METHODS[base].colour, linestyle="--", linewidth=1.2, label=base)
    for axes in (absolute, relative):
        axes.set(xscale="log", yscale="log", xlabel="number of points n")
    absolute.set_ylabel(f"seconds, median and range of {TRIALS} trials")
    absolute.set_ylim(top=absolute.get_ylim()[1] * 30)
    absolute.legend(loc="upper left", fontsize=7.5)
    relative.set_ylabel("time / time of the plain loop")
    relative.legend(loc="best", fontsize=7.5)
    style.panel_letter(absolute, "a", "time to sample one tree")
    style.panel_letter(relative, "b", "relative to the plain loop")


def _draw_times(axes: Axes, name: str, sizes: Ints, seconds: Floats) -> None:
    middle, label = np.median(seconds, axis=1), name
    spread = [middle - seconds.min(axis=1), seconds.max(axis=1) - middle]
    fitted = sizes >= SLOPE_FROM
    if fitted.sum() >= 3:
        slope, offset = np.polyfit(np.log(sizes[fitted]), np.log(middle[fitted]), 1)
        line = np.exp(offset) * sizes[fitted] ** slope
        axes.plot(sizes[fitted], line, "--", color=style.BLACK, linewidth=0.9, zorder=1)
        label = f"{name}, slope {slope:.2f}"
    axes.errorbar(sizes, middle, spread, capsize=2, label=label, linestyle="none", **TREE_METHODS[name].look)
