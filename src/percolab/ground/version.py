"""The version of percolab, and the record of what made a result."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from typing import Any

import numba
import numpy as np

__version__ = "0.1.0"


def provenance(engine_version: int) -> dict[str, Any]:
    """Return versions, platform and time of making. The time is SOURCE_DATE_EPOCH, in seconds, where that is set."""
    moment = os.environ.get("SOURCE_DATE_EPOCH")
    created = datetime.now(UTC) if moment is None else datetime.fromtimestamp(int(moment), UTC)
    return {
        "percolab": __version__,
        "engine_version": engine_version,
        "numpy": np.__version__,
        "numba": numba.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "created": created.isoformat(timespec="seconds"),
    }
