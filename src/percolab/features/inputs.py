"""What `score` is given, checked once: the hierarchy, the codes, the rows, thresholds and decoders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab.features.codes import Codes, DenseCodes, SparseCodes
from percolab.ground import foreign_files, memory
from percolab.ground.sparse import as_csr, from_archive
from percolab.ground.text import shown
from percolab.ground.validation import check_integer, check_numbers
from percolab.model.forest import Forest

if TYPE_CHECKING:
    import scipy.sparse

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FEATURE_BYTES = 256
"""Memory that the columns of one feature take at most."""
ARRAYS = ("codes", "rows", "directions", "bias", "activations")
"""What a file of codes may hold, by the names that `score` takes."""


# ---------------------------------------------------------------------- the truth


def resolve(source: Any, factor: int | None) -> tuple[Forest, Ints | None]:
    """Return the forest that is meant, and the forest's row of each sample, None where they are the same.

    The source is a forest, has one, or is a world with `factors` and a table of `rows` (samples, factors).
    """
    if isinstance(source, Forest) or not hasattr(source, "factors"):
        forest = getattr(source, "forest", source)
        if not isinstance(forest, Forest):
            raise ValueError(f"dataset must be a Dataset, a Forest or a world of factors, got {type(source).__name__}")
        if factor not in (None, 0):
            raise ValueError(f"factor must be None or 0 for a dataset of one hierarchy, got {factor!r}")
        return forest, None
    count = len(source.factors)
    if factor is None and count > 1:
        raise ValueError(f"factor must be given for a world of {count} hierarchies, got None")
    chosen = check_integer("factor", factor or 0, 0)
    if chosen >= count:
        raise ValueError(f"factor must be below {count}, got {chosen}")
    return source.factors[chosen].forest, np.asarray(source.rows)[:, chosen].astype(np.int64)


def check_rows(rows: Any, samples: Ints | None, forest: Forest, n_codes: int) -> Ints:
    """Return the row of the forest that each row of the codes is."""
    n = forest.n_points if samples is None else samples.size
    if rows is None:
        if n_codes != n:
            raise ValueError(f"codes must have a row for each of the {n} rows, unless rows are given, got {n_codes}")
        return np.arange(n) if samples is None else samples
    chosen = as_numbers("rows", rows)
    if chosen.ndim != 1 or not np.issubdtype(chosen.dtype, np.integer):
        raise ValueError(f"rows must be a list of integers, got {chosen.dtype} of shape {chosen.shape}")
    if chosen.size != n_codes:
        raise ValueError(f"rows must name the row of each of the {n_codes} rows of the codes, got {chosen.size}")
    outside = chosen[(chosen < 0) | (chosen >= n)]
    if outside.size:
        raise ValueError(f"rows must be between 0 and {n - 1}, got {outside[0]}")
    found = chosen.astype(np.int64)
    return found if samples is None else samples[found]


# ---------------------------------------------------------------------- the features


def read_codes(name: str, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a file of codes holds, by the names that `score` takes: codes and, if there, rows and decoder.

    It is an .npy, what `scipy.sparse.save_npz` wrote, or an .npz with arrays of these names. Messages call it `name`.
    """
    with foreign_files.arrays(name, path) as held:
        if "format" in held:
            return {"codes": from_archive("codes", held)}
        if len(held) == 1:  # whatever its name
            return {"codes": held[next(iter(held))]}
        if "codes" not in held:
            raise ValueError(f"it has no array codes, but {shown(list(held))}")
        return {array: held[array] for array in ARRAYS if array in held}


def as_codes(codes: Any) -> Codes:
    """Return codes of any kind taken: NumPy, a memory map, torch, SciPy sparse.

    Torch tensors on a GPU stay there; other tensors are seen as arrays. What kernels will trust is checked here in
    full: a sparse matrix may be a stranger's file.
    """
    import scipy.sparse

    if isinstance(codes, Codes):
        return codes
    if hasattr(codes, "detach"):
        codes = codes.detach()
        if "sparse" in str(codes.layout):
            codes = _from_sparse_tensor(codes)
        elif codes.device.type != "cpu":
            from percolab.features.on_torch import TorchCodes

            _check_shape(codes.shape)
            return TorchCodes(codes)
        else:
            codes = as_array(codes)
    if scipy.sparse.issparse(codes):
        matrix: Any = codes
        _check_shape(matrix.shape)
        return SparseCodes(as_csr("codes", matrix))
    values = as_numbers("codes", codes)
    _check_shape(values.shape)
    return DenseCodes(values)


