"""Datasets: positions, targets and the complete ground truth, with the recipe that makes them again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from percolab.dataset import replay, subsample, target_rules
from percolab.dataset.target_rules import Active
from percolab.engines import native, paper
from percolab.ground import parallel, text
from percolab.ground.progress import Progress, silent
from percolab.ground.text import printable
from percolab.ground.validation import check_choice, check_integer
from percolab.ground.version import provenance
from percolab.model import edits
from percolab.model.edits import Do, Edit, Move, Shift, Turn
from percolab.model.forest import Forest, locked
from percolab.model.recipe import Recipe
from percolab.model.target import Target

if TYPE_CHECKING:
    from percolab.store.stored_array import StoredArray


#: Two modifications of datasets that their recipes do not make.
BY_HAND, GIVEN = "arrays replaced by hand", "y given as an array"
#: The modules that make data, by the name of the engine; each has a `VERSION`.
ENGINES = {"native": native, "paper": paper}


class Lazy:
    """A dataclass that can be created without its fields, from a function that reads them."""

    @classmethod
    def lazy(cls, read: Callable[[str], Any]) -> Self:
        """Return an instance whose fields are read, by name, when first used."""
        instance = object.__new__(cls)
        object.__setattr__(instance, "_read", read)
        return instance

    def __getattr__(self, name: str) -> Any:
        # Reached only when a field has not been read yet, which happens in lazy instances alone.
        read = self.__dict__.get("_read")
        if read is None or name not in {field.name for field in fields(type(self))}:  # type: ignore[arg-type]
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.__dict__[name] = locked(read(name))
        return self.__dict__[name]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(field.name for field in fields(type(self)))})  # type: ignore[arg-type]

    def __getstate__(self) -> dict[str, Any]:
        # A loaded dataset is pickled as its path: fields are read again where it is unpickled.
        read = self.__dict__.get("_read")
        return dict(self.__dict__) if read is None else {"_read": read}


Kind = TypeVar("Kind", bound="SampleSet")


class SampleSet(Lazy):
    """Rows of X and y with their truth: the common base of `Dataset` and superposed worlds."""

    recipe: Any
    X: NDArray[Any] | StoredArray
    provenance: dict[str, Any]

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @property
    def modification(self) -> str | None:
        """How the samples differ from those that their recipe makes, in words; None if they do not."""
        stated = self.provenance.get("modified")
        return printable(str(stated)) if stated else None if self._is_vouched else BY_HAND

    @property
    def _is_vouched(self) -> bool:
        """Whether the fields come from a trusted source: a dataset with a replaced field does not count."""
        return "_vouched" in self.__dict__ or "_read" in self.__dict__

    def _repr_html_(self) -> str:
        # Sizes of clusters would have to be read from disk, so they are not shown here: see `forest`.
        n, dim = self.X.shape
        lines = {"rows": int(n), "dimensions": int(dim), "type of X": str(self.X.dtype), "modified": self.modification}
        origin = {key: self.provenance.get(key) for key in ("created", "percolab", "engine_version")}
        shown = {name: value for name, value in (lines | origin).items() if value is not None}
        return f"{text.table(type(self).__name__, shown)}{self.recipe._repr_html_()}"

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_vouched" in state:
            vouch(self)

    def _changed(self, **changes: Any) -> Self:
        """Return a copy with other fields, which is trusted if this dataset is."""
        changed: Self = replace(self, **changes)  # type: ignore[type-var]
        return vouch(changed) if self._is_vouched else changed

    def in_memory(self) -> Self:
        """Return a copy with every array read into memory."""
        return self._changed(X=np.asarray(self.X))

    def input_tokens(self, vocabulary: int) -> NDArray[np.int32]:
        """Return X as (n, d) tokens: the bin of each number, among `vocabulary` bins of equal mass of its column."""
        return target_rules.input_tokens(np.asarray(self.X), vocabulary)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False, sync: bool = True) -> None:
        """Write the dataset to a Zarr store. An existing dataset at `path` stays unless this succeeds.

        Parameters
        ----------
        path
            A path, or a URL that fsspec knows. If it is a link, the target of the link is written.
        overwrite
            Replace an existing dataset, in one step, once the new one is complete. Nothing else is ever replaced.
        sync
            Sync everything to disk before it is moved to its path, so that even a power cut leaves no partial dataset.
        """
        store = import_module("percolab.store.commit")  # it imports this module
        store.save(self, path, overwrite=overwrite, sync=sync)


def vouch(samples: Kind) -> Kind:
    """Mark a dataset or a world as what its recipe makes, except for the modification in its provenance, if any.

    Arrays become read-only: an array edited in place would still count as made by the recipe.
    """
    names = [field.name for field in fields(type(samples)) if "_read" not in samples.__dict__]  # type: ignore[arg-type]
    samples.__dict__.update({name: locked(getattr(samples, name)) for name in names}, _vouched=True)
    return samples


@dataclass(frozen=True, eq=False)
class Dataset(SampleSet):
    """Points in R^d on percolation clusters, one target per point, and everything that produced them.

    Rows are in leaf order: see `Forest`. Use `release_order` for the row order of the authors' release. Neighbouring
    rows are relatives: a test on rows drawn at random measures interpolation between relatives.

    A dataset knows whether its recipe makes it: see `modification`. A dataset whose fields were replaced by hand, by
    ``dataclasses.replace`` or in the constructor, counts as modified. The arrays of other datasets are read-only; to
    change one, copy it.
    """

    recipe: Recipe  #: what makes this dataset again
    forest: Forest  #: clusters, points, bonds and latents
    #: (n, d) positions, float32 or float64; in a loaded dataset they stay on disk until indexed
    X: NDArray[Any] | StoredArray
    y: NDArray[Any]  #: (n,) targets, float64; labels are int64, and sequences of them (n, length)
    latent_z: NDArray[np.float64]  #: (n-C,) value of every latent
    point_z: NDArray[np.float64]  #: (n,) value of every point
    provenance: dict[str, Any]  #: versions, platform and time of making
    #: columns that only some datasets have, by name: see `source_row` and `latent_active`
    extra: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __repr__(self) -> str:
        n, d = self.X.shape
        parts = [f"{n:,} points in R^{d}", f"mode={self.recipe.mode!r}", f"engine={self.recipe.engine!r}"]
        if self.recipe.edits:
            parts.append(f"edits={len(self.recipe.edits)}")
        if self.target != Target():
            parts.append(f"target={self.target.kind!r}")
        if self.modification:
            parts.append("modified")
        return f"Dataset({', '.join(parts)})"

    @cached_property
    def release_order(self) -> NDArray[np.int64]:
        """(n,) ``X[release_order]`` has the row order of the authors' release: by cluster, then by birth."""
        return self.forest.release_order

    # ------------------------------------------------------------------ what it is

    @property
    def modification(self) -> str | None:
        """How the dataset differs from the one that its recipe makes, in words; None if it does not."""
        return super().modification or (None if self.target.is_rule else GIVEN)

    # ------------------------------------------------------------------ parts and copies

    def filter(self, min_cluster_size: int = 1, max_cluster_size: int | None = None) -> Dataset:
        """Return the clusters of at least this many points: what the recipe with that `min_cluster_size` makes.

        They are the first rows; the X of a loaded dataset stays on disk. Edits of removed rows and latents are dropped;
        a target that counts rows is made again. With `max_cluster_size`, larger clusters are removed too: no recipe
        makes the result, which is a subsample, see `take`.
        """
        if max_cluster_size is not None:
            most = check_integer("max_cluster_size", max_cluster_size, 1)
            small = self.filter(min_cluster_size)
            if most < min_cluster_size:
                raise ValueError(f"max_cluster_size must be at least min_cluster_size, {min_cluster_size}, got {most}")
            first = small.forest.cluster_start[np.count_nonzero(small.forest.cluster_size > most)]
            return small.take(np.arange(first, len(small)), y="recomputed" if self.target.is_rule else "kept")
        least = max(check_integer("min_cluster_size", min_cluster_size, 1), self.recipe.min_cluster_size)
        forest = self.forest.largest(int(np.count_nonzero(self.forest.cluster_size >= least)))
        n, n_latents = forest.n_points, forest.n_latents
        kept = edits.within(self.recipe.edits, n, n_latents)
        # The recipe of a modified dataset records its origin, so it stays the same.
        recipe = self.recipe if self._is_foreign else replace(self.recipe, min_cluster_size=least, edits=kept)
        y = self.y[:n]
        if self.target.kind in ("classes", "path_tokens"):
            y = target_rules.make(self.target, forest, self.latent_z[:n_latents], self.point_z[:n])
        return self._changed(
            recipe=recipe,
            forest=forest,
            X=self.X[:n] if isinstance(self.X, np.ndarray) else self.X.first(n),
            y=y,
            latent_z=self.latent_z[:n_latents],
            point_z=self.point_z[:n],
            extra={name: column[: n_latents if name in LATENT_COLUMNS else n] for name, column in self.extra.items()},
        )

    def take(self, rows: ArrayLike, *, y: str = "kept") -> Dataset:
        """Return a subsample with the hierarchy that it inherits. Linear time.

        Rows stay in leaf order, and `source_row` gives their former numbers. A latent that keeps rows on both sides
        stays, with its z; other latents are removed. The end of a bond whose row is removed goes to the nearest kept
        row, in leaf order, of the smallest latent that holds both. Clusters are numbered again, by the birth of the
        first point that each keeps, and sorted by size; points keep their birth numbers. No recipe makes the result:
        its `modification` says so.

        Parameters
        ----------
        rows
            Row numbers in any order, without repeats, or a mask.
        y
            ``"kept"``: the targets that the rows had, as a custom target. ``"recomputed"``: the dataset's target, made
            again from the latents that are left.
        """
        check_choice("y", y, ("kept", "recomputed"))
        forest, row, latent = subsample.induced(self.forest, subsample.as_rows(rows, self.forest.n_points))
        columns = {"latent_z": self.latent_z[latent], "point_z": self.point_z[row]}
        extra: dict[str, NDArray[Any]] = {"source_row": row}
        if self._active is not None:
            extra |= {"latent_active": self.latent_active[latent], "point_active": self.point_active[row]}
        if y == "kept":
            target, labels = target_rules.given(self.y[row], row.size)
        else:
            target, active = self.target, _active_of(extra)
            labels = target_rules.make(target, forest, columns["latent_z"], columns["point_z"], active)
        return self._changed(
            recipe=replace(self.recipe, target=target),
            forest=forest,
            X=self.X[row],
            y=labels,
            **columns,
            extra=extra,
            provenance=self._told(f"{row.size:,} of {len(self):,} rows taken"),
        )

    def subsamples(self, sizes: Iterable[int], seed: int, *, y: str = "kept") -> list[Dataset]:
        """Return random subsamples of these sizes, each contained in every larger one: see `take`.

        Every point has a random number, a function of the seed and of its birth number alone, and a subsample takes the
        points with the smallest numbers: so each subsample is uniform among the sets of its size.
        """
        return [self.take(rows, y=y) for rows in subsample.nested_rows(self.forest, sizes, seed)]

    @property
    def source_row(self) -> NDArray[np.int64] | None:
        """(n,) in a subsample, the number that each row had in the dataset it was taken from; else None."""
        return self.extra.get("source_row")

    # ------------------------------------------------------------------ interventions

    def do(self, z: Mapping[int, float] | None = None, point_z: Mapping[int, float] | None = None) -> Dataset:
        """Return the dataset with new values of some latents and points: y follows, to the bit.

        X does not change, so the output of a trained network does not change: only a network trained on the new y can
        differ. To change the input of a network, use `shift`, `move` or `turn`. Linear time.

        Parameters
        ----------
        z
            The new value of each latent, by its number.
        point_z
            The new value of each point, by its row.
        """
        edit = Do(z, point_z)
        edit.check(self.forest.n_points, self.forest.n_latents)
        if not self.target.is_rule:
            raise ValueError(f"target must be made by a rule to follow new values, got {self.target.kind!r}")
        truth = self.target, self.forest, self.latent_z, self.point_z, self._active
        if self._is_foreign and not np.array_equal(self.y, target_rules.make(*truth)):
            raise ValueError(f"y must be what its target makes of z to follow new values, got one with {BY_HAND}")
        latent_z, own_z = self.latent_z.copy(), self.point_z.copy()
        replay.set_values(edit, latent_z, own_z)
        y = target_rules.make(self.target, self.forest, latent_z, own_z, self._active)
        return self._edited(edit, y=y, latent_z=latent_z, point_z=own_z)

    def shift(self, latent: int, by: float | ArrayLike, seed: int | None = None) -> Dataset:
        """Return the dataset with exactly the rows of a latent moved, all by the same vector; the truth and y stay.

        Bonds between these rows and others change; all other bonds keep their vectors.

        Parameters
        ----------
        latent
            Whose rows are moved: ``forest.points_of(latent)``.
        by
            A vector of d numbers; or a distance, in a direction that is uniform on the sphere. A bond of the dataset
            has length ``recipe.step * sqrt(dim)``.
        seed
            With the number of the latent, the seed of the direction; only with a distance.
        """
        return self._moved(Shift(latent, by if np.ndim(by) == 0 else np.asarray(by), seed))

    def move(self, latent: int, by: float | ArrayLike) -> Dataset:
        """Return the dataset with all rows beyond a latent's bond moved; the truth and y stay.

        Beyond the bond are the rows on its far side, seen from the root of the cluster's walk, and all rows that hang
        on them: the part of the cluster that falls off when the bond is cut. All other bonds keep their vectors. Often
        these are few rows, and not the rows of the latent: `beyond` lists them, and `shift` moves the latent itself.

        Parameters
        ----------
        latent
            Whose bond it is.
        by
            A vector of d numbers; or a number b, for b times the bond's own vector, from its near end to its far end:
            the bond becomes 1 + b times as long and keeps its direction. b = -1 is refused.
        """
        return self._moved(Move(latent, by if np.ndim(by) == 0 else np.asarray(by)))

    def beyond(self, latent: int) -> NDArray[np.int64]:
        """Return the rows beyond a latent's bond, sorted: the rows that `move` moves.

        Time is proportional to the depth and to the number of these rows.
        """
        self._check_edit(Move(latent, 0))
        intervals = replay.beyond(self.recipe, self.forest, latent)[2]
        return np.concatenate([np.arange(rows.start, rows.stop) for rows in sorted(intervals, key=lambda r: r.start)])

    def turn(self, latent: int, seed: int) -> Dataset:
        """Return the dataset with the directions below a latent drawn again; the truth and y stay.

        The latent keeps its own unit vector; its split, and all splits below, are drawn from ``seed`` in place of the
        recipe's embed seed. The walk then takes the new steps, and the rows that hang on the latent's rows move along.
        Steps that are drawn again lose earlier changes by `move`. Only for the native engine.

        Parameters
        ----------
        latent
            The latent whose split, and all splits below, are drawn again.
        seed
            The seed that they are drawn from.
        """
        return self._moved(Turn(latent, seed))

    def _moved(self, edit: Shift | Move | Turn) -> Dataset:
        """Return the dataset after an edit of a copy of X, once the edit has been checked."""
        self._check_edit(edit)
        X = np.array(self.X)
        replay.displace(self.recipe, self.forest, edit, self.recipe.edits, X)
        return self._edited(edit, X=X)

    def _check_edit(self, edit: Shift | Move | Turn) -> None:
        edit.check(self.forest.n_points, self.forest.n_latents)
        edits.as_edits([edit], self.recipe.dim, self.recipe.engine)
        if self._is_foreign:
            raise ValueError(f"a dataset must be as its recipe makes it to be moved or turned, got {self.modification}")

    def _edited(self, edit: Edit, **changes: Any) -> Dataset:
        """Return the dataset after an edit, recorded in its recipe or, if that does not make it, as a modification."""
        if self._is_foreign:
            return self._changed(provenance=self._told("values set by hand"), **changes)
        return self._changed(recipe=replace(self.recipe, edits=(*self.recipe.edits, edit)), **changes)

    @property
    def _is_foreign(self) -> bool:
        """Whether more than y differs from what the recipe makes."""
        return self.modification not in (None, GIVEN)

    def _told(self, modification: str) -> dict[str, Any]:
        """Return the provenance with one more modification."""
        before = self.modification if self._is_foreign else None
        return {**self.provenance, "modified": f"{before}; {modification}" if before else modification}

    # ------------------------------------------------------------------ targets

    @property
    def target(self) -> Target:
        """The rule that makes y."""
        return self.recipe.target

    def with_target(
        self, target: str | Target | ArrayLike | target_rules.Function = "sum", **options: int | None
    ) -> Dataset:
        """Return the dataset with another y; X and the truth stay.

        Parameters
        ----------
        target
            ``"sum"``: the paper's target, Σ z / √(1 + depth).
            ``"silent"``: the same, but each sibling pair carries no value with probability 1/2: see `latent_active`.
            ``"sign"``: 1 where the sum is positive, else 0.
            ``"classes"``: the group of a cut through the hierarchy, as a label; the largest class is 0.
            ``"path_tokens"``: (n, levels) groups of finer and finer cuts, each numbered within the one before.
            An array of n numbers or labels, or a function of (forest, latent_z, point_z) that returns one: the array is
            stored, since the recipe cannot make it again.
        **options
            ``seed`` of ``"silent"``, by default the recipe's value seed; `max_size` (most rows of a class) or
            `n_groups` (number of classes) of ``"classes"``; `levels` and `ratio` of ``"path_tokens"``: level l cuts at
            n / ratio^l rows.
        """
        if not isinstance(target, str):
            for name, value in options.items():
                raise ValueError(f"{name} must be left out unless target is given by its name, got {value!r}")
        if isinstance(target, str | Target):
            chosen = Target(target, **options) if isinstance(target, str) else target
            if not chosen.is_rule:
                raise ValueError(f"target must be a rule, an array or a function, got {chosen.kind!r}")
            recipe = replace(self.recipe, target=chosen)
            y = target_rules.make(recipe.target, self.forest, self.latent_z, self.point_z)
            extra = {name: column for name, column in self.extra.items() if name not in ACTIVE_COLUMNS}
        else:
            values = target(self.forest, self.latent_z, self.point_z) if callable(target) else target
            chosen, y = target_rules.given(values, len(self))
            recipe, extra = replace(self.recipe, target=chosen), dict(self.extra)
        provenance = {key: value for key, value in self.provenance.items() if key != "modified" or value != GIVEN}
        return self._changed(recipe=recipe, y=y, extra=extra, provenance=provenance)

    @cached_property
    def _active(self) -> Active | None:
        """Which nodes carry a value; None if all do."""
        active = _active_of(self.extra)
        if active is None and self.target.kind == "silent":
            active = target_rules.silence(self.forest, self.target.seed)
        return active

    @property
    def latent_active(self) -> NDArray[np.bool_]:
        """(n-C,) which latents carry a value: all, except for the silent pairs of target ``"silent"``."""
        return np.ones(self.forest.n_latents, np.bool_) if self._active is None else self._active.latent

    @property
    def point_active(self) -> NDArray[np.bool_]:
        """(n,) which points carry a value."""
        return np.ones(self.forest.n_points, np.bool_) if self._active is None else self._active.point

    @property
    def n_classes(self) -> int | None:
        """Number of classes if y holds labels, else None."""
        if self.target.kind == "sign":
            return 2
        if self.target.y_dtype.kind != "i" or self.target.y_shape:
            return None
        return int(self.y.max(initial=-1)) + 1

    @property
    def vocabulary(self) -> tuple[int, ...] | None:
        """Number of tokens of each level if y holds sequences of them, else None."""
        if self.target.y_dtype.kind != "i" or not self.target.y_shape:
            return None
        return tuple((self.y.max(axis=0, initial=-1) + 1).tolist())

    @property
    def class_nodes(self) -> NDArray[np.int64]:
        """(n_classes,) the node of every class of target ``"classes"``: row r as r, latent i as n + i."""
        if self.target.kind != "classes":
            raise ValueError(f"target must be 'classes' for classes to be nodes, got {self.target.kind!r}")
        return target_rules.class_nodes(self.forest, self.target, self.y)


