"""The inputs of `score`, checked once: the hierarchy, the codes, the rows, thresholds and decoders."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab.corpora.collection import StoredDocuments
from percolab.corpora.corpus import Corpus, misplaced
from percolab.corpora.sampler import Documents
from percolab.features.codes import Codes, DenseCodes, SparseCodes
from percolab.features.concepts import Labels, by_row
from percolab.ground import foreign_files, memory
from percolab.ground.arrays import Floats, Ints, as_array
from percolab.ground.foreign_files import as_csr, from_archive
from percolab.ground.text import shown
from percolab.ground.validation import check_choice, check_finite, check_index, check_numbers, check_shape, indices
from percolab.model.forest import Forest

if TYPE_CHECKING:
    import scipy.sparse


FEATURE_BYTES = 256  #: Memory that the columns of one feature take at most.
#: Arrays that a file of codes may hold, by the names of `score`'s parameters.
ARRAYS = ("codes", "rows", "directions", "bias", "activations")


# ---------------------------------------------------------------------- the truth


ABOUT, TRUTHS = ("context", "token"), ("believed", "true")


@dataclass(frozen=True)
class Asked:
    """Which documents are scored, whether about contexts or tokens, and by which truth."""

    documents: Documents | StoredDocuments | None = None
    about: str = "context"
    truth: str = "believed"

    def __post_init__(self) -> None:
        if not isinstance(self.documents, Documents | StoredDocuments | None):
            raise ValueError(f"documents must be what Corpus.documents returns, got {type(self.documents).__name__}")
        check_choice("about", self.about, ABOUT)
        check_choice("truth", self.truth, TRUTHS)

    def flat(self, name: str, values: Any) -> Any:
        """Return (documents, positions, width) values as (rows, width); other values unchanged."""
        if self.documents is None or len(getattr(values, "shape", ())) != 3:
            return values
        if tuple(values.shape[:2]) != self.documents.tokens.shape:
            n, length = self.documents.tokens.shape
            raise ValueError(f"{name} must be of {n} documents of {length} positions, got {tuple(values.shape[:2])}")
        return values.reshape(self.documents.tokens.size, values.shape[2])


def find_labels(source: Any, factor: int | None, rows: Any, n_codes: int, asked: Asked) -> Labels:
    """Return the labels of the rows of the codes.

    The source is a forest, has one, is a world with `factors` and a table of `rows` (samples, factors), a corpus, or
    labels of all rows.
    """
    every: Labels
    if isinstance(source, Corpus):
        every = _of_documents(source, _check_factor(factor, len(source.lexicons), "corpus"), asked)
    elif asked != Asked():
        raise ValueError("documents, about and truth must be left out unless a corpus is scored")
    else:
        every = source if isinstance(source, Labels) else _of_points(source, factor)
    chosen = _check_rows(rows, len(every), n_codes)
    return every if chosen is None else every.take(chosen)


def _of_points(source: Any, factor: int | None) -> Labels:
    if isinstance(source, Forest) or not hasattr(source, "factors"):
        forest = getattr(source, "forest", source)
        if not isinstance(forest, Forest):
            kinds = "a Dataset, a Forest, a world of factors or a Corpus"
            raise ValueError(f"dataset must be {kinds}, got {type(source).__name__}")
        if factor not in (None, 0):
            raise ValueError(f"factor must be None or 0 for a dataset of one hierarchy, got {factor!r}")
        return by_row(forest, np.arange(forest.n_points))
    chosen = _check_factor(factor, len(source.factors), "world")
    return by_row(source.factors[chosen].forest, np.asarray(source.rows)[:, chosen].astype(np.int64))


def _of_documents(corpus: Corpus, k: int, asked: Asked) -> Labels:
    """Return the labels of all positions, document after document."""
    documents, forest = asked.documents, corpus.forest(k)
    if documents is None:
        raise ValueError("documents must be given with a corpus, got None")
    if isinstance(documents, StoredDocuments):
        documents = documents.read()
    indices("tokens", documents.tokens, corpus.n_tokens)
    if wrong := misplaced(corpus, documents):
        raise ValueError(f"documents must be of this corpus, got {wrong:,} tokens outside of their contexts")
    place, length = np.arange(documents.tokens.size), documents.tokens.shape[1]
    if asked.about == "token":
        row = np.argsort(corpus.token_ids(k))
        label = row[documents.tokens]
        return replace(by_row(forest, label.ravel()), contexts=corpus.contexts(k), place=place, length=length)
    if asked.truth == "believed":
        beliefs = corpus.beliefs(documents.tokens)
        context, lexicon = beliefs.believed, beliefs.believed_lexicon
    else:
        context, lexicon = documents.context, documents.lexicon[:, None]
    label = np.where(lexicon == k, context, -1).astype(np.int64).ravel()
    first = np.arange(forest.n_latents)
    return Labels(forest, label, first, first + forest.latent_size - 1, corpus.contexts(k), place, length)


def _check_factor(factor: int | None, count: int, kind: str) -> int:
    if factor is None and count > 1:
        raise ValueError(f"factor must be given for a {kind} of {count} hierarchies, got None")
    return check_index("factor", factor or 0, count)


def _check_rows(rows: Any, n: int, n_codes: int) -> Ints | None:
    """Return the rows that the codes belong to, None for all."""
    if rows is None:
        if n_codes != n:
            raise ValueError(f"codes must have a row for each of the {n} rows, unless rows are given, got {n_codes}")
        return None
    chosen = as_numbers("rows", rows)
    if chosen.ndim != 1 or not np.issubdtype(chosen.dtype, np.integer):
        raise ValueError(f"rows must be a list of integers, got {chosen.dtype} of shape {chosen.shape}")
    if chosen.size != n_codes:
        raise ValueError(f"rows must name the row of each of the {n_codes} rows of the codes, got {chosen.size}")
    return indices("rows", chosen, n)


# ---------------------------------------------------------------------- the features


def read_codes(name: str, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the contents of a file of codes, by the names that `score` takes: codes and, if any, rows and decoder.

    It is an .npy, an .npz by `scipy.sparse.save_npz`, or an .npz with arrays of these names. Errors call it `name`.
    """
    with foreign_files.arrays(name, path) as held:
        if "format" in held:
            return {"codes": from_archive("codes", held)}
        if len(held) == 1:  # whatever its name
            return {"codes": held[next(iter(held))]}
        return {"codes": held["codes"]} | {array: held[array] for array in ARRAYS[1:] if array in held}


