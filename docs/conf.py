"""How Sphinx builds the documentation: ``make docs``."""

import hashlib
import json
import os
import re
import sys
from html import escape
from pathlib import Path
from textwrap import shorten

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

ROOT = Path(__file__).parent.parent

# Pages are run again when the library has changed, and with kernels compiled from it: see CONTRIBUTING.md.
SOURCES = sorted(path for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".js", ".css", ".html"))
STATE = hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()[:16]
os.environ["NUMBA_CACHE_DIR"] = str(ROOT / "build" / "numba" / STATE)
os.environ["PYTHONPATH"] = str(ROOT / "src")  # for the pages, which are run in other folders
os.environ["OMP_NUM_THREADS"] = "1"  # their networks are small: more threads would wait for each other
sys.path.insert(0, str(ROOT / "src"))
LIVE = ROOT / "build" / "live" / STATE
(LIVE / "live").mkdir(parents=True, exist_ok=True)

project = "percolab"
author = "The percolab developers"
copyright = author  # noqa: A001  # the name is Sphinx's
release = version = re.search(r'__version__ = "(.+)"', (ROOT / "src/percolab/ground/version.py").read_text())[1]

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build"]

# ---------------------------------------------------------------------- pages

myst_heading_anchors = 3
myst_enable_extensions = ["alert", "colon_fence"]
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "build" / "pages" / STATE)
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_output_stderr = "remove"  # progress, and that kernels are compiled
copybutton_exclude = ".linenos, .gp, .go"

# ---------------------------------------------------------------------- reference

default_role = "py:obj"  # docstrings name things in single backticks
autosummary_generate = False  # tables alone; the entries are on the same page
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_type_aliases = {
    name: name
    for name in ("ArrayLike", "DTypeLike", "Floats", "Ints", "Location", "NDArray", "PathLike", "Progress", "SeedsLike")
}
autodoc_class_signature = "mixed"
napoleon_google_docstring = False
napoleon_use_rtype = False
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"

# ---------------------------------------------------------------------- looks

MOST_COLUMNS = 8  # of numbers, side by side; all tables of text have fewer

