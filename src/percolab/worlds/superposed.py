"""Superposed worlds: X and y of samples that have one point of each of several datasets, with the truth of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab.dataset.dataset import Dataset, SampleSet, construct
from percolab.ground import text
from percolab.ground.arrays import LazyArray
from percolab.model.forest import Forest
from percolab.model.recipe import Recipe
from percolab.worlds.rotations import Rotation
from percolab.worlds.superposition import Superposition

if TYPE_CHECKING:
    from percolab.store.stored_array import StoredArray


#: Methods of datasets that worlds do not have.
OF_ONE_HIERARCHY = ("do", "filter", "move", "subsamples", "take", "turn", "with_target")


@dataclass(frozen=True, eq=False)
class Superposed(SampleSet):
    """Samples that have one point of each of K percolation datasets, the factors; see `Superposition`.

    The truth is the forest and the values of each factor, and the table of rows: `percolab.truth` gives the truth of
    one factor, in the order of samples.
    """

    recipe: Superposition  #: what makes this world again
    X: NDArray[Any] | StoredArray  #: (n, D) the scaled, rotated sum of the factors' positions
    #: (n,) the weighted sum of the factors' targets, or the product of two, float64; labels of one are int64
    y: NDArray[Any]
    rows: NDArray[np.int64]  #: (n, K) the row of each factor that a sample has; the first column is 0, 1, 2, …
    factors: tuple[Dataset, ...]  #: the K datasets; the X of each is made again when first used, and kept from then on
    sigma: NDArray[np.float64]  #: (K,) sigma_k: the square root of the mean variance of the columns of each factor's X
    provenance: dict[str, Any]  #: versions, platform and time of making

    def __repr__(self) -> str:
        n, dim = self.X.shape
        parts = [f"{n:,} samples in R^{dim}", text.counted(len(self.recipe.factors), "factor")]
        parts.append(f"y from {' and '.join(map(str, self.relevant))}")
        return f"Superposed({', '.join(parts + ['modified'] * bool(self.modification))})"

    # ------------------------------------------------------------------ what y depends on

    @property
    def weights(self) -> tuple[float, ...] | None:
        """The weight of each factor in y; None if y is a product."""
        return self.recipe.weights

    @property
    def relevant(self) -> tuple[int, ...]:
        """The factors that y depends on."""
        return self.recipe.relevant

    def swapped(self, factor: int) -> Superposed:
        """Return the same samples with the y of one factor: X and the truth are shared with this world, not copied."""
        recipe = self.recipe.swapped(factor)
        return self._changed(recipe=recipe, y=superposed_targets(recipe, [f.y for f in self.factors], self.rows))

    def rotation(self, factor: int) -> NDArray[np.float64]:
        """Return Q_k, (D, d_k): the identity if factors are added without rotation."""
        k = self.recipe.check_factor(factor)
        drawn = rotation_of(self.recipe, k)
        return np.eye(self.recipe.dim) if drawn is None else drawn.matrix()

    # ------------------------------------------------------------------ as a dataset

    @property
    def forest(self) -> Forest:
        """The forest, if there is one factor; with several factors, each has its own forest."""
        return self._only("forest").forest

    @property
    def latent_z(self) -> NDArray[np.float64]:
        """The value of every latent, if there is one factor."""
        return self._only("latent_z").latent_z

    @property
    def point_z(self) -> NDArray[np.float64]:
        """The value of every point, if there is one factor."""
        return self._only("point_z").point_z

    def _only(self, name: str) -> Dataset:
        if len(self.recipe.factors) > 1:
            rule = f"{name} must be that of a chosen factor where there are {len(self.recipe.factors)}"
            raise ValueError(f"{rule}: take factors[k].{name}, or truth(dataset, factor=k)")
        return self.factors[0]

    @cached_property
    def release_order(self) -> NDArray[np.int64]:
        """(n,) the samples in the release order of factor 0, whose rows they follow."""
        return self.factors[0].release_order

    def __getattr__(self, name: str) -> Any:
        # Reached only for attributes that do not exist.
        if name in OF_ONE_HIERARCHY:
            rule = "use it on the dataset of a factor, and superpose its recipe"
            raise AttributeError(f"a superposed world has no {name!r}: {rule}")
        return super().__getattr__(name)


def superposed_targets(
    recipe: Superposition, of_factors: Sequence[NDArray[Any]], rows: NDArray[np.int64]
) -> NDArray[Any]:
    """Return y of samples from the targets of the factors and the rows of each.

    Factors of weight 0 are left out, and the others are added in order: with a single factor of weight 1, y equals the
    y of that factor, to the bit, and may then be labels.
    """
    if recipe.product is not None:
        a, b = recipe.product
        return of_factors[a][rows[:, a]] * of_factors[b][rows[:, b]]
    y: NDArray[Any] | None = None
    for k in recipe.relevant:
        term = of_factors[k][rows[:, k]]
        if (recipe.weights or ())[k] != 1:
            term *= (recipe.weights or ())[k]
        y = term if y is None else np.add(y, term, out=y)
    assert y is not None  # a recipe has a factor of weight other than 0
    return y


def rotation_of(recipe: Superposition, factor: int) -> Rotation | None:
    """Return the rotation of a factor, or None if factors are added without rotation."""
    if not recipe.rotate:
        return None
    return Rotation.draw(factor, recipe.factors[factor].dim, recipe.dim, recipe.seed)


# ---------------------------------------------------------------------- positions that are made again when asked for


class RemadeArray(LazyArray):
    """The X of a dataset, made again from its recipe when first indexed, and kept from then on."""

    def __init__(self, recipe: Recipe, shape: tuple[int, ...]) -> None:
        self._recipe, self.shape, self.dtype = recipe, shape, np.dtype(recipe.dtype)
        self._made: NDArray[Any] | None = None

    def __repr__(self) -> str:
        return f"RemadeArray(shape={self.shape}, dtype={self.dtype})"

    def __getitem__(self, index: Any) -> NDArray[Any]:
        return self._whole()[index]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        whole = self._whole()
        if copy:
            return whole.astype(dtype or whole.dtype)
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def first(self, n_rows: int) -> NDArray[Any]:
        """Return the first rows; the array is made now."""
        return self[:n_rows]

    def _whole(self) -> NDArray[Any]:
        if self._made is None:
            self._made = np.asarray(construct(self._recipe).X)
        return self._made


def remade(dataset: Dataset) -> Dataset:
    """Return a dataset without its X in memory: X is made again from the recipe when first used."""
    columns = {field.name: getattr(dataset, field.name) for field in fields(dataset) if field.name != "X"}
    columns["X"] = RemadeArray(dataset.recipe, dataset.X.shape)
    # A lazy instance, and not `replace`: a dataset with replaced fields does not count as made by its recipe.
    return Dataset.lazy(columns.__getitem__)


# ---------------------------------------------------------------------- truth
#
# The truth behind samples: one hierarchy, and the row of each sample in it, for every kind of dataset.


AnyDataset = Dataset | Superposed  #: A dataset or a world: both have samples, targets and truths.


@dataclass(frozen=True, eq=False)
class Truth:
    """One hierarchy behind the samples of a dataset: sample i is row ``rows[i]`` of `forest`."""

    dataset: Dataset  #: the percolation dataset of the hierarchy; in a superposed world, a factor
    #: (n,) the row of each sample in that dataset: rows may repeat, and some may have no sample
    rows: NDArray[np.int64]

    @property
    def forest(self) -> Forest:
        """Clusters, points, bonds and latents of the hierarchy."""
        return self.dataset.forest

    @property
    def latent_z(self) -> NDArray[np.float64]:
        """(n_latents,) value of every latent."""
        return self.dataset.latent_z

    @property
    def point_z(self) -> NDArray[np.float64]:
        """(n_points,) value of every point, by row of the forest."""
        return self.dataset.point_z

    @property
    def y(self) -> NDArray[np.float64]:
        """(n_points,) targets of the hierarchy itself, by row of the forest."""
        return self.dataset.y

    @cached_property
    def in_order(self) -> bool:
        """Whether sample i is row i: the samples of a latent are then the slice `Forest.points_of`."""
        return self.rows.size == self.forest.n_points and bool((self.rows == np.arange(self.rows.size)).all())

    def samples_of(self, latent: int) -> NDArray[np.int64]:
        """Return the samples whose point is below a latent, in increasing order."""
        below = self.forest.points_of(latent)
        if self.in_order:
            return np.arange(below.start, below.stop)
        return np.flatnonzero((self.rows >= below.start) & (self.rows < below.stop))

    def latent_at_depth(self, depth: int) -> NDArray[np.int64]:
        """Return, for every sample, the latent of its point at this depth, or -1 if it has none."""
        return self.forest.latent_at_depth(depth)[self.rows]


def check_samples(dataset: object) -> None:
    """Raise, in one line, unless this is a dataset or a world: users give paths and arrays, and mix up the order."""
    if not isinstance(dataset, SampleSet):
        raise ValueError(f"dataset must be a dataset or a world, got {type(dataset).__name__}")


def truth(dataset: AnyDataset, factor: int | None = None) -> Truth:
    """Return the hierarchy behind a dataset, or behind one factor of a superposed world, by sample.

    Parameters
    ----------
    dataset
        A dataset or a world.
    factor
        Which factor of a world; it may be left out if there is only one hierarchy.
    """
    check_samples(dataset)
    if isinstance(dataset, Superposed):
        k = dataset.recipe.check_factor(factor)
        return Truth(dataset.factors[k], dataset.rows[:, k])
    if factor is not None and factor != 0:
        raise ValueError(f"factor must be 0 or left out for a dataset of one hierarchy, got {factor!r}")
    return Truth(dataset, np.arange(dataset.forest.n_points))
