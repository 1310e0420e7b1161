"""Reading: lazily, and every way in which a store can be broken."""

import copy
import json
import pickle
import shutil

import numpy as np
import pytest
import zarr
from sameness import assert_same

import percolab as pl
from percolab.store import chunks, schema, stored_array

CHUNK_BYTES = 1 << 12
"""Many blocks, as in a large dataset."""


@pytest.fixture(scope="module")
def ds():
    return pl.generate(pl.Recipe(3000, 6, seeds=2, engine="paper", min_cluster_size=3))


@pytest.fixture(scope="module")
def saved(ds, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "ds.zarr"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_BYTES", CHUNK_BYTES)
        ds.save(path)
    return path


@pytest.fixture
def path(saved, tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", CHUNK_BYTES)
    return shutil.copytree(saved, tmp_path / "ds.zarr")


def test_reading_is_lazy(ds, path):
    loaded = pl.load(path)
    assert isinstance(loaded.X, stored_array.StoredArray)
    assert (loaded.X.shape, loaded.X.dtype, loaded.X.ndim, len(loaded)) == (ds.X.shape, ds.X.dtype, 2, len(ds))
    rows = np.random.default_rng(0).permutation(len(ds))[:50]
    for index in (3, slice(5, 90), (slice(None), 2), (slice(None, 7), slice(1, 3)), rows, rows.tolist(), rows < 1000):
        if isinstance(index, np.ndarray) and index.dtype == bool:
            index = np.resize(index, len(ds))
        np.testing.assert_array_equal(loaded.X[index], ds.X[index])
    np.testing.assert_array_equal(loaded.X[rows, 1:3], ds.X[rows, 1:3])
    np.testing.assert_array_equal(loaded.X[loaded.release_order], ds.X[ds.release_order])
    np.testing.assert_array_equal(loaded.in_memory().X, ds.X)
    assert_same(loaded.filter(20), ds.filter(20))
    with pytest.raises(AttributeError, match="no attribute 'Z'"):
        _ = loaded.Z
    shutil.rmtree(path / "X")  # nothing but X needs it
    assert loaded.y.shape == ds.y.shape
    with pytest.raises(pl.StoreError, match="X cannot be read: a chunk is missing"):
        loaded.X[:]


# ---------------------------------------------------------------------- loaded datasets at hand


def test_a_loaded_dataset_travels_by_its_path(ds, path, monkeypatch):
    monkeypatch.chdir(path.parent)
    loaded = pl.load("ds.zarr")
    X, part = loaded.X, loaded.filter(20)
    assert len(loaded.forest.point_id) == len(ds)  # what was read stays behind
    small = pickle.dumps(loaded)
    assert len(small) < 1000
    monkeypatch.chdir("/")
    again = pickle.loads(small)
    assert isinstance(again.X, stored_array.StoredArray)
    assert_same(again, ds)
    assert again.provenance["loaded_from"] == str(path)
    assert_same(copy.copy(loaded), ds)
    assert_same(copy.deepcopy(loaded), ds)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(X))[5:9], ds.X[5:9])
    assert_same(pickle.loads(pickle.dumps(part)), ds.filter(20))
    assert_same(pickle.loads(pickle.dumps(ds)), ds)
    ds.filter(20).save(path, overwrite=True)
    for travelling in (small, pickle.dumps(loaded)):
        with pytest.raises(pl.StoreError, match=r"ds.zarr was changed after it was loaded: load it again$"):
            pickle.loads(travelling)


def test_dir_shows_what_is_there(ds, path):
    names = {"X", "y", "forest", "latent_z", "point_z", "recipe", "provenance", "save", "filter"}
    assert names <= set(dir(pl.load(path)))
    assert names <= set(dir(ds))
    assert {"shape", "dtype", "block_rows", "first"} <= set(dir(pl.load(path).X))


@pytest.mark.parametrize("name", ["mean", "T", "astype", "sum", "reshape", "copy", "tolist"])
def test_what_arrays_on_disk_lack_is_said_with_what_to_do(path, name):
    X = pl.load(path).X
    assert not hasattr(X, name)
    with pytest.raises(AttributeError) as caught:
        getattr(X, name)
    assert str(caught.value) == f"an array on disk has no {name!r}: read it first, as ds.X[:] or ds.in_memory()"
    with pytest.raises(AttributeError, match="'StoredArray' object has no attribute 'no_such_thing'"):
        _ = X.no_such_thing


