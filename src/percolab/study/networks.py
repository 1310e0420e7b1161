"""Networks from a seed: the paper's, a transformer, or the user's; untrained, trained, or with fresh weights."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from percolab.corpora.corpus import Corpus
from percolab.ground.text import one_line
from percolab.nn.config import AnyTrainConfig
from percolab.nn.training.subjects import new_mlp, new_transformer
from percolab.study.subject import AnyData


def untrained(config: AnyTrainConfig, data: AnyData, seed: int, make: str = "") -> Any:
    """Return a network with the initial weights of a seed: the user's, a transformer for documents, or the paper's."""
    if make:
        return find_make(make)(data, seed)
    [seeded] = config.with_seeds([seed])
    if isinstance(data, Corpus):
        return new_transformer(seeded, data)  # type: ignore[arg-type]
    return new_mlp(seeded, data.X.shape[1], None)  # type: ignore[arg-type]


def find_make(name: str) -> Callable[[Any, int], nn.Module]:
    """Return the function that ``module:function`` names."""
    module, _, function = name.partition(":")
    try:
        make = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"network must be a function that can be imported, got {name!r}: {one_line(error)}") from None
    if not callable(make):
        raise ValueError(f"network must be a function make(data, seed), got {name!r}")
    return make


def own_network(name: str, data: AnyData, seed: int) -> nn.Module:
    """Return the network that ``module:function`` makes: trained elsewhere, or by its method `fit` if it has one."""
    model: Any = find_make(name)(data, seed)
    if callable(getattr(model, "fit", None)):
        model.fit(data, seed)
    return model


def with_fresh_weights(model: nn.Module, seed: int) -> nn.Module:
    """Return a network of the same shape with fresh weights, by the `reset_parameters` of its modules.

    Raises if no module resets a weight, since that weight would stay trained.
    """
    fresh = copy.deepcopy(model).cpu()
    reset_below: list[str] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for name, module in fresh.named_modules():
            # nn.MultiheadAttention uses the second name.
            reset = getattr(module, "reset_parameters", getattr(module, "_reset_parameters", None))
            if callable(reset):
                reset()
                reset_below.append(f"{name}." if name else "")
            elif not f"{name}.".startswith(tuple(reset_below)):
                for weight, _ in module.named_parameters(recurse=False):
                    owner = f"{type(module).__name__} {name!r}" if name else type(module).__name__
                    rule = "network must have reset_parameters() in every module with weights, for an untrained one"
                    raise ValueError(f"{rule} beside it, got none for {weight!r} of {owner}")
    return fresh
