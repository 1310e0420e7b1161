"""Bags of tokens: what the input itself shows of a document, without anything learned."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from percolab.ground import parallel
from percolab.ground.compiled import kernel

TASK = 1 << 22
"""Numbers that one task writes: enough to make waking a thread worth it."""


def decayed(tokens: NDArray[np.int32], n_tokens: int, decay: float, threads: int) -> NDArray[np.float32]:
    """Return (n, T, V) the decayed bag of tokens after each token."""
    n, length = tokens.shape
    bags = np.empty((n, length, n_tokens), np.float32)
    step = max(1, TASK // max(1, length * n_tokens))
    tasks = [(_decay, (tokens[i : i + step], np.float32(decay), bags[i : i + step])) for i in range(0, n, step)]
    parallel.run(tasks, threads)
    return bags


@kernel
def _decay(tokens, decay, bags):
    """Fill b_t = decay · b_{t-1} + onehot(token t), from nothing."""
    for i in range(tokens.shape[0]):
        for t in range(tokens.shape[1]):
            if t == 0:
                bags[i, t] = np.float32(0)
            else:
                for token in range(bags.shape[2]):
                    bags[i, t, token] = decay * bags[i, t - 1, token]
            bags[i, t, tokens[i, t]] += np.float32(1)
