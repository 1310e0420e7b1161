"""Checks of the machine before NumPy and LLVM are loaded, since these would fail without a clear message."""

from __future__ import annotations

import os
import resource
import signal
import sys
from typing import NoReturn

#: Bytes of address space that the command line takes: libraries are mapped whole, and every thread reserves a stack.
LEAST_ADDRESSES = 2 * 10**9


INTERRUPTED = 130  #: Exit code of a command that the user interrupted.


def be_quiet_if_interrupted() -> None:
    """Make an interrupt during loading end the command line with one line; `cli.main` takes over after that."""
    if _is_command_line() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)


def leave(*_: object) -> NoReturn:
    """End the process at once, whatever it is doing, with one line."""
    os.write(2, b"error: interrupted, nothing was written\n")
    os._exit(INTERRUPTED)


def check_addresses() -> None:
    """End the command line, before anything is loaded, if a limit on address space (``ulimit -v``) is too small."""
    if not _is_command_line():
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESSES:
        refuse(f"the limit on addresses (ulimit -v) must be at least {LEAST_ADDRESSES:,} bytes, got {limit:,}")


def refuse(message: str) -> NoReturn:
    """End the command line with one line and exit code 2; raise ImportError if this is imported by anything else."""
    if _is_command_line():
        print(f"error: {message}", file=sys.stderr)
        sys.exit(2)
    raise ImportError(message)


def _is_command_line() -> bool:
    """Return whether this is ``percolab`` or ``python -m percolab``, whose ``sys.argv[0]`` is ``-m`` at first."""
    program = str((*getattr(sys, "argv", ()), "")[0])
    return program.endswith(os.path.join("percolab", "__main__.py")) or os.path.basename(program) in ("percolab", "-m")


be_quiet_if_interrupted()
check_addresses()
