"""The paper's figures that need no trained network, and one more: ``percolab figures``.

One function draws each figure, from less data if `quick`: `schematics` has drawings that explain, `clusters_drawn`
figures of datasets, `samplers` figures that compare the two engines.
Needs matplotlib and networkx, in the extras ``plot`` and ``graphs``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from percolab.ground.files import PathLike, new_files
from percolab.ground.progress import Progress, shown
from percolab.show import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Drawing(NamedTuple):
    """A figure: the module and the function that draw its panels, its width and height in inches, and its panels."""

    module: str
    name: str
    size: tuple[float, float]
    panels: Mapping[str, Any] = MappingProxyType({})  #: for matplotlib's `subplots`


#: By number in the paper. The last one is not in the paper.
FIGURES = {
    1: Drawing("clusters_drawn", "data_model", (9.5, 4.4), {"ncols": 2, "width_ratios": [1.35, 1]}),
    2: Drawing("schematics", "bethe_lattice", (5.2, 5.9)),
    3: Drawing("schematics", "coalescent_run", (7.6, 5.4), {"nrows": 2, "ncols": 3}),
    6: Drawing("schematics", "hierarchies", (9.0, 4.6), {"ncols": 2}),
    8: Drawing("clusters_drawn", "cluster_sizes", (5.6, 4.0)),
    9: Drawing("samplers", "uniformity", (9.0, 3.7), {"ncols": 2}),
    10: Drawing("samplers", "timing", (9.0, 3.9), {"ncols": 2}),
    11: Drawing("clusters_drawn", "three_regimes", (10.5, 3.6), {"ncols": 4, "width_ratios": [1, 1, 1, 1.25]}),
}
FILE_FORMATS = ("png", "pdf")


OF_NETWORKS = (4, 5, 7)  #: Figures of the paper that show a trained network; ``percolab reproduce`` draws them.


def draw(number: int, *, quick: bool = False) -> Figure:
    """Return a figure by its number."""
    module, name, size, panels = FIGURES[_check(number)]
    with style.sheet():
        figure = style.new_figure(*size)
        getattr(import_module(f"percolab.figures.{module}"), name)(figure.subplots(**panels), quick)
        return figure


def write(
    output: PathLike,
    only: Sequence[int] = (),
    *,
    quick: bool = False,
    progress: bool | Progress = False,
) -> list[Path]:
    """Write figures as PNG and PDF into a folder; return the files.

    Parameters
    ----------
    output
        The folder, which is created if it does not exist.
    only
        Numbers of the figures; none means all.
    quick
        Draw from less data.
    progress
        True shows a bar; a function is called with ("figures", figures done, figures in all).
    """
    chosen = [_check(number) for number in only or FIGURES]
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with shown(progress) as tell:
        for done, number in enumerate(chosen):
            tell("figures", done, len(chosen))
            written += _write(number, folder, quick)
        tell("figures", len(chosen), len(chosen))
    return written


def _write(number: int, folder: Path, quick: bool) -> list[Path]:
    figure = draw(number, quick=quick)
    paths = [folder / f"figure{number:02d}_{FIGURES[number].name}.{form}" for form in FILE_FORMATS]
    with style.sheet(), new_files(*paths, overwrite=True) as files:
        for file, form in zip(files, FILE_FORMATS, strict=True):
            figure.savefig(file, format=form, metadata={"CreationDate": None} if form == "pdf" else None)
    return paths


def _check(number: int) -> int:
    if number not in FIGURES:
        elsewhere = ", which percolab reproduce draws" if number in OF_NETWORKS else ""
        raise ValueError(f"only must be one of {', '.join(map(str, FIGURES))}, got {number}{elsewhere}")
    return number
