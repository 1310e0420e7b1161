"""The excess of a network's loss on documents over the floor: no predictor is below the floor on average."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas
import torch
from torch import nn
from torch.nn import functional

from percolab.corpora.corpus import HELD_OUT, Corpus
from percolab.ground.devices import Device, choose_device
from percolab.ground.validation import check_integer
from percolab.nn.config import CorpusTrainConfig
from percolab.nn.networks.activations import POSITIONS
from percolab.nn.networks.model import evaluating
from percolab.nn.networks.transformer import Transformer, check_tokens

MEASURES = ["loss", "floor", "excess"]


@dataclass(frozen=True, eq=False)
class DocumentScore:
    """How well a network predicts the tokens of some documents, in nats: means over positions 1 to T - 1."""

    loss: float  #: -log of the probability that the network gives to the token
    floor: float  #: -log of the exact probability of the token, given the tokens before it
    excess: float  #: loss - floor; in expectation the divergence of the network's predictions from the exact ones
    by_position: pandas.DataFrame = field(repr=False)  #: loss, floor and excess, one row per position
    #: loss, floor and excess by the size of the token's context: `size` to 2 · `size` - 1 tokens
    by_size: pandas.DataFrame = field(repr=False)


def excess(
    model: nn.Module,
    corpus: Corpus,
    *,
    first: int = HELD_OUT,
    count: int = CorpusTrainConfig.held_out,
    device: Device = "auto",
) -> DocumentScore:
    """Return a network's loss on documents of a corpus, with the floor and the excess.

    Parameters
    ----------
    model
        A module that maps tokens (n, T) to logits (n, T, V) of the token after each.
    corpus
        The corpus of the documents; the network may have been trained on another.
    first
        Number of the first document; documents from number 2^40 on are held out from training.
    count
        Number of documents.
    device
        Where to compute.
    """
    check_integer("first", first, 0)
    check_integer("count", count, 1)
    device = choose_device(device)
    documents = corpus.documents(first, first + count)
    tokens = torch.from_numpy(documents.tokens).to(device).long()
    if isinstance(model, Transformer):
        check_tokens("corpus", tokens, model.shape["n_tokens"])
    sizes = np.empty(documents.context.shape, np.int64)
    for k in np.unique(documents.lexicon):
        of_lexicon = documents.lexicon == k
        sizes[of_lexicon] = corpus.forest(int(k)).latent_size[documents.context[of_lexicon]]
    table = pandas.DataFrame(
        {
            "position": np.broadcast_to(np.arange(1, corpus.length), (count, corpus.length - 1)).ravel(),
            "size": 2 ** np.floor(np.log2(sizes[:, 1:])).astype(np.int64).ravel(),
            "loss": token_losses(model.to(device), tokens).double().cpu().numpy().ravel(),
            "floor": corpus.beliefs(documents.tokens).floor[:, 1:].ravel(),
        }
    )
    table["excess"] = table["loss"] - table["floor"]
    by_position, by_size = (table.groupby(name, as_index=False)[MEASURES].mean() for name in ("position", "size"))
    loss, floor, above = (float(table[name].mean()) for name in MEASURES)
    return DocumentScore(loss, floor, above, by_position, by_size)


def kl(exact: Any, logits: torch.Tensor) -> torch.Tensor:
    """Return KL(exact ‖ softmax(logits)) in nats, at every position, in double precision.

    0 is a network that predicts as well as possible. `excess` estimates the mean over positions from losses.

    Parameters
    ----------
    exact
        (…, V) probabilities, such as ``corpus.predict(tokens, every=True)``.
    logits
        (…, V) output of a network for the same tokens, unchanged or under interventions.

    Examples
    --------
    >>> import torch
    >>> from percolab.nn import kl
    >>> kl([[0.5, 0.5]], torch.zeros(1, 2))
    tensor([0.], dtype=torch.float64)
    """
    p = torch.as_tensor(exact, dtype=torch.float64, device=logits.device)
    if p.shape != logits.shape:
        raise ValueError(f"exact must have the shape of logits, {tuple(logits.shape)}, got {tuple(p.shape)}")
    return (torch.xlogy(p, p) - p * logits.double().log_softmax(-1)).sum(-1)


def token_losses(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Return -log of the probability that a model gives to tokens 1 to T - 1 of documents (n, T): (n, T - 1)."""
    n_positions = tokens.shape[1]
    with evaluating(model):
        parts = [
            functional.cross_entropy(
                model(part)[:, :-1].float().flatten(0, 1), part[:, 1:].flatten(), reduction="none"
            ).unflatten(0, (len(part), n_positions - 1))
            for part in tokens.split(max(1, POSITIONS // n_positions))
        ]
    return torch.cat(parts)
