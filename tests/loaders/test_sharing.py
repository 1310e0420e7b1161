"""Batches in memory that a worker and its parent share: right, never overwritten while they are held, used again."""

import gc
import itertools
import os
import pickle
import signal
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest

import percolab as pl
from percolab import exports
from percolab.loaders import streams
from percolab.loaders.streams import Share
from percolab.store import chunks

torch = pytest.importorskip("torch")
sharing = pytest.importorskip("percolab.loaders.shared_memory")

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
    yield sharing.Slots(private, 10, 3)
    sharing._MAPPED.clear()  # which here is of a process that has not ended


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


@pytest.mark.parametrize("change", [torch.Tensor.t_, torch.Tensor.requires_grad_, lambda X: X.set_(torch.ones(2))])
def test_a_shared_tensor_that_was_changed_arrives_as_it_is(slots, change):
    tensor = slots.tensor(filled(slots.room(10), 2)[0])
    change(tensor)
    there = sent(tensor)
    assert there.requires_grad == tensor.requires_grad
    np.testing.assert_array_equal(there.detach(), tensor.detach())


def test_a_shared_tensor_in_a_file_is_plain(slots, tmp_path):
    tensor = slots.tensor(filled(slots.room(10), 2)[0])
    torch.save(tensor, tmp_path / "tensor.pt")
    there = torch.load(tmp_path / "tensor.pt")
    assert type(there) is torch.Tensor
    np.testing.assert_array_equal(there, tensor)


def test_what_a_forked_process_drops_is_still_held_here(slots):
    X, _ = filled(slots.room(10), 2)
    kept = [sent(slots.tensor(X))]
    del X
    child = os.fork()
    if not child:
        kept.clear()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert [is_shared(slots, X) for X, _ in [slots.room(10) for _ in range(3)]] == [True, True, False]
    kept.clear()
    assert is_shared(slots, slots.room(10)[0])


def test_slots_may_be_given_back_while_others_are_taken(slots):
    """By other threads: the numbers of free slots stay right."""

    def use(turn):
        X, y = filled(slots.room(10), turn)
        return all((column == turn).all() for column in (X, y))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(use, range(2000)))
    assert [is_shared(slots, X) for X, _ in [slots.room(10) for _ in range(4)]] == [True, True, True, False]


# ---------------------------------------------------------------------- with a loader


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("sharing") / "ds.zarr"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_BYTES", 64 * 4 * 4)
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


@pytest.mark.parametrize("batch_size", [32, 50, 100])
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_batch_is_in_shared_memory(store, batch_size, shuffle):
    """Also one that crosses from a part of the epoch to the next: torch's own way of sending it takes far longer."""
    stream = streams.Stream(store, batch_size, shuffle=shuffle, buffer_rows=650)  # which ends within a block
    slots = sharing.slots_for(*stream.parts())
    for batch, right in zip(stream.batches(0, Share(), slots.room), stream.batches(), strict=True):
        assert all(is_shared(slots, column) for column in batch)
        for found, expected in zip(batch, right, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_readers_that_work_ahead_give_the_same(store, monkeypatch):
    once = [batch[0] for batch in streams.Stream(store, 100, columns=["point_id"], buffer_rows=640).batches()]
    monkeypatch.setattr(streams, "worked_ahead", lambda parts: parts)
    again = [batch[0] for batch in streams.Stream(store, 100, columns=["point_id"], buffer_rows=640).batches()]
    np.testing.assert_array_equal(np.concatenate(once), np.concatenate(again))


# ---------------------------------------------------------------------- what is left


def mapped():
    """Return how often memory of batches is mapped here."""
    gc.collect()
    with open("/proc/self/maps") as file:
        return sum("percolab-batches" in line for line in file)


def loader(path, batch_size, **options):
    data = exports.to_torch_stream(path, batch_size, columns=["X", "point_id"], buffer_rows=640)
    return torch.utils.data.DataLoader(data, batch_size=None, num_workers=2, **options)


@pytest.mark.slow
def test_a_worker_may_be_done_before_its_first_batch_arrives(store):
    batches = iter(loader(store, 3000))
    time.sleep(2)  # both have sent their only batch, and have been asked for another
    assert sorted(np.concatenate([ids for _, ids in batches]).tolist()) == list(range(6000))


@pytest.mark.slow
def test_workers_that_stay_use_the_same_memory_again(store):
    workers, seen = loader(store, 50, persistent_workers=True), []
    for epoch in range(3):
        workers.dataset.set_epoch(epoch)
        batches = iter(workers)
        ids = [ids.clone() for _, ids in (itertools.islice(batches, 10) if epoch == 1 else batches)]
        seen.append(torch.cat(ids).tolist())
        assert mapped() == 2
    assert sorted(seen[0]) == sorted(seen[2]) == list(range(6000))
    assert seen[0] != seen[2]
    assert len(set(seen[1])) == 500


@pytest.fixture
def no_word_of_children(monkeypatch):
    """Torch raises in whatever code is running when a worker is killed: not here."""
    monkeypatch.setattr(torch.utils.data._utils.signal_handling, "_SIGCHLD_handler_set", True)
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGCHLD, handler)


@pytest.mark.slow
@pytest.mark.usefixtures("no_word_of_children")
@pytest.mark.parametrize("end", ["at the end", "early", "killed"])
def test_nothing_is_left_of_an_epoch(store, end):
    batches = iter(loader(store, 50))
    processes = [os.getpid(), *(worker.pid for worker in batches._workers)]
    held = list(itertools.islice(batches, 20))
    right = [ids.clone() for _, ids in held]
    assert mapped() == 2
    if end == "at the end":
        deque(batches, maxlen=0)
    elif end == "killed":
        for worker in batches._workers:
            worker.kill()
            worker.join()
    del batches
    for batch, ids in zip(held, right, strict=True):  # what is held stays, without its worker
        np.testing.assert_array_equal(batch[1], ids)
    assert mapped() == 2
    del held, batch
    assert mapped() == 0
    assert not [name for name in os.listdir("/dev/shm") if any(f"_{pid}_" in name for pid in processes)]
