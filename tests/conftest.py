"""Give the tests a numba cache of their own for every state of the files that hold kernels, and fill it once."""

import fcntl
import gc
import hashlib
import os
import signal
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = (path.read_bytes() for path in sorted((ROOT / "src" / "percolab").rglob("*.py")))
STATE = hashlib.sha256(b"".join(text for text in SOURCES if b"numba" in text or b"@kernel" in text)).hexdigest()[:16]
CACHE = ROOT / ".pytest_cache" / "numba" / STATE
os.environ["NUMBA_CACHE_DIR"] = str(CACHE)
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # as in a shell's background jobs; what tests start would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
gc.set_threshold(100_000, 50, 100)  # what is imported stays: looking through it again and again takes seconds


def pytest_sessionstart(session):
    """Compile the kernels that most tests use, so that workers that start at once do not all compile the same ones.

    Each worker begins with another group. A group is locked while it is compiled; who comes later loads it.
    """
    from percolab.ground import compiled, progress

    compiled._logged.append("no test depends on what was compiled before it")
    progress.LINE_SECONDS = 1e6  # nor on how busy the machine is
    worker = getattr(session.config, "workerinput", {}).get("workerid", "").removeprefix("gw")
    if not worker:
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    groups = [native_kernels, paper_kernels]
    for i in range(len(groups)):
        compile_group = groups[(int(worker) + i) % len(groups)]
        with open(CACHE / f"{compile_group.__name__}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            compile_group()


def native_kernels():
    import percolab as pl

    for dtype in ("float32", "float64"):
        pl.generate(pl.Recipe(3000, 4, seeds=1, dtype=dtype), threads=1)


def paper_kernels():
    """Compile those of the paper engine, and of what is computed from any dataset."""
    import numpy as np

    import percolab as pl

    for dtype in ("float32", "float64"):
        made = pl.generate(pl.Recipe(300, 4, seeds=1, dtype=dtype, engine="paper"), threads=1)
    pl.features.score(made, np.maximum(made.X, 0), threads=1)
    pl.truth(pl.superpose([made.recipe, made.recipe]), 0)


# ---------------------------------------------------------------------- what several files of tests stand on


@pytest.fixture(scope="module")
def ray_cluster():
    """A cluster of two worker processes on this machine."""
    ray = pytest.importorskip("ray")
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()


@pytest.fixture(params=["exchange", "steps"])
def system(request, monkeypatch):
    """A system that can exchange two names, and one that cannot."""
    from percolab.ground import files

    if request.param == "steps":

        def unsupported(*_):
            raise files.UnsupportedError

        monkeypatch.setattr(files, "_renameat2", unsupported)
    return request.param
