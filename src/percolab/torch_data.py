"""A dataset as torch sees it. Imported only through `percolab.exports.to_torch`, which needs torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.utils.data
from numpy.typing import NDArray

if TYPE_CHECKING:
    from percolab.storage import StoredArray

Sample = tuple[torch.Tensor, torch.Tensor]


class TorchDataset(torch.utils.data.Dataset[Sample]):
    """Pairs ``(X[i], y[i])`` as float32 tensors of shape (d,) and (); X may stay on disk.

    Rows that are neighbours are relatives, so load with ``shuffle=True``. A `DataLoader` fetches a batch at once
    through ``__getitems__``, which reads each chunk of a stored X at most once a batch.
    """

    def __init__(self, X: NDArray[Any] | StoredArray, y: NDArray[np.float64]) -> None:
        self.X = X
        self.y = torch.from_numpy(np.asarray(y, np.float32))

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> Sample:
        # Indexing y first raises IndexError past the end, which ends a plain `for` over the dataset.
        target = self.y[index]
        return torch.from_numpy(np.array(self.X[index], np.float32)), target

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """Return the samples of a batch."""
        rows, place = np.unique(np.asarray(indices, np.int64), return_inverse=True)
        X = torch.from_numpy(np.asarray(self.X[rows], np.float32))
        y = self.y[torch.from_numpy(rows)]
        return [(X[k], y[k]) for k in place.tolist()]
