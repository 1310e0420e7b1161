"""A network as a function of rows of X, in arrays: what those take who know nothing of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from percolab.nn.networks.model import predict


def predictor(model: nn.Module) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return a function from rows of X to predictions: numbers, or the labels of the largest logits."""
    device = next(model.parameters()).device

    def predicted(X: NDArray[Any]) -> NDArray[Any]:
        out = predict(model, torch.from_numpy(np.require(X, np.float32, ("C", "W"))).to(device))
        found: NDArray[Any] = (out.argmax(dim=1) if out.ndim > 1 else out).cpu().numpy()
        return found

    return predicted
