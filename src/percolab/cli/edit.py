"""The commands ``percolab edit``, ``take`` and ``superpose``: datasets made of others."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from percolab.cli import options
from percolab.cli.errors import command
from percolab.cli.generate import make
from percolab.cli.options import argument, choice_option, listed, number_option, read_target, word_option
from percolab.dataset.dataset import Dataset
from percolab.ground.foreign_files import read_array, read_json
from percolab.ground.progress import Progress
from percolab.model.edits import Do, Edit, Move, Shift, Turn
from percolab.model.recipe import PRESETS, Recipe
from percolab.store.finished import load_points
from percolab.worlds.generation import generate
from percolab.worlds.superposition import Superposition, recipe_from_dict

EDITS = "do:LATENT=VALUE, point:ROW=VALUE, shift:LATENT=DISTANCE@SEED, move:LATENT=NUMBER or turn:LATENT=SEED"


@command
def edit(
    path: options.Store,
    output: options.Output,
    edits: Annotated[list[str] | None, argument("[EDIT]...", f"{EDITS}.")] = None,
    target: options.TargetWord = None,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a dataset with edits, in the order given, or with another target.

    do: set the value of a latent; point: set the value of a row. y follows exactly. do:17=0.5,18=0 sets two values.
    shift: move the rows of a latent, and no others, by DISTANCE in a direction drawn from SEED.
    move: move all rows beyond a latent's bond by NUMBER times the bond's vector; prints how many rows moved.
    turn: draw the directions below a latent again. shift, move and turn leave the truth and y unchanged.
    The recipe records the edits, and makes the edited dataset again.

    Examples
    --------
    # the value of latent 17 becomes 2.5; then the rows beyond its bond move by half the bond's length
    percolab edit one.zarr do:17=2.5 move:17=0.5 -o edited.zarr
    # the same X with half of the sibling pairs silent
    percolab edit one.zarr --target silent -o silent.zarr
    """
    if not edits and target is None:
        raise ValueError("edits or target must be given")
    changes = [read_edit(word) for word in edits or ()]
    chosen = None if target is None else read_target(target)
    moved: list[str] = []

    def edited(progress: Progress) -> Dataset:
        dataset = _dataset(path)
        for change in changes:
            if isinstance(change, Move):
                moved.append(f"{change} moved {len(dataset.beyond(change.latent)):,} of {len(dataset):,} rows")
            dataset = _apply(dataset, change)
        return dataset if chosen is None else dataset.with_target(chosen)

    make(edited, output, overwrite=overwrite, quiet=quiet)
    for line in () if quiet else moved:
        print(line)


def read_edit(word: str) -> Edit:
    """Read an edit, such as do:17=0.5."""
    kind, _, rest = word.partition(":")
    try:
        read: Any = {"do": float, "point": float, "shift": _distance, "move": float, "turn": int}[kind]
        pairs = [(int(node), read(value)) for node, _, value in (part.partition("=") for part in rest.split(","))]
    except (KeyError, ValueError):
        raise ValueError(f"edits must be such as {EDITS}, got {word!r}") from None
    if kind in ("do", "point"):
        return Do(pairs) if kind == "do" else Do((), pairs)
    if len(pairs) > 1:
        raise ValueError(f"edits must {kind} one latent at a time, got {word!r}")
    node, value = pairs[0]
    if kind == "shift":
        return Shift(node, *value)
    return Move(node, value) if kind == "move" else Turn(node, value)


def _distance(text: str) -> tuple[float, int]:
    """Read a distance and the seed of its direction, such as 2.5@7."""
    distance, _, seed = text.partition("@")
    return float(distance), int(seed)


def _apply(dataset: Dataset, change: Edit) -> Dataset:
    match change:
        case Do():
            return dataset.do(dict(change.z), dict(change.point_z))
        case Shift():
            return dataset.shift(change.latent, by=change.by, seed=change.seed)
        case Move():
            return dataset.move(change.latent, by=change.by)
        case Turn():
            return dataset.turn(change.latent, seed=change.seed)


