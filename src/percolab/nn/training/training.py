"""Training: AdamW, a falling learning rate, the last weights; on rows as in the paper, or on documents."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, overload

import pandas
from torch import Tensor, nn

from percolab.corpora.corpus import Corpus
from percolab.dataset.dataset import SampleSet
from percolab.ground import memory
from percolab.ground.devices import Device, choose_device, device_name, tf32
from percolab.ground.files import PathLike
from percolab.ground.progress import bar
from percolab.ground.text import counted
from percolab.nn.config import AnyTrainConfig, CorpusTrainConfig, TrainConfig, training_from
from percolab.nn.networks.model import ResidualMLP, joined, member_weights
from percolab.nn.networks.transformer import Transformer
from percolab.nn.training import checkpoint
from percolab.nn.training.history import EpochProgress, by_epoch
from percolab.nn.training.run import Plan, Run, check_same, fitting
from percolab.nn.training.subjects import DocumentsOf, Rows, new_mlp, new_transformer, subject
from percolab.worlds.splits import Split
from percolab.worlds.superposed import AnyDataset

Model = nn.Module | Sequence[nn.Module] | Callable[[int], nn.Module]
Data = AnyDataset | Corpus

COMPILED_FROM = 9000  #: Fewest steps on documents for which compiling pays: it takes 19 s and saves 2.1 ms per step.
WEIGHT_BYTES = 16  #: Memory of a weight while it is trained, with its gradient and its moments.
MODULE_BYTES = 1 << 14  #: Memory of a block besides its weights: Python objects.


@dataclass(frozen=True, eq=False)
class TrainResult:
    """A trained model and its history."""

    model: nn.Module
    config: AnyTrainConfig
    #: one row per epoch: epoch, lr, train_loss, train_r2, validation_loss, validation_r2; for labels train_loss,
    #: validation_loss and validation_accuracy; on documents one row per `every` steps: step, lr, train_loss,
    #: validation_loss, floor, excess
    history: pandas.DataFrame
    #: `RegressionScore` on the validation rows; for labels `LabelScore`; on held-out documents `DocumentScore`
    validation: Any
    test: Any  #: the same on the test rows, or on other held-out documents
    #: wall time of all epochs or steps, the recording of the CUDA graph included, over all parts of a resumed run;
    #: networks trained together have it in common
    seconds: float
    device: str
    split: Any  #: `Split`, the rows it was trained, validated and tested on; None on documents
    #: weights after the epochs or steps that were to be kept, on the CPU; 0 is before the first
    kept: dict[int, dict[str, Tensor]] = field(default_factory=dict, repr=False)
    waited: float = 0.0  #: seconds in which training waited for documents, since it was last begun or resumed

    def model_at(self, done: int) -> nn.Module:
        """Return the model as it was after an epoch or step that was kept; 0 gives the untrained one."""
        if done not in self.kept:
            raise ValueError(f"{self.config.unit} must be one that was kept ({sorted(self.kept)}), got {done!r}")
        model = copy.deepcopy(self.model)
        model.load_state_dict(self.kept[done])
        return model

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {value:.4g}" for name, value in numbers(self.test).items())
        length = counted(self.history[self.config.unit].max(), self.config.unit)
        return f"TrainResult({length}, test {scores}, {self.seconds:.1f} s on {self.device})"


def numbers(score: Any) -> dict[str, float]:
    """Return the single numbers of a score, by name."""
    values = ((field.name, getattr(score, field.name)) for field in dataclasses.fields(score))
    return {name: value for name, value in values if isinstance(value, float)}


@overload
def train(data: Data, config: AnyTrainConfig | None = ..., *, seeds: None = ..., **options: Any) -> TrainResult: ...


@overload
def train(
    data: Data, config: AnyTrainConfig | None = ..., *, seeds: Iterable[int], **options: Any
) -> list[TrainResult]: ...


@overload
def train(data: Data, config: Sequence[AnyTrainConfig], **options: Any) -> list[TrainResult]: ...


def train(  # type: ignore[misc]  # the options are spelled out here alone
    data: Data,
    config: AnyTrainConfig | Sequence[AnyTrainConfig] | None = None,
    *,
    seeds: Iterable[int] | None = None,
    model: Model | None = None,
    targets: Any = None,
    split: Split | Sequence[Split] | None = None,
    keep: Iterable[int] = (),
    run_dir: PathLike | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: Device = "auto",
    graph: bool = True,
    compiled: bool | None = None,
    progress: bool | EpochProgress = False,
) -> TrainResult | list[TrainResult]:
    """Train a network, or several at once, and score it on held-out data.

    On a dataset, training goes by epochs. The loss of numbers is the squared error; that of labels, a y of integers,
    the cross-entropy. All data stay on the device and no Python runs per sample; on CUDA an epoch is one CUDA graph.

    On a corpus, training goes by steps over the endless stream of its documents, each of which is used once, for the
    cross-entropy of the next token. The loss on held-out documents, from 2^40 on, is reported with its floor; their
    difference is the `excess`. On CUDA a step is one CUDA graph, and documents are made in the meantime.

    Batches are the same on any device. The same configuration gives the same weights on the same machine.

    Parameters
    ----------
    data
        A dataset, a superposed world, or a `Corpus`.
    config
        A `TrainConfig`; for a corpus a `CorpusTrainConfig`. A list of them, which differ in nothing but their seeds,
        trains one network for each and returns a list of results.
    seeds
        Train one network for each seed, and return a list of results. On a GPU, several of the paper's networks take
        little longer than one. A seed determines initial weights and order of rows; the split is the configuration's.
    model
        Any module that maps (n, d) to n numbers, or to (n, C) logits; for a corpus, tokens (n, T) to logits (n, T, V).
        It is trained in place. For several networks: a function that makes a module from a seed, or a list of modules.
        None makes the `ResidualMLP` or the `Transformer` of the configuration.
    targets
        (E, n) targets for the same points, one row for each of E networks; None takes the dataset's y for all.
    split
        Rows to train, validate and test on, for all networks or one for each; None splits them as in the paper, see
        `split_rows`.
    keep
        Epochs, or steps, whose weights are kept; 0 is before the first.
    run_dir
        Directory for config.json, metrics.csv and checkpoint.pt; made if it is missing.
    resume
        Continue from the checkpoint in `run_dir`; the final weights are those of an uninterrupted run.
    overwrite
        Start again in a `run_dir` that holds a run; the old run is removed when training begins.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    graph
        Whether to use a CUDA graph; False for models whose control flow depends on their data.
    compiled
        Whether to compile a step on documents with `torch.compile`, which takes about 20 seconds; None compiles on a
        GPU from 9,000 steps on, where this saves more time than it takes.
    progress
        True shows a bar; a function is called with (epoch, epochs, training loss, validation R² or accuracy), on
        documents with (step, steps, training loss, excess), for every row of the history, in order, with a short delay;
        for several networks with the means.
    """
    if not isinstance(data, SampleSet | Corpus):
        raise ValueError(f"data must be a dataset, a world or a corpus, got {type(data).__name__}")
    if config is None:
        config = CorpusTrainConfig() if isinstance(data, Corpus) else TrainConfig()
    if seeds is not None and not isinstance(seeds, Iterable):
        raise ValueError(f"seeds must be a list, with one for each network, got {seeds!r}: write range({seeds!r})")
    alone = isinstance(config, AnyTrainConfig) and seeds is None
    if not isinstance(config, AnyTrainConfig | Sequence):
        raise ValueError(f"config must be a TrainConfig, or a CorpusTrainConfig, got a {type(config).__name__}")
    if not isinstance(config, AnyTrainConfig):
        if seeds is not None:
            raise ValueError("seeds must be left out where there is a configuration for each network")
        configs = list(config)
    else:
        configs = [config] if seeds is None else list(config.with_seeds(seeds))
    _check_members(configs)
    device = choose_device(device)
    on = subject(data, configs, targets, split, device)
    if compiled is None:
        long = isinstance(configs[0], CorpusTrainConfig) and configs[0].steps >= COMPILED_FROM
        compiled = long and device.type == "cuda" and model is None
    directory = None if run_dir is None else Path(run_dir)
    plan = Plan(on.recipe, configs, on.digest, _kept(keep, configs[0]), directory)
    state = plan.state(resume=resume, overwrite=overwrite)
    if model is None:
        _check_size(configs[0], len(configs), data, state)
    models = _models(model, configs, on)
    for each in models:
        on.check(each.to(device))
    with tf32(configs[0].tf32):
        run = Run(plan, joined(models), partial(on.course, graph=graph, compiled=compiled), state)
        if overwrite and state is None:
            plan.clear()  # only now that everything fits: a refused run leaves the old one
        _loop(run, progress)
        results = [_result(run, i, each, on) for i, each in enumerate(models)]
    return results[0] if alone else results


def train_ensemble(
    dataset: AnyDataset, configs: Sequence[TrainConfig], *, models: Sequence[nn.Module] | None = None, **options: Any
) -> list[TrainResult]:
    """Train several networks at once: the older name of `train` with a list of configurations."""
    return train(dataset, configs, model=models, **options)


@overload
def load_model(run_dir: PathLike, data: AnyDataset, *, member: int = ..., device: Device = ...) -> ResidualMLP: ...


@overload
def load_model(run_dir: PathLike, data: Corpus, *, member: int = ..., device: Device = ...) -> Transformer: ...


def load_model(run_dir: PathLike, data: Data, *, member: int = 0, device: Device = "auto") -> ResidualMLP | Transformer:
    """Return the network of a finished or interrupted run on this data; of several networks, one member.

    It is the `ResidualMLP` or the `Transformer` of the run's configuration. The weights of a user's model are under
    ``model`` in checkpoint.pt.
    """
    device = choose_device(device)
    state = checkpoint.load(Path(run_dir) / "checkpoint.pt")
    check_same("recipe", state["recipe"], (data if isinstance(data, Corpus) else data.recipe).to_dict())
    n_members = len(state["configs"])
    if not 0 <= member < n_members:
        raise ValueError(f"member must be from 0 to {n_members - 1}, got {member!r}")
    config = training_from(state["configs"][member])
    _check_size(config, n_members, data, state)
    model: ResidualMLP | Transformer
    with fitting():
        weights = member_weights(state["model"], member) if n_members > 1 else state["model"]
        if isinstance(data, Corpus):
            model = new_transformer(config, data)  # type: ignore[arg-type]
        else:
            outputs = len(weights["output.bias"]) if state["losses"].shape[-1] > 2 else None
            model = new_mlp(config, data.recipe.dim, outputs)  # type: ignore[arg-type]
        checkpoint.check_like(weights, model.state_dict())
        model.load_state_dict(weights)
    return model.to(device)


def _loop(run: Run, progress: bool | EpochProgress) -> None:
    if progress is True:
        with bar() as display:
            run.loop(by_epoch(display, run.course.measure_name))
    else:
        run.loop(progress or None)


def _result(run: Run, index: int, model: nn.Module, on: Rows | DocumentsOf) -> TrainResult:
    model.load_state_dict(run.weights(index))
    return TrainResult(
        model,
        run.plan.configs[index],
        run.history(index),
        on.score(model, index, "validation"),
        on.score(model, index, "test"),
        run.seconds,
        device_name(run.device),
        on.splits[index],
        {done: run.weights(index, weights) for done, weights in sorted(run.kept.items())},
        run.course.waited,
    )


# ---------------------------------------------------------------------- checks


def _check_members(configs: Sequence[AnyTrainConfig]) -> None:
    """Raise unless there are members, and they differ in nothing but their seeds."""
    if not configs:
        raise ValueError("configs must have a member, got none")
    first, *others = ({k: v for k, v in dataclasses.asdict(c).items() if not k.endswith("seed")} for c in configs)
    for i, other in enumerate(others, 1):
        for name, value in other.items():
            if value != first[name]:
                raise ValueError(f"configs must differ in nothing but seeds, got {name} {value!r} in member {i}")


def _check_size(config: AnyTrainConfig, n_members: int, data: Data, state: checkpoint.State | None) -> None:
    """Raise, before networks are made, unless a checkpoint has enough weights for them, and they fit in memory."""
    inputs = data.n_tokens + data.length if isinstance(data, Corpus) else data.recipe.dim
    blocks = config.n_blocks * 2 * config.expansion * config.d_model**2  # the matrices of all blocks
    inside = n_members * (inputs * config.d_model + blocks)
    if state is not None and inside > sum(value.numel() for value in state["model"].values()):
        raise ValueError(f"checkpoint must have the weights of {n_members} networks as they are configured, got fewer")
    needed = WEIGHT_BYTES * inside + MODULE_BYTES * n_members * config.n_blocks
    memory.require(needed, f"networks of {config.n_blocks} blocks of {config.d_model} need")


def _models(model: Model | None, configs: Sequence[AnyTrainConfig], on: Rows | DocumentsOf) -> list[nn.Module]:
    """Return a network for each configuration."""
    if model is None:
        return [on.new(index) for index in range(len(configs))]
    if isinstance(model, nn.Module):
        models = [model]
    elif callable(model):
        models = [model(config.start) for config in configs]
    else:
        models = list(model)
    for each in models:
        if not isinstance(each, nn.Module):
            raise ValueError(f"model must be a torch module, or a function that makes one, got {type(each).__name__}")
    if len(models) != len(configs) or len({id(each) for each in models}) != len(models):
        rule = f"model must be {len(configs)} different networks, or a function that makes one from a seed"
        raise ValueError(f"{rule}, got {len({id(each) for each in models})}")
    return models


def _kept(keep: Iterable[int], config: AnyTrainConfig) -> frozenset[int]:
    kept = frozenset(keep)
    for done in kept:
        if not 0 <= done <= config.total:
            raise ValueError(f"keep must be {config.unit}s from 0 to {config.total}, got {done!r}")
    return kept
