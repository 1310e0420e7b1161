"""Batches from a store larger than memory, as NumPy arrays: see `percolab.loaders.streaming`."""

from percolab.loaders.streaming import Part, Share, Stream

__all__ = ["Part", "Share", "Stream"]
