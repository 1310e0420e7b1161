"""One writer at a time. At a path: the lock of a directory, which is released when its process ends.

At a URL: a lock object that is created if there is none, and renewed while its owner runs. Object storage can refuse to
create an object that exists, and to replace an object that has changed since it was read. So of many runs that begin
at once, one gets the lock, and of many that find the lock of a dead run, one takes it over. A run is dead when it has
not renewed its lock for `LEASE_S` seconds by the clock of the server; on the same machine, as soon as it ends.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from percolab.ground import files, foreign_files, locks
from percolab.ground.text import shown
from percolab.store import objects
from percolab.store.locations import LOCK, Location, local_path
from percolab.store.schema import StoreError

LEASE_S = 60.0
RENEW_S = 15.0


class Lease:
    """The lock of a store at a URL, held until it is released.

    Parameters
    ----------
    url
        Where the store is.

    Raises
    ------
    StoreError
        Another run holds it.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._store = objects.opened(url)
        self._owner = {**_here(), "owner": secrets.token_hex(8)}
        self._turn = 0
        self._lost = False
        self._end = threading.Event()
        self._tag = self._acquire()
        self._renewed = time.monotonic()
        self._thread = threading.Thread(target=self._renew, name="percolab-lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise if the lock was lost, or was not renewed for so long that another run may have taken it over."""
        if self._lost:
            raise StoreError(f"{self.url} was taken over by another run, since this one could not renew its lock")
        if time.monotonic() - self._renewed > LEASE_S:  # a request that hangs reports nothing
            raise StoreError(f"{self.url} may be taken over by another run, since this one could not renew its lock")

    def release(self) -> None:
        """Give the lock back."""
        import obstore

        self._end.set()
        self._thread.join()
        # Not every server can delete on a condition; a lock that was taken over is left alone.
        with suppress(Exception):
            if not self._lost and obstore.head(self._store, LOCK)["e_tag"] == self._tag:
                obstore.delete(self._store, LOCK)

    # ------------------------------------------------------------------ getting it

    def _acquire(self) -> str:
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        try:
            with suppress(AlreadyExistsError):
                return self._put("create")
            return self._take_over()
        except (AlreadyExistsError, PreconditionError):  # another run was faster
            raise self._refusal({}, LEASE_S) from None
        except (BaseError, OSError) as fault:
            raise OSError(f"output must be at a writable URL, got {self.url!r}: {objects.said(fault)}") from None

    def _take_over(self) -> str:
        """Replace the lock of a dead run; raise if the run is alive."""
        import obstore

        try:
            there = obstore.get(self._store, LOCK)
        except FileNotFoundError:  # released in the meantime
            return self._put("create")
        tag, renewed = there.meta["e_tag"], there.meta["last_modified"]
        owner: dict[str, Any] = {}
        with suppress(ValueError):  # the object is not a lock of percolab
            owner = foreign_files.parse_json(bytes(there.bytes()) if there.meta["size"] < 4096 else b"")
        left = LEASE_S - (self._now() - renewed).total_seconds()
        if left > 0 and not _is_dead(owner):
            raise self._refusal(owner, left)
        return self._put({"e_tag": tag})

    def _refusal(self, owner: dict[str, Any], left: float) -> StoreError:
        who = f" (process {shown(owner['pid'])} on {shown(owner['host'])})" if {"pid", "host"} <= owner.keys() else ""
        after = f"if that is dead, try again in {max(1, round(left))} s"
        return StoreError(f"{self.url} is being written by another process{who}; {after}")

    def _now(self) -> datetime:
        """Return the time by the clock of the server, which may differ from ours."""
        import obstore

        key = f"{LOCK}-{self._owner['owner']}"
        obstore.put(self._store, key, b"what time is it?")
        try:
            return obstore.head(self._store, key)["last_modified"]
        finally:
            obstore.delete(self._store, key)

    # ------------------------------------------------------------------ keeping it

    def _put(self, mode: Any) -> str:
        """Write the lock, on a condition; its text is different each time, so that its tag is too."""
        import obstore

        self._turn += 1
        text = json.dumps({**self._owner, "turn": self._turn}).encode()
        return str(obstore.put(self._store, LOCK, text, mode=mode)["e_tag"])

    def _renew(self) -> None:
        from obstore.exceptions import PreconditionError

        while not self._end.wait(RENEW_S):
            try:
                self._tag = self._put({"e_tag": self._tag})
                self._renewed = time.monotonic()
            except (PreconditionError, FileNotFoundError):
                self._lost = True
                return
            except Exception:  # the server cannot be reached: try again while no other run may take over
                if time.monotonic() - self._renewed > LEASE_S:
                    self._lost = True
                    return


@contextmanager
def alone(location: Location, target: Location) -> Iterator[Callable[[], None]]:
    """Keep other runs away from a store before anything in it changes, even if the store does not exist yet.

    Yield a function that raises if the lock was lost. Messages name `target`, the final location of the store.
    """
    path = local_path(location)
    if path is not None:
        with _alone_in(path, target):
            yield lambda: None
    elif not objects.handles(os.fspath(location)):  # fsspec has no conditional writes
        yield lambda: None
    else:
        lease = Lease(os.fspath(location))
        try:
            yield lease.check
        finally:
            lease.release()


@contextmanager
def _alone_in(path: Path, target: Location) -> Iterator[None]:
    """Hold the lock of a directory, which is created if needed, and removed if it stays empty."""
    with ExitStack() as held:
        while True:
            if not path.exists():
                files.check_directory(path)
                path.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):  # another run wrote nothing and removed it: begin again
                held.enter_context(locked(path, target))
                break
        try:
            yield
        finally:
            with suppress(OSError):
                path.rmdir()


@contextmanager
def locked(path: Path, target: Location) -> Iterator[None]:
    """Hold the lock of an existing directory, or say in one line that another process writes to the target."""
    try:
        with locks.alone(path, links=False):
            yield
    except locks.HeldError:
        raise StoreError(f"{target} is being written by another process") from None


# ---------------------------------------------------------------------- who holds it


def _here() -> dict[str, Any]:
    """Return the identity of this process, unique on this machine and across machines."""
    place = [socket.gethostname(), str(psutil.boot_time())]
    with suppress(OSError):  # each container numbers its processes itself
        place.append(str(os.stat("/proc/self/ns/pid").st_ino))
    return {
        "host": socket.gethostname(),
        "place": " ".join(place),
        "pid": os.getpid(),
        "started": _started(os.getpid()),
    }


def _started(pid: int) -> float | None:
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def _is_dead(owner: dict[str, Any]) -> bool:
    """Return whether the process that holds a lock was on this machine and has ended."""
    here = owner.get("place") == _here()["place"] and isinstance(owner.get("pid"), int)
    return here and _started(owner["pid"]) != owner.get("started")
