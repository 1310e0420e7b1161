"""Datasets for the eye: pictures, cards, the explorer, summaries, and the style that all figures and pages share."""

from percolab.show.belief_map import draw_document
from percolab.show.explorer import DocumentExplorer, Explorer, Server, explore

__all__ = ["DocumentExplorer", "Explorer", "Server", "draw_document", "explore"]
