"""Streams of batches from a store: every row once, the same for the same key, mixed, for NumPy, torch and Ray."""

import itertools
import logging
import pickle
import shutil
import sys
import threading
from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import percolab as pl
from percolab import exports
from percolab.loaders import mixture, streams
from percolab.loaders.streams import Columns, Share, Stream
from percolab.store import chunks, schema, stored_array

DIM = 4
BLOCK = 32  # rows of a chunk of X; chunks of y and of the other columns have 64
N = 1003
WHOLE = Share()


@pytest.fixture(scope="module")
def ds():
    return pl.generate(pl.Recipe(N, DIM, seeds=3))


@pytest.fixture(scope="module")
def path(ds, tmp_path_factory):
    return saved(ds, tmp_path_factory.mktemp("streaming") / "ds.zarr")


def saved(dataset, path, block=BLOCK):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_BYTES", block * DIM * 4)
        dataset.save(path)
    return path


@pytest.fixture
def reads(monkeypatch):
    """The slices that are read, as (array, start, stop)."""
    found = []
    read, read_into = stored_array.StoredArray.__getitem__, stored_array.StoredArray.read_into

    def recorded(array, index):
        found.append((array.name, index.start, index.stop))
        return read(array, index)

    def recorded_into(array, start, out):
        if out.dtype == array.dtype:
            found.append((array.name, start, start + len(out)))
        read_into(array, start, out)

    monkeypatch.setattr(stored_array.StoredArray, "__getitem__", recorded)
    monkeypatch.setattr(stored_array.StoredArray, "read_into", recorded_into)
    return found


def rows_of(ds, batches):
    """Return the rows that are in batches whose last column is point_id."""
    row = np.empty(ds.forest.point_id.max() + 1, int)
    row[ds.forest.point_id] = np.arange(len(ds))
    return [row[np.asarray(batch[-1])] for batch in batches]


def all_shares(world_size, n_workers):
    return [Share(rank, world_size, worker, n_workers) for rank in range(world_size) for worker in range(n_workers)]


# ---------------------------------------------------------------------- which rows


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(
    ("world_size", "n_workers", "batch_size"), [(1, 1, 1), (1, 2, 32), (2, 1, 7), (2, 2, 2000), (3, 1, 100), (3, 4, 2)]
)
def test_every_row_once_and_as_many_batches_on_every_rank(ds, path, shuffle, world_size, n_workers, batch_size):
    stream = Stream(path, batch_size, columns=["point_id"], shuffle=shuffle, buffer_rows=100)
    found = {share: rows_of(ds, stream.batches(2, share)) for share in all_shares(world_size, n_workers)}
    assert sorted(np.concatenate([rows for batches in found.values() for rows in batches])) == list(range(N))
    for rank in range(world_size):
        sizes = [len(rows) for share, batches in found.items() for rows in batches if share.rank == rank]
        assert len(sizes) == stream.n_batches(world_size)
        assert all(size == batch_size for size in sizes[:-2])
        assert all(1 <= size <= batch_size for size in sizes)


def test_shares_fit_together_for_any_numbers(path):
    stream = Stream(path, 1)
    for n, batch, world_size, drop_last in itertools.product(range(30), range(1, 6), range(1, 5), (False, True)):
        stream.n_points, stream.batch_size, stream.drop_last = n, batch, drop_last
        if not drop_last and n // world_size < -(-n // (world_size * batch)):
            continue  # refused, see test_bad_arguments_are_named
        for n_workers in (1, 2, 3):
            extents = [stream._extent(share) for share in all_shares(world_size, n_workers)]
            edges = [lo for lo, _, _ in extents] + [extents[-1][1]]
            assert edges[0] == 0
            assert edges[1:] == [hi for _, hi, _ in extents]
            assert edges[-1] == (n if not drop_last else stream.n_batches(world_size) * world_size * batch)
            assert all(sum(sizes) == hi - lo for lo, hi, sizes in extents)
            of_ranks = np.reshape(np.array([len(sizes) for *_, sizes in extents]), (world_size, n_workers)).sum(1)
            assert (of_ranks == stream.n_batches(world_size)).all()
            assert all(1 <= size <= batch for *_, sizes in extents for size in sizes)


