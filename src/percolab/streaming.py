"""Batches from a store larger than memory, as NumPy arrays: see `percolab.loaders.streaming`."""

from percolab.loaders.mixing import Batch
from percolab.loaders.streaming import Share, Stream

__all__ = ["Batch", "Share", "Stream"]
