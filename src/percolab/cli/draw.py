"""The commands ``percolab draw`` and ``percolab figures``: a dataset's pictures, and the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from percolab.cli.errors import Command
from percolab.cli.options import Overwrite, Store, examples, integer, number_option
from percolab.ground import files
from percolab.ground.validation import check_choice

FORMATS = (".png", ".pdf", ".svg")


def draw(
    path: Store,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Figure: .png, .pdf or .svg.")],
    cluster: Annotated[int, number_option("--cluster", "Which cluster; 0 is the largest.", default=0)] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Draw a cluster in space beside its latent tree, in the same colours."""
    from percolab.ground.progress import bar
    from percolab.show import drawing
    from percolab.store import reading

    form = check_choice("output", output.suffix, FORMATS).removeprefix(".")
    files.check_output(output, overwrite=overwrite)
    with bar(label="drawing"):
        figure = drawing.draw_cluster(reading.load(path), cluster)
        with files.new_files(output, overwrite=overwrite) as (file,):
            figure.savefig(file, format=form, dpi=200)
    print(f"wrote {output}")


def figures(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="Where to write them.")] = Path(
        "figures"
    ),
    only: Annotated[
        list[int] | None,
        typer.Option(
            "--only", parser=integer, metavar="NUMBER", help="One figure; may be repeated.", show_default=False
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="From less data, to see whether they work.")] = False,
) -> None:
    """Draw figures 1, 2, 3, 6, 8, 9 and 10 of the paper from data made here, each as PNG and PDF.

    Figure 10 times samplers on this machine, for which it should be idle. Figures 4, 5 and 7 show a trained network:
    percolab reproduce draws them.
    """
    from percolab.figures import write

    if output.is_file():
        raise FileExistsError(f"output must be a folder, got the file {str(output)!r}")
    files.check_directory(output)
    for path in write(output, only or (), quick=quick, progress=True):
        print(f"wrote {path}")


def register(app: typer.Typer) -> None:
    """Add the commands to a program."""
    app.command(
        cls=Command,
        epilog=examples(
            "percolab draw one.zarr -o one.png",
            "# the fourth largest cluster, for print",
            "percolab draw big.zarr --cluster 3 -o fourth.pdf",
        ),
    )(draw)
    app.command(
        cls=Command,
        epilog=examples(
            "percolab figures -o figures",
            "# the distribution of cluster sizes alone",
            "percolab figures --only 8 -o figures",
        ),
    )(figures)
