"""One style for figures and pages: colours that everybody can distinguish, sizes that suit a page and half a slide."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from percolab.ground.extras import needing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure
    from matplotlib.text import Text

HERE = Path(__file__).parent


def text(name: str) -> str:
    """Return the text of a file of this package: styles of pages, a filter for figures."""
    return (HERE / name).read_text(encoding="utf-8")


#: Okabe and Ito's colours, distinguishable with any colour vision; colours used together also differ in lightness.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
#: The colours of items side by side, in this order; yellow is left out, since it is too faint for thin lines.
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION)
INK, GREY, MIDDLE, FAINT = "#222222", "#8a8a8a", "#b5b5b5", "#d5d5d5"
#: The colour of each role of a network, the same in all figures and pages, in the order of legends.
ROLES = {"trained": BLUE, "other": VERMILION, "untrained": ORANGE, "raw": GREEN, "permuted": GREY}
TRUTH = PURPLE  #: The colour of the truth, beside beliefs.
#: Other names of the roles, in figures of experiments.
ALIASES = {
    "own": "trained", "own lexicon": "trained", "relevant": "trained", "other lexicon": "other", "irrelevant": "other",
    "raw input": "raw", "no network": "raw", "chance": "permuted", "control": "permuted",
}  # fmt: skip
#: Words in the names of series that are drawn grey.
CONTROLS = ("null", "random", "unrelated", "fresh", "permuted", "on its training rows")
#: The colours of pages: reports and the explorer.
PAGE = {
    "light": {
        "ground": "#ffffff", "ink": INK, "quiet": "#5c5c5c", "line": "#d8d8d8", "soft": "#f3f3f3", "strong": "#005a8c",
        "rest": MIDDLE, "good": "#006b4f", "bad": "#b00020", "mixed": "#8a5a00",
    },
    "dark": {
        "ground": "#141414", "ink": "#e4e4e4", "quiet": "#a9a9a9", "line": "#404040", "soft": "#222222",
        "rest": "#4a4a4a", "strong": "#7cc4f0", "good": "#58c9a6", "bad": "#ff8189", "mixed": "#e2af55",
    },
}  # fmt: skip
#: A filter for figures on a dark page: greys are inverted, and the purer a colour is, the less it changes. A channel c
#: of a pixel becomes c + g (1 - 2 l), where l is the mean of its largest and its smallest channel and the greyness g is
#: 1 less their difference.
DARK_FIGURES = text("dark_figures.svg")
CROWDED = 200  #: From this ratio of its ends on, a logarithmic axis has labels only at powers of ten.
MATPLOTLIB = ("figures need", "plot")


@contextmanager
def sheet() -> Iterator[None]:
    """Draw in this style; matplotlib's settings are restored afterwards. Needs matplotlib, in the extra ``plot``."""
    with needing(*MATPLOTLIB):
        from matplotlib.style import context
    with context(str(HERE / "figures.mplstyle")):
        yield


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches, not registered with pyplot; notebooks show it all the same."""
    with needing(*MATPLOTLIB):
        from matplotlib.figure import Figure
    figure = Figure(figsize=(width, height), layout="constrained")
    figure._repr_png_ = partial(as_png, figure)  # type: ignore[attr-defined]
    return figure


def as_png(figure: Figure, dpi: int = 100) -> bytes:
    """Return a figure as the bytes of a PNG, for pages, notebooks and files; axis labels that are too long wrap."""
    png = _drawn(figure, dpi)
    labels = [label for axes in figure.axes for label in (axes.xaxis.label, axes.yaxis.label)]
    cut = {label: excess for label in labels if (excess := _excess(label, figure, dpi)) > 1}
    for label, excess in cut.items():
        label.set_text(_broken(label.get_text(), math.ceil(excess)))
    return _drawn(figure, dpi) if cut else png


def _drawn(figure: Figure, dpi: int) -> bytes:
    file = BytesIO()
    figure.savefig(file, format="png", dpi=dpi)
    return file.getvalue()


def _excess(label: Text, figure: Figure, dpi: int) -> float:
    """Return the ratio of the length of an axis label to the room for it, in a figure that has been drawn."""
    box, (width, height) = label.get_window_extent(dpi=dpi), dpi * figure.get_size_inches()
    low, high, room = (box.x0, box.x1, width) if label.get_rotation() == 0 else (box.y0, box.y1, height)
    middle = (low + high) / 2
    return float((high - low) / (2 * min(middle, room - middle)))


def _broken(text: str, lines: int) -> str:
    """Break a text into lines of about equal length; two lines break before a bracket if it is near the middle."""
    line = " ".join(text.split())
    first, bracket, _ = line.partition(" (")
    if lines == 2 and bracket and abs(len(first) / len(line) - 0.5) < 0.1:
        return line.replace(" (", "\n(", 1)
    return textwrap.fill(line, len(line) // lines + 4)


def css() -> str:
    """Return the colours of pages and of roles as CSS variables; on paper the light colours are used."""
    light, dark = (
        " ".join(f"--{name}: {colour};" for name, colour in colours.items())
        for colours in (PAGE["light"] | ROLES | {"truth": TRUTH}, PAGE["dark"])
    )
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    )


def series_colours(names: Sequence[str]) -> list[str]:
    """Return a colour for each series: its role's colour, grey for a control, else shades in the order of the names."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    roles = [name.rpartition(" - ")[2] for name in names]  # a contrast has the colour of its control
    grey = [GREY if any(word in name for word in CONTROLS) else "" for name in names]
    known = [ROLES.get(ALIASES.get(role, role), other) for role, other in zip(roles, grey, strict=True)]
    free = iter(np.linspace(0.3, 0.75, max(2, known.count(""))))
    return [colour or to_hex(colormaps["magma"](next(free))) for colour in known]


def colour_scale(low: float, high: float) -> ScalarMappable:
    """Return the colours of values in a range.

    0 is a grey that is visible on light and on dark, values below it are blue, values above it red. If 0 is outside the
    range, the colours are viridis.
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


def plain_numbers(axis: Axis) -> None:
    """Write the numbers of a logarithmic axis in full, only as many as fit."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < CROWDED * low else (1,)))
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    axis.set_minor_formatter(NullFormatter())


def panel_letter(axes: Axes, letter: str, title: str = "") -> None:
    """Put a panel's letter, and its title if any, above its left corner."""
    axes.set_title(f"({letter})  {title}".rstrip(), loc="left")