def test_rank_that_would_have_no_last_batch_takes_a_row_from_the_one_before(ds, path):
    # 1003 rows are 501 and 502 of two ranks: batches of 167 make three of the one and would make four of the other.
    stream = Stream(path, 167, columns=["point_id"])
    sizes = [[len(rows) for (rows,) in stream.batches(0, Share(rank, 2))] for rank in range(2)]
    assert sizes == [[167, 167, 166, 1], [167, 167, 167, 1]]


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_drop_last_gives_full_batches(ds, path, world_size):
    stream = Stream(path, 64, columns=["point_id"], drop_last=True)
    counts = set()
    rows = []
    for rank in range(world_size):
        shares = [share for share in all_shares(world_size, 3) if share.rank == rank]
        batches = [batch for share in shares for batch in rows_of(ds, stream.batches(0, share))]
        assert {len(batch) for batch in batches} == {64}
        counts.add(len(batches))
        rows += batches
    assert counts == {stream.n_batches(world_size)} == {N // world_size // 64}
    assert np.unique(np.concatenate(rows)).size == counts.pop() * world_size * 64


@pytest.mark.parametrize("shuffle", [True, False])
def test_batches_hold_the_rows(ds, path, shuffle):
    stream = Stream(path, 50, columns=["X", "y", "point_z", "point_id"], shuffle=shuffle, buffer_rows=200)
    batches = list(stream.batches())
    for rows, (X, y, z, _) in zip(rows_of(ds, batches), batches, strict=True):
        assert {X.dtype, y.dtype, z.dtype} == {np.dtype(np.float32)}
        np.testing.assert_array_equal(X, ds.X[rows])
        np.testing.assert_array_equal(y, ds.y[rows].astype(np.float32))
        np.testing.assert_array_equal(z, ds.point_z[rows].astype(np.float32))
    if not shuffle:
        np.testing.assert_array_equal(np.concatenate(rows_of(ds, batches)), np.arange(N))


def test_batches_are_the_readers_to_change(path):
    for shuffle in (True, False):
        stream = Stream(path, 50, shuffle=shuffle, buffer_rows=64)
        unchanged = [(X.copy(), y.copy()) for X, y in stream.batches()]
        for (X, y), (X_before, y_before) in zip(stream.batches(), unchanged, strict=True):
            np.testing.assert_array_equal(X, X_before)
            np.testing.assert_array_equal(y, y_before)
            X[:], y[:] = 0, 0


def test_types_of_the_paper_engine_become_float32(tmp_path):
    made = pl.generate(pl.Recipe(100, DIM, seeds=0, engine="paper"))
    ((X, y),) = Stream(saved(made, tmp_path / "ds.zarr"), 100, shuffle=False).batches()
    assert made.X.dtype == np.float64
    np.testing.assert_array_equal(X, made.X.astype(np.float32))
    np.testing.assert_array_equal(y, made.y.astype(np.float32))


@pytest.mark.parametrize(("least", "n"), [(2, 0), (1, 1)])
def test_empty_and_single(tmp_path, least, n):
    made = pl.generate(pl.Recipe(1, DIM, seeds=0, engine="paper", min_cluster_size=least))
    made.save(tmp_path / "ds.zarr")
    for shuffle in (True, False):
        stream = Stream(tmp_path / "ds.zarr", 10, shuffle=shuffle)
        assert stream.n_batches() == n
        assert [X.shape for X, _ in stream.batches()] == [(1, DIM)] * n


# ---------------------------------------------------------------------- which order


def test_order_is_a_function_of_its_key(ds, path):
    def order(seed=0, epoch=0, share=WHOLE, buffer_rows=128):
        stream = Stream(path, 10, columns=["point_id"], seed=seed, buffer_rows=buffer_rows)
        return np.concatenate(rows_of(ds, stream.batches(epoch, share))).tolist()

    assert order() == order()
    assert order(1, 2, Share(1, 2, 1, 3)) == order(1, 2, Share(1, 2, 1, 3))
    others = [order(), order(1), order(0, 1), order(1, 1), order(2**64 - 1), order(buffer_rows=256)]
    assert len(set(map(tuple, others))) == len(others)


def test_global_random_state_is_not_touched(path):
    np.random.seed(0)  # noqa: NPY002
    state = np.random.get_state()  # noqa: NPY002
    list(Stream(path, 100).batches())
    np.testing.assert_equal(np.random.get_state(), state)  # noqa: NPY002


def test_order_is_a_uniform_permutation_if_all_rows_fit(path, ds):
    # Correlation of place and row has variance 1 / (n - 1) under a uniform permutation; four deviations of 50 epochs.
    stream = Stream(path, N, columns=["point_id"])
    found = [np.corrcoef(rows_of(ds, stream.batches(epoch))[0], np.arange(N))[0, 1] for epoch in range(50)]
    assert abs(np.mean(found)) < 4 / np.sqrt(50 * (N - 1))
    assert 0.5 < np.var(found) * (N - 1) < 2


def test_pool_mixes_as_the_documentation_says():
    """Two rows that leave together are of one block with probability (r - 1) / ((2B - 1) r - 1), r rows a block."""
    n_blocks, pool = 4000, 10
    parts = ((np.full(BLOCK, block),) for block in range(n_blocks))
    room = (np.empty(pool * BLOCK, int),)
    blocks = np.concatenate([rows for (rows,) in mixture.mixed(parts, room, streams.generator(0, 0))])
    assert (np.bincount(blocks) == BLOCK).all()
    leave = blocks[: (n_blocks - pool) * BLOCK].reshape(-1, BLOCK)[100:]  # what leaves as one block is read
    same = leave[:, :-1] == leave[:, 1:]
    expected = (BLOCK - 1) / ((2 * pool - 1) * BLOCK - 1)
    assert abs(same.mean() - expected) < 4 * np.sqrt(expected / same.size)
    wait = np.arange(100, n_blocks - pool)[:, None] + pool - leave
    assert abs(wait.mean() - pool) < 0.2


def test_batches_have_rows_of_many_blocks(ds, path):
    stream = Stream(path, BLOCK, columns=["X", "point_id"], buffer_rows=16 * BLOCK)
    blocks = [np.unique(rows // BLOCK).size for rows in rows_of(ds, stream.batches())]
    # 32 rows drawn from 16 blocks that are equally likely meet 16 (1 - (15/16)^32) = 14 of them.
    assert np.mean(blocks[:-1]) > 13


def test_order_of_blocks_is_drawn_for_open_rows_at_a_time(path, monkeypatch, reads):
    monkeypatch.setattr(streams, "OPEN_ROWS", 256)
    columns = Columns(path, ["X", "y"])
    assert (columns.block_rows, columns.chunk_rows, columns.n_blocks) == (32, 64, 32)
    order = streams.block_order(columns, streams.generator(0, 0))
    assert sorted(order) == list(range(32))
    for part in order.reshape(4, 8):  # 256 rows are 4 chunks of y of 2 blocks each
        assert np.unique(part // 2).size == 4
    monkeypatch.setattr(mixture, "READERS", 1)
    list(Stream(path, 100, buffer_rows=64).batches())
    assert sorted(start for name, start, _ in reads if name == "y") == list(range(0, N, 64))
    assert sorted(start for name, start, _ in reads if name == "X") == list(range(0, N, 32))


# ---------------------------------------------------------------------- what it costs


def test_opening_reads_no_data(path, tmp_path, reads):
    copy = shutil.copytree(path, tmp_path / "ds.zarr")
    for name in ("X", "y", "point_id"):
        shutil.rmtree(copy / name / "c")
    data = exports.to_torch_stream(copy, 100, columns=("X", "y", "point_id"))
    assert len(data) == 11
    assert reads == []
    with pytest.raises(schema.StoreError, match=r"^X cannot be read: a chunk is missing$"):
        next(iter(data))


def test_damage_is_named(path, tmp_path):
    copy = shutil.copytree(path, tmp_path / "ds.zarr")
    chunk = copy / "X" / "c" / "7" / "0"
    damaged = bytearray(chunk.read_bytes())
    damaged[5] ^= 1
    chunk.write_bytes(damaged)
    with pytest.raises(schema.StoreError, match=r"^X cannot be read: X/c/7/0 does not match its checksum$"):
        list(Stream(copy, 10).batches())


def readers():
    return {thread for thread in threading.enumerate() if thread.name.startswith(("percolab-read", "percolab-mix"))}


RAY = pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.filterwarnings("ignore")])


@pytest.mark.parametrize("kind", ["shuffled", "in order", "torch", RAY])
def test_an_epoch_that_is_left_early_ends_its_threads(path, reads, kind, monkeypatch):
    """At once, and not when a collector comes by: here something else still refers to the generator that reads."""
    before, held, read_ahead = readers(), [], streams.read_ahead

    def reading(*args):
        held.append(read_ahead(*args))
        return held[-1]

    monkeypatch.setattr(streams, "read_ahead", reading)
    if kind == "torch":
        batches = iter(exports.to_torch_stream(path, 10, buffer_rows=64))
    elif kind == "ray":
        ray_data = pytest.importorskip("percolab.loaders.ray_data")
        # Tables of one block: of those that Ray wants, the first one has all rows.
        monkeypatch.setattr(ray_data.DataContext.get_current(), "target_max_block_size", 1)
        (task,) = ray_data.PercolabSource(path, shuffle=True, buffer_rows=64).get_read_tasks(1)
        batches = task.read_fn()
    else:
        batches = Stream(path, 10, shuffle=kind == "shuffled", buffer_rows=64).batches()
    next(batches)
    assert len(readers() - before) > 0
    batches.close()
    assert held[0].gi_frame is None
    assert readers() <= before
    assert len([name for name, *_ in reads if name == "X"]) <= 3 + 2 * mixture.READERS


def test_a_store_that_was_replaced_is_refused(ds, path, tmp_path):
    copy = shutil.copytree(path, tmp_path / "ds.zarr")
    stream, data = Stream(copy, 10, buffer_rows=64), exports.to_torch_stream(copy, 10)
    under_way = stream.batches()
    next(under_way)
    pl.generate(pl.Recipe(N, DIM, seeds=4)).save(copy, overwrite=True)
    for read in (lambda: list(under_way), lambda: next(stream.batches()), lambda: next(iter(data))):
        with pytest.raises(pl.StoreError, match=r"ds.zarr was changed after it was loaded: load it again$"):
            read()


# ---------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"batch_size": 1.5}, "batch_size must be an integer, got 1.5"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"buffer_rows": 31}, "buffer_rows must be at least 32, the rows of a block, got 31"),
        ({"columns": ["X", "bond"]}, "columns must be one of X, y, point_z, point_id, got 'bond'"),
        ({"columns": []}, "columns must be a list of names, got []"),
        ({"columns": "X"}, "columns must be a list of names, got 'X'"),
        ({"columns": ["X", "X"]}, "columns must not repeat, got ['X', 'X']"),
        ({"rank": 2, "world_size": 2}, "rank must be below world_size, which is 2, got 2"),
        ({"rank": 0, "world_size": 0}, "world_size must be at least 1, got 0"),
        ({"rank": 1}, "rank and world_size must be given together, got 1 and None"),
        (
            {"batch_size": 1, "rank": 0, "world_size": 2},
            (
                "drop_last must be true where a rank would have an empty batch, "
                "got 1003 points in batches of 1 for 2 ranks"
            ),
        ),
    ],
)
def test_bad_arguments_are_named(path, options, message):
    with pytest.raises(ValueError) as caught:
        exports.to_torch_stream(path, **{"batch_size": 10, **options})
    assert str(caught.value) == message


