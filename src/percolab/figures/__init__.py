"""The paper's figures that show data alone, with no neural network, drawn anew: ``percolab figures``.

One module for each figure, with a function ``draw(quick)`` that returns it; `quick` draws it from less data.
Needs matplotlib, networkx and powerlaw, in the extras ``plot``, ``graphs`` and ``verify``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from percolab.ground.files import new_files
from percolab.show import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODULES = {
    1: "data_model",
    2: "bethe_lattice",
    3: "coalescent_run",
    6: "hierarchies",
    8: "cluster_sizes",
    9: "uniformity",
    10: "timing",
}
"""Number of the figure in the paper, and the module that draws it."""
FORMATS = ("png", "pdf")


def draw(number: int, *, quick: bool = False) -> Figure:
    """Return a figure of the paper by its number."""
    if number not in MODULES:
        raise ValueError(f"only must be one of {', '.join(map(str, MODULES))}, got {number}")
    module = import_module(f"percolab.figures.{MODULES[number]}")
    with style.sheet():
        figure: Figure = module.draw(quick)
        return figure


def write(
    folder: str | os.PathLike[str],
    numbers: Sequence[int] = (),
    *,
    quick: bool = False,
    done: Callable[[Path], None] | None = None,
) -> list[Path]:
    """Write figures as PNG and PDF into a folder, all of them if none are named; return the files."""
    chosen = list(numbers) or list(MODULES)
    for number in chosen:
        if number not in MODULES:
            raise ValueError(f"only must be one of {', '.join(map(str, MODULES))}, got {number}")
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for number in chosen:
        figure = draw(number, quick=quick)
        paths = [place / f"figure{number:02d}_{MODULES[number]}.{form}" for form in FORMATS]
        with style.sheet(), new_files(*paths, overwrite=True) as files:
            for file, form in zip(files, FORMATS, strict=True):
                figure.savefig(file, format=form, metadata={"CreationDate": None} if form == "pdf" else None)
        for path in paths:
            written.append(path)
            if done is not None:
                done(path)
    return written
