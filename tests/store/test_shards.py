"""Stores made in shards: the same bytes whatever happens on the way. Processes are really killed here."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import percolab as pl
from percolab.engines.native import large_clusters
from percolab.store import byte_sources, runners, schema, shards

ONE = pl.Recipe(20_000, 5, "one_cluster", seeds=8)
MANY = pl.Recipe(30_000, 5, "distribution", seeds=8)
MIXED = pl.Recipe(20_000, 5, "custom", create_prob=2e-3, seeds=9, min_cluster_size=3)
RECIPES = {"one_cluster": ONE, "distribution": MANY, "custom": MIXED}
CELL = 2048

DRIVER = f"""
import sys
import percolab as pl
from percolab.engines.native import large_clusters
from percolab.store import schema, shards

if __name__ == "__main__":
    schema.CELL, large_clusters.MOST_ROWS = {CELL}, 4096
    shards.generate_store(pl.Recipe.from_json(sys.argv[1]), sys.argv[2], shards=50, workers=2)
"""


@pytest.fixture(autouse=True)
def small_cells(monkeypatch):
    """Make cells and limbs small, so that small datasets have many; and the time of making the same."""
    monkeypatch.setattr(schema, "CELL", CELL)
    monkeypatch.setattr(large_clusters, "MOST_ROWS", 4096)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")


@pytest.fixture
def inline(monkeypatch):
    """Run tasks in this process, in a random order."""

    def run(function, tasks, runner, workers, address=None):
        waiting = list(tasks)
        random.Random(workers).shuffle(waiting)
        return map(function, waiting)

    monkeypatch.setattr(runners, "run", run)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return a function that gives the files of the store that `generate` and `save` make of a recipe."""
    known = {}

    def files_of(recipe):
        if recipe not in known:
            path = tmp_path_factory.mktemp("whole") / "whole.zarr"
            pl.generate(recipe).save(path)
            known[recipe] = files(path)
        return known[recipe]

    return files_of


def files(path):
    return {str(file.relative_to(path)): file.read_bytes() for file in Path(path).rglob("*") if file.is_file()}


def write(whole, path):
    """Write the files of a store."""
    for name, content in whole.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def records(path):
    """Return how many cells of points of a store being written are recorded."""
    return sum(
        1 for file in (Path(path) / "unfinished" / "point").rglob("*") if file.name != "zarr.json" and file.is_file()
    )


def start(recipe, path, **options):
    command = [sys.executable, "-c", DRIVER, recipe.to_json(), str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def wait_for_records(path, count, process):
    deadline = time.monotonic() + 120
    while records(path) < count:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.002)


