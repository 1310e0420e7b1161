"""The commands ``percolab draw`` and ``percolab figures``: a dataset's pictures, and the paper's."""

from __future__ import annotations

import re
from pathlib import Path, PurePath
from typing import Annotated, Any

import typer

from percolab.cli.errors import command
from percolab.cli.options import Factor, Overwrite, Store, integer, number_option, output_option, word_option
from percolab.cli.output import print_wrote
from percolab.corpora.collection import StoredDocuments
from percolab.ground import files
from percolab.ground.foreign_files import read_array
from percolab.ground.progress import bar
from percolab.ground.validation import check_choice, check_numbers
from percolab.show.latent_colours import NAMED
from percolab.store import finished

PICTURE_SUFFIXES = (".png", ".pdf", ".svg")


@command
def draw(
    path: Store,
    output: Annotated[Path, output_option("FILE", "Figure: .png, .pdf or .svg.")],
    cluster: Annotated[int, number_option("Cluster to draw; 0 is the largest.")] = 0,
    colour: Annotated[
        str | None,
        word_option(
            "WHAT",
            "y, z, latents such as 17,42, or FILE.npy[:COLUMN] with one value per row. Default: large latents.",
            NAMED,
        ),
    ] = None,
    factor: Factor = None,
    document: Annotated[int, number_option("Number of the stored document.")] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Draw a cluster in space beside its latent tree, in the same colours; or a document over the tree of its lexicon.

    Each bond and each branch of the tree belongs to a latent.
    It shows the z of the latent, or the mean of y or of the given values over its points.
    In a superposed world --factor picks the factor, and its cluster is drawn in the factor's own space.
    A document is drawn with its tokens, the exact belief in every context along it, and the floor of the loss.

    Examples
    --------
    percolab draw one.zarr -o one.png
    # the fourth largest cluster, for print
    percolab draw big.zarr --cluster 3 -o fourth.pdf
    # coloured by the target; by the fourth unit of a layer
    percolab draw one.zarr --colour y -o targets.png
    percolab draw one.zarr --colour activations.npy:3 -o unit.png
    # a document over the tree of its lexicon
    percolab draw docs.zarr --document 3 -o document.png
    """
    from percolab import show

    form = check_choice("output", output.suffix, PICTURE_SUFFIXES).removeprefix(".")
    files.check_output(output, overwrite=overwrite)
    chosen = {} if colour is None else _colouring(colour)
    with bar(label="drawing"):
        data = finished.load(path)
        if isinstance(data, StoredDocuments):
            figure = show.draw(data, document)
        else:
            figure = show.draw(data, cluster, factor=factor, **chosen)
        with files.new_files(output, overwrite=overwrite) as (file,):
            figure.savefig(file, format=form, dpi=200)
    print_wrote(output)


def _colouring(word: str) -> dict[str, Any]:
    """Return the argument of `show.draw` for a word after ``--colour``."""
    if word in NAMED:
        return {"colour": word}
    if re.fullmatch(r"\d+(,\d+)*", word):
        return {"latents": [integer(part) for part in word.split(",")]}
    name, column = re.fullmatch(r"(.*?)(?::(\d+))?", word, re.DOTALL).groups()  # type: ignore[union-attr]
    return {"colour": _values(name, column), "label": PurePath(word).name}


def _values(name: str, column: str | None) -> Any:
    """Return a column of a file of NumPy's."""
    if not Path(name).exists():
        raise ValueError(f"colour must be {', '.join(NAMED)}, latents or a file of values, got {name!r}")
    values = check_numbers("colour", read_array("colour", name))
    if column is None and values.ndim != 1:
        raise ValueError(f"colour must name a column of a table, such as {name}:0, got shape {values.shape}")
    if column is not None:
        if values.ndim != 2 or integer(column) >= values.shape[1]:
            raise ValueError(f"colour must name a column that is there, got {column} of shape {values.shape}")
        return values[:, int(column)]
    return values


@command
def figures(
    output: Annotated[Path, output_option("FOLDER", "Folder to write them to.")] = Path("figures"),
    only: Annotated[list[int] | None, number_option("Draw only this figure; may be repeated.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use less data, to see whether the figures work.")] = False,
) -> None:
    """Draw figures 1, 2, 3, 6, 8, 9 and 10 of the paper from data made here, each as PNG and PDF.

    Figure 11 is not in the paper: random graphs below, at and above the critical point.
    Figure 10 times samplers on this machine, which should be idle. Figures 4, 5 and 7 show a trained network:
    percolab reproduce draws them.

    Examples
    --------
    percolab figures -o figures
    # only the distribution of cluster sizes
    percolab figures --only 8 -o figures
    """
    from percolab.figures import write

    if output.is_file():
        raise FileExistsError(f"output must be a folder, got the file {str(output)!r}")
    files.check_directory(output)
    for path in write(output, only or (), quick=quick, progress=True):
        print_wrote(path)
