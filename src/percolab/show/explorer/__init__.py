"""The explorer: one page with the points of a dataset, its hierarchies, and what a network and features make of them.

`data` gathers what is shown: points in principal components, trees, `shown_features`; `packing` sends it; `page` builds
the file from Bokeh's figures and our scripts; `serve` answers from a store that is larger than memory. `passages` is
another page, of documents.
"""

from percolab.show.explorer.exploring import DocumentExplorer, Explorer, explore
from percolab.show.explorer.passages import Probed
from percolab.show.explorer.serve import Server

__all__ = ["DocumentExplorer", "Explorer", "Probed", "Server", "explore"]
