"""Object storage over HTTP, such as ``s3://bucket/name.zarr``, through obstore."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from percolab.ground.text import one_line

if TYPE_CHECKING:
    from obstore.store import ObjectStore

#: Protocols that use obstore if it is installed; all others use fsspec.
SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss")
#: How long a request is retried if the server does not answer or is too busy.
PATIENCE = timedelta(seconds=30)
CONNECT = timedelta(seconds=5)

_state = {"used": False, "forked": False}


def handles(url: str) -> bool:
    """Return whether this process opens a URL through obstore."""
    return url.partition("://")[0] in SCHEMES and not _state["forked"] and find_spec("obstore") is not None


# The threads of obstore do not survive a fork, and a request would wait for ever.
os.register_at_fork(after_in_child=lambda: _state.update(forked=_state["used"]))


@lru_cache(maxsize=64)
def opened(url: str) -> ObjectStore:
    """Return the object store at a URL. No request is sent yet.

    Credentials, region and endpoint are taken from the environment: ``AWS_ACCESS_KEY_ID``, ``AWS_REGION``,
    ``AWS_ENDPOINT_URL`` and so on.
    """
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    _state["used"] = True
    plain = os.environ.get("AWS_ENDPOINT_URL", os.environ.get("AWS_ENDPOINT", "")).startswith("http://")
    try:
        return from_url(
            url,
            client_options={"connect_timeout": CONNECT, **({"allow_http": True} if plain else {})},
            retry_config={"max_retries": 8, "retry_timeout": PATIENCE},
        )
    except (BaseError, ValueError) as fault:
        raise ValueError(f"location must be a URL of object storage, got {url!r}: {said(fault)}") from fault


def sizes(url: str) -> Iterator[tuple[str, int]]:
    """Yield the key and the size in bytes of every object at a URL; nothing if the bucket does not exist."""
    import obstore
    from obstore.exceptions import BaseError

    try:
        for some in obstore.list(opened(url)):
            yield from ((entry["path"], entry["size"]) for entry in some)
    except BaseError as fault:
        if "404 Not Found" not in str(fault):
            raise OSError(f"{url} cannot be listed: {said(fault)}") from fault


def fetch(url: str, key: str, most: int) -> Any:
    """Return the bytes of an object, or their number if it has more than `most`."""
    import obstore

    answer = obstore.get(opened(url), key)
    return answer.bytes() if answer.meta["size"] <= most else answer.meta["size"]


def said(fault: BaseException) -> str:
    """Return the message of an error in one line, without the page that the server sent."""
    return one_line(str(fault).partition("\n\nDebug source")[0].partition("<?xml")[0].partition("<html")[0])
