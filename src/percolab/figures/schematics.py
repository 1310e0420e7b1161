"""Explanatory figures without percolab's data: the Bethe lattice (2), the cyclic coalescent (3), hierarchies (6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import SeedSequence, default_rng
from numpy.typing import NDArray

from percolab import theory
from percolab.engines.paper.coalescent import FIRST_CLUSTER_CHILD
from percolab.ground.arrays import Floats, Ints
from percolab.ground.validation import check_integer, check_seed
from percolab.show import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: Share of occupied nodes, number of shells sampled, number of shells drawn, seed.
PROB, DEPTH, DRAWN_SHELLS, LATTICE_SEED = 0.6, 15, 7, 5
RUN_POINTS, RUN_SEED = 6, 3
#: Light versions of the palette for blocks; with their outlines they are distinguishable in grey.
FILLS = ("#cfe3f2", "#fbe3b5", "#bfe5d8", "#f0d9e6", "#dcdcdc", "#f6cdb8")
Tree = tuple[str, tuple["Tree", ...]]

CLASS_TREE: Tree = (
    "animal",
    (
        ("bird", (("owl", ()), ("robin", ()))),
        ("mammal", (("dog", (("beagle", ()), ("collie", ()))), ("cat", ()))),
    ),
)
PART_TREE: Tree = (
    "bicycle",
    (
        ("frame", (("fork", ()), ("seat post", ()))),
        ("wheel", (("tyre", ()), ("rim", ()), ("spoke", ()))),
    ),
)
FACTS = {
    "taxonomic": (
        ("unit", "sample"), ("description", "set inclusion"), ("relation", "IS-A"), ("semantics", "hyponymy"),
    ),
    "compositional": (
        ("unit", "feature"), ("description", "part and whole"), ("relation", "HAS-A"), ("semantics", "meronymy"),
    ),
}  # fmt: skip


def bethe_lattice(axes: Axes, quick: bool) -> None:
    """Draw a sample of a Bethe lattice: infinite clusters red, finite ones blue, empty nodes hollow.

    Fifteen shells are sampled and seven drawn; a cluster counts as infinite if it reaches the last shell sampled.
    """
    from matplotlib.collections import LineCollection

    parent, shell, angle = lattice(DEPTH)
    occupied, infinite = percolate(parent, shell, PROB, np.random.default_rng(LATTICE_SEED))
    radius = np.array([0, *np.cumsum(0.93 ** np.arange(shell.max()))])[shell]
    place = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    drawn = np.flatnonzero((shell <= DRAWN_SHELLS) & (parent >= 0))
    lines = np.stack([place[drawn], place[parent[drawn]]], axis=1)
    joined = occupied[drawn] & occupied[parent[drawn]]
    seen, red = shell <= DRAWN_SHELLS, joined & infinite[drawn]
    area = np.interp(shell, [0, DRAWN_SHELLS], [70, 9])
    kinds = (
        (~joined, style.FAINT, 0.7, seen & ~occupied, "o", "white", style.GREY, "empty"),
        (joined & ~red, style.BLUE, 1.6, seen & occupied & ~infinite, "s", style.BLUE, style.BLUE, "finite clusters"),
        (red, style.VERMILION, 2.6, seen & infinite, "o", style.VERMILION, style.VERMILION, "infinite clusters"),
    )
    for bonds, colour, width, nodes, mark, face, edge, label in kinds:
        axes.add_collection(LineCollection(list(lines[bonds]), colors=colour, linewidths=width, zorder=1))
        look: Any = {"marker": mark, "facecolor": face, "edgecolor": edge, "linewidths": 0.7, "zorder": 2}
        axes.scatter(place[nodes, 0], place[nodes, 1], area[nodes], label=label, **look)
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.margins(0.02)
    handles, labels = axes.get_legend_handles_labels()
    legend = axes.legend(handles[::-1], labels[::-1], loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=3)
    for handle in legend.legend_handles:
        handle.set_sizes([36])  # type: ignore[union-attr]
    axes.set_title(f"z = 3, p = {PROB} above the threshold p$_c$ = {theory.bethe_threshold(3):g}")


def lattice(depth: int) -> tuple[Ints, Ints, Floats]:
    """Return parent, shell and angle of every node of a Bethe lattice with z = 3, shell after shell from the centre."""
    parent, shell, angle = [np.array([-1])], [np.array([0])], [np.array([0.0])]
    first = 0
    for s in range(1, depth + 1):
        children = 3 if s == 1 else 2
        above = first + np.arange(parent[-1].size)
        parent.append(np.repeat(above, children))
        count = parent[-1].size
        shell.append(np.full(count, s))
        angle.append(2 * np.pi * (np.arange(count) + 0.5) / count + np.pi / 2)
        first += above.size
    return np.concatenate(parent), np.concatenate(shell), np.concatenate(angle)


def percolate(
    parent: Ints, shell: Ints, prob: float, rng: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Occupy nodes at random; return which are occupied, and which of these are connected to the last shell."""
    occupied = rng.random(parent.size) < prob
    infinite = occupied & (shell == shell.max())
    for node in range(parent.size - 1, 0, -1):  # up to the node of its cluster that is nearest to the centre
        if infinite[node] and occupied[parent[node]]:
            infinite[parent[node]] = True
    for node in range(1, parent.size):  # and down again to all other branches of the cluster
        if occupied[node] and infinite[parent[node]]:
            infinite[node] = True
    return occupied, infinite


