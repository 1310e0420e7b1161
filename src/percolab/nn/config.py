"""Configurations of training runs and of probes, checked once; scales of experiments. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

from percolab.corpora.corpus import HELD_OUT
from percolab.ground.validation import check_choice, check_integer, check_number, check_seed, fill

SCALES = ("paper", "small")  #: Scales of experiments: the paper's, and one for a laptop.
PROTOCOLS = ("random", "subtree")  #: Ways of holding rows out from probes; see `percolab.nn.probing.probed_latents`.

#: FOM from which a second power law is fitted: below it, the smallest clusters are missing from multi-cluster data.
FITTED_FOM = 10.0
#: Fewest untrained networks, and fewest draws of random features, that trained networks are compared with.
UNTRAINED = 5


class TrainSeeds(NamedTuple):
    """The seeds of a training run."""

    split: int
    weights: int
    order: int


@dataclass(frozen=True)
class Training:
    """Settings of training on any data: the shape of the network, the optimiser, the precision."""

    d_model: int = 256  #: width of the residual stream
    n_blocks: int = 3
    expansion: int = 4  #: width of a block's hidden layer, in units of d_model
    batch_size: int = 1024  #: rows, or documents, per step
    lr: float = 1e-4  #: largest learning rate of AdamW
    min_lr: float = 1e-6  #: learning rate at the end
    weight_decay: float = 0.01
    seed: int = 42
    #: whether matrix products on CUDA round their factors to TF32; the CPU always computes in float32
    tf32: bool = True
    #: whether matrix products and activations on CUDA are in bfloat16; weights and their steps stay in float32
    bf16: bool = False

    unit: ClassVar[str]  #: the unit of a run's length, epochs or steps
    _COUNTS: ClassVar[tuple[str, ...]] = ("d_model", "n_blocks", "expansion", "batch_size")

    def __post_init__(self) -> None:
        # NumPy's numbers become Python's: they are written to JSON and to checkpoints, which hold nothing else.
        fill(self, **{name: check_integer(name, getattr(self, name), 1) for name in self._COUNTS})
        rates = ("lr", "min_lr", "weight_decay")
        fill(self, **{name: check_number(name, getattr(self, name), 0) for name in rates})
        fill(self, seed=check_seed("seed", self.seed))

    @property
    def total(self) -> int:
        """Length of the run, in units."""
        return int(getattr(self, f"{self.unit}s"))

    def _cosine(self, share: float) -> float:
        return self.min_lr + (self.lr - self.min_lr) * (1 + math.cos(math.pi * share)) / 2


@dataclass(frozen=True)
class TrainConfig(Training):
    """Everything that determines training on a dataset, given the data; the defaults are the paper's one-cluster run.

    The learning rate of epoch e (from 0) is min_lr + (lr - min_lr) (1 + cos(π e / epochs)) / 2. `seed` seeds
    the split, the initial weights and the order of the rows, unless one of them has its own seed.
    """

    epochs: int = 500
    split_seed: int | None = None
    weight_seed: int | None = None
    order_seed: int | None = None

    unit: ClassVar[str] = "epoch"
    every: ClassVar[int] = 1  #: units from one row of the history to the next
    _COUNTS: ClassVar[tuple[str, ...]] = (*Training._COUNTS, "epochs")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("split_seed", "weight_seed", "order_seed"):
            if getattr(self, name) is not None:
                fill(self, **{name: check_seed(name, getattr(self, name))})

    @property
    def seeds(self) -> TrainSeeds:
        """The seeds of split, initial weights and order of the rows."""
        given = (self.split_seed, self.weight_seed, self.order_seed)
        return TrainSeeds(*(self.seed if seed is None else seed for seed in given))

    @property
    def start(self) -> int:
        """Seed of the initial weights."""
        return self.seeds.weights

    def with_seeds(self, seeds: Iterable[int]) -> list[Self]:
        """Return one configuration per seed, of initial weights and order of rows; all share the split."""
        split = self.seeds.split
        return [replace(self, seed=seed, split_seed=split, weight_seed=None, order_seed=None) for seed in seeds]

    def lr_at(self, done: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        return self._cosine(done / self.epochs)


@dataclass(frozen=True)
class CorpusTrainConfig(Training):
    """Everything that determines training on documents, given the corpus.

    Step s (from 0) is taken on documents first + s·batch_size to first + (s + 1)·batch_size - 1. The learning rate
    rises linearly to `lr` over the steps of `warmup`, then falls as a cosine to `min_lr`. `seed` seeds the initial
    weights; the corpus determines the documents.
    """

    n_blocks: int = 4
    batch_size: int = 256
    lr: float = 1e-3
    min_lr: float = 0.0
    bf16: bool = True
    n_heads: int = 4
    steps: int = 5000
    warmup: int = 200
    #: number of the first document: a second training can continue with documents that the first one did not use
    first: int = 0
    every: int = 100  #: steps between losses on held-out documents
    held_out: int = 512  #: documents for this loss; as many others are for the test at the end

    unit: ClassVar[str] = "step"
    _COUNTS: ClassVar[tuple[str, ...]] = (*Training._COUNTS, "n_heads", "steps", "every", "held_out")

    def __post_init__(self) -> None:
        super().__post_init__()
        fill(self, **{name: check_integer(name, getattr(self, name), 0) for name in ("warmup", "first")})
        if self.first + self.steps * self.batch_size > HELD_OUT:
            used = f"{self.first} + {self.steps} * {self.batch_size}"
            raise ValueError(f"first + steps * batch_size must be at most 2**40, where held-out ones begin, got {used}")

    @property
    def start(self) -> int:
        """Seed of the initial weights."""
        return self.seed

    def with_seeds(self, seeds: Iterable[int]) -> list[Self]:
        """Return a configuration for each seed."""
        return [replace(self, seed=seed) for seed in seeds]

    def lr_at(self, done: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        if done < self.warmup:
            return self.lr * (done + 1) / self.warmup
        return self._cosine((done - self.warmup) / max(1, self.steps - self.warmup))


AnyTrainConfig = TrainConfig | CorpusTrainConfig


def training_from(values: Mapping[str, Any]) -> AnyTrainConfig:
    """Return the configuration with the values of a checkpoint."""
    return (CorpusTrainConfig if "steps" in values else TrainConfig)(**values)


@dataclass(frozen=True)
class ProbeConfig:
    """Settings of the probes of a dataset's activations; the defaults are the paper's."""

    depths: tuple[int, ...] = tuple(range(0, 201, 5))
    min_latent_size: int = 150  #: fewest points of a probed latent
    alpha: float = 1.0  #: strength of the ridge penalty on standardised activations
    train_share: float = 0.7  #: share of a depth's rows that the random protocol trains on
    folds: int = 3  #: number of folds of the subtree protocol
    seed: int = 42
    protocols: tuple[str, ...] = PROTOCOLS
    draws: int = 5  #: number of draws of fresh values, and of permutations of targets
    #: penalties that the subtree protocol chooses from, by holding out subtrees of its training rows
    subtree_alphas: tuple[float, ...] = (1.0, 1e2, 1e3, 1e4, 1e5)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depths", tuple(sorted({check_integer("depths", d, 0) for d in self.depths})))
        if not self.depths:
            raise ValueError("depths must not be empty, got ()")
        least = {"min_latent_size": 2, "folds": 2, "draws": 1}
        fill(self, **{name: check_integer(name, getattr(self, name), low) for name, low in least.items()})
        fill(self, seed=check_seed("seed", self.seed))
        if not self.alpha > 0:
            raise ValueError(f"alpha must be positive, got {self.alpha!r}")
        object.__setattr__(self, "subtree_alphas", tuple(self.subtree_alphas))
        if not self.subtree_alphas or not all(0 < alpha < math.inf for alpha in self.subtree_alphas):
            raise ValueError(f"subtree_alphas must be positive numbers, got {self.subtree_alphas!r}")
        if not 0 < self.train_share < 1:
            raise ValueError(f"train_share must be between 0 and 1, got {self.train_share!r}")
        object.__setattr__(self, "protocols", tuple(check_choice("protocols", p, PROTOCOLS) for p in self.protocols))