def test_missing_store_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^dataset must exist, got '.*nothing\.zarr'$"):
        exports.to_torch_stream(tmp_path / "nothing.zarr", 10)
    with pytest.raises(ValueError, match=r"^epoch must be at least 0, got -1$"):
        exports.to_torch_stream(saved(pl.generate(pl.Recipe(10, DIM, seeds=0)), tmp_path / "a"), 10).set_epoch(-1)


@pytest.mark.parametrize(
    ("package", "module", "call", "message"),
    [
        ("torch", "torch_data", partial(exports.to_torch_stream, batch_size=10), "a torch Dataset needs torch"),
        ("ray", "ray_data", exports.to_ray, "a Ray Dataset needs ray"),
    ],
)
def test_missing_packages_are_named(path, monkeypatch, package, module, call, message):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"percolab.loaders.{module}", raising=False)
    with pytest.raises(ImportError) as caught:
        call(path)
    assert str(caught.value) == f"{message}: pip install 'percolab[{package}]'"


# ---------------------------------------------------------------------- torch


def test_torch_batches(ds, path):
    data = exports.to_torch_stream(path, 64, buffer_rows=200)
    assert isinstance(data, torch.utils.data.IterableDataset)
    X, y = next(iter(data))
    assert (X.shape, y.shape, X.dtype, y.dtype) == ((64, DIM), (64,), torch.float32, torch.float32)
    for (X, y), (X_stream, y_stream) in zip(data, data.stream.batches(), strict=True):
        np.testing.assert_array_equal(X, X_stream)
        np.testing.assert_array_equal(y, y_stream)


