"""Causal readers: what a network predicts when its activations are changed, beside the exact answer.

They read networks of documents, not activations. Their units are contexts, or pairs of sibling contexts. For each pair,
documents are made in two versions from the same random draws: from some position on, one version has the first context
and the other has its sibling (`Corpus.counterfactual`). The prediction after some more tokens is compared with the
exact one for either version. Directions are fitted on the readers' training documents, and tried on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from percolab.features.register import MODEST, as_taken, entry, fitted
from percolab.ground.arrays import Ints, as_array
from percolab.intervals import places
from percolab.nn.interventions import ablate, patch, steer
from percolab.nn.networks.activations import activations
from percolab.nn.networks.excess import kl, token_losses
from percolab.nn.networks.model import evaluating
from percolab.nn.probing import siblings
from percolab.study.measured import Reading, Units
from percolab.study.subject import DocumentView, View

SPAN = 12  #: Tokens of the other context before the prediction that is compared.
DOCUMENTS = 128  #: Most documents of a pair, in the part that fits and in the part that tries.
MOST_PAIRS = 64  #: Most pairs of siblings.
STEPS, RATE = 60, 0.05  #: Steps and learning rate of a learned subspace.
RANDOM, WHOLE = "random", "whole"
SUBSPACES = ("sibling", "probe", "learned", RANDOM, WHOLE)


@dataclass(frozen=True, eq=False)
class Swap:
    """Documents in two versions, both ways, from the same draws: from a position on, one context or its sibling."""

    #: (2n, positions) tokens: of the first n the context is the first of the pair, of the others the second
    base: torch.Tensor
    exact: torch.Tensor  #: (2n, V) exact distribution of the next token
    first: int  #: first position at which the two versions differ

    @property
    def source(self) -> torch.Tensor:
        """(2n, positions) tokens of the other version of each document, with the sibling context."""
        return _exchanged(self.base)

    @property
    def exact_source(self) -> torch.Tensor:
        """(2n, V) exact distribution of the next token in the other version."""
        return _exchanged(self.exact)

    @property
    def positions(self) -> slice:
        """The positions at which the two versions differ."""
        return slice(self.first, None)

    @property
    def sign(self) -> torch.Tensor:
        """(2n,) 1 where the other context is the second of the pair, -1 where it is the first."""
        return torch.tensor([1.0, -1.0], device=self.base.device).repeat_interleave(len(self.base) // 2)


def _exchanged(values: torch.Tensor) -> torch.Tensor:
    return values.roll(len(values) // 2, 0)


def sibling_contexts(view: DocumentView) -> tuple[Ints, Units]:
    """Return (P, 2) contexts with the same nearest context above."""
    labels = view.labels()
    bounds, above = siblings.sibling_groups(labels)
    pairs = bounds[:, 0].T  # the first label inside a context is its own number
    chosen = siblings.choose(labels.forest.latent_size[pairs].min(1), 0, MOST_PAIRS)
    if not chosen.size:
        raise ValueError("contexts must have siblings to be compared with, got no context with a sibling")
    return pairs[chosen], Units(above[chosen], pairs[chosen, 0])


def swap(view: DocumentView, rows: Ints, pair: Ints, device: torch.device) -> Swap:
    """Return documents of some rows of a view, with either context of a pair."""
    length = view.shape[1]
    first = length // 4
    stop = min(first + SPAN, length)
    numbers = np.unique(rows // length)
    numbers = numbers[~view.documents.renewed[numbers, first + 1 : stop].any(1)][:DOCUMENTS]
    if not numbers.size:
        raise ValueError(f"rows must be more documents: all have a new context between positions {first} and {stop}")
    columns = {field.name: getattr(view.documents, field.name)[numbers] for field in fields(view.documents)}
    documents = replace(view.documents, **columns)
    tokens = [view.data.counterfactual(documents, first, int(context)).tokens[:, :stop] for context in pair]
    both = np.concatenate(tokens)
    exact = torch.from_numpy(view.data.predict(both)).to(device)
    return Swap(torch.from_numpy(both).to(device).long(), exact, first)


@dataclass(frozen=True, eq=False)
class _Fitted:
    """A network's activations of the documents that directions are fitted on."""

    model: nn.Module
    layer: str
    swap: Swap
    values: torch.Tensor  #: (2, rows, width) in either context

    @classmethod
    def to(cls, model: nn.Module, layer: str, swapped: Swap) -> _Fitted:
        recorded = activations(model, swapped.base, [layer], device=swapped.base.device)[layer]
        return cls(model, layer, swapped, recorded[:, swapped.positions].double().flatten(0, 1).unflatten(0, (2, -1)))

    @property
    def sibling(self) -> torch.Tensor:
        """(width,) from the mean in the first context to the mean in the second."""
        return self.values[1].mean(0) - self.values[0].mean(0)

    @property
    def probe(self) -> torch.Tensor:
        """(width,) the linear discriminant of the two contexts."""
        centred = (self.values - self.values.mean(1, keepdim=True)).flatten(0, 1)
        factor = siblings.covariance_factor(centred, np.arange(len(centred)), centred.device)
        return torch.cholesky_solve(self.sibling[:, None], factor)[:, 0]

    @property
    def learned(self) -> torch.Tensor:
        """(width,) the direction in which patches bring predictions nearest to the exact ones, by gradient descent."""
        direction = (self.sibling / self.sibling.norm()).requires_grad_()
        optimizer, swapped = torch.optim.Adam([direction], lr=RATE), self.swap
        best: torch.Tensor = direction.detach().clone()
        least = float("inf")
        with torch.enable_grad(), patch(self.model, self.layer, swapped.source, direction, swapped.positions):
            for _ in range(STEPS):
                loss = kl(swapped.exact_source, self.model(swapped.base)[:, -1]).mean()
                if float(loss.detach()) < least:
                    best, least = direction.detach().clone(), float(loss.detach())
                (direction.grad,) = torch.autograd.grad(loss, [direction])  # the network keeps its own gradients
                optimizer.step()
        return best


