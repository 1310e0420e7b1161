"""Locks on files and directories; a lock is released when its process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PathLike = str | os.PathLike[str]


class HeldError(OSError):
    """Another process, or another part of this one, holds the lock."""


@contextmanager
def alone(path: PathLike, *, wait: bool = False, certain: bool = False, links: bool = True) -> Iterator[None]:
    """Hold the lock of a file or directory, or raise `HeldError`.

    Parameters
    ----------
    path
        The file or directory to lock; it may be renamed while it is locked.
    wait
        Wait until the present holder releases it.
    certain
        Raise OSError if the file system has no locks; by default, continue without a lock.
    links
        Whether a link is followed; if not, it raises OSError.
    """
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if links else os.O_NOFOLLOW))
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise HeldError(f"{os.fspath(path)!r} is locked") from None
        except OSError:  # some file systems have no locks
            if certain:
                raise
        if not os.path.samestat(os.fstat(opened), os.stat(path)):
            raise HeldError(f"{os.fspath(path)!r} was replaced as it was locked")
        yield
    finally:
        os.close(opened)


def hold(opened: int) -> None:
    """Lock an open file until it is closed, where the system can; wait for the lock if it is held."""
    with suppress(OSError):
        fcntl.flock(opened, fcntl.LOCK_EX)
