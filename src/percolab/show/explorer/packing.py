"""The encoding of data for the page: plain values as JSON, followed by arrays as bytes, all of it compressed.

A pack is four bytes with the length of the JSON, the JSON, and the arrays, each starting at a multiple of eight bytes.
In the JSON an array is ``{"$": [type, offset, length]}``. Integers that grow slowly from one to the next are sent as
differences, ``"$d"``, which compress well; ``browser/unpack.js`` decodes the pack.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVEL = 6
TYPES = {"u1": "|u1", "u2": "<u2", "i4": "<i4", "f4": "<f4", "f8": "<f8"}
#: How arrays of these types are sent. Other integers are sent as i4 if they fit, and all other numbers as f8.
SENT_AS = {"bool": "u1", "uint8": "u1", "uint16": "u2", "float32": "f4"}
LARGEST = 2**31 - 1


def pack(values: Mapping[str, Any]) -> bytes:
    """Return values, in which arrays may be anywhere, as bytes; the same values give the same bytes."""
    parts: list[bytes] = []
    length = 0

    def plain(value: Any) -> Any:
        nonlocal length
        if isinstance(value, Mapping):
            return {str(key): plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, float) and not np.isfinite(value):
            return None
        if not isinstance(value, np.ndarray):
            return value
        kind, differences, column = _sent(value)
        data = column.tobytes()
        place = [kind, length, column.size]
        parts.append(data + bytes(-len(data) % 8))
        length += len(parts[-1])
        return {"$d" if differences else "$": place}

    head = json.dumps(plain(values), ensure_ascii=True, allow_nan=False).encode()
    head += b" " * (-(4 + len(head)) % 8)
    return gzip.compress(len(head).to_bytes(4, "little") + head + b"".join(parts), LEVEL, mtime=0)


def _sent(values: NDArray[Any]) -> tuple[str, bool, NDArray[Any]]:
    """Return the type that an array is sent as, whether as differences, and its elements."""
    column = np.ascontiguousarray(values).ravel()
    kind = SENT_AS.get(column.dtype.name, "f8")
    if kind == "f8" and column.dtype.kind in "iu" and np.abs(column).max(initial=0) <= LARGEST // 2:
        whole = column.astype(TYPES["i4"])
        return "i4", True, np.diff(whole, prepend=whole.dtype.type(0))
    return kind, False, column.astype(TYPES[kind], copy=False)
