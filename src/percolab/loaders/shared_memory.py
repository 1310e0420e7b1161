"""Batches from a torch worker to its parent without a copy, in shared memory that is reused.

Torch itself makes new shared memory for every tensor that a worker sends, copies the tensor there, and maps it on the
other side; that takes longer than reading the rows. Here a worker reads straight into slots of one shared memory, and
sends only the place of each tensor. The parent maps that memory once. A slot is reused when the worker is done with it
and the parent has dropped every tensor in it. If no slot is free, because the parent keeps batches, rows go to
separate memory, which torch sends in its usual way.

The memory has no name, so nothing is left of it when the last process that maps it has ended, however it ended.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.multiprocessing.reductions import reduce_tensor

from percolab.loaders.mixture import Batch, Room

ALIGNED = 64  #: Columns in a slot start at multiples of this many bytes.
_COUNTER = np.dtype(np.int64)


class Slots:
    """Memory in slots, each for some rows of every column, that another process can see.

    Keep the object as long as something sent may not have arrived: the receiver opens the memory on arrival.

    Parameters
    ----------
    room
        Gives memory that is not shared; its result determines the types and shapes of rows.
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
        #: how many tensors of each slot the other process has received and dropped; only that process writes here
        self._dropped = np.frombuffer(self._memory, _COUNTER, n_slots)
        self.sent = [0] * n_slots  #: how many tensors of each slot this process has sent
        self._free = list(range(n_slots))
        #: slots that this process is done with; the garbage collector adds to it, at any time and in any thread
        self._done: deque[int] = deque()
        self._lock = threading.Lock()

    def room(self, n_rows: int) -> Batch:
        """Return memory for `n_rows` rows, in a slot if one is free."""
        slot = self._take() if n_rows <= self._slot_rows else None
        if slot is None:
            return self._room(n_rows)
        start = self._starts[slot]
        held = (ctypes.c_char * self._offsets[-1]).from_buffer(self._memory, start)
        weakref.finalize(held, self._done.append, slot).atexit = False
        columns = []
        for column, offset in zip(self._rows, self._offsets[:-1], strict=True):
            shape = (n_rows, *column.shape[1:])
            columns.append(np.frombuffer(held, column.dtype, int(np.prod(shape)), offset).reshape(shape))
        return tuple(columns)

    def _take(self) -> int | None:
        with self._lock:
            for _ in range(len(self._done)):
                slot = self._done.popleft()
                (self._free if self._dropped[slot] == self.sent[slot] else self._done).append(slot)
            return self._free.pop() if self._free else None

    def tensor(self, array: NDArray[Any]) -> torch.Tensor:
        """Return C-contiguous rows as a tensor, which is sent by its place if it lies in a slot."""
        plain = torch.from_numpy(array)
        offset = array.ctypes.data - self._dropped.ctypes.data
        slot = (offset - self._starts[0]) // self._offsets[-1]
        if not 0 <= slot < len(self._starts):
            return plain
        shared = plain.as_subclass(SharedTensor)
        shared.place = Place(self, slot, offset, plain)
        return shared


class Place:
    """Where a tensor lies."""

    def __init__(self, slots: Slots, slot: int, offset: int, tensor: torch.Tensor) -> None:
        self._slots, self._slot, self._offset = slots, slot, offset
        self._tensor = tensor

    def is_of(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor is still the one at this place: its owner may have changed it."""
        ours = self._tensor
        return (
            tensor.data_ptr() == ours.data_ptr()
            and tensor.shape == ours.shape
            and tensor.dtype == ours.dtype
            and tensor.is_contiguous()
            and not tensor.requires_grad
        )

    def send(self) -> tuple[Callable[..., torch.Tensor], tuple[Any, ...]]:
        """Return the function and arguments that rebuild the tensor in the receiving process."""
        self._slots.sent[self._slot] += 1
        file, array = self._slots.file, self._tensor.numpy()
        place = self._slot, self._offset, array.shape, array.dtype.str
        return _attached, (os.getpid(), file, os.fstat(file).st_ino, *place)


class SharedTensor(torch.Tensor):
    """A tensor that is sent to the parent by its place. Results computed from it are plain tensors."""

    place: Place
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.as_subclass(torch.Tensor).__reduce_ex__(protocol)  # for example to a file


def _send(tensor: SharedTensor) -> Any:
    if tensor.place.is_of(tensor):
        return tensor.place.send()
    return reduce_tensor(tensor.detach().as_subclass(torch.Tensor).requires_grad_(tensor.requires_grad))


ForkingPickler.register(SharedTensor, _send)  # it pickles objects that go to another process


# ---------------------------------------------------------------------- in the process that receives


#: Memories of other processes, by process, descriptor and inode; the inode distinguishes reused descriptors.
_MAPPED: dict[tuple[int, int, int], mmap.mmap] = {}


def _attached(
    pid: int, file: int, inode: int, slot: int, offset: int, shape: tuple[int, ...], dtype: str
) -> torch.Tensor:
    """Return the tensor at a place in the memory of another process."""
    memory = _MAPPED.get((pid, file, inode)) or _map(pid, file, inode)
    kind = np.dtype(dtype)
    count = int(np.prod(shape))
    held: Any = (ctypes.c_char * (count * kind.itemsize)).from_buffer(memory, offset)
    weakref.finalize(held, _drop, memory, slot, os.getpid()).atexit = False
    return torch.from_numpy(np.frombuffer(held, kind, count).reshape(shape))


def _map(pid: int, file: int, inode: int) -> mmap.mmap:
    """Map the memory of another process, and release the memories of processes that have ended."""
    opened = os.open(f"/proc/{pid}/fd/{file}", os.O_RDWR)
    try:
        memory = mmap.mmap(opened, os.fstat(opened).st_size)
    finally:
        os.close(opened)
    _forget_ended()
    _MAPPED[pid, file, inode] = memory
    return memory


def _drop(memory: mmap.mmap, slot: int, receiver: int) -> None:
    """Count a dropped tensor, unless it is dropped by a fork of the process that received it."""
    if os.getpid() == receiver:
        np.frombuffer(memory, _COUNTER, slot + 1)[slot] += 1
        _forget_ended()


def _forget_ended() -> None:
    """Release the memory of processes that have ended; tensors in it keep the memory they need."""
    for key in tuple(_MAPPED):
        if not os.path.exists(f"/proc/{key[0]}"):
            _MAPPED.pop(key, None)  # another thread may have removed it already


def slots_for(room: Room, slot_rows: int, n_slots: int) -> Slots | None:
    """Return slots, or None where the system cannot share memory in this way."""
    if not hasattr(os, "memfd_create") or not os.path.exists("/proc/self/fd"):
        return None
    return Slots(room, slot_rows, n_slots)
