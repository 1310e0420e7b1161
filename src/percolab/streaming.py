"""Batches as NumPy arrays: read from a store larger than memory, or made from documents on the fly."""

from percolab.ground.extras import surface
from percolab.loaders.mixture import Batch
from percolab.loaders.streams import DocumentStream, Share, Stream

__all__ = ["Batch", "DocumentStream", "Share", "Stream"]

__getattr__, __dir__ = surface(__name__, __all__)