LATENT_COLUMNS = ("latent_active",)  #: Extra columns with one entry per latent; the others have one per point.
ACTIVE_COLUMNS = ("latent_active", "point_active")


def _active_of(extra: Mapping[str, NDArray[Any]]) -> Active | None:
    return Active(*(extra[name] for name in ACTIVE_COLUMNS)) if "latent_active" in extra else None


# ---------------------------------------------------------------------- made by the engine that a recipe names


def construct(recipe: Recipe, *, threads: int | None = None, progress: Progress = silent) -> Dataset:
    """Return the dataset of a recipe: what its engine makes, then its edits, one after another, and its target."""
    if not isinstance(recipe, Recipe):
        raise ValueError(f"recipe must be a Recipe or the name of a preset, got {recipe!r}: name sizes, n_points=1000")
    if not recipe.target.is_rule:
        raise ValueError(f"target must be one that a recipe can make, got {recipe.target.kind!r}")
    engine = ENGINES[recipe.engine]
    arrays = engine.build(recipe, parallel.thread_count(threads), progress)
    forest, y, values = arrays.forest, arrays.y, (arrays.latent_z, arrays.point_z)
    replay.replay(recipe, forest, arrays.X, *values)
    if recipe.edits or recipe.target != Target():
        y = target_rules.make(recipe.target, forest, *values)
    return vouch(Dataset(recipe, forest, arrays.X, y, *values, provenance(engine_version=engine.VERSION)))
