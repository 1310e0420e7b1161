"""The commands ``percolab info`` and ``percolab verify``: what is in a dataset, and whether it obeys theory."""

from __future__ import annotations

import sys
from pathlib import Path, PurePath
from typing import Annotated, Any

import typer

from percolab.cli.errors import FAILURE, Judge, command
from percolab.cli.options import AsJson, Factor, Overwrite, Store, argument, word_option
from percolab.cli.output import print_json, print_wrote
from percolab.corpora.collection import StoredDocuments
from percolab.ground import files
from percolab.ground.progress import bar
from percolab.show import summary
from percolab.store import finished, locations
from percolab.worlds.superposed import truth

TABLE_WIDTH = 110  #: Width of wide tables where no terminal says how much room there is.


@command
def info(
    path: Store,
    factor: Factor = None,
    verify: Annotated[bool, typer.Option("--verify", help="Read everything and compare it with its digests.")] = False,
    as_json: AsJson = False,
    html: Annotated[
        Path | None, word_option("FILE", "Write the dataset's card, a page with figures.", names="--html -o --output")
    ] = None,
    explorer: Annotated[Path | None, word_option("FILE", "A page of percolab explore for the card to link to.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Print what a dataset holds: recipe, sizes, clusters, latents, depths, targets, provenance.

    This is quick for a dataset of any size: all of X is read only with --verify, and one cluster only with --html.
    For more than 20 million points, depths and targets are not read either.
    For a superposed world it prints the factors, or one of them with --factor; for documents, their lexicons.

    Examples
    --------
    percolab info one.zarr
    # read everything and compare it with its digests
    percolab info one.zarr --verify
    # for programs
    percolab info one.zarr --json
    # a page with figures
    percolab info one.zarr --html card.html
    # the second hierarchy of a superposed world
    percolab info two.zarr --factor 1
    """
    if explorer is not None and html is None:
        raise ValueError(f"explorer must be left out without html, got {str(explorer)!r}")
    if explorer is not None and not explorer.is_file():
        raise FileNotFoundError(f"explorer must be a file, got {str(explorer)!r}")
    if html is not None:
        files.check_output(html, overwrite=overwrite)
    with bar(label="reading") as display:
        if verify:
            finished.Complete(path).verify(display)
        dataset = finished.load(path)
        if isinstance(dataset, StoredDocuments) and (factor is not None or html is not None):
            raise ValueError(f"{'html' if factor is None else 'factor'} must be left out for documents, got {path!r}")
        if html is not None:
            from percolab import show

            show.card(dataset, html, name=PurePath(path).name, factor=factor, explorer=explorer, overwrite=overwrite)
        described = summary.summarise_store(path, dataset if factor is None else truth(dataset, factor).dataset)
    described["store_bytes"] = locations.n_bytes(path)
    if verify:
        described["sha256"] = finished.Complete(path).sha256
    if as_json:
        print_json(described)
    else:
        _print_table(summary.table(described, str(path) if factor is None else f"{path}, factor {factor}"))
    if html is not None:
        print_wrote(html, as_json=as_json)


@command(kind=Judge)
def verify(
    path: Annotated[str | None, argument("[PATH]", "A dataset. Without it, a standard suite is checked.")] = None,
    report: Annotated[
        Path | None, word_option("FOLDER", "Write a page with one figure per law.", names="--report -o --output")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a dataset against theory: sizes, trees, hierarchy, positions, targets.

    Prints one line per law: what is expected, what was measured, a p-value or the largest deviation, the verdict.
    The exit status is 0 if no law fails, 1 if a law fails, and 2 if there is no dataset or it cannot be read.
    If a law needs a larger dataset, its line says what it needs.
    For a superposed world it checks how the factors are combined, and the laws of each factor.
    For documents it checks how contexts and tokens are drawn, and whether beliefs are true as often as they say.

    Examples
    --------
    percolab verify one.zarr
    # also a page with one figure per law
    percolab verify one.zarr --report out
    # both engines, on data made for the purpose; takes half a minute
    percolab verify
    """
    from percolab.checks.suite import verify as check

    if report is not None:
        if report.is_file() and report.suffix != ".html":
            raise FileExistsError(f"report must be a folder or end in .html, got the file {str(report)!r}")
        files.check_directory(report)
    dataset = None if path is None else finished.load(path)
    with bar() as display:
        outcome = check(dataset, progress=display)
        written = None if report is None else outcome.report(report)
    if as_json:
        print_json(outcome.to_dicts())
    else:
        _print_table(outcome.table(), None if sys.stdout.isatty() else TABLE_WIDTH)
    if written is not None:
        print_wrote(written, as_json=as_json)
    if not outcome.passed:
        raise typer.Exit(FAILURE)


def _print_table(table: Any, width: int | None = None) -> None:
    from rich.console import Console

    Console(width=width).print(table)
