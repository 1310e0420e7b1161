"""Stores from strangers: what is believed of them, and that nothing worse comes of the rest than one line."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import attack_files
import numpy as np
import pytest

import percolab as pl
from percolab.cli import errors, main
from percolab.ground import foreign_files
from percolab.store import schema, unfinished

ROOT = Path(__file__).parent
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\n\u202eevil"


@pytest.fixture(autouse=True)
def never_hang():
    """End a test that waits for a pipe."""

    def hanging(*_):
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, hanging)
    signal.alarm(600)  # minutes, since a test may have to compile first on a busy machine
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def ds():
    return pl.generate(pl.Recipe(300, 3, seeds=2, engine="paper"))


@pytest.fixture(scope="module")
def saved(ds, tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "ds.zarr"
    ds.save(path)
    return path


@pytest.fixture
def path(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "ds.zarr")


def edit(path, change, *, reseal=True):
    """Change what a store says of itself, and let its digest match."""
    file = path / "zarr.json"
    root = json.loads(file.read_text())
    change(root["attributes"]["percolab"])
    file.write_text(json.dumps(root))
    if reseal:
        assert attack_files.reseal(path)


def edit_array(path, name, **values):
    file = path / name / "zarr.json"
    found = json.loads(file.read_text())
    for key, value in values.items():
        if key == "chunk_shape":
            found["chunk_grid"]["configuration"]["chunk_shape"] = value
        else:
            found[key] = value
    file.write_text(json.dumps(found))


def craft(path, ds, **columns):
    """Write a dataset with other columns, in good order otherwise."""
    store = unfinished.begin(path, ds.recipe, ds.forest.n_points, ds.forest.n_clusters)
    for kind, names in schema.ROW_KINDS.items():
        whole = {name: getattr(ds.forest if name in schema.FOREST_COLUMNS else ds, name) for name in names}
        store.write(kind, 0, {name: np.asarray(columns.get(name, column)) for name, column in whole.items()})
    store.finish(ds.provenance, sync=False)


def touch(path):
    """Read everything of a dataset."""
    loaded = pl.load(path)
    np.asarray(loaded.X)
    return loaded.y, loaded.latent_z, loaded.point_z, loaded.forest


# ---------------------------------------------------------------------- metadata


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found["recipe"]["seeds"].update(graph=3),
        lambda found: found["recipe"].update(mode="custom", create_prob=0.3),
        lambda found: found["provenance"].update(numpy="1.0"),
        lambda found: found["provenance"].update(more="1.0"),
        lambda found: found["sha256"].update(y=found["sha256"]["X"]),
        lambda found: found.update(metadata_sha256="0" * 64),
        lambda found: found.pop("metadata_sha256"),
    ],
)
@pytest.mark.parametrize("verify", [False, True])
def test_any_change_of_what_a_store_says_is_noticed(path, change, verify):
    edit(path, change, reseal=False)
    with pytest.raises(pl.StoreError, match=r"ds.zarr is damaged: its metadata do not match their digest$"):
        pl.load(path, verify=verify)


def test_a_chunk_size_is_part_of_the_digest(path):
    edit_array(path, "y", chunk_shape=[64])
    with pytest.raises(pl.StoreError, match="metadata do not match"):
        pl.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: found["recipe"].update(seeds=None), "damaged recipe: seeds must be complete, got None"),
        (lambda found: found["recipe"].update(seeds=7), "damaged recipe: seeds must be complete, got 7"),
        (lambda found: found["recipe"]["seeds"].update(graph=None), "damaged recipe: seeds must be complete"),
        (
            lambda found: found["recipe"]["seeds"].update(graph=2**64),
            r"damaged recipe: seeds.graph must be below 2\*\*64",
        ),
        (lambda found: found["recipe"].pop("dtype"), "damaged recipe: dtype must be complete, got None"),
        (lambda found: found["recipe"].update(dtype="f8"), "damaged recipe: dtype must be complete, got 'f8'"),
        (lambda found: found["recipe"].update(more=1), "damaged recipe: a recipe has no field 'more'"),
        (lambda found: found.update(recipe=[]), "damaged recipe"),
        (lambda found: found["recipe"].update(dtype="float32"), "array X must be float32, got float64"),
        (lambda found: found["recipe"].update(n_points=301), "not those of its recipe: n_points must be 301, got 300"),
        (lambda found: found["recipe"].update(mode="one_cluster"), r"clusters must be 1 to 1 in number, got \d+"),
        (
            lambda found: found["recipe"].update(n_points=299, min_cluster_size=2),
            "n_points must be at most 299, got 300",
        ),
        (lambda found: found["recipe"].update(min_cluster_size=200), r"clusters must be 1 to 1 in number, got \d+"),
        (lambda found: found.update(provenance=3), "its provenance must be a JSON object, got 3"),
        (lambda found: found.update(sha256={}), "it must have a digest for every array, got {}"),
    ],
)
def test_a_recipe_must_be_complete_and_that_of_the_arrays(path, change, message):
    edit(path, change)
    with pytest.raises(pl.StoreError, match=message):
        pl.load(path)


@pytest.mark.parametrize("name", schema.COLUMNS)
def test_types_of_arrays_are_checked(path, name):
    other = "int64" if name in ("X", *schema.VALUE_COLUMNS) else "uint64"
    edit_array(path, name, data_type=other)
    attack_files.reseal(path)
    with pytest.raises(pl.StoreError, match=f"array {name} must be (float|int)64, got {other}"):
        pl.load(path)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("y", {"data_type": "V1000000000"}, "data_type must be one of float32"),
        ("y", {"data_type": "object"}, "data_type must be one of float32"),
        (
            "y",
            {"codecs": [{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "crc32c"}]},
            "endian must be",
        ),
        (
            "y",
            {"codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]},
            r"codecs must be \['bytes', 'crc3",
        ),
        ("y", {"codecs": [{"name": "numcodecs.pickle"}]}, "metadata are not those of an array"),
        ("y", {"codecs": []}, "metadata are not those of an array"),
        ("y", {"shape": [0], "chunk_shape": [0]}, "blocks must be of whole rows"),
        ("y", {"shape": [10**18], "chunk_shape": [10**18]}, "blocks must have at most 67108864 bytes"),
        ("y", {"shape": [10**18], "chunk_shape": [8]}, r"y must have shape \(300,\), got \(1000000000000000000,\)"),
        ("y", {"shape": [10**30], "chunk_shape": [8]}, r"sizes must be integers from 0 to 2\^62"),
        ("y", {"shape": [-1], "chunk_shape": [8]}, r"sizes must be integers from 0 to 2\^62"),
        ("y", {"shape": [True], "chunk_shape": [1]}, r"sizes must be integers from 0 to 2\^62"),
        ("y", {"shape": [], "chunk_shape": []}, "blocks must be of whole rows"),
        ("X", {"chunk_shape": [300, 2]}, "blocks must be of whole rows"),
        ("X", {"chunk_shape": [1]}, "blocks must be of whole rows"),
        ("X", {"chunk_shape": 3}, "metadata are not those of an array"),
        ("X", {"shape": [300, 10**18], "chunk_shape": [1, 10**18]}, r"X must have shape \(300, 3\)"),
        ("X", {"node_type": "group"}, "node_type must be 'array', got 'group'"),
        ("X", {"storage_transformers": [{"name": "x"}]}, r"storage_transformers must be \[\]"),
        ("X", {"chunk_key_encoding": {"name": "v2"}}, "chunk_key_encoding must be"),
    ],
)
def test_nothing_is_accepted_that_no_writer_writes(path, name, values, message):
    edit_array(path, name, **values)
    with pytest.raises(pl.StoreError, match=message):
        pl.load(path)


def test_files_that_describe_are_small_and_flat(path):
    for text in (
        "[" * 10**5,
        "{" * 10**5,
        "1" * 5000,
        "nul",
        "[]",
        '"text"',
        "",
        "\x00",
        " " * (foreign_files.MOST_JSON + 1),
    ):
        for name in ("zarr.json", "X/zarr.json"):
            before = (path / name).read_text()
            (path / name).write_text(text)
            with pytest.raises(pl.StoreError) as caught:
                pl.load(path)
            assert str(caught.value).isprintable()
            (path / name).write_text(before)


# ---------------------------------------------------------------------- sizes


@pytest.mark.parametrize("n_points", [10**11, 10**18])
def test_a_store_that_says_it_is_huge_takes_no_memory(path, n_points):
    """It says so in all places, so it is believed until it is read; then memory is asked for, or a chunk."""
    n_clusters = 3
    edit(path, lambda found: found["recipe"].update(n_points=n_points), reseal=False)
    recipe = pl.Recipe(n_points, 3, seeds=2, engine="paper")
    columns = schema.columns_of(recipe, n_points, n_clusters)
    for name, (shape, _) in ((name, columns[name]) for name in schema.COLUMNS):
        edit_array(path, name, shape=list(shape), chunk_shape=[8, *shape[1:]])
    assert attack_files.reseal(path)
    loaded = pl.load(path)
    assert len(loaded) == n_points
    for read in (lambda: loaded.y, lambda: loaded.forest, lambda: loaded.X[:], lambda: np.asarray(loaded.X)):
        with pytest.raises((MemoryError, pl.StoreError), match="cannot be read"):
            read()
    with pytest.raises(pl.StoreError, match="X cannot be read: X/c/0/0 must have 196 bytes, got"):
        loaded.X[5]
    with pytest.raises(pl.StoreError, match="X cannot be read: a chunk is missing"):
        loaded.X[-1]


def test_a_row_that_is_larger_than_memory(tmp_path):
    ds = pl.generate(pl.Recipe(2, 2, seeds=0, engine="paper"))
    path, dim = tmp_path / "ds.zarr", 10**12
    ds.save(path)
    edit(path, lambda found: found["recipe"].update(dim=dim), reseal=False)
    edit_array(path, "X", shape=[2, dim], chunk_shape=[1, dim])
    assert attack_files.reseal(path)
    os.truncate(path / "X" / "c" / "0" / "0", dim * 8 + 4)  # a hole that takes no disk
    with pytest.raises(MemoryError, match=r"X cannot be read at once: it needs 16 TB of memory, and .* are free"):
        pl.load(path).X[0]


def test_a_chunk_never_unpacks_to_more_than_its_block(path):
    from numcodecs import blosc

    bomb = blosc.compress(np.zeros(10**8, np.int64), b"zstd", 3, 1)
    chunk = path / "point_id" / "c" / "0"
    chunk.write_bytes(attack_files.signed(bomb))
    with pytest.raises(pl.StoreError, match=r"point_id cannot be read: .* must (unpack to 2400 bytes|have at most)"):
        _ = pl.load(path).forest
    chunk.write_bytes(attack_files.signed(bomb[:15]))
    with pytest.raises(pl.StoreError, match=r"point_id cannot be read: .* must unpack to 2400 bytes, got 0"):
        _ = pl.load(path).forest


# ---------------------------------------------------------------------- files that are none


def pipe(file):
    file.unlink()
    os.mkfifo(file)


def device(file):
    file.unlink()
    file.symlink_to("/dev/zero")


def elsewhere(file):
    other = file.with_name("elsewhere")
    file.rename(other)
    file.symlink_to(other)


def folder(file):
    file.unlink()
    file.mkdir()


def linked_folder(file):
    other = file.parent.with_name("elsewhere")
    file.parent.rename(other)
    file.parent.symlink_to(other)


@pytest.mark.parametrize("kind", [pipe, device, elsewhere, folder, linked_folder])
@pytest.mark.parametrize("name", ["X/c/0/0", "y/c/0", "bond/c/0/0", "X/zarr.json", "zarr.json", "digests/y/c/0/0"])
def test_only_plain_files_are_read(path, kind, name):
    if kind is linked_folder and name == "zarr.json":
        return
    kind(path / name)
    with pytest.raises((pl.StoreError, FileNotFoundError)) as caught:
        pl.load(path, verify=True)
    assert "\n" not in str(caught.value)
    if "digests" not in name:
        with pytest.raises((pl.StoreError, FileNotFoundError)):
            touch(path)


@pytest.mark.parametrize("kind", [pipe, device, elsewhere])
@pytest.mark.parametrize("name", ["digests/zarr.json", "unfinished/zarr.json", "X/zarr.json"])
def test_only_plain_files_are_gone_on_with(ds, tmp_path, kind, name):
    whole = ds.recipe, ds.forest.n_points, ds.forest.n_clusters
    unfinished.begin(tmp_path / "ds.zarr", *whole)
    kind(tmp_path / "ds.zarr" / name)
    with pytest.raises(FileExistsError, match=rf"must hold plain files and directories alone, got '.*{name}'$"):
        unfinished.begin(tmp_path / "ds.zarr", *whole)


# ---------------------------------------------------------------------- forests


def crafted_forests(forest):
    """Yield columns that once made compiled code read or write out of bounds."""
    n = forest.n_points
    start = forest.cluster_start.copy()
    start[1], start[2] = 2**63 - 1, -2  # differences that wrap around to harmless ones
    yield {"cluster_start": start}
    yield {"cluster_start": np.where(np.arange(start.size) == 1, 10**9, forest.cluster_start)}
    yield {"cluster_start": forest.cluster_start[::-1].copy()}
    for value in (0, -1, 10**9, 2**63 - 1, -(2**63)):
        yield {"left_size": np.full_like(forest.left_size, value)}
        yield {"bond": np.full_like(forest.bond, value)}
    yield {"bond": forest.bond[:, ::-1].copy()}
    yield {"point_id": forest.point_id + n}
    yield {"point_id": np.full_like(forest.point_id, -1)}
    yield {"cluster_id": forest.cluster_id + forest.n_clusters}
    yield {"cluster_id": np.full_like(forest.cluster_id, 2**62)}


@pytest.mark.slow
def test_crafted_forests_are_refused_when_first_read(ds, tmp_path, capfd):
    for k, columns in enumerate(crafted_forests(ds.forest)):
        path = tmp_path / f"{k}.zarr"
        craft(path, ds, **columns)
        (name,) = columns
        loaded = pl.load(path, verify=True)  # all digests match
        with pytest.raises(pl.StoreError, match=rf"is damaged: {name}\b.* must "):
            _ = loaded.forest
        for words in (["info"], ["export", "--format", "npz", "-o", str(tmp_path / "out")]):
            assert main.run([words[0], str(path), *words[1:]]) == errors.FAILURE
            assert capfd.readouterr().err.count("\n") == 1


PARTS = (
    "forests",
    "files",
    "flips",
    "kills",
    "steps",
    "runs",
    "hidden",
    "unfinished",
    "disks",
    "interrupts",
    "studies",
)
READERS = ("codes", "checkpoints", "recipes", "manifests", "exports", "results", "cells", "activations", "dictionaries")


def run_attack(what, tries, seed=0, **settings):
    """Run parts of the attack in a process of its own, which a crash would end; return what it prints."""
    command = [sys.executable, "-X", "faulthandler", str(ROOT / "attack.py"), what, tries, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | settings)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    print(done.stdout, end="")
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("what", READERS)
def test_some_hundred_files_of_strangers(what):
    """As many as `make attack` takes at random, and here with a seed that stays."""
    signal.alarm(0)
    assert " 0 crashes" in run_attack(what, "300", 1)


@pytest.mark.slow
def test_crafted_forests_with_every_index_checked(tmp_path):
    """A read past the end of an array may go unnoticed, so kernels are compiled to notice it."""
    signal.alarm(0)
    assert " 0 crashes" in run_attack("forests", "1000", 1, NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path))


def test_every_part_of_the_attack_is_known():
    import attack

    assert set(attack.PARTS) == {*PARTS, *READERS}
    assert all(f"{name} " in attack.__doc__ for name in attack.PARTS)


# ---------------------------------------------------------------------- terminals


def test_nothing_that_a_terminal_obeys_is_printed(path, ds, tmp_path, capfd):
    edit(path, lambda found: found["provenance"].update({"numpy": ESCAPES, ESCAPES: 1, "created": ESCAPES}))
    pl.load(path, verify=True)
    for words in (["info"], ["info", "--json"], ["info", "--verify"]):
        assert main.run([words[0], str(path), *words[1:]]) == 0
        out, err = capfd.readouterr()
        assert all(letter.isprintable() or letter == "\n" for letter in out + err)
        assert "owned" in out
    changes = [
        lambda found: found.update(format=ESCAPES),
        lambda found: found.update(status=ESCAPES),
        lambda found: found["recipe"].update(mode=ESCAPES),
        lambda found: found["recipe"].update({ESCAPES: 1}),
    ]
    for change in changes:
        spoilt = shutil.copytree(path, tmp_path / "spoilt.zarr")
        edit(spoilt, change, reseal=False)
        for words in (
            ["info", str(spoilt)],
            ["generate", "--n-points", "300", "--dim", "3", "-o", str(spoilt), "--shards", "1"],
        ):
            assert main.run(words) != 0
            err = capfd.readouterr().err
            assert err.count("\n") == 1
            assert err[:-1].isprintable()
        shutil.rmtree(spoilt)
    edit_array(path, "y", data_type=ESCAPES)
    assert main.run(["info", str(path)]) == errors.FAILURE
    assert capfd.readouterr().err[:-1].isprintable()


MARKUP = '"><img src=x onerror=alert(1)><script>alert(2)'


@pytest.mark.slow
def test_nothing_that_a_browser_obeys_is_written(ds, tmp_path, monkeypatch, capfd):
    """Neither the name of a store nor what it says of itself is HTML, in any page or card that is made of it."""
    monkeypatch.chdir(tmp_path)
    name = f"{MARKUP}.zarr"
    ds.save(name, sync=False)
    evil = f"</script>{MARKUP}{ESCAPES}\n---\nlicense: evil\n{'x' * 3000}"
    edit(Path(name), lambda found: found["provenance"].update({"created": evil, evil: evil, "platform": evil}))
    np.save("codes.npy", np.maximum(ds.X, 0))
    for words in (
        ["info", name, "--html", "info.html"],
        ["verify", name, "--report", "verify.html"],
        ["explore", name, "-o", "explore.html"],
        ["score", name, "codes.npy", "-o", "score.html"],
        ["export", name, "--format", "huggingface", "-o", "hub"],
        ["export", name, "--format", "csv", "-o", "table"],
    ):
        assert main.run(words) == 0, words
        out, err = capfd.readouterr()
        assert all(letter.isprintable() or letter in "\n\r" for letter in out + err)
    pages = [*Path().glob("*.html"), Path("hub/README.md")]
    assert len(pages) == 5
    for page in pages:
        text = page.read_text()
        assert "<img src=x" not in text
        assert "<script>alert" not in text
    assert "\nlicense: evil" not in Path("hub/README.md").read_text()
    for table in Path().glob("table*.csv"):
        assert not any(
            cell.startswith(("=", "+", "@")) for line in table.read_text().splitlines() for cell in line.split(",")
        )
