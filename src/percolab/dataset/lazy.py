"""Dataclasses whose fields are read when first asked for, as those of a dataset on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Self, TypeVar

import numpy as np

LazyT = TypeVar("LazyT", bound="Lazy")


class Lazy:
    """A dataclass that may be made without its fields, given a function that reads them."""

    @classmethod
    def lazy(cls, read: Callable[[str], Any]) -> Self:
        """Return one whose fields are read by name when first asked for."""
        made = object.__new__(cls)
        object.__setattr__(made, "_read", read)
        return made

    def __getattr__(self, name: str) -> Any:
        # Reached only when a field is not there yet, which happens in lazy ones alone.
        read = self.__dict__.get("_read")
        if read is None or name not in {field.name for field in fields(type(self))}:  # type: ignore[arg-type]
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.__dict__[name] = locked(read(name))
        return self.__dict__[name]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(field.name for field in fields(type(self)))})  # type: ignore[arg-type]

    def __getstate__(self) -> dict[str, Any]:
        # What was loaded travels by its path: what was read of it is read again where it arrives.
        read = self.__dict__.get("_read")
        return dict(self.__dict__) if read is None else {"_read": read}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_vouched" in state:
            vouch(self)


def vouch(made: LazyT) -> LazyT:
    """Mark a dataset as what its recipe makes, or as known to differ in what its provenance says.

    Its arrays become read-only: what is edited in place would still pass for what the recipe makes.
    """
    names = [field.name for field in fields(type(made)) if "_read" not in made.__dict__]  # type: ignore[arg-type]
    made.__dict__.update({name: locked(getattr(made, name)) for name in names}, _vouched=True)
    return made


def locked(values: Any) -> Any:
    """Return an array that cannot be written to, in the same memory; what is no array is returned as it is."""
    if isinstance(values, dict):
        return {name: locked(column) for name, column in values.items()}
    if isinstance(values, np.ndarray) and values.flags.writeable:
        values = values.view()
        values.setflags(write=False)
    return values
