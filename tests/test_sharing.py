"""Batches in memory that a worker and its parent share: right, never overwritten while they are held, used again."""

import gc
import pickle
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest

import percolab as pl
from percolab import exports
from percolab.loaders import streaming
from percolab.loaders.streaming import Share
from percolab.store import schema

torch = pytest.importorskip("torch")
sharing = pytest.importorskip("percolab.loaders.sharing")

pytestmark = pytest.mark.skipif(not hasattr(__import__("os"), "memfd_create"), reason="needs Linux")

SHAPES = (((5,), np.float32), ((), np.int64))


def private(n_rows):
    return tuple(np.empty((n_rows, *shape), dtype) for shape, dtype in SHAPES)


def filled(batch, value):
    for column in batch:
        column[...] = value
    return batch


def sent(tensor):
    """Return a tensor as it arrives."""
    return pickle.loads(bytes(ForkingPickler.dumps(tensor)))


def is_shared(slots, array):
    return type(slots.tensor(array)) is sharing.SharedTensor


@pytest.fixture
def slots():
    return sharing.Slots(private, 10, 3)


def test_a_tensor_arrives_in_the_same_memory(slots):
    X, y = filled(slots.room(7), 1)
    assert (X.shape, X.dtype, y.shape, y.dtype) == ((7, 5), np.float32, (7,), np.int64)
    there = [sent(slots.tensor(column[2:5])) for column in (X, y)]
    assert [type(tensor) for tensor in there] == [torch.Tensor, torch.Tensor]
    assert [tensor.dtype for tensor in there] == [torch.float32, torch.int64]
    X[2:5] = np.arange(15).reshape(3, 5)
    y[2:5] = (7, 8, 9)
    np.testing.assert_array_equal(there[0], X[2:5])
    assert there[1].tolist() == [7, 8, 9]


def test_a_slot_is_used_again_only_when_both_sides_are_done(slots):
    kept = []
    for turn in range(3):
        X, _ = filled(slots.room(10), turn)
        kept.append(sent(slots.tensor(X)))
        del X
    for turn in range(3, 6):  # all slots are held by the receiver
        X, _ = filled(slots.room(10), turn)
        assert not is_shared(slots, X)
        del X
    assert [tensor.unique().tolist() for tensor in kept] == [[0.0], [1.0], [2.0]]
    view = kept.pop(1)[3:4]
    X, _ = slots.room(10)
    assert not is_shared(slots, X)  # a view holds it too
    del view, X
    X, _ = filled(slots.room(10), 9)
    assert is_shared(slots, X)
    assert [tensor.unique().tolist() for tensor in kept] == [[0.0], [2.0]]


def test_a_slot_that_is_still_read_here_is_not_used_again(slots):
    X, _ = filled(slots.room(10), 1)
    sent(slots.tensor(X))  # arrives, and is dropped at once
    others = [slots.room(10) for _ in range(3)]
    assert [is_shared(slots, other) for other, _ in others] == [True, True, False]
    assert (X == 1).all()


def test_parts_that_do_not_fit_have_memory_of_their_own(slots):
    X, _ = slots.room(11)
    assert not is_shared(slots, X)
    np.testing.assert_array_equal(sent(slots.tensor(filled((X,), 3)[0])), X)


def test_what_is_computed_from_a_shared_tensor_is_plain(slots):
    X, _ = filled(slots.room(10), 2)
    tensor = slots.tensor(X)
    for other in (tensor + 1, tensor[:3], tensor.clone(), torch.cat([tensor, tensor])):
        assert type(other) is torch.Tensor
        np.testing.assert_array_equal(sent(other), other)


# ---------------------------------------------------------------------- with a loader


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("sharing") / "ds.zarr"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "BLOCK_BYTES", 64 * 4 * 4)
        pl.generate(pl.Recipe(6000, 4, seeds=3)).save(path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("batch_size", [32, 50])
def test_workers_give_the_batches_of_their_shares(store, keep, batch_size):
    data = exports.to_torch_stream(store, batch_size, columns=["X", "point_id"], buffer_rows=640)
    expected = [list(data.stream.batches(0, Share(worker=worker, n_workers=2))) for worker in (0, 1)]
    kept = []
    for number, batch in enumerate(torch.utils.data.DataLoader(data, batch_size=None, num_workers=2)):
        wanted = expected[number % 2][number // 2]
        for found, right in zip(batch, wanted, strict=True):
            np.testing.assert_array_equal(found, right)
        kept += [(batch, wanted)] if keep else []
    assert number + 1 == sum(map(len, expected))
    del batch, found
    gc.collect()
    for batch, wanted in kept:  # nothing was written over
        for found, right in zip(batch, wanted, strict=True):
            np.testing.assert_array_equal(found, right)


@pytest.mark.slow
def test_a_loader_may_change_batches_before_they_are_sent(store):
    data = exports.to_torch_stream(store, 64, columns=["point_id", "X"], shuffle=False)

    def change(batch):
        ids, X = batch
        return ids[:5], X.mul_(0)

    loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=1, collate_fn=change)
    for (ids, X), (right, _) in zip(loader, data.stream.batches(), strict=True):
        np.testing.assert_array_equal(ids, right[:5])
        assert not X.any()


def test_readers_that_work_ahead_give_the_same(store, monkeypatch):
    once = [batch[0] for batch in streaming.Stream(store, 100, columns=["point_id"], buffer_rows=640).batches()]
    monkeypatch.setattr(streaming, "worked_ahead", lambda parts: parts)
    again = [batch[0] for batch in streaming.Stream(store, 100, columns=["point_id"], buffer_rows=640).batches()]
    np.testing.assert_array_equal(np.concatenate(once), np.concatenate(again))
