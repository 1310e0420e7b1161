"""How kernels are compiled: parts inside their callers, the second half in a second process; a line that says so."""

import gc
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import percolab as pl
from percolab.engines import native
from percolab.features import scoring
from percolab.ground import compiled, progress
from percolab.ground.compiled import kernel


@kernel
def inner(values, at):
    return values[at] // at


@kernel
def outer(values, at):
    return inner(values, at) + inner(values, 1) + inner(values, 2)


def test_a_kernel_inside_a_kernel_is_a_part_of_it():
    whole = compiled._Kernel(outer.py_func, targetoptions={"nopython": True}, pipeline_class=compiled._KernelCompiler)
    assert whole(np.array([1, 20, 300]), 2) == 150 + 20 + 150  # not loaded from disk, where parts are in it
    assert not inner.signatures, "compiled for Python, which did not call it"
    assert len(inner.part.signatures) == 1, "constants have the type of any number"
    assert inner(np.array([1, 20, 300]), 2) == 150


def test_what_a_part_raises_reaches_python():
    with pytest.raises(ZeroDivisionError):
        outer(np.array([1, 20, 300]), 0)


def fresh_kernel():
    """Return a kernel that no process has compiled before."""

    def double(x):
        return 2 * x

    return compiled._Kernel(double, targetoptions={"nopython": True}, pipeline_class=compiled._KernelCompiler)


def test_a_line_says_that_kernels_are_compiled(monkeypatch):
    display = progress.Display("starting")
    with compiled.on_compiling(lambda: display.say(compiled.notice())):
        double = fresh_kernel()
        assert (double(2), double(3)) == (4, 6)
        assert fresh_kernel()(2) == 4
    assert display.said == ["compiling for the first time, about 10 s; later runs start at once"]
    monkeypatch.setattr(compiled, "kept", lambda: False)
    assert "no directory" in compiled.notice()


@pytest.mark.parametrize("interactive", [True, False])
def test_those_who_wait_without_a_bar_are_told_too(interactive, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "ipykernel", compiled)
    if not interactive:
        monkeypatch.delitem(sys.modules, "ipykernel")
    monkeypatch.setattr(compiled, "_logged", [])
    with compiled.ahead("engines.native", threads=1):
        assert (fresh_kernel()(2), fresh_kernel()(2)) == (4, 4)
    assert capfd.readouterr().err == compiled.notice() + "\n"
    with compiled.ahead("engines.native", threads=1):
        fresh_kernel()(2)
    assert capfd.readouterr().err == (compiled.notice() + "\n") * interactive, "a log is told once"
    with progress.bar(visible=False), compiled.ahead("engines.native", threads=1):
        fresh_kernel()(2)
    with compiled.ahead("engines.native", threads=1):
        pass  # nothing is compiled
    assert capfd.readouterr().err == ""


made = []
"""The second processes that were started."""


class Helper:
    """Stands in for the second process."""

    def __init__(self, command, **_):
        self.command, self.waited, self.killed = command, False, False
        made.append(self)

    def wait(self, timeout=None):
        self.waited = True

    def kill(self):
        self.killed = True


@pytest.fixture
def helpers(monkeypatch):
    made.clear()
    monkeypatch.setattr(compiled.subprocess, "Popen", Helper)
    return made


def test_a_second_process_compiles_if_this_one_does(helpers):
    with compiled.ahead("engines.native", "float32") as wait:
        assert not helpers
        fresh_kernel()(2)
        assert not helpers[0].waited
        wait()
        assert helpers[0].waited
    assert [helper.command[0] for helper in helpers] == [sys.executable]
    assert helpers[0].command[-1].endswith("from percolab.engines.native import rehearse; rehearse(*('float32',))")
    assert helpers[0].killed


@pytest.mark.parametrize("alone", ["nothing to compile", "one thread", "frozen", "not kept", "a worker"])
def test_there_is_no_second_process_where_it_cannot_help(helpers, monkeypatch, alone):
    if alone == "frozen":
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    if alone == "not kept":
        monkeypatch.setattr(compiled, "kept", lambda: False)
    if alone == "a worker":
        monkeypatch.setattr(compiled, "parent_process", lambda: object())
    with compiled.ahead("engines.native", "float32", threads=1 if alone == "one thread" else 2) as wait:
        if alone != "nothing to compile":
            fresh_kernel()(2)
        wait()
    assert not helpers


def kernels():
    """Return the signatures of every kernel that was called from Python."""
    every = [k for k in gc.get_objects() if type(k) is compiled._Kernel and k.signatures]
    return {(k.py_func.__module__, k.py_func.__name__): list(k.signatures) for k in every}


def test_rehearsals_call_kernels_as_the_real_thing_does():
    """Else the second process would compile what nobody needs."""
    pl.generate(pl.Recipe(3000, 4, seeds=1, mode="one_cluster"))
    dataset = pl.generate(pl.Recipe(20_000, 4, seeds=2))
    forest = dataset.forest
    latents = forest.concepts()
    halves = np.zeros((forest.n_points, 2 * latents.size), np.float32)  # each says half of a concept
    for i, (first, size) in enumerate(zip(forest.latent_start[latents], forest.latent_size[latents], strict=True)):
        halves[first : first + size // 2, 2 * i] = halves[first + size // 2 : first + size, 2 * i + 1] = 1
    pl.features.score(dataset, halves, threads=1)
    before = kernels()
    native.rehearse("float32")
    scoring.rehearse()
    assert kernels() == before


@pytest.mark.slow
def test_rehearsals_call_the_kernels_of_the_second_half():
    code = """
import gc
from percolab.engines import native
from percolab.features import scoring
from percolab.ground.compiled import _Kernel
native.rehearse("float32")
scoring.rehearse()
print(*sorted(k.py_func.__name__ for k in gc.get_objects() if type(k) is _Kernel and k.signatures))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        "_cover", "_covered_by_own", "_draw_pieces", "_grow", "draw_skeleton", "enter_tips",
        "follow_anchors", "origin_anchors", "shift", "split_skeleton", "start_anchors", "walk_pieces",
    ]  # fmt: skip


@pytest.mark.slow
def test_the_first_time_is_shared_by_two_processes(tmp_path, monkeypatch):
    """From an empty cache: the second half is compiled elsewhere, and what is made is the same."""
    code = """
import percolab as pl
from percolab.engines.native import positions, pieces
made = pl.generate(pl.Recipe(3000, 4, seeds=1), threads=2)
hits = [sum(kernel.stats.cache_hits.values()) for kernel in (pieces.grow, positions.walk_pieces)]
print(*hits, float(made.X.sum()))
"""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"0 1 {float(pl.generate(pl.Recipe(3000, 4, seeds=1)).X.sum())}\n"


@pytest.mark.slow
def test_kernels_are_compiled_again_when_a_file_of_their_parts_changes(tmp_path, monkeypatch):
    """Numba by itself would go on with the old part."""
    package = tmp_path / "percolab"
    shutil.copytree(Path(pl.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "part.py").write_text("from percolab.ground.compiled import kernel\n\n@kernel\ndef part(): return 1\n")
    imports = "from percolab.ground.compiled import kernel\nfrom percolab.part import part\n"
    (package / "whole.py").write_text(f"{imports}\n@kernel\ndef f(): return part()\n")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = "from percolab.whole import f; print(f(), sum(f.stats.cache_hits.values()))"

    def run() -> str:
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()

    assert [run(), run()] == ["1 0", "1 1"]
    (package / "part.py").write_text((package / "part.py").read_text().replace("1", "2"))
    assert run() == "2 0"
