"""Reading: lazily, and every way in which a store can be broken."""

import json
import shutil

import numpy as np
import pytest
import zarr

import percolab as pl
from percolab.store import arrays, schema


@pytest.fixture(scope="module")
def ds():
    return pl.generate(pl.Recipe(3000, 6, seeds=2, engine="paper", min_cluster_size=3))


@pytest.fixture
def path(ds, tmp_path, monkeypatch):
    monkeypatch.setattr(schema, "BLOCK_BYTES", 1 << 12)  # many blocks, as in a large dataset
    ds.save(tmp_path / "ds.zarr")
    return tmp_path / "ds.zarr"


def assert_same(a, b):
    assert a.recipe == b.recipe
    assert a.forest.equals(b.forest)
    for name in ("X", "y", "latent_z", "point_z"):
        left, right = np.asarray(getattr(a, name)), np.asarray(getattr(b, name))
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)


def test_reading_is_lazy(ds, path):
    loaded = pl.load(path)
    assert isinstance(loaded.X, arrays.StoredArray)
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
