"""Showing datasets: pictures, cards, the explorer, summaries, and the style that all figures and pages share."""

from percolab.ground.extras import stubbed

__getattr__, __dir__, __all__ = stubbed(__name__, formerly={"draw_document": "show.draw"})
