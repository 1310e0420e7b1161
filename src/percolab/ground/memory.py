"""Memory: how much the machine has free, how much this process took, and numbers of bytes as readable text."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import psutil

NEGLIGIBLE = 1 << 24  #: Bytes that any machine has; asking how many are free takes a tenth of a millisecond.
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")
_CGROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_V2 = ("memory.max", "memory.current", ("active_file", "inactive_file"))
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file"))


def available() -> int:
    """Return how many more bytes this process can take.

    That is the least of the free memory of the machine, the rest of the limit of each control group (a container, a
    job), and the rest of the limit on address space. The system's file cache is released on demand, so it counts as
    free.
    """
    return min([int(psutil.virtual_memory().available), *_left_by_groups(), *_left_of_addresses()])


def _left_by_groups() -> Iterator[int]:
    """Yield the rest of the limit of each control group around this process, for both versions of control groups."""
    try:
        lines = _OWN.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        root, names = (_CGROUPS / "memory", _V1) if controllers else (_CGROUPS, _V2)
        # In a container the path may be the host's, which does not exist there; the root is then the container's group.
        folder = root / path.lstrip("/")
        for group in (folder, *folder.parents):
            left = _left_by(group, *names)
            if left is not None:
                yield left
            if group == root:
                break


def _left_by(group: Path, limit: str, used: str, cached: tuple[str, ...]) -> int | None:
    try:
        most, taken = int((group / limit).read_text()), int((group / used).read_text())
        stats = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no such group, or no limit: the file says "max"
        return None
    return max(0, most - taken + sum(int(stats.get(name, 0)) for name in cached))


def _left_of_addresses() -> Iterator[int]:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        yield max(0, limit - psutil.Process().memory_info().vms)


def require(n_bytes: int, what: str) -> None:
    """Raise MemoryError, in one line that begins with `what`, such as "codes need", unless `n_bytes` are free."""
    free = available() if n_bytes > NEGLIGIBLE else n_bytes
    if n_bytes > free:
        raise MemoryError(f"{what} {readable(n_bytes)} of memory, and {readable(free)} are free")


def peak() -> int:
    """Return the peak memory of this process in bytes, or 0 if the system does not report it."""
    try:
        # Not from getrusage: it counts the memory of the parent when this process was started.
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