#: A function that finds a direction in the activations of a pair; None is the whole layer.
Direction = Callable[[_Fitted], torch.Tensor | None]


@dataclass(frozen=True, eq=False)
class Interchange:
    """Whether patching a subspace makes the network predict as the counterfactual document.

    The measure is the share of the exact divergence between the two documents that the patch bridges: 1 for a perfect
    network patched in all it needs, 0 if the patch brings the prediction no nearer to the exact one. Subspaces have one
    dimension, except the whole layer, which is the ceiling. The floor is a random direction.

    Parameters
    ----------
    subspaces
        Which subspaces, in this order: "sibling" (the difference of means), "probe" (a linear discriminant), "learned"
        (by gradient descent), "random", "whole".
    along
        Feature methods, such as "kmeans" or "topk@k=8". A method's direction is the change of the activations made by
        the two features that rise most and fall most from one context to the other.
    """

    name: str = "interchange"
    subspaces: Sequence[str] = SUBSPACES
    along: Sequence[str] = ()

    def read_network(self, view: View, model: nn.Module, layer: str, seed: int) -> list[Reading]:
        """Return the share of every pair of siblings, by subspace."""
        view = _documents(self.name, view)
        methods, rng = _fit_methods(self.along, view, model, layer, seed), np.random.default_rng((seed, 1))
        directions: dict[str, Direction] = {name: partial(_subspace, name, rng=rng) for name in self.subspaces}
        directions |= {name: partial(_moved_by, method) for name, method in methods.items()}
        return _bridged(view, model, layer, directions)


def bridged(view: DocumentView, model: nn.Module, layer: str, method: Any, seed: int) -> tuple[float, float]:
    """Return the mean share that patches along the features of a fitted method bridge, and random directions."""
    draw = partial(_subspace, RANDOM, rng=np.random.default_rng((seed, 1)))
    readings = _bridged(view, model, layer, {"method": partial(_moved_by, method), RANDOM: draw})
    along, at_random = (float(reading.values.mean()) for reading in readings)
    return along, at_random