html_theme = "pydata_sphinx_theme"
html_title = "percolab"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["percolab.css"]
html_js_files = ["pictures.js"]
html_extra_path = [str(LIVE)]
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {
    page: []
    for page in ("index", "install", "start", "experiments", "explorer", "command-line", "results/**", "changelog")
}
html_theme_options = {
    "navbar_align": "left",
    "show_nav_level": 1,
    "navigation_depth": 2,
    "show_toc_level": 2,
    "header_links_before_dropdown": 10,
    "navbar_persistent": ["search-button"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}

# ---------------------------------------------------------------------- what autodoc and napoleon get wrong

_WRITTEN: dict[str, list[str]] = {}


def _keep(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    _WRITTEN[name] = list(lines)


def _restore(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Undo what napoleon, which runs between the two, does to fields: it takes words before a colon for a type."""
    if what in ("attribute", "property"):
        lines[:] = _WRITTEN[name]


def _name_aliases(app: Sphinx, what: str, name: str, *given: object) -> tuple[str | None, ...]:
    """Show an alias that is part of a union by its name, as others are."""
    return tuple(re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text) if text else None for text in given[2:])


def _refuse_plain_figures(app: Sphinx, exception: Exception | None) -> None:
    """Fail where a page shows the repr of a figure in place of the figure."""
    pages = sorted(Path(app.outdir).rglob("*.html")) if exception is None else []
    if plain := [page.name for page in pages if "&lt;Figure size" in page.read_text(encoding="utf-8")]:
        raise ExtensionError(f"pages must show figures, got their reprs in {', '.join(plain)}")


def _describe(app: Sphinx, page: str, template: str, context: dict[str, object], tree: nodes.document | None) -> None:
    """Give a page its first paragraph as the description that search engines and previews of links show."""
    first = next(iter(tree.findall(nodes.paragraph)), None) if tree else None
    text = " ".join(first.astext().split()) if first else f"percolab: {context.get('title', page)}"
    tag = f'<meta name="description" content="{escape(shorten(text, 160, placeholder=" …"))}">'
    context["metatags"] = f"{context.get('metatags', '')}{tag}\n"


def _explorers(app: Sphinx) -> None:
    """Make the explorers that the pages show: one cluster with the features of k-means, and documents."""
    import percolab as pl
    from percolab.features import KMeans, score

    points, documents = LIVE / "live" / "explorer.html", LIVE / "live" / "documents.html"
    if not points.exists():
        dataset = pl.generate(pl.Recipe(n_points=4000, dim=30, mode="one_cluster", seeds=7))
        codes = KMeans(48).fit(dataset.X).encode(dataset.X)
        name, found = "One cluster of 4,000 points", score(dataset, codes, ratio=1)
        pl.show.explore(dataset, codes=codes, scores=found, name=name, features_name="k-means").save(points)
    if not documents.exists():
        lexicons = [pl.Recipe(n_points=512, dim=2, mode="one_cluster", seeds=seed) for seed in (1, 2)]
        corpus = pl.Corpus(lexicons, length=64, min_size=24, seed=1)
        pl.show.explore(corpus, name="Documents", n_points=64 * 40).save(documents)


def _mark_first_picture(app: Sphinx, tree: nodes.document) -> None:
    """Mark the picture that opens a page of results: where there is room, text and table stand beside it."""
    page = app.env.docname
    if page.startswith("results/") and not page.endswith(("README", "-details")):
        next(iter(tree.findall(nodes.image)))["classes"].append("opening")


def _keep_intervals_whole(app: Sphinx, tree: nodes.document) -> None:
    """Keep ± and the number after it on one line of a narrow table, and where there is room (a to b) too."""
    for cell in tree.findall(nodes.entry):
        for text in list(cell.findall(nodes.Text)):
            if "± " in text:
                text.parent.replace(text, nodes.Text(text.replace("± ", "±\u00a0")))
            elif found := re.fullmatch(r"(\S* )(\(\S+ to \S+\))", text):
                text.parent.replace(text, [nodes.Text(found[1]), nodes.inline("", found[2], classes=["interval"])])


def _split_wide_tables(app: Sphinx, tree: nodes.document) -> None:
    """Show a table of many columns as several below each other, each with the first column, as reports do."""
    for table in list(tree.findall(nodes.table)):
        group = table.next_node(nodes.tgroup)
        count = group["cols"] - 1
        parts = -(-count // MOST_COLUMNS)
        edges = [1 + count * part // parts for part in range(parts + 1)]
        pieces = [table.deepcopy() for _ in range(parts)]
        for piece, lo, hi in zip(pieces, edges, edges[1:], strict=False):
            own = piece.next_node(nodes.tgroup)
            own["cols"] = 1 + hi - lo
            columns = [node for node in own.children if isinstance(node, nodes.colspec)]
            for line in (columns, *(row.children[:] for row in own.findall(nodes.row))):
                for i, cell in enumerate(line):
                    if i and not lo <= i < hi:
                        cell.parent.remove(cell)
        if parts > 1:
            table.replace_self(pieces)


def _figures_in_the_dark(app: Sphinx) -> None:
    """Give every page the filter that its figures have on a dark ground, as reports have it."""
    from percolab.show.style import DARK_FIGURES

    add = f"document.body.insertAdjacentHTML('beforeend', {json.dumps(DARK_FIGURES)})"
    app.add_js_file(None, body=f"document.addEventListener('DOMContentLoaded', () => {add})")


def setup(app: Sphinx) -> None:
    """Run around napoleon, whose priority is 500; look at the pages when they are there."""
    app.connect("builder-inited", _explorers)
    app.connect("builder-inited", _figures_in_the_dark)
    app.connect("doctree-read", _mark_first_picture)
    app.connect("doctree-read", _keep_intervals_whole)
    app.connect("doctree-read", _split_wide_tables)
    app.connect("html-page-context", _describe)
    app.connect("build-finished", _refuse_plain_figures)
    app.connect("autodoc-process-docstring", _keep, priority=400)
    app.connect("autodoc-process-docstring", _restore, priority=600)
    app.connect("autodoc-process-signature", _name_aliases)