def as_codes(codes: Any) -> Codes:
    """Return codes of any kind taken: NumPy, a memory map, torch, SciPy sparse.

    Torch tensors on a GPU stay there; other tensors are viewed as arrays. Everything that kernels rely on is checked
    here: a sparse matrix may come from an untrusted file.
    """
    import scipy.sparse

    if isinstance(codes, Codes):
        return codes
    if hasattr(codes, "fit"):
        raise ValueError(f"codes must be what a method's encode returns, got the method, {type(codes).__name__}")
    if hasattr(codes, "detach"):
        codes = codes.detach()
        if "sparse" in str(codes.layout):
            codes = _from_sparse_tensor(codes)
        elif codes.device.type == "cpu":
            codes = as_array(codes)
    on_device, is_sparse = hasattr(codes, "detach"), scipy.sparse.issparse(codes)
    values: Any = codes if on_device or is_sparse else as_numbers("codes", codes)
    if len(values.shape) != 2 or 0 in values.shape:
        hint = "; labels of k groups become codes by np.eye(k)[labels]" if len(values.shape) == 1 else ""
        rule = "codes must have shape (rows, features), at least 1 of each"
        raise ValueError(f"{rule}, got {tuple(values.shape)}{hint}")
    memory.require(FEATURE_BYTES * values.shape[1], f"codes of {values.shape[1]} features need")
    if on_device:
        from percolab.features.on_torch import TorchCodes

        return TorchCodes(values)
    return SparseCodes(as_csr("codes", values)) if is_sparse else DenseCodes(values)


def on_gpu(values: Any) -> bool:
    """Return whether values are a tensor that is not on the CPU."""
    return hasattr(values, "detach") and values.device.type != "cpu"


def also_on_gpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function pass tensors on a GPU to the function of the same name in `on_torch`, which computes there."""

    @wraps(function)
    def either(values: Any, *given: Any) -> Any:
        if not on_gpu(values):
            return function(values, *given)
        from percolab.features import on_torch

        return getattr(on_torch, function.__name__)(values, *given)

    return either


def as_numbers(name: str, values: Any) -> NDArray[Any]:
    """Return `as_array` of the values; raise unless it succeeds and gives numbers."""
    try:
        array = as_array(values)
    except (TypeError, ValueError) as fault:  # lists of unequal lengths, say
        raise ValueError(f"{name} must be numbers, got {shown(values)}") from fault
    return check_numbers(name, array)


def _from_sparse_tensor(codes: Any) -> scipy.sparse.coo_array:
    import scipy.sparse

    entries = codes.cpu().to_sparse_coo().coalesce()
    parts = as_array(entries.values()), tuple(as_array(entries.indices()))
    return scipy.sparse.coo_array(parts, shape=tuple(entries.shape))


def check_threshold(threshold: Any, n_features: int) -> Floats:
    """Return a threshold for each feature."""
    values = as_numbers("threshold", threshold).astype(np.float64)
    if values.ndim and values.shape != (n_features,):
        rule = f"threshold must be a number or one for each of {n_features} features"
        raise ValueError(f"{rule}, got shape {values.shape}")
    bad = values[~(np.isfinite(values) & (values >= 0))]
    if bad.size:
        raise ValueError(f"threshold must be at least 0, got {bad[0]}")
    return np.full(n_features, values) if values.ndim == 0 else values


@dataclass(frozen=True, eq=False)
class Decoder:
    """A method's decoder, codes @ directions + bias, and the activations that it decodes."""

    directions: Floats  #: (features, d)
    bias: Floats  #: (d,)
    activations: NDArray[Any]  #: (rows, d)


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
    check_shape("bias", offset, acts.shape[1:])
    with np.errstate(over="ignore"):  # of numbers that no double holds
        vectors, offset = vectors.astype(np.float64, copy=False), offset.astype(np.float64, copy=False)
    for name, values in (("directions", vectors), ("bias", offset), ("activations", acts)):
        check_finite(name, values)
    return Decoder(vectors, offset, acts)
