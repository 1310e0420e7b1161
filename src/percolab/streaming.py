"""Batches as NumPy arrays: from a store larger than memory, or of documents made as they are used."""

from percolab.ground.extras import surface
from percolab.loaders.mixture import Batch
from percolab.loaders.streams import DocumentStream, Share, Stream

__all__ = ["Batch", "DocumentStream", "Share", "Stream"]

__getattr__, __dir__ = surface(__name__, __all__)
