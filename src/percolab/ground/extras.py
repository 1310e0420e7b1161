"""Public names that are imported when first used, older names that warn, and the message for a missing extra."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any


def missing(what: str, package: str, extra: str) -> ImportError:
    """Return the error that names a package which is not installed, and the extra that brings it."""
    return ImportError(f"{what} {package}: pip install 'percolab[{extra}]'")


@contextmanager
def needing(what: str, extra: str, package: str = "") -> Iterator[None]:
    """Import the packages of an extra in this block; if one is not installed, raise an error of one line that names it.

    Parameters
    ----------
    what
        Subject and verb of the sentence, as ``"HDF5 needs"``.
    extra
        What to install.
    package
        The name of the package, if its modules have another name.
    """
    try:
        yield
    except ImportError as error:
        if (error.name or "").startswith("percolab"):
            raise
        raise missing(what, package or str(error.name).partition(".")[0], extra) from error


def defined(names: Mapping[str, Any]) -> list[str]:
    """Return, for ``__all__``, the public functions, classes and instances that a module itself defines.

    `names` are the globals of the module.
    """
    here = names["__name__"]
    return sorted(name for name, value in names.items() if name[0] != "_" and getattr(value, "__module__", "") == here)


def surface(
    package: str,
    names: Sequence[str],
    homes: Mapping[str, str] | None = None,
    *,
    formerly: Mapping[str, str] | None = None,
    extra: str | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package, or a module.

    Parameters
    ----------
    package
        Its full name.
    names
        All that `dir` shows: its ``__all__``.
    homes
        For each name, the module or package that it is imported from when it is first used.
    formerly
        Older names, each with its present name below `percolab`. They warn, and will be removed in the next release.
    extra
        What to install for the homes.
    """
    home, older = homes or {}, formerly or {}

    def find(name: str) -> Any:
        path, attribute = home.get(name), name
        if name in older:
            gone = f"{package}.{name} is now percolab.{older[name]}; the older name goes away in the next release"
            warnings.warn(gone, DeprecationWarning, stacklevel=2)
            if path is None:
                path, _, attribute = f"percolab.{older[name]}".rpartition(".")
        if path is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with needing(f"{package} needs", extra) if extra else nullcontext():
            if home.get(name) == package:  # a room of the package
                return import_module(f"{package}.{name}")
            return getattr(import_module(path), attribute)

    return find, lambda: sorted(names)


def stubbed(package: str, **how: Any) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package whose `__init__.pyi` imports its public names.

    Type checkers read this file, and so does this function: a public name is listed once, as ``NAME as NAME``. An older
    name that is not just another name of something is imported there too, without ``as``. `how` is for `surface`.
    """
    stub = Path(__file__).parents[1].joinpath(*package.split(".")[1:], "__init__.pyi")
    imports = [node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: str(node.module) for node in imports for alias in node.names}
    public = sorted(alias.name for node in imports for alias in node.names if alias.asname)
    return *surface(package, public, homes, **how), public
