"""Figure 3: a run of the cyclic coalescent, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.random import SeedSequence, default_rng

from percolab.engines.paper.coalescent import FIRST_CLUSTER_CHILD
from percolab.ground.validation import check_integer, check_seed
from percolab.show import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS, SEED = 6, 3
FILLS = ("#cfe3f2", "#fbe3b5", "#bfe5d8", "#f0d9e6", "#dcdcdc", "#f6cdb8")
"""Light versions of the palette for blocks, dark enough to tell apart in grey with their outlines."""


@dataclass(frozen=True)
class State:
    """The coalescent between two steps."""

    cycle: tuple[int, ...]
    """points in the order of the cycle"""
    blocks: tuple[tuple[int, ...], ...]
    """positions on the cycle of each block, in order"""
    bonds: tuple[tuple[int, int], ...]
    """pairs of points joined so far, the last one last"""


def run(n: int, seed: int) -> list[State]:
    """Return every state of `percolab.engines.cyclic_coalescent(n, seed)`, from single points to one block.

    Arrange the points in a random cycle, each a block of its own. At each step draw a uniform point u; with A its block
    and B the next block on the cycle, draw a uniform point v of B, join u and v, and merge A and B. Slow and plain.
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


def draw(quick: bool = False) -> Figure:
    """Draw the states of a run of six points, one panel each."""
    states = run(POINTS, SEED)
    figure = style.new_figure(7.6, 5.4)
    panels = figure.subplots(2, 3)
    for i, (axes, state) in enumerate(zip(panels.flat, states, strict=True)):
        _draw_state(axes, state)
        what = "points in a random cycle"
        if i:
            u, v = state.bonds[-1]
            what = f"{u + 1} joins {v + 1} of the next block"
        style.panel_letter(axes, "abcdef"[i], what)
    return figure


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
    axes.set_xlim(-1.45, 1.45)
    axes.set_ylim(-1.45, 1.45)
    axes.set_aspect("equal")
    axes.set_axis_off()


def _draw_block(axes: Axes, block: tuple[int, ...], n: int) -> None:
    """Draw a block as a band along its arc of the cycle; its colour is that of its first position."""
    half = 0.36 * 2 * np.pi / n
    start = np.pi / 2 - 2 * np.pi * block[0] / n + half
    end = np.pi / 2 - 2 * np.pi * (block[0] + len(block) - 1) / n - half
    if len(block) == n:
        end = start - 2 * np.pi
    arc = np.linspace(start, end, 120)
    outer, inner = 1.27, 0.73
    x = np.concatenate([outer * np.cos(arc), inner * np.cos(arc[::-1])])
    y = np.concatenate([outer * np.sin(arc), inner * np.sin(arc[::-1])])
    edge = "none" if len(block) == n else style.GREY
    axes.fill(x, y, facecolor=FILLS[block[0] % len(FILLS)], edgecolor=edge, linewidth=0.8, zorder=1)
