"""Datasets of torch and of Ray, read on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from percolab.corpora.collection import DocumentRange, StoredDocuments
from percolab.corpora.corpus import Corpus
from percolab.ground.extras import needing
from percolab.ground.files import PathLike
from percolab.worlds.superposed import AnyDataset, check_samples

if TYPE_CHECKING:
    import ray.data

    from percolab.loaders.torch_data import StreamingDataset, TokenDataset, TorchDataset


def to_torch(dataset: AnyDataset | Corpus | DocumentRange | StoredDocuments) -> TorchDataset | TokenDataset:
    """Return a ``torch.utils.data.Dataset`` of ``(X[i], y[i])``, read on demand: float32, labels int64.

    For a superposed world, items are its samples; for the y of one factor, pass ``world.swapped(k)``. For documents,
    item i is the tokens of document i, int64, made on demand unless they are in a store; for a corpus, these are the
    documents below 2^40, so do not shuffle them.
    """
    with needing("a torch Dataset needs", "torch"):
        from percolab.loaders.torch_data import TokenDataset, TorchDataset
    if isinstance(dataset, Corpus | DocumentRange | StoredDocuments):
        return TokenDataset(dataset)
    check_samples(dataset)
    return TorchDataset(dataset.X, dataset.y)


def to_torch_stream(path: PathLike | Corpus | DocumentRange, batch_size: int, **options: Any) -> StreamingDataset:
    """Return a ``torch.utils.data.IterableDataset`` of shuffled batches of the store at `path`, never whole in memory.

    For a corpus or a range of documents, batches are made on the fly. Options are those of
    `percolab.loaders.torch_data.StreamingDataset`.
    """
    with needing("a torch Dataset needs", "torch"):
        from percolab.loaders.torch_data import StreamingDataset
    return StreamingDataset(path, batch_size, **options)


def to_ray(path: PathLike, *, override_num_blocks: int | None = None, **options: Any) -> ray.data.Dataset:
    """Return a ``ray.data.Dataset`` of the points of the store at `path`, read on demand by Ray's workers.

    Options are those of `percolab.loaders.ray_data.PercolabSource`; `override_num_blocks` is Ray's: the number of read
    tasks. None takes two for each processor of the cluster; with the number that Ray would choose, reading is three to
    four times slower. docs/scale.md has rates.
    """
    with needing("a Ray Dataset needs", "ray"):
        import ray.data

        from percolab.loaders.ray_data import PercolabSource
    source = PercolabSource(path, **options)
    if override_num_blocks is None:
        override_num_blocks = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
    return ray.data.read_datasource(source, override_num_blocks=override_num_blocks)
