"""Batches as NumPy arrays: from a store larger than memory, or of documents made as they are used."""

from percolab.loaders.document_stream import DocumentStream
from percolab.loaders.mixture import Batch
from percolab.loaders.row_stream import Share, Stream

__all__ = ["Batch", "DocumentStream", "Share", "Stream"]
