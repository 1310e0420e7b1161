"""One style for all figures: colours that everybody can tell apart, sizes that fit a page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any

from percolab.ground.extras import needing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
"""Okabe and Ito's colours, told apart with any colour vision; those used together also differ in lightness."""
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION)
"""The colours of things side by side, in this order; yellow is left out, too faint for thin lines."""
ROLES = {"trained": BLUE, "untrained": ORANGE, "raw": GREEN, "other": VERMILION, "permuted": "#8a8a8a"}
"""The colour of each role of a network, the same in all figures."""
INK, GREY, MIDDLE, FAINT = "#222222", "#8a8a8a", "#b5b5b5", "#d5d5d5"
MATPLOTLIB = ("figures need", "plot")

SHEET: Any = {
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "pdf.fonttype": 42,
    "svg.hashsalt": "percolab",
}


@contextmanager
def sheet() -> Iterator[None]:
    """Draw in this style, and leave matplotlib's settings as they were. Needs matplotlib, in the extra ``plot``."""
    with needing(*MATPLOTLIB):
        import matplotlib
    with matplotlib.rc_context(SHEET):
        yield


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches, not registered with pyplot; notebooks show it all the same."""
    with needing(*MATPLOTLIB):
        from matplotlib.figure import Figure
    figure = Figure(figsize=(width, height), layout="constrained")
    figure._repr_png_ = partial(as_png, figure)  # type: ignore[attr-defined]
    return figure


def as_png(figure: Figure, dpi: int = 100) -> bytes:
    """Return a figure as the bytes of a PNG, for pages and notebooks."""
    file = BytesIO()
    figure.savefig(file, format="png", dpi=dpi)
    return file.getvalue()


def colour_scale(low: float, high: float) -> ScalarMappable:
    """Return the colours of values in a range.

    0 is a grey that can be seen on light and on dark, what is below it blue, what is above it red. Where 0 is outside
    of the range it means nothing, and the colours are viridis.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    if low < 0 < high:
        low, high = -max(-low, high), max(-low, high)
        shades: Any = LinearSegmentedColormap.from_list("signed", [BLUE, MIDDLE, VERMILION])
    elif low == 0:
        shades = LinearSegmentedColormap.from_list("rising", [MIDDLE, VERMILION])
    else:
        shades = "viridis"
    return ScalarMappable(Normalize(low, high if high > low else low + 1), shades)


def panel_letter(axes: Axes, letter: str, title: str = "") -> None:
    """Put a panel's letter, and its title if any, above its left corner."""
    axes.set_title(f"({letter})  {title}".rstrip(), loc="left")
