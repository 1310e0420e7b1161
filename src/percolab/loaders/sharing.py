"""Batches from a torch worker to its parent without a copy: in memory that both see, used again and again.

Torch itself makes new shared memory for every tensor that a worker sends, copies the tensor there, and maps it on the
other side; that takes longer than reading the rows. Here a worker reads straight into slots of one memory, and what it
sends says where a tensor lies. The parent maps that memory once. A slot is used again when the worker is done with it
and the parent has dropped every tensor in it; if none is free, because the parent keeps batches, rows go to memory of
their own, which torch sends in its way.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.multiprocessing.reductions import reduce_tensor

from percolab.loaders.streaming import Batch, Room

ALIGNED = 64
"""Bytes that columns in a slot start at multiples of."""
_COUNTER = np.dtype(np.int64)


class Slots:
    """Memory in slots, each for some rows of every column, that another process can see.

    Parameters
    ----------
    room
        Gives memory that is not shared; what it gives tells the types and shapes of rows.
    slot_rows
        Rows of a slot.
    n_slots
        Number of slots.
    """

    def __init__(self, room: Room, slot_rows: int, n_slots: int) -> None:
        self._room, self._slot_rows = room, slot_rows
        self._rows = room(0)
        sizes = [slot_rows * int(np.prod(column.shape[1:])) * column.itemsize for column in self._rows]
        padded = [-(-size // ALIGNED) * ALIGNED for size in sizes]
        self._offsets = np.concatenate([[0], np.cumsum(padded)]).tolist()
        head = -(-n_slots * _COUNTER.itemsize // ALIGNED) * ALIGNED
        size = head + n_slots * self._offsets[-1]
        self.file = os.memfd_create("percolab-batches")
        os.truncate(self.file, size)
        self._memory = mmap.mmap(self.file, size)
        weakref.finalize(self, os.close, self.file)
        self._starts = [head + k * self._offsets[-1] for k in range(n_slots)]
        self._dropped = np.frombuffer(self._memory, _COUNTER, n_slots)
        """tensors of each slot that the other process has had and dropped; it alone writes here"""
        self._sent = [0] * n_slots
        self._free = list(range(n_slots))
        self._waiting: set[int] = set()
        """slots that this process is done with"""
        self._lock = threading.Lock()

    def room(self, n_rows: int) -> Batch:
        """Return memory for so many rows: in a slot if one is free."""
        slot = self._take() if n_rows <= self._slot_rows else None
        if slot is None:
            return self._room(n_rows)
        start = self._starts[slot]
        held = (ctypes.c_char * self._offsets[-1]).from_buffer(self._memory, start)
        weakref.finalize(held, self._done, slot)
        columns = []
        for column, offset in zip(self._rows, self._offsets[:-1], strict=True):
            shape = (n_rows, *column.shape[1:])
            columns.append(np.frombuffer(held, column.dtype, int(np.prod(shape)), offset).reshape(shape))
        return tuple(columns)

    def _take(self) -> int | None:
        with self._lock:
            for slot in [slot for slot in self._waiting if self._dropped[slot] == self._sent[slot]]:
                self._waiting.remove(slot)
                self._free.append(slot)
            return self._free.pop() if self._free else None

    def _done(self, slot: int) -> None:
        self._waiting.add(slot)  # without the lock, which this thread may hold: a collector runs at any time

    def tensor(self, array: NDArray[Any]) -> torch.Tensor:
        """Return an array as a tensor, which is sent by its place if it lies in a slot."""
        plain = torch.from_numpy(array)
        base = np.frombuffer(self._memory, np.uint8).ctypes.data
        offset = array.ctypes.data - base
        if not self._starts[0] <= offset < self._starts[0] + len(self._starts) * self._offsets[-1]:
            return plain
        shared = plain.as_subclass(SharedTensor)
        shared.place = Place(
            self, (offset - self._starts[0]) // self._offsets[-1], offset, array.shape, array.dtype.str
        )
        return shared

    def sending(self, slot: int) -> None:
        """Note that a tensor of a slot is sent."""
        self._sent[slot] += 1


class Place:
    """Where a tensor lies."""

    def __init__(self, slots: Slots, slot: int, offset: int, shape: tuple[int, ...], dtype: str) -> None:
        self.slots, self.slot = slots, slot
        self.description = (slot, offset, shape, dtype)

    def send(self) -> tuple[Callable[..., torch.Tensor], tuple[Any, ...]]:
        """Return what makes the tensor in the process that receives it."""
        self.slots.sending(self.slot)
        return _attached, (os.getpid(), self.slots.file, os.fstat(self.slots.file).st_ino, *self.description)


class SharedTensor(torch.Tensor):
    """A tensor that is sent to the parent by its place. What is computed from it is a plain tensor."""

    place: Place | None = None
    __torch_function__ = torch._C._disabled_torch_function_impl

    def __reduce_ex__(self, protocol: Any) -> Any:
        place = self.__dict__.get("place")
        return reduce_tensor(self.as_subclass(torch.Tensor)) if place is None else place.send()


# ---------------------------------------------------------------------- in the process that receives


def _attached(
    pid: int, file: int, inode: int, slot: int, offset: int, shape: tuple[int, ...], dtype: str
) -> torch.Tensor:
    """Return the tensor at a place in the memory of another process."""
    memory = _mapped(pid, file, inode)
    kind = np.dtype(dtype)
    count = int(np.prod(shape))
    held = (ctypes.c_char * (count * kind.itemsize)).from_buffer(memory, offset)
    weakref.finalize(held, _drop, memory, slot).atexit = False
    return torch.from_numpy(np.frombuffer(held, kind, count).reshape(shape))


def _drop(memory: mmap.mmap, slot: int) -> None:
    np.frombuffer(memory, _COUNTER, slot + 1)[slot] += 1


@lru_cache(maxsize=64)
def _mapped(pid: int, file: int, inode: int) -> mmap.mmap:
    """Map the memory of another process, once; its inode tells it from an earlier one of the same number."""
    opened = os.open(f"/proc/{pid}/fd/{file}", os.O_RDWR)
    try:
        return mmap.mmap(opened, os.fstat(opened).st_size)
    finally:
        os.close(opened)


def slots_for(room: Room, slot_rows: int, n_slots: int) -> Slots | None:
    """Return slots, or None where the system cannot share memory in this way."""
    if not hasattr(os, "memfd_create") or not os.path.exists("/proc/self/fd"):
        return None
    return Slots(room, slot_rows, n_slots)
