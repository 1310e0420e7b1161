"""Devices by name, for whatever uses torch. Nothing imports this module until torch is needed."""

from __future__ import annotations

import torch

Device = str | torch.device
"""A device, or its name: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``."""


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
