"""Figure 6: two kinds of hierarchy. Classes that contain classes, and wholes that consist of parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from percolab.show import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Tree = tuple[str, tuple["Tree", ...]]

CLASSES: Tree = (
    "animal",
    (
        ("bird", (("owl", ()), ("robin", ()))),
        ("mammal", (("dog", (("beagle", ()), ("collie", ()))), ("cat", ()))),
    ),
)
PARTS: Tree = (
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


def draw(quick: bool = False) -> Figure:
    """Draw a tree of classes beside a tree of parts, with what tells them apart."""
    figure = style.new_figure(9.0, 4.6)
    left, right = figure.subplots(1, 2)
    _draw_tree(left, CLASSES, style.BLUE, "#dcebf5", "is a", upwards=True)
    _draw_tree(right, PARTS, style.ORANGE, "#fdf1d8", "has a", upwards=False)
    for axes, letter, name in ((left, "a", "taxonomic"), (right, "b", "compositional")):
        style.panel_letter(axes, letter, name)
        for i, (key, value) in enumerate(FACTS[name]):
            axes.text(0.28, -0.2 - 0.085 * i, key, ha="right", fontsize=8.5, color=style.GREY)
            axes.text(0.32, -0.2 - 0.085 * i, value, ha="left", fontsize=8.5)
        axes.set_xlim(-0.04, 1.04)
        axes.set_ylim(-0.5, 1.1)
        axes.set_axis_off()
    return figure


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
