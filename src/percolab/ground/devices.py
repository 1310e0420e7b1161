"""Torch devices: chosen by name, given checked data; TF32; CUDA graphs. This module is imported only when needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from percolab.ground import memory, text
from percolab.ground.validation import check_numbers

Device = str | torch.device  #: A device, or its name: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.


def choose_device(device: Device = "auto") -> torch.device:
    """Return a device by name; ``"auto"`` is CUDA where there is one, else the CPU."""
    device = str(device)
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
        raise ValueError(f"device must be auto, cpu, cuda or cuda:N, got {device!r}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device must be there, got {device!r} and torch sees no CUDA GPU")
    if kind == "cuda" and index and int(index) >= torch.cuda.device_count():
        raise ValueError(f"device must be there, got {device!r} and torch sees {torch.cuda.device_count()} CUDA GPU(s)")
    return torch.device(device)


# ---------------------------------------------------------------------- data on a device


BLOCK_NUMBERS = 1 << 23  #: Numbers read at a time.


def device_name(device: torch.device) -> str:
    """Return a description of the device, for the record of a run."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {text.counted(torch.get_num_threads(), 'thread')}"


def on_device(name: str, values: Any, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Return an array, in memory or on disk, as a tensor on the device; refuse all but finite real numbers in rows."""
    if not values.shape:
        raise ValueError(f"{name} must be an array with rows, got {text.shown(values.item())}")
    if isinstance(values, torch.Tensor):
        if values.is_complex():
            raise ValueError(f"{name} must be real numbers, got {values.dtype}")
        tensor = values.to(device, dtype)
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} must be finite, got NaN or infinity")
        return tensor
    if device.type == "cpu":  # an array on disk may be larger than memory
        memory.require(math.prod(values.shape) * dtype.itemsize, f"{name} of shape {tuple(values.shape)} need")
    tensor = torch.empty(tuple(values.shape), dtype=dtype, device=device)
    rows = max(1, BLOCK_NUMBERS // max(1, math.prod(values.shape[1:])))
    for lo in range(0, len(values), rows):
        block = check_numbers(name, np.asarray(values[lo : lo + rows]))
        finite = np.isfinite(block)
        if not finite.all():
            first = np.argwhere(~finite)[0]
            raise ValueError(f"{name} must be finite, got {block[tuple(first)]} in row {lo + int(first[0])}")
        tensor[lo : lo + len(block)] = torch.from_numpy(np.require(block, requirements=("C", "W")))
    return tensor


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Let float32 matrix products on CUDA round their factors to TF32 (10 bits), or not; then restore the setting."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


# ---------------------------------------------------------------------- CUDA graphs


def warmed_up(work: Callable[[], None]) -> None:
    """Run work on a separate CUDA stream, so that libraries initialise themselves before the work is recorded."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)


def recorded(work: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """Record work as a CUDA graph without running it; it must have been warmed up, and gradients must be None."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph
