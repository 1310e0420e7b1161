"""The command ``percolab export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from percolab.cli.errors import Command
from percolab.cli.options import Overwrite, Store, completion, examples
from percolab.ground import files
from percolab.ground.validation import check_choice

FORMATS = ("npz", "parquet")


def export(
    path: Store,
    form: Annotated[
        str,
        typer.Option("--format", metavar="|".join(FORMATS), help="What to write.", autocompletion=completion(FORMATS)),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="STEM", help="What the file names begin with.")],
    overwrite: Overwrite = False,
) -> None:
    """Write a dataset in another format, as two files.

    npz: the authors' files, STEM.npz and STEM_gt_features.npz.
    parquet: STEM.points.parquet and STEM.latents.parquet.
    """
    from percolab import exports
    from percolab.ground.progress import bar
    from percolab.store import reading

    check_choice("format", form, FORMATS)
    paths = exports.npz_paths(output) if form == "npz" else exports.parquet_paths(output)
    for file in paths:
        files.check_output(file, overwrite=overwrite)
    write = exports.to_npz if form == "npz" else exports.to_parquet
    with bar(label="exporting"):
        write(reading.load(path), output, overwrite=overwrite)
    print(f"wrote {paths[0]} and {paths[1]}")


def register(app: typer.Typer) -> None:
    """Add the command to a program."""
    app.command(
        cls=Command,
        epilog=examples(
            "percolab export one.zarr --format npz -o percolation",
            "percolab export one.zarr --format parquet -o one",
        ),
    )(export)