def test_set_epoch(ds, path):
    data = exports.to_torch_stream(path, 64, columns=["point_id"])
    first = torch.cat([ids for (ids,) in data])
    data.set_epoch(1)
    assert not torch.equal(torch.cat([ids for (ids,) in data]), first)
    data.set_epoch(0)
    assert torch.equal(torch.cat([ids for (ids,) in data]), first)
    again = pickle.loads(pickle.dumps(data))
    assert torch.equal(torch.cat([ids for (ids,) in again]), first)


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.slow
def test_loader_with_workers_that_stay(ds, path, start):
    data = exports.to_torch_stream(path, 64, columns=["X", "point_id"], rank=1, world_size=2, buffer_rows=200)
    loader = DataLoader(data, batch_size=None, num_workers=2, persistent_workers=True, multiprocessing_context=start)
    assert len(loader) == len(data) == 8
    epochs = []
    for epoch in (0, 1):
        data.set_epoch(epoch)
        batches = list(loader)
        assert len(batches) == 8
        rows = rows_of(ds, batches)
        for (X, _), here in zip(batches, rows, strict=True):
            np.testing.assert_array_equal(X, ds.X[here])
        expected = [Share(1, 2, worker, 2) for worker in (0, 1)]
        expected = [ids for share in expected for _, ids in data.stream.batches(epoch, share)]
        found = [ids for _, ids in batches]
        assert sorted(torch.cat(found).tolist()) == sorted(np.concatenate(expected).tolist())
        np.testing.assert_array_equal(found[0], expected[0])
        epochs.append(torch.cat(found).tolist())
    assert epochs[0] != epochs[1]


