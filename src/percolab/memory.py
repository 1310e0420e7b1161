"""Memory: what a recipe needs, what the machine has, and a refusal before work starts."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from percolab.recipe import Recipe

FOREST_BYTES = 5 * 8
"""Bytes per point of a forest's columns (a latent per point, which is an upper bound)."""
VALUE_BYTES = 3 * 8
"""Bytes per point of y, point_z and latent_z."""
WORK_BYTES = 60
"""Bytes per point of work arrays while a dataset is made."""
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")

TABLE_BYTES = 4
"""Bytes per point before the clusters are known."""
NEGLIGIBLE = 2**24
"""Bytes that any machine has; asking how many are free takes a tenth of a millisecond."""
LIMB_COORDINATE_BYTES, LIMB_BYTES = 20, 150
"""Bytes of a limb while it is solved, for each dimension and besides."""


def before_clusters(recipe: Recipe) -> int:
    """Return the bytes certain to be needed before cluster sizes are known."""
    if recipe.min_cluster_size == 1 or recipe.mode == "one_cluster":
        return of_arrays(recipe.n_points, recipe)
    return TABLE_BYTES * recipe.n_points


def of_arrays(n_points: int, recipe: Recipe) -> int:
    """Return the bytes at peak for a dataset of this many rows."""
    per_point = recipe.dim * np.dtype(recipe.dtype).itemsize + FOREST_BYTES + VALUE_BYTES + WORK_BYTES
    return n_points * per_point


def of_table(recipe: Recipe, limb_rows: int) -> int:
    """Return the bytes at peak of what all parts of a dataset share."""
    n, p = recipe.n_points, recipe.attachment_prob
    # Points in clusters above a size fall with it to the power p/(1-p); of one in 1.2 √limb_rows a limb is made.
    in_large = n * limb_rows ** (-p / (1 - p)) if p < 1 else 0
    limbs = 0.8 * in_large / limb_rows**0.5 * (recipe.dim * LIMB_COORDINATE_BYTES + LIMB_BYTES)
    numbers = 0 if p == 0 else 2 + 6 * p
    return int(limbs + n * numbers * (4 if n < 2**31 else 8))


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


def require(needed: int, recipe: Recipe) -> None:
    """Raise MemoryError, in one line, if `needed` bytes are not there; for very few it is not worth asking."""
    if needed < NEGLIGIBLE:
        return
    free = available()
    if free is not None and needed > free:
        raise MemoryError(
            f"n_points must fit in memory: {recipe.n_points:,} points in {recipe.dim} dimensions need about "
            f"{readable(needed)}, and {readable(free)} are free"
        )


def readable(n_bytes: float) -> str:
    """Return a number of bytes as text, in decimal units."""
    power = 0
    while n_bytes >= 999.5 and power < len(_UNITS) - 1:
        n_bytes /= 1000
        power += 1
    return f"{n_bytes:.3g} {_UNITS[power]}"