def _bridged(view: DocumentView, model: nn.Module, layer: str, directions: Mapping[str, Direction]) -> list[Reading]:
    """Return the share of every pair of siblings, by the function that finds a direction in the training documents."""
    device = _device(model)
    pairs, units = sibling_contexts(view)
    shares = np.empty((len(directions), len(pairs)))
    with evaluating(model):
        for i, pair in enumerate(pairs):
            fit = _Fitted.to(model, layer, swap(view, view.train, pair, device))
            tried = swap(view, view.test, pair, device)
            for j, find in enumerate(directions.values()):
                shares[j, i] = _share(model, layer, tried, find(fit))
    return [Reading(name, units, values) for name, values in zip(directions, shares, strict=True)]


def _fit_methods(names: Sequence[str], view: DocumentView, model: nn.Module, layer: str, seed: int) -> dict[str, Any]:
    """Return feature methods by name, fitted on the activations of the documents that readers are fitted on."""
    if not names:
        return {}
    device, tokens = _device(model), view.inputs[: view.train.size // view.shape[1]]
    values = activations(model, tokens, [layer], device=device)[layer].flatten(0, 1)
    return {name: fitted(entry(name, MODEST), seed, values) for name in names}


def _subspace(name: str, fit: _Fitted, *, rng: np.random.Generator) -> torch.Tensor | None:
    if name == WHOLE:
        return None
    if name == RANDOM:
        return torch.from_numpy(rng.standard_normal(fit.values.shape[-1]))
    return getattr(fit, name)  # sibling, probe or learned


def _moved_by(method: Any, fit: _Fitted) -> torch.Tensor:
    """Return the change of the mean activation by the features that rise and fall most between two contexts."""
    codes = [as_array(method.encode(as_taken(method, values.float())).mean(0)) for values in fit.values]
    change, directions = np.asarray(codes[1] - codes[0], np.float64).ravel(), as_array(method.directions)
    most = [change.argmax(), change.argmin()]
    return torch.from_numpy(change[most] @ directions[most]).to(fit.values)


def _share(model: nn.Module, layer: str, tried: Swap, subspace: torch.Tensor | None) -> float:
    """Return the share of the exact divergence that a patch bridges."""
    if subspace is not None and not subspace.any():
        return 0.0  # without a direction nothing moves
    before = model(tried.base)[:, -1]
    with patch(model, layer, tried.source, subspace, tried.positions):
        after = model(tried.base)[:, -1]
    nearer = kl(tried.exact_source, before) - kl(tried.exact_source, after)
    return float(nearer.mean() / kl(tried.exact_source, tried.exact.log()).mean())


@dataclass(frozen=True, eq=False)
class Steering:
    """How far steering from one context to its sibling moves the prediction, as a multiple of what is exact.

    The response is the change of the probability of the sibling's tokens less that of the context's own tokens. `slope`
    regresses the response of the network, steered by the difference of mean activations at all positions of the
    context, on the exact response to a document that changes its context: 1 is right. Controls are the slopes for a
    random direction of the same length and for another pair's direction. `leakage` is the probability that moves among
    all other tokens, beyond what moves in the exact prediction.

    Parameters
    ----------
    along
        Feature methods, such as "kmeans" or "topk@k=8". The network is also steered along their features: by the change
        of the activations made by the two features that rise most and fall most from one context to the other.
    """

    name: str = "steering"
    along: Sequence[str] = ()

    def read_network(self, view: View, model: nn.Module, layer: str, seed: int) -> list[Reading]:
        """Return the slopes and the leakage of every pair of siblings."""
        view, device = _documents(self.name, view), _device(model)
        pairs, units = sibling_contexts(view)
        rng, methods = np.random.default_rng((seed, 2)), _fit_methods(self.along, view, model, layer, seed)
        features = [f"slope along {name}" for name in methods]
        names = ("slope", "slope of a random direction", "slope of another pair", "leakage", *features)
        values = {name: np.full(len(pairs), np.nan) for name in names}
        with evaluating(model):
            along, by_feature = [], []
            for pair in pairs:
                fit = _Fitted.to(model, layer, swap(view, view.train, pair, device))
                along.append(fit.sibling)
                by_feature.append([_moved_by(method, fit) for method in methods.values()])
            for i, pair in enumerate(pairs):
                tried, inside = swap(view, view.test, pair, device), [self._tokens(view, context) for context in pair]
                drawn = torch.from_numpy(rng.standard_normal(along[i].numel())).to(along[i])
                directions = dict(zip(features, by_feature[i], strict=True))
                directions["slope of a random direction"] = drawn * along[i].norm() / drawn.norm()
                if len(pairs) > 1:
                    directions["slope of another pair"] = along[i - 1]
                values["slope"][i], values["leakage"][i] = _response(model, layer, tried, along[i], inside)
                for name, direction in directions.items():
                    values[name][i], _ = _response(model, layer, tried, direction, inside)
        return [Reading(name, units, column) for name, column in values.items()]

    @staticmethod
    def _tokens(view: DocumentView, context: Any) -> torch.Tensor:
        k = view.factor
        return torch.from_numpy(view.data.token_ids(k)[view.data.forest(k).points_of(int(context))]).long()


def _response(
    model: nn.Module, layer: str, tried: Swap, direction: torch.Tensor, inside: list[torch.Tensor]
) -> tuple[float, float]:
    """Return slope and leakage of steering."""
    before = model(tried.base)[:, -1].double().softmax(-1)
    with steer(model, layer, direction, tried.sign[:, None, None], positions=tried.positions):
        after = model(tried.base)[:, -1].double().softmax(-1)
    elsewhere = torch.ones(before.shape[1], dtype=torch.bool, device=before.device)
    elsewhere[torch.cat(inside)] = False

    def balance(p: torch.Tensor) -> torch.Tensor:
        return p[:, inside[1]].sum(1) - p[:, inside[0]].sum(1)

    def moved(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        return (p - q)[:, elsewhere].abs().sum(1).mean() / 2

    true, seen = balance(tried.exact_source) - balance(tried.exact), balance(after) - balance(before)
    leakage = moved(before, after) - moved(tried.exact, tried.exact_source)
    return float((true @ seen) / (true @ true)), float(leakage)


@dataclass(frozen=True, eq=False)
class Ablation:
    """How much more a network's loss rises at a concept's positions than at others when its direction is ablated.

    The direction leads from the mean activation of all positions to the mean of the positions whose believed context is
    inside the concept. Ablation sets its component to that of the mean. In nats per token. The control is random.
    """

    name: str = "ablation"

    def read_network(self, view: View, model: nn.Module, layer: str, seed: int) -> list[Reading]:
        """Return the rise at the positions of every context less that elsewhere; the same for a random direction."""
        view, device = _documents(self.name, view), _device(model)
        labels, contexts = view.labels(), view.data.contexts(view.factor)
        tokens = torch.from_numpy(np.asarray(view.inputs)).to(device).long()
        first = view.train.size // view.shape[1]
        values = activations(model, tokens[:first], [layer], device=device)[layer].flatten(0, 1).double()
        mean, believed = values.mean(0), labels.label.reshape(view.shape)
        rng, rises = np.random.default_rng((seed, 3)), np.full((2, contexts.size), np.nan)
        plain = token_losses(model, tokens[first:])
        for i, context in enumerate(contexts.tolist()):
            inside = (believed >= labels.first[context]) & (believed < labels.stop[context])
            fit = torch.from_numpy(inside[:first].ravel()).to(device)
            held_out = torch.from_numpy(inside[first:, :-1]).to(device)  # the last position predicts nothing
            if not fit.any() or not held_out.any() or held_out.all():
                continue
            drawn = torch.from_numpy(rng.standard_normal(mean.numel())).to(mean)
            for j, direction in enumerate((values[fit].mean(0) - mean, drawn)):
                with ablate(model, layer, direction, to=mean) if direction.any() else nullcontext():
                    rise = (token_losses(model, tokens[first:]) - plain).double()
                rises[j, i] = float(rise[held_out].mean() - rise[~held_out].mean())
        units = Units(contexts, places(labels.forest, contexts))
        names = "rise", "rise of a random direction"
        return [Reading(name, units, column) for name, column in zip(names, rises, strict=True)]


def _documents(name: str, view: View) -> DocumentView:
    if not isinstance(view, DocumentView):
        raise ValueError(f"readers must not have {name!r} for points: it reads networks of documents")
    return view


def _device(model: nn.Module) -> torch.device:
    parameter = next(model.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device