@command
def take(
    path: options.Store,
    output: options.Output,
    size: Annotated[int | None, number_option("Number of rows, drawn at random.")] = None,
    seed: Annotated[int, number_option("Seed of the random rows.", options.seed)] = 0,
    rows: Annotated[Path | None, word_option("FILE", "Row numbers, or a mask, as .npy.")] = None,
    y: Annotated[str, choice_option(("kept", "recomputed"), "The targets: ")] = "kept",
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a subsample of a dataset with the hierarchy that its rows inherit.

    Give --size or --rows.
    With the same --seed, a smaller subsample is a part of a larger one.

    Examples
    --------
    percolab take one.zarr --size 1000 -o part.zarr
    """
    if (size is None) == (rows is None):
        raise ValueError("size or rows must be given, and not both")

    def taken(progress: Progress) -> Dataset:
        dataset = _dataset(path)
        if size is not None:
            return dataset.subsamples([size], seed, y=y)[0]
        assert rows is not None
        return dataset.take(read_array("rows", rows), y=y)

    make(taken, output, overwrite=overwrite, quiet=quiet)


@command
def superpose(
    factors: Annotated[
        list[str],
        argument("FACTOR...", "A dataset, a recipe as JSON in a file, or a preset of the paper, for each factor."),
    ],
    output: options.Output,
    weights: Annotated[str | None, word_option("NUMBERS", "Weights of factors in y, such as 1,0. Default: 1.")] = None,
    product: Annotated[str | None, word_option("INTEGERS", "y is the product of two factors, such as 0,1.")] = None,
    scales: Annotated[str | None, word_option("NUMBERS", "Scale of each factor in X. Default: 1.")] = None,
    dim: Annotated[int | None, number_option("Dimension of X. Default: that of the factors.")] = None,
    rotate: Annotated[
        bool | None,
        typer.Option("--rotate/--no-rotate", help="Rotate each factor first. Default: only if dimensions differ."),
    ] = None,
    seed: Annotated[int | None, number_option("Seed of permutations and rotations.", options.seed)] = None,
    threads: options.Threads = None,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
) -> None:
    """Make a world in which every sample combines one point from each of several datasets, the factors.

    X is the scaled, rotated sum of their positions, y the weighted sum of their targets, or the product of two.
    A factor of weight 0 is irrelevant: a control inside the same X.
    Factors are made from their recipes. The same --seed with other --weights gives the same X.

    Examples
    --------
    # two hierarchies, of which only the first affects y
    percolab superpose a.zarr b.zarr --weights 1,0 --seed 3 -o world.zarr
    # the swap: the same X, y from the second
    percolab superpose a.zarr b.zarr --weights 0,1 --seed 3 -o swapped.zarr
    """
    if len(factors) < 2:
        raise ValueError(f"factors must be at least two, got {len(factors)}")
    recipe = Superposition(
        [_factor(word) for word in factors],
        listed("weights", weights),
        listed("product", product, whole=True),
        listed("scales", scales),
        dim,
        rotate,
        seed,
    )
    make(partial(generate, recipe, threads=threads), output, overwrite=overwrite, quiet=quiet)


def _factor(word: str) -> Recipe:
    """Return the recipe of a factor: of a preset, of a JSON file, or of an unedited dataset."""
    if word in PRESETS:
        return PRESETS[word]
    if Path(word).is_file():
        recipe = recipe_from_dict(read_json("factors", word))
        if not isinstance(recipe, Recipe):
            raise ValueError(f"factors must be recipes of one dataset each, got the world in {word!r}")
        return recipe
    dataset = load_points(word)
    if not isinstance(dataset.recipe, Recipe):
        raise ValueError(f"factors must be datasets of one hierarchy, got the superposed world {word!r}")
    if dataset.modification:
        raise ValueError(f"factors must be as their recipes make them, got {word!r}: {dataset.modification}")
    return dataset.recipe


# ---------------------------------------------------------------------- reading and writing


def _dataset(path: str) -> Dataset:
    """Open a dataset; raise for a world."""
    dataset = load_points(path)
    if not isinstance(dataset, Dataset):
        raise ValueError(f"path must be a dataset of one hierarchy, got the superposed world {path!r}")
    return dataset
