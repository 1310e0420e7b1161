"""The paper's split of a dataset: 80% of the rows to train on, 10% to validate, 10% to test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from percolab.dataset.dataset import Dataset
from percolab.ground.validation import check_seed

Ints = NDArray[np.int64]

TRAIN_SHARE, VALIDATION_SHARE = 0.8, 0.1
SPLIT_SEED = 42
LEAST_ROWS = 10
"""Fewest rows that leave something in every part."""


@dataclass(frozen=True, eq=False)
class Split:
    """Three disjoint sets of rows that make up the dataset. Rows are those of the dataset, in leaf order."""

    train: Ints
    validation: Ints
    test: Ints


def split_rows(dataset: Dataset, seed: int = SPLIT_SEED) -> Split:
    """Split the rows at random, as the paper does.

    A permutation from ``torch.randperm`` with this seed is applied to the rows in release order; the first int(0.8 n)
    train, the next int(0.1 n) validate, the rest test.
    """
    n = len(dataset)
    if n < LEAST_ROWS:
        raise ValueError(f"dataset must have at least {LEAST_ROWS} points to be split, got {n}")
    generator = torch.Generator().manual_seed(check_seed("seed", seed) % 2**63)
    rows = dataset.release_order[torch.randperm(n, generator=generator).numpy()]
    train, validation = int(TRAIN_SHARE * n), int(VALIDATION_SHARE * n)
    return Split(rows[:train], rows[train : train + validation], rows[train + validation :])
