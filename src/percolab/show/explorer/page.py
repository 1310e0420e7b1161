"""The page: empty Bokeh figures, with percolab's scripts, its style and the packed data in one file.

Bokeh draws points, rectangles and axes, and zooms; the scripts in ``browser/`` fill its sources and link space and
trees. Text from a dataset is only in the packed data, and the scripts show it as text. The page's security policy
forbids it to load anything.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from percolab.ground.extras import needing
from percolab.show import style

if TYPE_CHECKING:
    from bokeh.models import ColumnDataSource

#: The scripts, in the order in which they are loaded.
SCRIPTS = (
    "unpack", "trees", "points", "features", "colours", "space", "icicle", "panel", "table", "tips", "lasso", "address",
    "explorer", "controls",
)  # fmt: skip
#: What a feature does on a point, marked by shape and by colour.
MARKS = {
    "hits": ("circle", style.BLUE),
    "missed": ("x", style.ORANGE),
    "absorbed": ("triangle", style.VERMILION),
    "added": ("diamond", style.PURPLE),
}


def text(name: str) -> str:
    """Return the text of a file of the page."""
    return style.text(f"explorer/browser/{name}")


def script(names: Sequence[str]) -> str:
    """Return several scripts as one, preceded by the colours of figures."""
    colours = {
        name: getattr(style, name) for name in ("BLUE", "ORANGE", "GREEN", "PURPLE", "SKY", "VERMILION", "MIDDLE")
    }
    known = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in colours.items())
    marks = json.dumps({name: colour for name, (_, colour) in MARKS.items()})
    return f"{known}const MARKS = {marks};\n" + "\n".join(text(f"{name}.js") for name in names)


def build(data: bytes, n_trees: int, *, title: str, served: bool = False) -> str:
    """Return the page of packed data, with a figure of space and `n_trees` trees; a served page can request more."""
    with needing("the explorer needs", "explore", "Bokeh"):
        from bokeh.document import Document
        from bokeh.embed import file_html
        from bokeh.models import CustomJS
        from bokeh.resources import Resources
        from jinja2 import Template
    document = Document()
    for figure in (_space(), *(_tree(k, n_trees) for k in range(n_trees))):
        document.add_root(figure)
    document.js_on_event("document_ready", CustomJS(code="percolabExplorer.start(cb_obj)"))
    return file_html(
        document,
        Resources(mode="inline"),
        title,
        template=Template(text("page.html")),
        template_variables={
            "style": style.css() + text("style.css"),
            "script": script(SCRIPTS),
            "data": base64.b64encode(data).decode(),
            "served": served,
            "n_trees": n_trees,
        },
    )


# ---------------------------------------------------------------------- figures


def _space() -> Any:
    """Return the figure of points: all points, fewer while it moves, the selected points, and a feature's marks."""
    from bokeh.models import LinearColorMapper

    space = _figure("space", "pan,wheel_zoom", "wheel_zoom", output_backend="webgl")
    mapper = LinearColorMapper(
        palette=[style.MIDDLE], low=0, high=1, nan_color=f"{style.MIDDLE}50", name="space_colours"
    )
    shade = {"field": "value", "transform": mapper}
    for name in ("cloud", "thin", "picked"):
        dots = space.scatter("x", "y", source=_source(name, "x", "y", "value"), fill_color=shade, line_color=None)
        dots.name = f"{name}_dots"
    for name, (marker, colour) in MARKS.items():
        hollow = marker == "x"
        marks = space.scatter("x", "y", source=_source(name, "x", "y"), marker=marker, size=7, fill_color=colour)
        marks.glyph.line_color, marks.glyph.line_width = (colour, 1.5) if hollow else (None, 0)
        marks.name = f"{name}_dots"
    ring = space.scatter("x", "y", source=_source("ring", "x", "y"), size=14, fill_color=None, line_width=2.5)
    ring.name = "ring_dots"
    for axis in (*space.xaxis, *space.yaxis):
        axis.ticker.desired_num_ticks = 4
    return space


def _tree(factor: int, n_trees: int) -> Any:
    """Return the figure of a hierarchy: rectangles, the selected one, and under them where a feature fires.

    Several hierarchies lie one below the other, and only the last one labels the horizontal axis.
    """
    from bokeh.models import CustomJSTickFormatter, LinearColorMapper

    tree = _figure(f"tree{factor}", "xpan,xwheel_zoom", "xwheel_zoom", y_axis_type="log")
    mapper = LinearColorMapper(palette=[style.MIDDLE], low=0, high=1, nan_color=style.MIDDLE, name=f"colours{factor}")
    edges = {"left": "left", "right": "right", "bottom": "bottom", "top": "top"}
    sides = tuple(edges)
    rectangles = tree.quad(
        **edges,
        source=_source(f"rectangles{factor}", *sides, "value"),
        fill_color={"field": "value", "transform": mapper},
        line_color="#ffffff",
        line_width=0.4,
    )
    rectangles.name = f"rectangles{factor}_quads"
    tree.quad(
        **edges, source=_source(f"strip{factor}", *sides, "colour", "alpha"), fill_color="colour", fill_alpha="alpha",
        line_color=None,
    )  # fmt: skip
    chosen = tree.quad(**edges, source=_source(f"chosen{factor}", *sides), fill_color=None, line_width=2.5)
    chosen.name = f"chosen{factor}_quads"
    count = "return tick >= 1e6 ? tick / 1e6 + ' M' : tick >= 1e4 ? tick / 1e3 + ' k' : String(tick)"
    for axis in (*tree.xaxis, *tree.yaxis):
        axis.formatter = CustomJSTickFormatter(code=count)
    tree.xaxis.ticker.desired_num_ticks = 4
    tree.yaxis.axis_label = "points"
    if factor == n_trees - 1:
        tree.xaxis.axis_label = "row, in leaf order"
    return tree


def _figure(name: str, tools: str, scroll: str, **options: Any) -> Any:
    """Return an empty figure with a transparent background, so that it suits a light and a dark page."""
    from bokeh.models import Range1d
    from bokeh.plotting import figure

    plot = figure(
        name=name,
        tools=tools,
        active_scroll=scroll,
        toolbar_location=None,
        sizing_mode="stretch_both",
        x_range=Range1d(0, 1),
        y_range=Range1d(0.5, 1),
        min_border=4,
        **options,
    )
    plot.background_fill_alpha = plot.border_fill_alpha = 0
    plot.outline_line_color = None
    plot.grid.visible = False
    for axis in (*plot.xaxis, *plot.yaxis):
        axis.minor_tick_line_color = None
        axis.axis_label_text_font_style = "normal"
    return plot


def _source(name: str, *columns: str) -> ColumnDataSource:
    from bokeh.models import ColumnDataSource

    return ColumnDataSource({column: [] for column in columns}, name=name)
