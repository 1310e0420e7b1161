"""The commands ``percolab score | benchmark``; neither imports torch before it runs."""

from __future__ import annotations

import json
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from percolab.benchmark.tasks import SCALES, TASKS
from percolab.cli.errors import Command
from percolab.cli.experiments import Device, need_packages, resumable
from percolab.cli.options import AsJson, Overwrite, Quiet, Store, choice_option, examples, number, number_option
from percolab.cli.options import seed as seed_number
from percolab.ground import files

if TYPE_CHECKING:
    from percolab.features.result import Score

SUFFIXES = (".html", ".csv", ".json")
SHOWN = (
    "recovery", "chance", "recovered", "purity", "splitting", "absorption_edge", "absorption", "absorption_null", "l0",
    "explained_variance", "cosine", "features", "dead", "dense",
)  # fmt: skip
"""What the table on the terminal shows of a summary."""


def score(
    path: Store,
    codes: Annotated[
        Path,
        typer.Argument(
            metavar="CODES",
            help="Codes (rows, features): a SciPy sparse .npz, or an .npz with an array codes.",
            show_default=False,
        ),
    ],
    rows: Annotated[
        Path | None, typer.Option("--rows", metavar="FILE", help="An .npy: the dataset's row of each row of the codes.")
    ] = None,
    factor: Annotated[int | None, number_option("--factor", "Which hierarchy of a superposed world.")] = None,
    min_size: Annotated[int, number_option("--min-size", "Fewest rows of a concept.", default=20)] = 20,
    threshold: Annotated[
        float, number_option("--threshold", "A feature fires above it.", number, default=0)
    ] = 0.0,
    draws: Annotated[int, number_option("--draws", "Draws of chance.", default=5)] = 5,
    seed: Annotated[int, number_option("--seed", "Seed of the draws.", seed_number, default=0)] = 0,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help=".html: tables and plots; .csv: concepts; .json: everything."
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Score features that were made elsewhere against the concepts of a dataset.

    An .npz with an array codes may also hold rows, and the decoder: directions (features, d), bias (d,) and
    activations (rows, d).
    """
    from percolab import features
    from percolab.store.worlds import load

    if output is not None:
        if output.suffix not in SUFFIXES:
            raise ValueError(f"output must end in {', '.join(SUFFIXES)}, got {output.name!r}")
        files.check_output(output, overwrite=overwrite)
    given = read_codes(codes)
    if rows is not None:
        given["rows"] = _read_array(rows)
    dataset = load(path)
    found = features.score(
        dataset, factor=factor, min_size=min_size, threshold=threshold, draws=draws, seed=seed, **given
    )
    if output is not None:
        _write(found, output, f"{codes.name} against {PurePath(path).name}")
    if as_json:
        print(json.dumps(files.plain(found.summary), indent=1))
        return
    print(_text(found))


def read_codes(path: Path) -> dict[str, Any]:
    """Return what a file of codes holds, by the names that `score` takes: codes and, if there, rows and decoder."""
    import numpy as np
    import scipy.sparse

    with _reading(path):
        held = np.load(path, allow_pickle=False)
    if not isinstance(held, np.lib.npyio.NpzFile):
        return {"codes": held}
    with held, _reading(path):
        names = set(held.files)
        if "format" in names:
            return {"codes": scipy.sparse.load_npz(path)}
        if "codes" not in names and len(names) != 1:
            raise ValueError(f"codes must have an array named codes, got {', '.join(sorted(names)) or 'none'}")
        known = ("codes", "rows", "directions", "bias", "activations")
        found = {name: held[name] for name in known if name in names}
        return found if "codes" in found else {"codes": held[held.files[0]]}


def _read_array(path: Path) -> Any:
    import numpy as np

    with _reading(path):
        return np.load(path, allow_pickle=False)
