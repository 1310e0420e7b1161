"""Kernels: one decorator compiles them all, and keeps the first compilation short.

Numba turns every function into machine code that Python can call, and does so again inside each of its callers. Here
this is done once, for the kernel that Python calls. A kernel that another kernel calls is a *part* of it: typed and
written as LLVM code, optimised and translated with its caller. This takes half the time.

Compiled kernels are cached on disk, and processes share them. So a second process can compile the second half of a
computation while the first process is busy with the first half: see `ahead`. The cache is valid as long as no file
with kernels has changed: numba by itself checks only the file of the kernel, and not the files of its parts.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

from numba import _dynfunc, config  # type: ignore[attr-defined, unused-ignore]
from numba.core.caching import NullCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.registry import CPUDispatcher
from numba.core.types import unliteral

from percolab.ground import machine

_INTERPRETED = getattr(config, "DISABLE_JIT", 0)
if _INTERPRETED:
    machine.refuse(f"NUMBA_DISABLE_JIT must be 0, got {_INTERPRETED}: percolab's kernels work compiled only")

MOST_SECONDS = 120.0  #: How long to wait for another process to compile kernels before this process compiles them.

_on_compiling: list[Callable[[], None]] = []  #: Called once each, when a kernel is next compiled.
_logged: list[str] = []  #: The notices of compiling that were logged.


def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a function of arrays and numbers. It releases the interpreter lock, and is cached on disk for later runs.

    If no directory can be written, as in a read-only container, every process compiles the function again.
    """
    if function is None:
        return lambda decorated: kernel(decorated, **options)
    targetoptions = {"nopython": True, "nogil": True, "boundscheck": None, "no_rewrites": True, **options}
    compiled = _Kernel(function, targetoptions=targetoptions, pipeline_class=_KernelCompiler)
    with suppress(RuntimeError):  # numba found no directory for its cache
        compiled.enable_caching()
    return compiled


@cache
def _state() -> str:
    """Return a digest of all files with kernels."""
    texts = (path.read_bytes() for path in sorted(Path(__file__).parents[1].rglob("*.py")))
    return hashlib.sha256(b"".join(text for text in texts if b"kernel" in text)).hexdigest()


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a function into every kernel that calls it, so that loops around the call run in vector registers."""
    return kernel(function, forceinline=True)


class _Kernel(CPUDispatcher):  # type: ignore[misc, unused-ignore]
    """A compiled function: Python calls it directly, other kernels call its part."""

    _cache: Any

    @cached_property
    def part(self) -> Any:
        """The same function as a part of other kernels."""
        return _Part(self.py_func, targetoptions=self.targetoptions, pipeline_class=_PartCompiler)

    @property
    def _numba_type_(self) -> Any:
        return self.part._numba_type_

    def compile(self, sig: Any) -> Any:
        """Load or compile the code for some types."""
        if not isinstance(self._cache, NullCache):  # type: ignore[attr-defined, unused-ignore]
            self._cache._cache_file._source_stamp = _state()  # type: ignore[attr-defined, unused-ignore]
        return super().compile(sig)


class _KernelCompiler(Compiler):  # type: ignore[misc, unused-ignore]
    """Numba's compiler; before it compiles, it calls the functions registered with `on_compiling`."""

    def compile_extra(self, function: Callable[..., Any]) -> Any:
        while _on_compiling:
            _on_compiling.pop()()
        return super().compile_extra(function)


class _Part(CPUDispatcher):  # type: ignore[misc, unused-ignore]
    """A function that only kernels call: compiled once for all numbers of a type, constants or not."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        return super().get_call_template(
            tuple(map(unliteral, args)), {name: unliteral(kind) for name, kind in dict(kws).items()}
        )


class _PartCompiler(Compiler):  # type: ignore[misc, unused-ignore]
    """Numba's compiler, up to LLVM code."""

    def define_pipelines(self) -> Any:
        # Set only now: functions with the same flags share the helpers that numba compiles for them, such as np.empty.
        flags = self.state.flags
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        return super().define_pipelines()

    def compile_extra(self, function: Callable[..., Any]) -> Any:
        context = self.state.targetctx
        self.state.library = _PartLibrary(context.codegen(), function.__qualname__)
        result = super().compile_extra(function)
        # Numba knows a compiled function by the object that Python would call. A part has no address, only a name.
        module, environment = result.fndesc.lookup_module(), result.environment
        name = _dynfunc.make_function(module, function.__name__, "", 0, environment, (result.library,))
        context.insert_user_function(name, result.fndesc, [result.library])
        return result._replace(entry_point=name)


class _PartLibrary(JITCodeLibrary):  # type: ignore[misc, unused-ignore]
    """The LLVM code of a part. The whole is optimised and translated in the kernels that it is linked into."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


# ---------------------------------------------------------------------- the first time


@contextmanager
def on_compiling(action: Callable[[], None]) -> Iterator[None]:
    """Call `action` once, just before the first kernel is compiled in this block, if any is."""
    _on_compiling.append(action)
    try:
        yield
    finally:
        with suppress(ValueError):  # called already
            _on_compiling.remove(action)


@contextmanager
def ahead(room: str, *arguments: str, threads: int = 2) -> Iterator[Callable[[], None]]:
    """Compile in a second process, if this process has to compile at all; yield a function that waits for it.

    The second process calls `rehearse` of the module `room`, which calls the kernels that this process needs after the
    wait. Results do not depend on it: this process compiles the kernels that the second one did not. Where no bar is
    shown, one line on standard error says what is going on.

    Parameters
    ----------
    room
        Name of the module below `percolab`.
    arguments
        What `rehearse` is called with.
    threads
        Number of threads that this process may use; with one there is no second process.
    """
    helpers: list[subprocess.Popen[bytes]] = []
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
    code += f"from percolab.{room} import rehearse; rehearse(*{arguments!r})"

    def start() -> None:
        if unwatched:
            tell(lambda line: print(line, file=sys.stderr, flush=True))
        with suppress(OSError):
            if alone:
                return
            quiet = subprocess.DEVNULL
            helpers.append(subprocess.Popen([sys.executable, "-c", code], stdin=quiet, stdout=quiet, stderr=quiet))

    def wait() -> None:
        for helper in helpers:
            with suppress(subprocess.TimeoutExpired):
                helper.wait(MOST_SECONDS)

    is_child = parent_process() is not None
    alone = threads == 1 or not sys.executable or getattr(sys, "frozen", False) or is_child or not kept()
    unwatched = not _on_compiling and not is_child and sys.stderr is not None
    try:
        with on_compiling(start):
            yield wait
    finally:
        for helper in helpers:
            helper.kill()
            helper.wait()


def tell(say: Callable[[str], None]) -> None:
    """Say that kernels are compiled: at a terminal or in a notebook whenever they are, in a log once per process."""
    watched = "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
    if watched or not _logged:
        _logged.append(notice())
        say(notice())


def notice() -> str:
    """Return the line that is shown while kernels are compiled."""
    if kept():
        return "compiling for the first time, about 10 s; later runs start at once"
    return "compiling, about 10 s: there is no directory that could keep it for later runs"


def kept() -> bool:
    """Return whether compiled kernels are kept on disk."""
    return not isinstance(_probe._cache, NullCache)


@kernel
def _probe():
    """Do nothing: compiling it shows whether there is a directory for compiled kernels."""
