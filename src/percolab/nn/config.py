"""What determines a training run and a set of probes, checked once; scales of experiments. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from percolab.ground.validation import check_choice, check_integer, check_seed

SCALES = ("paper", "small")
"""Scales that experiments come at: the paper's, and one for a laptop."""
PROTOCOLS = ("random", "subtree")
"""Ways of holding rows out from probes; see `percolab.nn.probing.rows`."""

FIT_FROM = 10.0
"""FOM from which a second power law is fitted: below it, the smallest clusters are missing from multi-cluster data."""
UNTRAINED = 5
"""Least number of untrained networks, and of draws of random features, that trained ones are compared with."""


class Seeds(NamedTuple):
    """What a training run draws from."""

    split: int
    weights: int
    order: int


@dataclass(frozen=True)
class TrainConfig:
    """Everything that determines a training run, given the data; the defaults are the paper's one-cluster run.

    The learning rate of epoch e (from 0) is min_lr + (lr - min_lr) (1 + cos(π e / epochs)) / 2.
    """

    d_model: int = 256
    """width of the residual stream"""
    n_blocks: int = 3
    expansion: int = 4
    """width of a block's hidden layer, in units of d_model"""
    epochs: int = 500
    batch_size: int = 1024
    lr: float = 1e-4
    min_lr: float = 1e-6
    weight_decay: float = 0.01
    seed: int = 42
    """of the split, the initial weights and the order of the rows, unless one of them has its own"""
    split_seed: int | None = None
    weight_seed: int | None = None
    order_seed: int | None = None
    tf32: bool = True
    """whether matrix products on CUDA round their factors to TF32; the CPU always computes in float32"""
    bf16: bool = False
    """whether matrix products and activations on CUDA are in bfloat16; weights and their steps stay in float32"""

    def __post_init__(self) -> None:
        for name in ("d_model", "n_blocks", "expansion", "epochs", "batch_size"):
            check_integer(name, getattr(self, name), 1)
        for name in ("lr", "min_lr", "weight_decay"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 <= value < math.inf):
                raise ValueError(f"{name} must be a number of at least 0, got {value!r}")
        check_seed("seed", self.seed)
        for name in ("split_seed", "weight_seed", "order_seed"):
            if getattr(self, name) is not None:
                check_seed(name, getattr(self, name))

    @property
    def seeds(self) -> Seeds:
        """The seeds of split, initial weights and order of the rows."""
        given = (self.split_seed, self.weight_seed, self.order_seed)
        return Seeds(*(self.seed if seed is None else seed for seed in given))

    def with_seeds(self, seeds: Iterable[int]) -> list[Self]:
        """Return a configuration for each seed, of its initial weights and its order; the split is the same in all."""
        split = self.seeds.split
        return [replace(self, seed=seed, split_seed=split, weight_seed=None, order_seed=None) for seed in seeds]

    def lr_at(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        return self.min_lr + (self.lr - self.min_lr) * (1 + math.cos(math.pi * epoch / self.epochs)) / 2


@dataclass(frozen=True)
class ProbeConfig:
    """What determines the probes of a dataset's activations; the defaults are the paper's."""

    depths: tuple[int, ...] = tuple(range(0, 201, 5))
    min_latent_size: int = 150
    """points that a latent must have to be probed"""
    alpha: float = 1.0
    """strength of the ridge penalty on standardised activations"""
    train_share: float = 0.7
    """share of a depth's rows that the random protocol trains on"""
    folds: int = 3
    """number of parts that the subtree protocol deals subtrees to"""
    seed: int = 42
    protocols: tuple[str, ...] = PROTOCOLS
    draws: int = 5
    """how many times values are drawn afresh and targets are permuted"""
    subtree_alphas: tuple[float, ...] = (1.0, 1e2, 1e3, 1e4, 1e5)
    """penalties that the subtree protocol chooses from, by holding out subtrees of its training rows"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "depths", tuple(sorted({check_integer("depths", d, 0) for d in self.depths})))
        if not self.depths:
            raise ValueError("depths must not be empty, got ()")
        check_integer("min_latent_size", self.min_latent_size, 2)
        check_integer("folds", self.folds, 2)
        check_integer("draws", self.draws, 1)
        check_seed("seed", self.seed)
        if not self.alpha > 0:
            raise ValueError(f"alpha must be positive, got {self.alpha!r}")
        object.__setattr__(self, "subtree_alphas", tuple(self.subtree_alphas))
        if not self.subtree_alphas or not all(0 < alpha < math.inf for alpha in self.subtree_alphas):
            raise ValueError(f"subtree_alphas must be positive numbers, got {self.subtree_alphas!r}")
        if not 0 < self.train_share < 1:
            raise ValueError(f"train_share must be between 0 and 1, got {self.train_share!r}")
        object.__setattr__(self, "protocols", tuple(check_choice("protocols", p, PROTOCOLS) for p in self.protocols))
