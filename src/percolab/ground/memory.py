"""Memory: what the machine has, what this process took, and numbers of bytes in words."""

from __future__ import annotations

import os
from pathlib import Path

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")


def available() -> int | None:
    """Return the bytes this process can still take, or None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        try:
            free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, OSError, ValueError):
            return None
    try:
        group = Path("/sys/fs/cgroup")
        limit, used = (group / "memory.max").read_text(), (group / "memory.current").read_text()
        return min(free, int(limit) - int(used))
    except (OSError, ValueError):
        return free


def peak() -> int:
    """Return the most bytes this process has held at a time, or 0 where the system does not say."""
    try:
        # Not from getrusage: that counts what the parent held when this process was started.
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration, ValueError):
        return 0


def readable(n_bytes: float) -> str:
    """Return a number of bytes as text, in decimal units."""
    power = 0
    while n_bytes >= 999.5 and power < len(_UNITS) - 1:
        n_bytes /= 1000
        power += 1
    return f"{n_bytes:.3g} {_UNITS[power]}"
