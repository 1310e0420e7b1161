"""Exports: every format from memory and from a store, read back; torch."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import scipy.sparse
import torch

import percolab as pl
from percolab import exports
from percolab.cli.export import WRITERS, files_of
from percolab.corpora.collection import StoredDocuments
from percolab.exports import columns, release

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*.npz"))


@pytest.fixture(scope="module")
def ds():
    return pl.generate(pl.Recipe(600, 5, seeds=3, engine="paper"))


@pytest.fixture(params=["memory", "store"])
def either(request, ds, tmp_path):
    if request.param == "memory":
        return ds
    ds.save(tmp_path / "ds.zarr")
    return pl.load(tmp_path / "ds.zarr")


def golden_dataset(path):
    with np.load(path) as file:
        golden = dict(file)
    custom = golden["mode"] == "custom"
    recipe = pl.Recipe(
        int(golden["n"]),
        int(golden["d"]),
        str(golden["mode"]),
        create_prob=float(path.name.split("_p")[1].split("_")[0]) if custom else None,
        seeds=pl.Seeds(*golden["seeds"].tolist()),
        engine="paper",
    )
    return pl.generate(recipe), golden


def dense_features(golden):
    """Return the matrix of latent values of a golden file, from its child codes alone; columns as stored there."""
    n, children = int(golden["n"]), golden["latent_children"].astype(int)
    member = np.zeros((n, len(children)), bool)
    for latent in range(len(children)):
        below = [n + latent]
        while below:
            code = below.pop()
            if code < n:
                member[code, latent] = True
            else:
                below += children[code - n].tolist()
    return np.where(member, golden["latent_z"], 0.0)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_authors_files_hold_the_golden_data(path, tmp_path):
    made, golden = golden_dataset(path)
    exports.to_npz(made, tmp_path / "release")
    release = exports.read_npz(tmp_path / "release")
    np.testing.assert_allclose(release.X, golden["X"], atol=1e-12 * np.abs(golden["X"]).max())
    np.testing.assert_array_equal(release.y, golden["y"])
    np.testing.assert_array_equal(release.cluster_id, golden["cluster_id"])
    np.testing.assert_array_equal(release.latent_tree_height, golden["depth"])
    sizes = np.bincount(golden["cluster_id"])
    np.testing.assert_array_equal(release.cluster_size, sizes[golden["cluster_id"]])
    expected = dense_features(golden)
    found = release.latent_values.toarray()
    assert found.shape == expected.shape
    # Depth of the columns in the order written, then the same columns, in any order within a depth of a cluster.
    order = np.lexsort((golden["latent_cluster"], golden["latent_depth"]))
    place = np.stack([golden["latent_depth"][order], golden["latent_cluster"][order]], axis=1)
    for depth, cluster in np.unique(place, axis=0):
        here = (place == [depth, cluster]).all(1)
        assert sorted(map(tuple, found[:, here].T)) == sorted(map(tuple, expected[:, order][:, here].T))


def test_authors_files_have_the_types_of_the_release(either, tmp_path):
    exports.to_npz(either, tmp_path / "a")
    with np.load(tmp_path / "a.npz") as file:
        assert sorted(file.files) == ["X", "cluster_id", "cluster_size", "latent_tree_height", "y"]
        assert {name: file[name].dtype.str for name in ("cluster_id", "cluster_size", "latent_tree_height")} == {
            "cluster_id": "<i8",
            "cluster_size": "<i8",
            "latent_tree_height": "<i8",
        }
    features = scipy.sparse.load_npz(tmp_path / "a_gt_features.npz")
    assert features.format == "csr"
    assert features.has_sorted_indices
    assert features.nnz == either.forest.point_depth.sum()
    exports.read_npz(tmp_path / "a.npz")  # the name of the first file serves as well as the stem


def test_reads_columns_that_were_lists(ds, tmp_path):
    exports.to_npz(ds, tmp_path / "a")
    release = exports.read_npz(tmp_path / "a")
    np.savez(
        tmp_path / "b.npz",
        X=release.X,
        y=release.y,
        cluster_id=release.cluster_id.tolist(),
        cluster_size=[[size] for size in release.cluster_size.tolist()],
        latent_tree_height=release.latent_tree_height.astype(float).tolist(),
    )
    os.link(tmp_path / "a_gt_features.npz", tmp_path / "b_gt_features.npz")
    again = exports.read_npz(tmp_path / "b")
    for name in ("cluster_id", "cluster_size", "latent_tree_height"):
        assert getattr(again, name).dtype == np.int64
        np.testing.assert_array_equal(getattr(again, name), getattr(release, name))


def test_damaged_files_are_named(ds, tmp_path):
    stem = tmp_path / "a"
    with pytest.raises(FileNotFoundError, match=r"a\.npz"):
        exports.read_npz(stem)
    exports.to_npz(ds, stem)
    release = exports.read_npz(stem)
    whole = (tmp_path / "a.npz").read_bytes()

    np.savez(tmp_path / "a.npz", X=release.X, y=release.y, cluster_size=release.cluster_size)
    with pytest.raises(ValueError, match=r"^release must be .*a\.npz': .*cluster_id is not a file in the archive"):
        exports.read_npz(stem)
    columns = {name: getattr(release, name) for name in ("X", "cluster_id", "cluster_size", "latent_tree_height")}
    np.savez(tmp_path / "a.npz", y=release.y[1:], **columns)
    with pytest.raises(ValueError, match=r"a\.npz': y must have 600 rows, got 599$"):
        exports.read_npz(stem)
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for broken in (whole[: len(whole) // 2], b"", b"not a zip file", flipped):
        (tmp_path / "a.npz").write_bytes(broken)
        with pytest.raises(ValueError, match=r"^release must be a file as NumPy or SciPy save arrays, got .*a\.npz': "):
            exports.read_npz(stem)
    with open(tmp_path / "a.npz", "wb") as file:
        np.save(file, release.y)
    with pytest.raises(ValueError, match=r"a\.npz': 'X'$"):
        exports.read_npz(stem)
    (tmp_path / "a.npz").write_bytes(whole)
    (tmp_path / "a_gt_features.npz").write_bytes(whole)
    with pytest.raises(ValueError, match=r"a_gt_features\.npz': .*format is not a file in the archive"):
        exports.read_npz(stem)
    scipy.sparse.save_npz(tmp_path / "a_gt_features.npz", release.latent_values[:-1])
    with pytest.raises(ValueError, match=r"a_gt_features\.npz': the matrix must have 600 rows, got 599$"):
        exports.read_npz(stem)


def test_the_authors_probes_find_what_they_read(either, ds, tmp_path, monkeypatch):
    """They take rows of the matrix by `getrow`, the value at depth D from a row's place D, and a table of metadata."""
    monkeypatch.setattr(release, "BLOCK_MEMBERSHIPS", 100)
    exports.to_npz(either, tmp_path / "a")
    features = scipy.sparse.load_npz(tmp_path / "a_gt_features.npz")
    metadata = np.load(tmp_path / "a_gt_metadata.npz", allow_pickle=True)
    table = pd.DataFrame({name: metadata[name] for name in metadata.files})
    assert list(table) == ["cluster_id", "cluster_size", "latent_tree_height"]
    forest = ds.forest
    column_of = {}
    for i, row in enumerate(ds.release_order):
        found, path = features.getrow(i), forest.path(int(row))
        np.testing.assert_array_equal(found.data, ds.latent_z[path])
        for latent, column in zip(path, found.indices, strict=True):
            assert column_of.setdefault(latent, column) == column
        cluster = forest.point_cluster[row]
        expected = [forest.cluster_id[cluster], forest.cluster_size[cluster], path.size]
        assert table.iloc[i].tolist() == expected
    assert len(set(column_of.values())) == forest.n_latents


