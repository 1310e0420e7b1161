"""Renames that lose nothing: to a free name, or in exchange with what is there, in one step.

`os.rename` silently replaces a file or an empty directory. Linux can refuse instead, and exchange two names
(renameat2); elsewhere the same is had in small steps, or said not to be there.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from functools import cache
from typing import Any

from percolab.ground import locks

PathLike = str | os.PathLike[str]

_NOREPLACE, _EXCHANGE = 1, 2
_HERE = -100
"""Directory that relative paths start from: the current one (AT_FDCWD)."""
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


class UnsupportedError(OSError):
    """The system, or this file system, cannot do it in one step."""


def rename_new(source: PathLike, target: PathLike) -> None:
    """Rename a file or directory; raise FileExistsError if more is at the target than an empty directory not in use."""
    if os.path.isdir(source):
        # Only a directory goes, only if it is empty, and only if no other run is about to write to it.
        with contextlib.suppress(OSError), locks.alone(target):
            os.rmdir(target)
    try:
        _renameat2(source, target, _NOREPLACE)
    except UnsupportedError:
        _rename_new_in_steps(source, target)


def exchange(one: PathLike, other: PathLike) -> None:
    """Let two files or directories change names, in one step; raise `UnsupportedError` where that cannot be had."""
    _renameat2(one, other, _EXCHANGE)


def _rename_new_in_steps(source: PathLike, target: PathLike) -> None:
    if os.path.isdir(source):
        os.mkdir(target)  # fails if anything is there
        try:
            os.rename(source, target)  # replaces an empty directory alone
        except OSError as fault:
            if fault.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(target)) from fault
            raise
        return
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: a small gap is all that is left to chance
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(target)) from None
        os.rename(source, target)
    else:
        os.unlink(source)


def _renameat2(source: PathLike, target: PathLike, flags: int) -> None:
    call = _system_call()
    if call is None:
        raise UnsupportedError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if call(_HERE, os.fsencode(source), _HERE, os.fsencode(target), flags) == 0:
        return
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        raise UnsupportedError(code, os.strerror(code))
    raise OSError(code, os.strerror(code), os.fspath(source), None, os.fspath(target))


@cache
def _system_call() -> Any:
    """Return renameat2 of the C library, or None."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return None
    call.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    call.restype = ctypes.c_int
    return call