# ---------------------------------------------------------------------- coalescent run
#
# Figure 3: a run of the cyclic coalescent, step by step.


@dataclass(frozen=True)
class State:
    """The coalescent between two steps."""

    cycle: tuple[int, ...]  #: points in the order of the cycle
    blocks: tuple[tuple[int, ...], ...]  #: positions on the cycle of each block, in order
    bonds: tuple[tuple[int, int], ...]  #: pairs of points joined so far, the last one last


def run(n: int, seed: int) -> list[State]:
    """Return every state of `percolab.engines.cyclic_coalescent(n, seed)`, from single points to one block.

    Arrange the points in a random cycle, each as its own block. At each step draw a uniform point u; with A its block
    and B the next block on the cycle, draw a uniform point v of B, join u and v, and merge A and B. Slow and simple.
    """
    n, seed = check_integer("n", n, 1), check_seed("seed", seed)
    positions, first, second = (
        default_rng(SeedSequence(seed, spawn_key=(FIRST_CLUSTER_CHILD, child))) for child in range(3)
    )
    cycle = list(range(n))
    positions.shuffle(cycle)
    chosen, share = first.integers(n, size=n - 1), second.random(n - 1)
    blocks = [[position] for position in range(n)]
    bonds: list[tuple[int, int]] = []
    states = [_state(cycle, blocks, bonds)]
    for u, f in zip(chosen.tolist(), share.tolist(), strict=True):
        a = next(i for i, block in enumerate(blocks) if u in block)
        b = (a + 1) % len(blocks)
        v = blocks[b][int(f * len(blocks[b]))]
        bonds.append((cycle[u], cycle[v]))
        blocks[a] = blocks[a] + blocks[b]
        del blocks[b]
        states.append(_state(cycle, blocks, bonds))
    return states


def _state(cycle: list[int], blocks: list[list[int]], bonds: list[tuple[int, int]]) -> State:
    return State(tuple(cycle), tuple(map(tuple, blocks)), tuple(bonds))


def coalescent_run(panels: Any, quick: bool) -> None:
    """Draw the states of a run of six points, one panel each."""
    for i, (axes, state) in enumerate(zip(panels.flat, run(RUN_POINTS, RUN_SEED), strict=True)):
        _draw_state(axes, state)
        what = "points in a random cycle"
        if i:
            u, v = state.bonds[-1]
            what = f"{u + 1} joins {v + 1} of the next block"
        style.panel_letter(axes, "abcdef"[i], what)