def workers_of(process):
    """Return the processes that a driver started and that work for it."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# ---------------------------------------------------------------------- byte identity


@pytest.mark.parametrize("mode", RECIPES)
@pytest.mark.parametrize(("count", "order"), [(1, 1), (3, 2), (1000, 3)])
def test_any_number_of_shards_in_any_order_gives_the_bytes_of_save(mode, count, order, tmp_path, saved, inline):
    made = shards.generate_store(RECIPES[mode], tmp_path / "a.zarr", shards=count, workers=order)
    assert files(tmp_path / "a.zarr") == saved(RECIPES[mode])
    assert made.shards_made == made.shards == min(count, -(-made.n_points // CELL))
    pl.load(tmp_path / "a.zarr", verify=True).forest.validate()


@pytest.mark.slow
def test_processes_give_the_bytes_of_save(tmp_path, saved):
    made = shards.generate_store(ONE, tmp_path / "a.zarr", shards=4, workers=2)
    assert files(tmp_path / "a.zarr") == saved(ONE)
    assert made.peak_bytes > 10**7


@pytest.mark.parametrize("recipe", [replace(MANY, n_points=1), replace(MANY, min_cluster_size=10**6)])
def test_smallest_datasets(recipe, tmp_path, saved, inline):
    shards.generate_store(recipe, tmp_path / "a.zarr", shards=3)
    assert files(tmp_path / "a.zarr") == saved(recipe)


def test_a_url(tmp_path, saved, inline):
    pytest.importorskip("fsspec")
    shards.generate_store(MIXED, f"memory://{tmp_path}/a.zarr", shards=3)
    loaded = pl.load(f"memory://{tmp_path}/a.zarr", verify=True)
    assert np.asarray(loaded.X).tobytes() == np.asarray(pl.generate(MIXED).X).tobytes()


# ---------------------------------------------------------------------- resuming


class StopError(Exception):
    """Stands for anything that ends a run."""


def interrupt_after(monkeypatch, count):
    """Let a run end with an exception after some shards."""

    def run(function, tasks, runner, workers, address=None):
        for done, task in enumerate(tasks):
            if done == count:
                raise StopError
            yield function(task)

    monkeypatch.setattr(runners, "run", run)


def test_only_what_is_missing_is_made(tmp_path, saved, monkeypatch):
    path = tmp_path / "a.zarr"
    for done in (2, 1):
        interrupt_after(monkeypatch, done)
        with pytest.raises(StopError):
            shards.generate_store(ONE, path, shards=5)
        with pytest.raises(pl.StoreError, match="unfinished"):
            pl.load(path)
    interrupt_after(monkeypatch, 100)
    assert shards.generate_store(ONE, path, shards=5).shards_made == 2
    assert files(path) == saved(ONE)
    assert shards.generate_store(ONE, path, shards=7).shards_made == 0
    assert files(path) == saved(ONE)


def test_resuming_with_another_number_of_shards(tmp_path, saved, monkeypatch):
    path = tmp_path / "a.zarr"
    interrupt_after(monkeypatch, 2)
    with pytest.raises(StopError):
        shards.generate_store(MIXED, path, shards=7)
    interrupt_after(monkeypatch, 100)
    shards.generate_store(MIXED, path, shards=3)
    assert files(path) == saved(MIXED)


@pytest.mark.parametrize("damage", ["truncate", "delete", "flip"])
@pytest.mark.parametrize("name", ["X", "y", "bond", "cluster_id"])
def test_a_damaged_store_is_repaired(damage, name, tmp_path, saved, inline):
    path = write(saved(MANY), tmp_path / "a.zarr")
    chunk = sorted(file for file in (path / name / "c").rglob("*") if file.is_file())[1]
    whole = chunk.read_bytes()
    if damage == "delete":
        chunk.unlink()
    else:
        chunk.write_bytes(whole[: len(whole) // 2] if damage == "truncate" else bytes([whole[0] ^ 1]) + whole[1:])
    made = shards.generate_store(MANY, path, shards=5)
    assert made.shards_made == (name != "cluster_id")
    assert made.rows_made <= CELL
    assert files(path) == saved(MANY)


@pytest.fixture
def reads(monkeypatch):
    """The files that are read, in order."""
    found = []

    def recorded(real):
        def read(source, key, *args):
            found.append(key)
            return real(source, key, *args)

        return read

    for name in ("read", "read_into"):
        monkeypatch.setattr(byte_sources.Directory, name, recorded(getattr(byte_sources.Directory, name)))
    return found


@pytest.mark.parametrize("damaged", [False, True])
def test_a_store_is_read_once_to_check_and_to_repair_it(damaged, tmp_path, saved, inline, reads):
    path = tmp_path / "a.zarr"
    shards.generate_store(MANY, path, shards=5)
    chunks = sorted(key for key in files(path) if key.partition("/c/")[0] in schema.COLUMNS)
    if damaged:
        chunk = path / chunks[len(chunks) // 2]
        chunk.write_bytes(chunk.read_bytes()[:-1])
    reads.clear()
    shards.generate_store(MANY, path, shards=5)
    seen = sorted(key for key in reads if key.partition("/c/")[0] in schema.COLUMNS)
    assert len(seen) == len(set(seen))
    assert damaged or seen == chunks  # a cell with a damaged block is not read to its end
    assert files(path) == saved(MANY)


def test_a_shard_written_twice(tmp_path, saved, monkeypatch):
    def run(function, tasks, runner, workers, address=None):
        for task in tasks:
            function(task)
            yield function(task)

    monkeypatch.setattr(runners, "run", run)
    shards.generate_store(MIXED, tmp_path / "a.zarr", shards=4)
    assert files(tmp_path / "a.zarr") == saved(MIXED)


# ---------------------------------------------------------------------- real deaths


@pytest.mark.slow
def test_a_worker_killed_in_the_middle(tmp_path, saved):
    path = tmp_path / "a.zarr"
    driver = start(ONE, path)
    for count in (1, 4):
        wait_for_records(path, count, driver)
        while not (workers := workers_of(driver)):
            assert driver.poll() is None
        os.kill(random.choice(workers), signal.SIGKILL)
    _, errors = driver.communicate(timeout=240)
    assert driver.returncode == 0, errors
    assert files(path) == saved(ONE)


@pytest.mark.slow
def test_the_driver_killed_in_the_middle(tmp_path, saved):
    path = tmp_path / "a.zarr"
    driver = start(ONE, path)
    wait_for_records(path, 3, driver)
    workers = workers_of(driver)
    assert workers
    driver.kill()
    driver.communicate(timeout=60)
    deadline = time.monotonic() + 30
    while any(map(is_alive, workers)):
        assert time.monotonic() < deadline, "workers outlived their driver"
        time.sleep(0.01)
    with pytest.raises(pl.StoreError):
        pl.load(path)
    again = start(ONE, path)
    _, errors = again.communicate(timeout=240)
    assert again.returncode == 0, errors
    assert files(path) == saved(ONE)


@pytest.mark.slow
@pytest.mark.parametrize("presses", [1, 3])
def test_interrupted_by_the_user(presses, tmp_path):
    """As from a keyboard: the interrupt reaches the workers too, and some press it several times."""
    path = tmp_path / "a.zarr"
    recipe = ["--n-points", "2000000", "--dim", "20", "--seed", "1"]
    command = [sys.executable, "-m", "percolab", "generate", *recipe, "--shards", "30", "-o", str(path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, **pipes, start_new_session=True)
    wait_for_records(path, 3, process)
    for _ in range(presses):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.1)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    # A worker that is started just then may say that it was a process: multiprocessing prints that on its own.
    # On a busy machine there is a line of progress, too, and on a new one that kernels are compiled.
    said = [line for line in errors.splitlines() if not line.startswith(("Process Spawn", "shards ", "compiling"))]
    assert said == ["error: interrupted; the same command resumes it"]
    assert out == ""


@pytest.mark.slow
def test_a_full_disk(tmp_path, saved):
    """In a file system of its own, too small for the dataset; then with room."""
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("needs user namespaces")
    driver = DRIVER.replace("schema.CELL", "shards._check_room = lambda *_: None\n    schema.CELL")
    (tmp_path / "driver.py").write_text(driver)
    (tmp_path / "disk").mkdir()
    (tmp_path / "recipe").write_text(ONE.to_json())
    script = f"""
        cd {tmp_path}
        mount -t tmpfs -o size=800k tmpfs disk
        {sys.executable} driver.py "$(cat recipe)" disk/a.zarr; echo "first run: $?"
        mount -o remount,size=100m disk
        {sys.executable} driver.py "$(cat recipe)" disk/a.zarr; echo "second run: $?"
        cp -r disk/a.zarr made.zarr
    """
    done = subprocess.run([*command, script], capture_output=True, text=True, timeout=240)
    assert "first run: 1\nsecond run: 0\n" in done.stdout, done.stdout + done.stderr
    assert "No space left on device" in done.stderr
    assert files(tmp_path / "made.zarr") == saved(ONE)


def test_too_large_for_the_disk_is_refused_before_work(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**6, 10**6, 10**5))
    with pytest.raises(ValueError, match=r"output must be on a disk with .* free, got 100 kB at"):
        shards.generate_store(ONE, tmp_path / "a.zarr", shards=3)
    assert not any(tmp_path.iterdir())


def test_too_large_for_memory_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("percolab.ground.memory.available", lambda: 10**6)
    monkeypatch.setattr("percolab.ground.memory.NEGLIGIBLE", 0)
    with pytest.raises(MemoryError, match=r"shards must be small enough for memory, .* 2 workers need about"):
        shards.generate_store(ONE, tmp_path / "a.zarr", shards=3, workers=2)
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_two_runs_at_once(tmp_path, saved):
    path = tmp_path / "a.zarr"
    first = start(ONE, path)
    wait_for_records(path, 1, first)
    with pytest.raises(pl.StoreError, match="is being written by another process"):
        shards.generate_store(ONE, path, shards=4)
    _, errors = first.communicate(timeout=240)
    assert first.returncode == 0, errors
    assert files(path) == saved(ONE)


def test_checking_a_complete_store_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "a.zarr"
    pl.generate(MIXED).save(path)
    before = files(path)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")
    assert shards.generate_store(MIXED, path, shards=3).shards_made == 0
    assert files(path) == before


# ---------------------------------------------------------------------- what is refused


def test_other_things_are_refused_and_kept(tmp_path, saved, inline):
    path = tmp_path / "a.zarr"
    shards.generate_store(MIXED, path, shards=2)
    other = replace(MIXED, n_points=19_000)
    with pytest.raises(FileExistsError, match=r"n_points of the store at .* must be 19000 to resume, got 20000"):
        shards.generate_store(other, path, shards=2)
    assert files(path) == saved(MIXED)
    shards.generate_store(other, path, shards=2, overwrite=True)
    assert files(path) == saved(other)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.zarr"]
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileExistsError):
        shards.generate_store(MIXED, tmp_path / "file", shards=2, overwrite=True)
    assert (tmp_path / "file").read_text() == "mine"


def test_overwriting_keeps_the_old_dataset_until_the_new_one_is_complete(tmp_path, saved, monkeypatch):
    path = tmp_path / "a.zarr"
    pl.generate(MIXED).save(path)
    interrupt_after(monkeypatch, 1)
    with pytest.raises(StopError):
        shards.generate_store(ONE, path, shards=4, overwrite=True)
    assert files(path) == saved(MIXED)
    assert shards.recipe_to_resume(path, overwrite=True) == ONE
    interrupt_after(monkeypatch, 100)
    assert shards.generate_store(ONE, path, shards=4, overwrite=True).shards_made == 3
    assert files(path) == saved(ONE)
    interrupt_after(monkeypatch, 1)
    with pytest.raises(StopError):
        shards.generate_store(MIXED, path, shards=4, overwrite=True)
    interrupt_after(monkeypatch, 100)
    shards.generate_store(MANY, path, shards=4, overwrite=True)  # an unfinished store of another recipe is dropped
    assert files(path) == saved(MANY)
    assert [file.name for file in tmp_path.iterdir()] == ["a.zarr"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shards": 0}, "shards must be at least 1, got 0"),
        ({"shards": 2, "runner": "abacus"}, "runner must be one of local, ray, got 'abacus'"),
        ({"shards": 2, "workers": 0}, "workers must be at least 1, got 0"),
        ({"shards": 2, "address": "auto"}, "address must be left out unless runner is 'ray', got 'auto'"),
    ],
)
def test_bad_options_get_one_line(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        shards.generate_store(MIXED, tmp_path / "a.zarr", **options)
    assert not (tmp_path / "a.zarr").exists()


def test_a_dataset_without_a_number_of_shards_is_one_shard(tmp_path, saved):
    assert shards.generate_store(ONE, tmp_path / "a.zarr").shards == 1
    assert files(tmp_path / "a.zarr") == saved(ONE)


def test_a_directory_that_does_not_exist(tmp_path):
    with pytest.raises(FileNotFoundError, match="output must be in an existing directory, got"):
        shards.generate_store(MIXED, tmp_path / "no" / "a.zarr", shards=2)


def test_the_paper_engine_is_refused(tmp_path):
    with pytest.raises(ValueError, match="engine must be 'native'"):
        shards.generate_store(replace(MIXED, engine="paper"), tmp_path / "a.zarr", shards=2)


# ---------------------------------------------------------------------- memory


@pytest.mark.slow
def test_memory_of_a_worker_does_not_grow_with_n(tmp_path):
    """Shards of the same size: 65,536 rows out of 2^17 and out of 2^20, in one cluster."""
    peak = []
    for power in (17, 20):
        recipe = pl.Recipe(2**power, 16, "one_cluster", seeds=1)
        made = shards.generate_store(recipe, tmp_path / f"{power}.zarr", shards=2 ** (power - 16), workers=1)
        peak.append(made.peak_bytes)
    assert peak[1] < 1.15 * peak[0]


# ---------------------------------------------------------------------- Ray


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", RECIPES)
def test_ray_gives_the_bytes_of_save(mode, tmp_path, saved, ray_cluster):
    made = shards.generate_store(RECIPES[mode], tmp_path / "a.zarr", shards=4, runner="ray")
    assert made.shards_made == 4
    assert files(tmp_path / "a.zarr") == saved(RECIPES[mode])
