"""How kernels are compiled: one decorator for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import config, njit

from percolab.ground import machine

_INTERPRETED = getattr(config, "DISABLE_JIT", 0)
if _INTERPRETED:
    machine.refuse(f"NUMBA_DISABLE_JIT must be 0, got {_INTERPRETED}: percolab's kernels work compiled only")


def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a function of arrays and numbers; it releases the interpreter lock, and is kept on disk for later runs.

    Where no directory can be written, as in a read-only container, it is compiled anew in every process.
    """
    if function is None:
        return lambda decorated: kernel(decorated, **options)
    try:
        return njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:  # numba found no directory for its cache
        return njit(nogil=True, **options)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a function into every kernel that calls it, so that loops around the call run in vector registers."""
    return njit(inline="always")(function)
