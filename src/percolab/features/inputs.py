"""What `score` is given, checked once: the hierarchy, the codes, the rows, thresholds and decoders."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab.features.codes import Codes, DenseCodes, SparseCodes
from percolab.ground.validation import check_integer
from percolab.model.forest import Forest

if TYPE_CHECKING:
    import scipy.sparse

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


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
    chosen = as_array(rows)
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


def as_codes(codes: Any) -> Codes:
    """Return codes of any kind taken: NumPy, a memory map, torch, SciPy sparse.

    Torch tensors on a GPU stay there; other tensors are seen as arrays.
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

            _check_shape(codes)
            return TorchCodes(codes)
        else:
            codes = as_array(codes)
    if scipy.sparse.issparse(codes):
        given: Any = codes
        _check_shape(given)
        matrix = given.tocsr()
        _check_type(matrix.dtype)
        exact = matrix.dtype in (np.float32, np.float64)
        return SparseCodes(matrix if exact else matrix.astype(np.float64))
    values = np.asarray(codes)
    _check_shape(values)
    _check_type(values.dtype)
    return DenseCodes(values)


def as_array(values: Any) -> NDArray[Any]:
    """Return an array, a tensor of any type and device, or what NumPy makes an array of, as an array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if "bfloat16" in str(values.dtype):  # NumPy has no such type
            values = values.float()
        return np.asarray(values.numpy())
    return np.asarray(values)


def _from_sparse_tensor(codes: Any) -> scipy.sparse.coo_array:
    import scipy.sparse

    entries = codes.cpu().to_sparse_coo().coalesce()
    parts = as_array(entries.values()), tuple(as_array(entries.indices()))
    return scipy.sparse.coo_array(parts, shape=tuple(entries.shape))


def _check_shape(codes: Any) -> None:
    if len(codes.shape) != 2 or 0 in codes.shape:
        raise ValueError(f"codes must have shape (rows, features), at least 1 of each, got {tuple(codes.shape)}")


def _check_type(dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "biuf":
        raise ValueError(f"codes must be numbers, got {dtype}")


def check_threshold(threshold: Any, n_features: int) -> Floats:
    """Return a threshold for each feature."""
    values = np.asarray(as_array(threshold), np.float64)
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
    acts, vectors = as_array(activations), np.asarray(as_array(directions), np.float64)
    if acts.ndim != 2 or acts.shape[0] != shape[0]:
        raise ValueError(f"activations must have shape ({shape[0]}, d), a row for each of the codes, got {acts.shape}")
    if vectors.shape != (shape[1], acts.shape[1]):
        raise ValueError(f"directions must have shape {(shape[1], acts.shape[1])}, (features, d), got {vectors.shape}")
    offset = np.zeros(acts.shape[1]) if bias is None else np.asarray(as_array(bias), np.float64)
    if offset.shape != (acts.shape[1],):
        raise ValueError(f"bias must have shape ({acts.shape[1]},), got {offset.shape}")
    for name, values in (("directions", vectors), ("bias", offset), ("activations", acts)):
        if not np.isfinite(values).all():
            raise ValueError(f"{name} must be finite, got NaN or infinity")
    return Decoder(vectors, offset, acts)
