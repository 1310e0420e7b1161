"""Reads what the explorer sends to its page, as its scripts do."""

import gzip
import json

import numpy as np

from percolab.show.explorer.packing import TYPES


def unpack(data):
    """Return what `pack` was given, with arrays flat and of the types they were sent as."""
    raw = gzip.decompress(data)
    size = int.from_bytes(raw[:4], "little")
    body = memoryview(raw)[4 + size :]

    def whole(value):
        if isinstance(value, list):
            return [whole(item) for item in value]
        if not isinstance(value, dict):
            return value
        for mark in ("$", "$d"):
            if mark in value:
                kind, offset, length = value[mark]
                found = np.frombuffer(body, TYPES[kind], length, offset)
                return np.cumsum(found, dtype=found.dtype) if mark == "$d" else found
        return {key: whole(item) for key, item in value.items()}

    return whole(json.loads(raw[4 : 4 + size]))
