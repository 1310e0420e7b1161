"""Arrays on disk are indexed as NumPy arrays are: same values, shapes and types, and errors where NumPy has them."""

from contextlib import suppress

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import percolab as pl
from percolab.store import chunks, schema, stored_array

N, D = 50, 3


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    """X and y of a dataset, in memory and on disk in blocks of 8 rows."""
    ds = pl.generate(pl.Recipe(N, D, seeds=1, engine="paper"))
    path = tmp_path_factory.mktemp("indexing") / "ds.zarr"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "CELL", 8)
        ds.save(path)
    loaded = pl.load(path)
    return {"X": (ds.X, loaded.X), "y": (ds.y, loaded._read.__self__.array("y"))}


def same(ours, theirs):
    assert type(ours) is type(theirs)
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    np.testing.assert_array_equal(ours, theirs)


def check(array, index):
    """Compare with NumPy, errors included."""
    in_memory, on_disk = array
    try:
        expected = in_memory[index]
    except (IndexError, TypeError, ValueError) as fault:
        with pytest.raises(type(fault)):
            on_disk[index]
        return
    if expected.size == 0:
        # NumPy does not look at numbers in index arrays whose result is empty; here they are out of bounds as ever.
        with suppress(IndexError):
            same(on_disk[index], expected)
        return
    same(on_disk[index], expected)


# ---------------------------------------------------------------------- anything


def items(size):
    """Return indices along an axis: right ones, and ones that are out of bounds or of the wrong length."""
    integers = st.integers(-size - 2, size + 1)
    types = st.sampled_from([np.int64, np.int32, np.int8, np.intp])
    unsigned = st.sampled_from([np.uint8, np.uint64, np.uint32])
    shapes = hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=4)
    return st.one_of(
        integers,
        st.slices(size),
        st.lists(st.integers(-size, size - 1), max_size=4),
        hnp.arrays(types, shapes, elements=st.integers(-size, size)),
        hnp.arrays(unsigned, shapes, elements=st.integers(0, size)),
        hnp.arrays(np.bool_, st.sampled_from([(size,), (size,), (size - 1,), (size + 1,)])),
        st.sampled_from([np.int64(1), np.uint8(2), True, False, np.True_, 1.5, "a", None, [], [[]], np.array([])]),
    )


def indices(shape):
    one = items(shape[0])
    if len(shape) == 1:
        return st.one_of(one, st.tuples(one), st.tuples(one, st.just(...)), st.just(...), st.just(()), st.just(None))
    other = items(shape[1])
    masks = hnp.arrays(np.bool_, st.sampled_from([shape, shape, (shape[0], shape[1] + 1), shape[::-1]]))
    parts = st.lists(st.one_of(one, other, st.just(...), st.none()), max_size=4).map(tuple)
    pairs = st.tuples(one, other)
    return st.one_of(one, pairs, masks, parts, st.tuples(one, st.just(...)), st.tuples(st.just(...), other))


@pytest.mark.slow
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_index_does_what_numpy_does(arrays, data):
    name = data.draw(st.sampled_from(["X", "X", "X", "y"]))
    check(arrays[name], data.draw(indices(arrays[name][0].shape)))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=hnp.arrays(np.int64, st.integers(0, 30), elements=st.integers(-N, N - 1)), data=st.data())
def test_index_arrays_that_broadcast(arrays, rows, data):
    columns = data.draw(hnp.arrays(np.int64, st.sampled_from([rows.shape, (1,), ()]), elements=st.integers(-D, D - 1)))
    for index in (
        (rows, columns),
        (rows, ..., columns),
        np.ix_(rows, np.atleast_1d(columns)),
        (rows[:, None], columns),
    ):
        check(arrays["X"], index)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    rows=st.lists(st.integers(0, N - 1), min_size=1, max_size=20),
    columns=st.lists(st.integers(0, D - 1), min_size=1, max_size=5),
)
def test_what_zarr_calls_orthogonal_indexing_is_had_as_in_numpy(arrays, rows, columns):
    """Two lists are pairs of numbers, as in NumPy; the rows and columns that Zarr's `oindex` takes are `np.ix_`."""
    _, on_disk = arrays["X"]
    zarrs = zarr.open_array(f"{on_disk._chunks.source.path}/X", mode="r")
    same(on_disk[np.ix_(rows, columns)], zarrs.oindex[rows, columns])


# ---------------------------------------------------------------------- what was found wrong once


@pytest.mark.parametrize(
    "index",
    [
        np.zeros(N - 1, bool),
        np.zeros(N + 1, bool),
        np.arange(N * D).reshape(N, D) % 7 == 0,
        -N,
        -N - 1,
        N,
        ([3, 1, 4], [1, 0, 2]),
        np.array([200], np.uint8) % N,
        np.array([3, 7], np.uint64),
        [],
        np.array([], np.int64),
        ([5, 3], ...),
        (slice(None, None, -3), [2, 0]),
        (slice(40, 10, -7), slice(None, None, -1)),
        (None, [1, 2], ..., 0),
        np.array(5),
    ],
    ids=str,
)
def test_indices_that_were_refused_or_wrong(arrays, index):
    check(arrays["X"], index)


def test_huge_arrays_cost_nothing_to_plan():
    for index in (slice(5, 10**15, 10**14), (10**15 - 1, 3), [10**15 - 1, -(10**15)], (..., slice(2, 4))):
        needed, _, _ = stored_array.plan(index, 10**15)
        assert isinstance(needed, slice) or needed.size <= 10


def test_single_rows_are_read_alone_once_their_chunk_was_checked(tmp_path, monkeypatch):
    ds = pl.generate(pl.Recipe(1000, 4, seeds=1))
    ds.save(tmp_path / "ds.zarr")
    X = pl.load(tmp_path / "ds.zarr").X
    reads = []
    whole = chunks.Chunks._fill
    monkeypatch.setattr(chunks.Chunks, "_fill", lambda self, *args: (reads.append(args[0]), whole(self, *args)))
    rows = np.array([7, 900, 7, 3])
    for _ in range(3):
        same(X[rows], ds.X[rows])
    assert reads == [0]
    chunk = tmp_path / "ds.zarr" / "X" / "c" / "0" / "0"
    content = bytearray(chunk.read_bytes())
    content[900 * 16] ^= 1
    chunk.write_bytes(content)  # another content: its checksum is looked at again
    with pytest.raises(pl.StoreError, match="X cannot be read: X/c/0/0 does not match its checksum"):
        X[rows]