def test_rank_of_torch_distributed(path, tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        assert exports.to_torch_stream(path, 10).share == Share(0, 1)
    finally:
        torch.distributed.destroy_process_group()
    assert exports.to_torch_stream(path, 10).share == Share()


# ---------------------------------------------------------------------- Ray


@pytest.fixture(scope="module")
def ray():
    import ray
    import ray.data

    ray.init("local", num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
    logging.getLogger("ray.data").setLevel("ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield ray
    ray.shutdown()


def with_ray(test):
    """Mark a test that needs Ray, whose own warnings are not ours to heed."""
    return pytest.mark.ray(pytest.mark.filterwarnings("ignore")(test))


@with_ray
def test_ray_source(path, ds, reads):
    from percolab.loaders.ray_data import PercolabSource

    source = PercolabSource(path, columns=["X", "y", "point_id"])
    assert source.estimate_inmemory_data_size() == N * (4 * DIM + 4 + 8)
    tasks = source.get_read_tasks(5)
    assert len(tasks) == 5
    assert sum(task.metadata.num_rows for task in tasks) == N
    assert sum(task.metadata.size_bytes for task in tasks) == source.estimate_inmemory_data_size()
    assert len(source.get_read_tasks(100)) == 32  # one a block
    assert reads == []
    (table,) = tasks[0]()
    assert table.num_rows == tasks[0].metadata.num_rows > BLOCK
    np.testing.assert_array_equal(table["X"].combine_chunks().to_numpy_ndarray(), ds.X[: table.num_rows])


@with_ray
def test_ray_order(path, ds):
    from percolab.loaders.ray_data import PercolabSource

    def order(**options):
        tasks = PercolabSource(path, columns=["point_id"], **options).get_read_tasks(4)
        tables = [[table["point_id"].to_numpy() for table in task()] for task in tasks]
        return np.concatenate(rows_of(ds, [[np.concatenate(parts)] for parts in tables]))

    np.testing.assert_array_equal(order(), np.arange(N))
    keys = [{"seed": 0}, {"seed": 1}, {"seed": 0, "epoch": 1}]
    for key in keys:
        np.testing.assert_array_equal(np.sort(order(shuffle=True, **key)), np.arange(N))
        np.testing.assert_array_equal(order(shuffle=True, **key), order(shuffle=True, **key))
    assert len({tuple(order(shuffle=True, **key)) for key in keys}) == 3


@with_ray
@pytest.mark.parametrize("shuffle", [False, True])
def test_ray_dataset(ray, path, ds, shuffle):
    data = exports.to_ray(path, columns=["X", "y", "point_id"], shuffle=shuffle, override_num_blocks=4)
    assert data.count() == N
    seen = []
    for batch in data.iter_batches(batch_size=100, batch_format="numpy"):
        (rows,) = rows_of(ds, [[batch["point_id"]]])
        assert (batch["X"].dtype, batch["y"].dtype) == (np.float32, np.float32)
        np.testing.assert_array_equal(batch["X"], ds.X[rows])
        np.testing.assert_array_equal(batch["y"], ds.y[rows].astype(np.float32))
        seen.append(rows)
    np.testing.assert_array_equal(np.sort(np.concatenate(seen)), np.arange(N))


@with_ray
def test_ray_gives_torch_batches(ray, path):
    data = exports.to_ray(path, override_num_blocks=2)
    shuffled = data.iter_torch_batches(batch_size=100, local_shuffle_buffer_size=300)
    shapes = [batch["X"].shape for batch in shuffled]
    assert sorted(shapes, reverse=True) == [(100, DIM)] * 10 + [(3, DIM)]


@with_ray
def test_ray_reads_by_two_tasks_for_each_processor(ray, path, monkeypatch):
    asked = {}
    monkeypatch.setattr("ray.data.read_datasource", lambda source, **options: asked.update(options))
    exports.to_ray(path)
    assert asked == {"override_num_blocks": 4}


@with_ray
def test_ray_empty(ray, tmp_path):
    made = pl.generate(pl.Recipe(1, DIM, seeds=0, engine="paper", min_cluster_size=2))
    made.save(tmp_path / "ds.zarr")
    assert exports.to_ray(tmp_path / "ds.zarr").count() == 0


@with_ray
def test_ray_bad_arguments_are_named(path, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^dataset must exist, got '.*nothing\.zarr'$"):
        exports.to_ray(tmp_path / "nothing.zarr")
    with pytest.raises(ValueError, match=r"^epoch must be at least 0, got -1$"):
        exports.to_ray(path, shuffle=True, epoch=-1)
    with pytest.raises(ValueError, match=r"^buffer_rows must be at least 32, the rows of a block, got 8$"):
        exports.to_ray(path, shuffle=True, buffer_rows=8)
