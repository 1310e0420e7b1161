"""The schema of a Zarr store: its arrays, the kind of their rows, and how each is cut and packed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from percolab.corpora import collection
from percolab.corpora.collection import DocumentRange
from percolab.dataset.dataset import ENGINES
from percolab.ground.text import one_line, shown
from percolab.model.recipe import Recipe
from percolab.worlds import superposition
from percolab.worlds.superposition import Superposition

FORMAT = 1

Column = tuple[tuple[int, ...], np.dtype[Any]]  #: The shape of a column and its type.

FOREST_COLUMNS = ("cluster_start", "cluster_id", "point_id", "left_size", "bond")
VALUE_COLUMNS = ("y", "latent_z", "point_z")
COLUMNS = ("X", *VALUE_COLUMNS, *FOREST_COLUMNS)

#: The arrays by the kind of their rows, which is also the name of their first dimension.
ROW_KINDS = {
    "point": ("X", "y", "point_z", "point_id"),
    "latent": ("latent_z", "left_size", "bond"),
    "cluster": ("cluster_id",),
    "cluster_edge": ("cluster_start",),
}

#: Columns that only some datasets have, as ``extra/NAME``: the kind of their rows, and their type. They are written
#: whole. The first three are fields of `Dataset.extra`, booleans as bytes; the last two belong to the forest.
EXTRA_COLUMNS: dict[str, tuple[str, np.dtype[Any]]] = {
    "source_row": ("point", np.dtype(np.int64)),
    "point_active": ("point", np.dtype(np.uint8)),
    "latent_active": ("latent", np.dtype(np.uint8)),
    "extra_bond": ("extra_bond", np.dtype(np.int64)),
    "extra_latent": ("extra_bond", np.dtype(np.int64)),
}
PACKED = {*FOREST_COLUMNS, *EXTRA_COLUMNS, "rows", *(set(collection.COLUMNS) - {"floor"})}

SAMPLE_COLUMNS = ("X", "y", "rows")  #: Columns of a world, beside those of its factors, ``factors/K/NAME``.
CYCLE_COLUMNS = ("extra_bond", "extra_latent")  #: Columns that only the forest of a random graph has.

CELL = 1 << 16  #: Rows that one writer owns.
CELL_POSITIONS = 1 << 22  #: Positions of documents that one writer owns, unless a single document has more.
DIGEST_BYTES = 32


class StoreError(ValueError):
    """A store that is not a dataset, is incomplete, or is damaged."""


class Content(NamedTuple):
    """The arrays that a store holds in cells, and the others that it may hold."""

    kinds: Mapping[str, tuple[str, ...]]  #: the arrays by the kind of their rows
    columns: tuple[str, ...]
    extra: tuple[str, ...]

    @property
    def in_cells(self) -> set[str]:
        """The arrays that are cut into cells; the others are written whole."""
        return {name for names in self.kinds.values() for name in names}


POINTS = Content(ROW_KINDS, COLUMNS, tuple(f"extra/{name}" for name in EXTRA_COLUMNS))
DOCUMENTS = Content({"document": tuple(collection.COLUMNS)}, tuple(collection.COLUMNS), ())

AnyRecipe = Recipe | DocumentRange  #: The recipe of a store in cells: points on clusters, or documents.
StoredRecipe = AnyRecipe | Superposition  #: The recipe of any store. A world is written whole: no array is in cells.


def content_of(recipe: object) -> Content:
    """Return the content of the store of a recipe, given the recipe or its description in an unfinished store."""
    if isinstance(recipe, Superposition):
        names = [f"factors/{k}/{name}" for k, part in enumerate(recipe.factors) for name in factor_columns(part)]
        return Content({}, (*SAMPLE_COLUMNS, *names), ())
    said = recipe.get("kind") if isinstance(recipe, Mapping) else None
    if said == superposition.KIND:
        return Content({}, (), ())
    return DOCUMENTS if isinstance(recipe, DocumentRange) or said == collection.KIND else POINTS


def factor_columns(recipe: Recipe) -> tuple[str, ...]:
    """Return the stored columns of a factor: all but X, which its recipe makes again."""
    return *VALUE_COLUMNS, *FOREST_COLUMNS, *(CYCLE_COLUMNS if recipe.mode == "random_graph" else ())


# ---------------------------------------------------------------------- arrays


@dataclass(frozen=True)
class Layout:
    """How an array is stored: cut into blocks of rows, one chunk each, with a CRC32C at its end."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    block_rows: int
    packed: bool  #: whether chunks are compressed; floats are not, since Gaussians do not shrink

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of a row in memory."""
        return self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=object))

    @cached_property
    def block_bytes(self) -> int:
        """Bytes of a whole block in memory."""
        return self.block_rows * self.row_bytes

    @property
    def n_blocks(self) -> int:
        """Number of blocks, of which the last may be shorter."""
        return -(-self.shape[0] // self.block_rows)

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of a chunk."""
        return (self.block_rows, *self.shape[1:])

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape} in blocks of {self.chunks}"


