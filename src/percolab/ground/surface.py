"""Public names: what a module shows, imported when first used; and older names, which warn for one release."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def surface(
    module: str,
    names: Sequence[str],
    homes: Mapping[str, str] | None = None,
    *,
    formerly: Mapping[str, str] | None = None,
    extra: str | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a module.

    Parameters
    ----------
    module
        Its full name.
    names
        All that `dir` shows: its ``__all__``.
    homes
        Names that are imported when first used, with the module below `percolab` that has them. A name that is its own
        home is that module.
    formerly
        Older names, with the name below `percolab` that each has now. They warn, and go away in the next release.
    extra
        What the homes need: the extra of percolab to install.
    """
    known, older = homes or {}, formerly or {}

    def get(name: str) -> Any:
        if name in older:
            gone = f"{module}.{name} is now percolab.{older[name]}; the older name goes away in the next release"
            warnings.warn(gone, DeprecationWarning, stacklevel=2)
        elif name not in known:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        path = f"{known[name]}.{name}" if name in known else older[name]
        home, _, attribute = f"percolab.{path}".rpartition(".")
        try:
            found = import_module(f"percolab.{name}" if known.get(name) == name else home)
        except ModuleNotFoundError as error:
            if extra is None or (error.name or "").startswith("percolab"):
                raise
            raise ImportError(f"{module} needs {error.name}: pip install 'percolab[{extra}]'") from error
        return found if known.get(name) == name else getattr(found, attribute)

    return get, lambda: sorted(names)