ROUND_TRIPS = [
    (exports.to_parquet, exports.read_parquet),
    (exports.to_csv, exports.read_csv),
    (exports.to_hdf5, exports.read_hdf5),
]


@pytest.mark.parametrize(("write", "read"), ROUND_TRIPS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_read_back_to_the_bit(write, read, dtype, tmp_path, monkeypatch):
    monkeypatch.setattr(columns, "EXPORT_BYTES", 1000)
    made = pl.generate(pl.Recipe(600, 7, seeds=3, dtype=dtype))
    made.save(tmp_path / "ds.zarr")
    seen = []
    write(pl.load(tmp_path / "ds.zarr"), tmp_path / "a", progress=lambda *report: seen.append(report))
    again = read(tmp_path / "a")
    assert seen[-1] == ("exporting", 600, 600)
    assert len(seen) > 10
    assert again.forest.equals(made.forest)
    for name in ("X", "y", "latent_z", "point_z"):
        assert getattr(again, name).dtype == getattr(made, name).dtype
        assert getattr(again, name).tobytes() == getattr(made, name).tobytes()
    assert again.recipe == made.recipe
    assert again.provenance["created"] == made.provenance["created"]


@pytest.mark.parametrize(("write", "read"), ROUND_TRIPS, ids=lambda function: function.__name__)
def test_targets_of_several_columns(write, read, ds, tmp_path):
    y = np.arange(1800).reshape(600, 3)
    made = pl.Dataset(ds.recipe, ds.forest, ds.X, y, ds.latent_z, ds.point_z, ds.provenance)
    write(made, tmp_path / "a")
    again = read(tmp_path / "a").y
    assert again.dtype == y.dtype
    np.testing.assert_array_equal(again, y)


def test_csv_is_plain(either, ds, tmp_path):
    exports.to_csv(either, tmp_path / "t.csv")
    # Read as text: pandas' own parser of numbers is off by some bits, by how many depends on its version.
    points = pd.read_csv(tmp_path / "t.points.csv", dtype=str)
    assert list(points) == [*(f"x{j}" for j in range(5)), "y", "z", "cluster", "cluster_id", "point_id", "depth"]
    np.testing.assert_array_equal([float(text) for text in points["y"]], ds.y)
    latents = pd.read_csv(tmp_path / "t.latents.csv", dtype=str)
    for name, column in ds.forest.latent_table(ds.latent_z).items():
        np.testing.assert_array_equal([column.dtype.type(text) for text in latents[name]], column)
    kept = json.loads((tmp_path / "t.recipe.json").read_text())
    assert pl.Recipe.from_dict(kept["percolab.recipe"]) == ds.recipe


def test_hdf5_has_the_columns_of_the_data_model(either, ds, tmp_path):
    exports.to_hdf5(either, tmp_path / "t.h5")
    with h5py.File(tmp_path / "t.h5") as file:
        assert set(file) == {
            "X", "y", "latent_z", "point_z", "cluster_start", "cluster_id", "point_id", "left_size", "bond",
            "extra_bond", "extra_latent",
        }  # fmt: skip
        np.testing.assert_array_equal(file["X"][5:9], ds.X[5:9])
        np.testing.assert_array_equal(file["bond"], ds.forest.bond)
        assert pl.Recipe.from_json(file.attrs["percolab.recipe"]) == ds.recipe


def test_datasets_opens_the_folder(either, ds, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(columns, "EXPORT_BYTES", 128 * 5 * 8)
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    exports.to_parquet(either, tmp_path / "hub")
    options = {"split": "train", "cache_dir": str(tmp_path / "cache")}
    points = datasets.load_dataset(str(tmp_path / "hub"), "points", **options)
    np.testing.assert_array_equal(points.with_format("numpy", dtype=np.float64)["X"][:], ds.X)
    assert points.with_format("torch")[3]["X"].shape == (5,)
    np.testing.assert_array_equal(points["y"][:], ds.y)
    latents = datasets.load_dataset(str(tmp_path / "hub"), "latents", **options)
    pd.testing.assert_frame_equal(
        latents.to_pandas(), ds.forest.latent_table(ds.latent_z).reset_index(drop=True), check_index_type=False
    )
    default = datasets.load_dataset(str(tmp_path / "hub"), **options)
    assert default.column_names == points.column_names
    assert ds.recipe.to_json() in (tmp_path / "hub" / "README.md").read_text()


def test_a_folder_is_refused_replaced_or_left_alone(ds, tmp_path):
    broken = pl.Dataset(ds.recipe, ds.forest, ds.X, ds.y[:3], ds.latent_z, ds.point_z, {})
    with pytest.raises((IndexError, ValueError)):
        exports.to_parquet(broken, tmp_path / "hub")
    assert os.listdir(tmp_path) == []
    exports.to_parquet(ds, tmp_path / "hub")
    before = (tmp_path / "hub" / "points.parquet").read_bytes()
    with pytest.raises(FileExistsError, match=r"must not exist unless overwrite is given, got '.*README\.md'"):
        exports.to_parquet(ds, tmp_path / "hub")
    with pytest.raises((IndexError, ValueError)):
        exports.to_parquet(broken, tmp_path / "hub", overwrite=True)
    assert (tmp_path / "hub" / "points.parquet").read_bytes() == before
    exports.to_parquet(ds, tmp_path / "hub", overwrite=True)
    assert sorted(os.listdir(tmp_path / "hub")) == ["README.md", "latents.parquet", "points.parquet"]
    with pytest.raises(FileNotFoundError, match="must be in an existing directory"):
        exports.to_parquet(ds, tmp_path / "no" / "hub")


def test_foreign_files_are_named(ds, tmp_path):
    (tmp_path / "a").mkdir()
    for name in ("points", "latents"):
        pd.DataFrame({"X": [1.0]}).to_parquet(tmp_path / "a" / f"{name}.parquet")
    with pytest.raises(ValueError, match=r"^export must be an export of percolab, got .*a/points\.parquet': "):
        exports.read_parquet(tmp_path / "a")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"] = [1.0]
    with pytest.raises(ValueError, match=r"^export must be an export of percolab, got .*a\.h5': "):
        exports.read_hdf5(tmp_path / "a")
    (tmp_path / "b.h5").write_text("nothing of the kind")
    with pytest.raises(ValueError, match=r"^export must be an export of percolab, got .*b\.h5': "):
        exports.read_hdf5(tmp_path / "b")
    exports.to_hdf5(ds, tmp_path / "d")
    with h5py.File(tmp_path / "d.h5", "r+") as file:
        del file["latent_z"]
        file["latent_z"] = [1.0]
    with pytest.raises(
        ValueError,
        match=r"^export must be an export of percolab, got .*d\.h5': latent_z must have shape",
    ):
        exports.read_hdf5(tmp_path / "d")
    with pytest.raises(FileNotFoundError, match=r"export must exist, got .*c\.h5"):
        exports.read_hdf5(tmp_path / "c")
    exports.to_csv(ds, tmp_path / "t")
    kept = json.loads((tmp_path / "t.recipe.json").read_text())
    del kept["percolab.recipe"]
    (tmp_path / "t.recipe.json").write_text(json.dumps(kept))
    with pytest.raises(
        ValueError, match=r"^export must be an export of percolab, got .*t\.points\.csv': 'percolab.recipe'"
    ):
        exports.read_csv(tmp_path / "t")


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_formats_name_their_files(name, ds, tmp_path):
    WRITERS[name](ds, tmp_path / "a", overwrite=False, progress=lambda *_: None)
    assert sorted(files_of(name, ds, tmp_path / "a")) == sorted(path for path in tmp_path.rglob("*") if path.is_file())


def test_parquet(either, ds, tmp_path, monkeypatch):
    monkeypatch.setattr(columns, "EXPORT_BYTES", 128 * 5 * 8)
    exports.to_parquet(either, tmp_path / "t")
    file = pq.ParquetFile(tmp_path / "t" / "points.parquet")
    assert file.metadata.num_row_groups == 5  # 600 rows in blocks of 128
    points = file.read()
    assert points.column_names == ["X", "y", "z", "cluster", "cluster_id", "point_id", "depth"]
    forest = ds.forest
    np.testing.assert_array_equal(np.stack(points["X"].to_numpy()), ds.X)
    expected = {
        "y": ds.y,
        "z": ds.point_z,
        "cluster": forest.point_cluster,
        "cluster_id": forest.cluster_id[forest.point_cluster],
        "point_id": forest.point_id,
        "depth": forest.point_depth,
    }
    for name, column in expected.items():
        np.testing.assert_array_equal(points[name], column)
    latents = pd.read_parquet(tmp_path / "t" / "latents.parquet")
    pd.testing.assert_frame_equal(latents, forest.latent_table(ds.latent_z).reset_index(drop=True))
    for name in ("points", "latents"):
        metadata = pq.read_schema(tmp_path / "t" / f"{name}.parquet").metadata
        assert pl.Recipe.from_json(metadata[b"percolab.recipe"].decode()) == ds.recipe
    assert exports.to_huggingface is exports.to_parquet


def test_parquet_keeps_the_type_of_positions(tmp_path):
    made = pl.generate(pl.Recipe(20, 2, seeds=0, engine="paper", dtype="float32"))
    exports.to_parquet(made, tmp_path / "t")
    assert pq.read_schema(tmp_path / "t" / "points.parquet").field("X").type.value_type == "float"


@pytest.mark.parametrize(
    ("write", "names"),
    [
        (exports.to_npz, ["a.npz", "a_gt_features.npz", "a_gt_metadata.npz"]),
        (exports.to_csv, ["a.points.csv", "a.latents.csv", "a.recipe.json"]),
        (exports.to_hdf5, ["a.h5"]),
    ],
)
def test_files_are_refused_replaced_or_left_alone(write, names, ds, tmp_path, monkeypatch):
    for name in names:
        (tmp_path / name).write_text("mine")
        with pytest.raises(FileExistsError, match=f"must not exist unless overwrite is given, got '.*{name}'"):
            write(ds, tmp_path / "a")
        assert os.listdir(tmp_path) == [name]
        (tmp_path / name).unlink()
    for name in names:
        (tmp_path / name).write_text("mine")
    broken = pl.Dataset(ds.recipe, ds.forest, ds.X, ds.y[:3], ds.latent_z, ds.point_z, {})
    with pytest.raises((IndexError, ValueError)):
        write(broken, tmp_path / "a", overwrite=True)
    assert sorted(os.listdir(tmp_path)) == sorted(names)
    assert all((tmp_path / name).read_text() == "mine" for name in names)
    write(ds, tmp_path / "a", overwrite=True)
    assert sorted(os.listdir(tmp_path)) == sorted(names)
    assert all((tmp_path / name).stat().st_size > 500 for name in names)
    with pytest.raises(FileNotFoundError, match="must be in an existing directory"):
        write(ds, tmp_path / "no" / "a")


def test_empty_and_single(tmp_path):
    for least, n in ((2, 0), (1, 1)):
        made = pl.generate(pl.Recipe(1, 2, seeds=0, engine="paper", min_cluster_size=least))
        exports.to_npz(made, tmp_path / f"n{n}")
        found = exports.read_npz(tmp_path / f"n{n}")
        assert (found.X.shape, found.latent_values.shape) == ((n, 2), (n, 0))
        for write, read in ROUND_TRIPS:
            write(made, tmp_path / f"{write.__name__}{n}")
            again = read(tmp_path / f"{write.__name__}{n}")
            assert (again.X.shape, again.X.dtype, again.forest.n_latents) == ((n, 2), made.X.dtype, 0)
            assert again.forest.equals(made.forest)


def test_torch(either, ds):
    data = exports.to_torch(either)
    assert isinstance(data, torch.utils.data.Dataset)
    assert len(data) == 600
    x, y = data[7]
    assert (x.dtype, y.dtype, x.shape, y.shape) == (torch.float32, torch.float32, (5,), ())
    np.testing.assert_array_equal(x.numpy(), ds.X[7].astype(np.float32))
    assert y.item() == np.float32(ds.y[7])
    with pytest.raises(IndexError):
        data[600]
    rows = [5, 599, 0, 5]
    X, targets = next(iter(torch.utils.data.DataLoader(data, batch_sampler=[rows])))
    np.testing.assert_array_equal(X.numpy(), ds.X[rows].astype(np.float32))
    np.testing.assert_array_equal(targets.numpy(), ds.y[rows].astype(np.float32))
    X[0] = 0  # tensors are copies
    assert ds.X[5].any()


def test_torch_dataset_goes_to_another_process(ds):
    again = pickle.loads(pickle.dumps(exports.to_torch(ds)))
    assert torch.equal(again[3][0], exports.to_torch(ds)[3][0])


MISSING = """
import sys
for name in {missing!r}.split():
    sys.modules[name] = None
import percolab as pl
from percolab import exports
ds = pl.generate(pl.Recipe(10, 2, seeds=0, engine="paper"))
try:
    {call}
except ImportError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("missing", "call", "message"),
    [
        ("torch", "exports.to_torch(ds)", "a torch Dataset needs torch: pip install 'percolab[torch]'"),
        ("pyarrow", "exports.to_parquet(ds, 'a')", "Parquet needs pyarrow: pip install 'percolab[frames]'"),
        ("pandas", "exports.to_parquet(ds, 'a')", "Parquet needs pandas: pip install 'percolab[frames]'"),
        ("pyarrow", "exports.to_csv(ds, 'a')", "CSV needs pyarrow: pip install 'percolab[frames]'"),
        ("h5py", "exports.to_hdf5(ds, 'a')", "HDF5 needs h5py: pip install 'percolab[hdf5]'"),
    ],
)
def test_missing_packages_are_named(missing, call, message, tmp_path):
    program = MISSING.format(missing=missing, call=call)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.strip() == message
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("form", ["csv", "hdf5"])
def test_documents_have_no_tables_of_points(form, tmp_path):
    documents = object.__new__(StoredDocuments)
    with pytest.raises(ValueError, match=rf"^dataset must be a dataset or a world for {form}, got documents"):
        getattr(exports, f"to_{form}")(documents, tmp_path / "out")
    assert not list(tmp_path.iterdir())
