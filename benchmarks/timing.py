"""Ratios of times measured in one run, alternating, so that a noisy machine disturbs both sides alike."""

from __future__ import annotations

import gc
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass
class Row:
    """One comparison: what was timed, against whom, and the ratio of the medians."""

    what: str
    peer: str
    ours_s: float
    peer_s: float
    ratio: float
    target: str = ""
    detail: dict[str, Any] = field(default_factory=dict)


def seconds(function: Callable[[], Any]) -> float:
    """Time one call; what it returns is dropped after the clock stops."""
    gc.collect()
    start = time.perf_counter()
    result = function()
    elapsed = time.perf_counter() - start
    del result
    return elapsed


def compare(
    what: str,
    ours: Callable[[], Any],
    peer: str,
    theirs: Callable[[], Any],
    target: str,
    repeats: int,
    *,
    warm: bool = False,
) -> Row:
    """Time both alternately, after one call of ours that compiles.

    Where memory is fresh, first use of it can take longer than the work, on a virtual machine several times longer. If
    `warm`, each timed call follows an untimed call of the same, which leaves its memory behind.
    """
    seconds(ours)
    before = seconds if warm else lambda _: 0.0
    pairs = []
    for _ in range(repeats):
        before(ours)
        mine = seconds(ours)
        before(theirs)
        pairs.append((mine, seconds(theirs)))
    mine, other = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Row(what, peer, mine, other, mine / other, target)


def peak_bytes(code: str) -> int:
    """Run Python code in a process of its own and return the most memory it held (Linux)."""
    return run_and_peak(code)[1]


def run_and_peak(code: str) -> tuple[str, int]:
    """Run Python code in a process of its own; return what it printed and the most memory it held (Linux)."""
    report = "\nimport re\nprint(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    run = subprocess.run([sys.executable, "-c", code + report], capture_output=True, text=True, check=True)
    printed, _, peak = run.stdout.rstrip().rpartition("\n")
    return printed, int(peak) * 1024


def show(title: str, rows: list[Row], json_path: str | None = None) -> None:
    """Print rows as a table and, if asked, write them as JSON."""
    table = Table(title=f"{title}\n{platform.processor() or platform.machine()}, Python {platform.python_version()}")
    for heading, justify in [("what", "left"), ("peer", "left"), ("ours", "right"), ("peer's", "right")]:
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    table.add_column("ratio", justify="right", style="bold")
    table.add_column("target", justify="right")
    for row in rows:
        table.add_row(row.what, row.peer, f"{row.ours_s:.3g} s", f"{row.peer_s:.3g} s", f"{row.ratio:.2f}", row.target)
    Console().print(table)
    if json_path:
        with open(json_path, "w") as file:
            json.dump({"title": title, "rows": [asdict(row) for row in rows]}, file, indent=1)