def is_packed(name: str) -> bool:
    """Return whether an array is compressed: sizes and row numbers shrink several times."""
    folder, _, leaf = name.rpartition("/")
    return leaf in PACKED and not folder.startswith("digests")


def cell_of(recipe: StoredRecipe) -> int:
    """Return the number of rows of a cell: fewer if documents are long."""
    if not isinstance(recipe, DocumentRange):
        return CELL
    return 1 << min(CELL, max(1, CELL_POSITIONS // recipe.corpus.length)).bit_length() - 1


def version_of(recipe: StoredRecipe) -> int:
    """Return the version of the code that makes the data of a recipe."""
    if isinstance(recipe, Recipe):
        return int(ENGINES[recipe.engine].VERSION)
    return collection.VERSION if isinstance(recipe, DocumentRange) else superposition.VERSION


def columns_of(recipe: StoredRecipe, n_points: int, n_clusters: int, n_extra: int = 0) -> dict[str, Column]:
    """Return the shape and the type of every column that a store of documents or a dataset may have."""
    if isinstance(recipe, DocumentRange):
        shape = len(recipe), recipe.corpus.length
        return {name: (shape[: 1 if name == "lexicon" else 2], dtype) for name, dtype in collection.COLUMNS.items()}
    if isinstance(recipe, Superposition):
        return {}
    rows = {"point": n_points, "latent": n_points - n_clusters, "cluster": n_clusters, "cluster_edge": n_clusters + 1}
    widths = {"X": (recipe.dim,), "y": recipe.target.y_shape, "bond": (2,), "extra_bond": (2,)}
    types = {"X": np.dtype(recipe.dtype), "y": recipe.target.y_dtype}
    types |= dict.fromkeys(("latent_z", "point_z"), np.dtype(np.float64))
    kinds = {name: (kind, types.get(name, np.dtype(np.int64))) for kind, names in ROW_KINDS.items() for name in names}
    lengths = rows | {"extra_bond": n_extra}
    columns = (kinds | EXTRA_COLUMNS).items()
    return {name: ((lengths[kind], *widths.get(name, ())), dtype) for name, (kind, dtype) in columns}


def check_counts(recipe: Recipe, n_points: int, n_clusters: int) -> None:
    """Raise ValueError unless a recipe can make `n_points` points in `n_clusters` clusters."""
    whole = recipe.min_cluster_size <= (recipe.n_points if recipe.mode == "one_cluster" else 1)
    if n_points != recipe.n_points if whole else n_points > recipe.n_points:
        raise ValueError(f"n_points must be {'' if whole else 'at most '}{recipe.n_points}, got {n_points}")
    most = min(n_points // recipe.min_cluster_size, 1 if recipe.mode == "one_cluster" else n_points)
    if not min(n_points, 1) <= n_clusters <= most:
        raise ValueError(f"clusters must be {min(n_points, 1)} to {most} in number, got {n_clusters}")


# ---------------------------------------------------------------------- recipe


_KINDS: Mapping[str | None, type[StoredRecipe]] = {collection.KIND: DocumentRange, superposition.KIND: Superposition}


def recipe_of(attributes: dict[str, Any], location: object) -> StoredRecipe:
    """Return the recipe in the attributes of a store. It must be complete: no field is drawn or left to a default."""
    try:
        written = attributes["recipe"]
        recipe = _KINDS.get(written.get("kind"), Recipe).from_dict(written)
        for name, value in recipe.to_dict().items():
            if name not in written or written[name] != value:
                raise ValueError(f"{name} must be complete, got {shown(written.get(name))}")
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as fault:
        raise StoreError(f"{location} has a damaged recipe: {one_line(fault)}") from fault
    return recipe