def as_array(values: Any) -> NDArray[Any]:
    """Return an array, a tensor of any type and device, or what NumPy makes an array of, as an array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if "bfloat16" in str(values.dtype):  # NumPy has no such type
            values = values.float()
        return np.asarray(values.numpy())
    return np.asarray(values)


def as_numbers(name: str, values: Any) -> NDArray[Any]:
    """Return `as_array`, if that is possible and gives numbers."""
    try:
        return check_numbers(name, as_array(values))
    except (TypeError, ValueError) as fault:  # lists of unequal lengths, say
        raise ValueError(f"{name} must be numbers, got {shown(values)}") from fault


def _from_sparse_tensor(codes: Any) -> scipy.sparse.coo_array:
    import scipy.sparse

    entries = codes.cpu().to_sparse_coo().coalesce()
    parts = as_array(entries.values()), tuple(as_array(entries.indices()))
    return scipy.sparse.coo_array(parts, shape=tuple(entries.shape))


def _check_shape(shape: Sequence[int]) -> None:
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"codes must have shape (rows, features), at least 1 of each, got {tuple(shape)}")
    memory.require(FEATURE_BYTES * shape[1], f"codes of {shape[1]} features need")


def check_threshold(threshold: Any, n_features: int) -> Floats:
    """Return a threshold for each feature."""
    values = as_numbers("threshold", threshold).astype(np.float64)
    if values.ndim and values.shape != (n_features,):
        raise ValueError(
            f"threshold must be a number or one for each of {n_features} features, got shape {values.shape}"
        )
    bad = values[~(np.isfinite(values) & (values >= 0))]
    if bad.size:
        raise ValueError(f"threshold must be at least 0, got {bad[0]}")
    return np.full(n_features, values) if values.ndim == 0 else values


def check_ratio(ratio: Any) -> float:
    """Return a share above 0 and up to 1."""
    if isinstance(ratio, bool) or not isinstance(ratio, Real) or not 0 < float(ratio) <= 1:
        raise ValueError(f"ratio must be above 0 and at most 1, got {ratio!r}")
    return float(ratio)


@dataclass(frozen=True, eq=False)
class Decoder:
    """How a method writes activations: codes @ directions + bias; with the activations themselves."""

    directions: Floats
    """(features, d)"""
    bias: Floats
    """(d,)"""
    activations: NDArray[Any]
    """(rows, d)"""


def check_decoder(directions: Any, bias: Any, activations: Any, shape: tuple[int, int]) -> Decoder | None:
    """Return the decoder, or None where there is none. Directions and activations come together."""
    if directions is None and activations is None:
        if bias is not None:
            raise ValueError("bias must come with directions and activations, got neither")
        return None
    if directions is None or activations is None:
        missing = "directions" if directions is None else "activations"
        raise ValueError(f"directions and activations must be given together, got no {missing}")
    acts, vectors = as_numbers("activations", activations), as_numbers("directions", directions)
    if acts.ndim != 2 or acts.shape[0] != shape[0] or acts.shape[1] < 1:
        raise ValueError(f"activations must have shape ({shape[0]}, d), a row for each of the codes, got {acts.shape}")
    if vectors.shape != (shape[1], acts.shape[1]):
        raise ValueError(f"directions must have shape {(shape[1], acts.shape[1])}, (features, d), got {vectors.shape}")
    offset = as_numbers("bias", np.zeros(acts.shape[1]) if bias is None else bias)
    if offset.shape != (acts.shape[1],):
        raise ValueError(f"bias must have shape ({acts.shape[1]},), got {offset.shape}")
    with np.errstate(over="ignore"):  # of numbers that no double holds
        vectors, offset = vectors.astype(np.float64, copy=False), offset.astype(np.float64, copy=False)
    for name, values in (("directions", vectors), ("bias", offset), ("activations", acts)):
        if not np.isfinite(values).all():
            raise ValueError(f"{name} must be finite, got NaN or infinity")
    return Decoder(vectors, offset, acts)
