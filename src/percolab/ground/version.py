"""The version of percolab, and the record of what made a result."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

__version__ = "0.1.0"

PACKAGES = ("numpy", "numba")  #: The packages that can affect the numbers of a dataset.


def provenance(packages: Iterable[str] = PACKAGES, **facts: Any) -> dict[str, Any]:
    """Return what made a result: versions, platform and time, with `facts` about the work after percolab's version.

    Datasets, training runs and reproductions all keep this record. The time is SOURCE_DATE_EPOCH, in seconds, if that
    is set.

    Parameters
    ----------
    packages
        Installed packages whose versions are recorded.
    **facts
        Plain values, for instance ``engine_version`` or ``device``.
    """
    moment = os.environ.get("SOURCE_DATE_EPOCH")
    created = datetime.now(UTC) if moment is None else datetime.fromtimestamp(int(moment), UTC)
    return {
        "percolab": __version__,
        **facts,
        **{name: metadata.version(name) for name in packages},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "created": created.isoformat(timespec="seconds"),
    }
