"""The explorer: one page with the points of a dataset, its hierarchies, predictions of a network, and features.

`data` gathers the points in principal components, trees and `shown_features`; `packing` encodes them for the page;
`page` builds the file from Bokeh's figures and percolab's scripts; `serve` serves a store that is larger than memory.
`passages` is another page, for documents.
"""

from percolab.show.explorer.exploring import DocumentExplorer, Explorer, explore
from percolab.show.explorer.passages import Probed
from percolab.show.explorer.serve import Server

__all__ = ["DocumentExplorer", "Explorer", "Probed", "Server", "explore"]
