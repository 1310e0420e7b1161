"""Odd machines: no compiler, few addresses, no place for compiled code. One line, or it works anyway."""

import os
import subprocess
import sys

import pytest

from percolab.ground import machine

COMMAND = [sys.executable, "-m", "percolab"]


def run(words, limit=None, **settings):
    """Run a program, under a limit on addresses in kB."""
    words = ["bash", "-c", f'ulimit -v {limit}; exec "$@"', "bash", *words] if limit else words
    return subprocess.run(words, env=os.environ | settings, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [["--help"], ["info", "a.zarr"]])
def test_interpreted_kernels_are_refused_on_the_command_line(words):
    done = run([*COMMAND, *words], NUMBA_DISABLE_JIT="1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: NUMBA_DISABLE_JIT must be 0, got 1: percolab's kernels work compiled only\n"


@pytest.mark.parametrize("limit", [60_000, 300_000, 1_500_000])
def test_a_limit_on_addresses_is_refused_before_anything_is_loaded(limit):
    done = run([*COMMAND, "generate", "--n-points", "300", "--dim", "3", "-o", "a.zarr"], limit)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: the limit on addresses (ulimit -v) must be at least 2,000,000,000 bytes, got {limit * 1024:,}\n"
    )


@pytest.mark.slow
def test_enough_addresses(tmp_path):
    words = ["generate", "--n-points", "300", "--dim", "3", "--quiet", "-o", str(tmp_path / "a.zarr")]
    done = run([*COMMAND, *words], machine.LEAST_ADDRESSES // 1024 + 1)
    assert (done.returncode, done.stderr) == (0, "")


def test_programs_that_import_percolab_are_not_ended():
    done = run([sys.executable, "-c", "import percolab.ground.machine; print('here')"], 1_900_000)
    assert (done.stdout, done.stderr) == ("here\n", "")


@pytest.mark.slow
def test_kernels_work_where_compiled_code_cannot_be_kept():
    """As in a container that cannot be written to."""
    code = """
import numba.core.caching as caching
caching.CacheImpl._locator_classes = []
from percolab.ground.compiled import kernel

@kernel
def double(x):
    return 2 * x

print(double(21))
"""
    done = run([sys.executable, "-c", code])
    assert (done.stdout, done.stderr) == ("42\n", "")