def test_filter_leaves_positions_on_disk(ds, path):
    loaded = pl.load(path)
    shutil.move(path / "X" / "c", path.parent / "elsewhere")
    part = loaded.filter(20)
    assert isinstance(part.X, stored_array.StoredArray)
    assert len(part) == len(part.X) == part.X.shape[0] == part.forest.n_points < len(ds)
    with pytest.raises(IndexError, match=f"index {len(part)} is out of bounds"):
        part.X[len(part)]
    assert part.filter(30).X.shape == ds.filter(30).X.shape
    shutil.move(path.parent / "elsewhere", path / "X" / "c")
    assert_same(part, ds.filter(20))
    assert_same(part.filter(30), ds.filter(30))
    np.testing.assert_array_equal(part.X[-3:], ds.filter(20).X[-3:])
    part.save(path.with_name("part.zarr"))
    assert_same(pl.load(path.with_name("part.zarr"), verify=True), ds.filter(20))


def test_scikit_learn_takes_a_loaded_dataset(ds, path):
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import cross_val_score, train_test_split

    loaded = pl.load(path)
    for ours, theirs in zip(
        train_test_split(loaded.X, loaded.y, random_state=0), train_test_split(ds.X, ds.y, random_state=0), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(
        cross_val_score(Ridge(), loaded.X, loaded.y), cross_val_score(Ridge(), np.asarray(ds.X), ds.y)
    )


# ---------------------------------------------------------------------- damage


def some_chunk(path, name):
    chunks = sorted(p for p in (path / name / "c").rglob("*") if p.is_file())
    return chunks[len(chunks) // 2]


@pytest.mark.parametrize("name", schema.COLUMNS)
@pytest.mark.parametrize("damage", ["flipped", "truncated", "missing"])
def test_damaged_chunks_are_named(path, name, damage):
    chunk = some_chunk(path, name)
    content = bytearray(chunk.read_bytes())
    if damage == "missing":
        chunk.unlink()
    elif damage == "truncated":
        chunk.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 2] ^= 1
        chunk.write_bytes(content)
    with pytest.raises(pl.StoreError, match=rf"\b{name} cannot be read"):
        pl.load(path, verify=True)
    loaded = pl.load(path)  # and without verification, as soon as it is read
    with pytest.raises(pl.StoreError, match=rf"\b{name} cannot be read"):
        np.asarray(loaded.X), loaded.y, loaded.latent_z, loaded.point_z, loaded.forest


def test_changed_values_are_found_by_their_digest(path):
    group = zarr.open_group(path, mode="r+")
    group["y"][1] = 0.5
    with pytest.raises(pl.StoreError, match="array y does not match its digest in rows 0 to"):
        pl.load(path, verify=True)


def edit_metadata(path, change):
    metadata = json.loads((path / "zarr.json").read_text())
    change(metadata["attributes"]["percolab"])
    (path / "zarr.json").write_text(json.dumps(metadata))


def test_broken_metadata(path):
    edit_metadata(path, lambda m: m.update(format=99))
    with pytest.raises(pl.StoreError, match="has format 99; this version of percolab reads 1"):
        pl.load(path)
    edit_metadata(path, lambda m: m.update(format=1, recipe={"n_points": 0, "dim": 2}))
    with pytest.raises(pl.StoreError, match="damaged recipe: n_points must be at least 1, got 0"):
        pl.load(path)
    (path / "zarr.json").write_text('{"zarr_format": 3, "node_ty')
    with pytest.raises(pl.StoreError, match="is not a percolab dataset"):
        pl.load(path)


def test_missing_and_misshapen_arrays(ds, path):
    edit_metadata(path, lambda m: m["recipe"].update(dim=7))
    with pytest.raises(pl.StoreError, match=r"array X must have shape \(\d+, 7\), got \(\d+, 6\)"):
        pl.load(path)
    shutil.rmtree(path / "latent_z")
    with pytest.raises(pl.StoreError, match="array latent_z is missing"):
        pl.load(path)


def test_foreign_paths(tmp_path):
    with pytest.raises(FileNotFoundError, match="dataset must exist, got"):
        pl.load(tmp_path / "nothing.zarr")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(pl.StoreError, match="is not a percolab dataset: it is not a Zarr group"):
        pl.load(tmp_path / "notes.txt")
    zarr.create_group(tmp_path / "other.zarr")
    with pytest.raises(pl.StoreError, match="it is a Zarr group of another kind"):
        pl.load(tmp_path / "other.zarr")


def test_opening_costs_nothing(tmp_path):
    """Opening reads metadata alone: it works when every chunk of every array is gone."""
    ds = pl.generate(pl.Recipe(100, 3, seeds=0, engine="paper"))
    ds.save(tmp_path / "ds.zarr")
    for name in schema.COLUMNS:
        shutil.rmtree(tmp_path / "ds.zarr" / name / "c")
    assert pl.load(tmp_path / "ds.zarr").recipe == ds.recipe
