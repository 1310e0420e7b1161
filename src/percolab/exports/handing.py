"""Datasets handed to torch and to Ray, which read them when they are asked for rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from percolab.ground.files import PathLike
from percolab.worlds.truth import AnyDataset

if TYPE_CHECKING:
    import ray.data

    from percolab.loaders.torch_data import StreamingDataset, TorchDataset


def to_torch(dataset: AnyDataset) -> TorchDataset:
    """Return a ``torch.utils.data.Dataset`` of ``(X[i], y[i])``, read when asked for: float32, labels int64.

    Of a superposed world these are its samples; for the y of one factor, hand over ``world.swapped(k)``.
    """
    try:
        from percolab.loaders.torch_data import TorchDataset
    except ImportError as error:
        raise ImportError("a torch Dataset needs torch: pip install 'percolab[torch]'") from error
    return TorchDataset(dataset.X, dataset.y)


def to_torch_stream(path: PathLike, batch_size: int, **options: Any) -> StreamingDataset:
    """Return a ``torch.utils.data.IterableDataset`` of shuffled batches of the store at `path`, never whole in memory.

    Options are those of `percolab.loaders.torch_data.StreamingDataset`.
    """
    try:
        from percolab.loaders.torch_data import StreamingDataset
    except ImportError as error:
        raise ImportError("a torch Dataset needs torch: pip install 'percolab[torch]'") from error
    return StreamingDataset(path, batch_size, **options)


def to_ray(path: PathLike, *, override_num_blocks: int | None = None, **options: Any) -> ray.data.Dataset:
    """Return a ``ray.data.Dataset`` of the points of the store at `path`, read by Ray's workers when asked for.

    Options are those of `percolab.loaders.ray_data.PercolabSource`; `override_num_blocks` is Ray's: the read tasks.
    """
    try:
        import ray.data

        from percolab.loaders.ray_data import PercolabSource
    except ImportError as error:
        raise ImportError("a Ray Dataset needs ray: pip install 'percolab[ray]'") from error
    source = PercolabSource(path, **options)
    made: ray.data.Dataset = ray.data.read_datasource(source, override_num_blocks=override_num_blocks)
    return made
