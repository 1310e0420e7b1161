"""Optional packages: the one sentence that says what needs them, and names that are imported when first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any


def missing(what: str, package: str, extra: str) -> ImportError:
    """Return the error that names a package which is not installed, and the extra that brings it."""
    return ImportError(f"{what} {package}: pip install 'percolab[{extra}]'")


@contextmanager
def needing(what: str, extra: str, package: str = "") -> Iterator[None]:
    """Import in this block what an extra brings; where it is not installed, say so in one line.

    Parameters
    ----------
    what
        Subject and verb of the sentence, as ``"HDF5 needs"``.
    extra
        What to install.
    package
        The name that people know the package by, if its modules have another.
    """
    try:
        yield
    except ImportError as error:
        if (error.name or "").startswith("percolab"):
            raise
        raise missing(what, package or str(error.name).partition(".")[0], extra) from error


def on_demand(package: str, homes: Mapping[str, str], what: str, extra: str) -> Callable[[str], Any]:
    """Return ``__getattr__`` of a package whose names need an extra: each is imported when it is first asked for.

    Parameters
    ----------
    package
        Its name.
    homes
        The modules of percolab that its names are in: the names of each, with spaces between them.
    what, extra
        See `needing`.
    """
    home = {name: module for module, names in homes.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with needing(what, extra):
            module = import_module(f"percolab.{home[name]}")
        return getattr(module, name)

    return find