def _draw_state(axes: Axes, state: State) -> None:
    n = len(state.cycle)
    angle = np.pi / 2 - 2 * np.pi * np.arange(n) / n
    place = {point: np.array([np.cos(angle[i]), np.sin(angle[i])]) for i, point in enumerate(state.cycle)}
    circle = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.cos(circle), np.sin(circle), color=style.FAINT, linewidth=0.8, linestyle=(0, (2, 3)), zorder=0)
    for block in state.blocks:
        _draw_block(axes, block, n)
    for i, (u, v) in enumerate(state.bonds):
        ends = np.array([place[u], place[v]])
        last = i == len(state.bonds) - 1
        axes.plot(
            *ends.T, color=style.VERMILION if last else style.INK, linewidth=3 if last else 1.6,
            solid_capstyle="round", zorder=2,
        )  # fmt: skip
    chosen = set(state.bonds[-1]) if state.bonds else set()
    for point, at in place.items():
        edge = style.VERMILION if point in chosen else style.INK
        axes.scatter(
            at[0], at[1], s=210, facecolor="white", edgecolor=edge, linewidths=2.2 if point in chosen else 1, zorder=3
        )
        axes.text(at[0], at[1], str(point + 1), ha="center", va="center_baseline", fontsize=9, zorder=4)
    axes.set(xlim=(-1.45, 1.45), ylim=(-1.45, 1.45))
    axes.set_aspect("equal")
    axes.set_axis_off()


def _draw_block(axes: Axes, block: tuple[int, ...], n: int) -> None:
    """Draw a block as a band along its arc of the cycle, in the colour of its first position."""
    from matplotlib.patches import Wedge

    is_whole, first = len(block) == n, block[0] - 0.36
    last = first + n if is_whole else block[0] + len(block) - 1 + 0.36
    start, end = (90 - 360 * position / n for position in (first, last))
    look: Any = {"facecolor": FILLS[block[0] % len(FILLS)], "edgecolor": "none" if is_whole else style.GREY}
    axes.add_patch(Wedge((0, 0), 1.27, end, start, width=0.54, linewidth=0.8, zorder=1, **look))


# ---------------------------------------------------------------------- hierarchies
#
# Figure 6: two kinds of hierarchy. Classes that contain classes, and wholes that consist of parts.


def hierarchies(panels: Any, quick: bool) -> None:
    """Draw a tree of classes beside a tree of parts, with the difference between them."""
    left, right = panels
    _draw_tree(left, CLASS_TREE, style.BLUE, "#dcebf5", "is a", upwards=True)
    _draw_tree(right, PART_TREE, style.ORANGE, "#fdf1d8", "has a", upwards=False)
    for axes, letter, name in ((left, "a", "taxonomic"), (right, "b", "compositional")):
        style.panel_letter(axes, letter, name)
        for i, (key, value) in enumerate(FACTS[name]):
            axes.text(0.28, -0.2 - 0.085 * i, key, ha="right", fontsize=8.5, color=style.GREY)
            axes.text(0.32, -0.2 - 0.085 * i, value, ha="left", fontsize=8.5)
        axes.set(xlim=(-0.04, 1.04), ylim=(-0.5, 1.1))
        axes.set_axis_off()


def _leaves(tree: Tree) -> int:
    return sum(map(_leaves, tree[1])) or 1


def _height(tree: Tree) -> int:
    return 1 + max(map(_height, tree[1]), default=-1)


def _draw_tree(axes: Axes, tree: Tree, colour: str, fill: str, relation: str, *, upwards: bool) -> None:
    """Draw boxes from the top down, and arrows that read as a sentence: from subject to object of the relation."""
    levels = _height(tree)

    def place(node: Tree, left: float, right: float, level: int) -> tuple[float, float]:
        name, children = node
        x, y = (left + right) / 2, 1 - level / levels
        box = {"boxstyle": "round,pad=0.35", "facecolor": fill, "edgecolor": colour, "linewidth": 1.3}
        axes.text(x, y, name, ha="center", va="center", fontsize=9, bbox=box, zorder=3)
        at = left
        for child in children:
            width = (right - left) * _leaves(child) / _leaves(node)
            below = place(child, at, at + width, level + 1)
            _arrow(axes, below if upwards else (x, y), (x, y) if upwards else below)
            at += width
        return x, y

    place(tree, 0.0, 1.0, 0)
    axes.text(0.02, 1 - 0.5 / levels, relation, fontsize=9, style="italic", color=style.INK)


def _arrow(axes: Axes, tail: tuple[float, float], head: tuple[float, float]) -> None:
    shape = {"arrowstyle": "-|>", "color": style.INK, "linewidth": 1.0, "shrinkA": 13, "shrinkB": 14}
    axes.annotate("", xy=head, xytext=tail, arrowprops=shape, zorder=2)
