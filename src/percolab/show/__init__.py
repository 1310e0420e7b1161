"""Datasets for the eye: pictures, cards, the explorer, summaries, and the style that all figures and pages share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from percolab.ground.extras import surface

if TYPE_CHECKING:
    from percolab.show.cluster_picture import draw
    from percolab.show.dataset_card import card
    from percolab.show.explorer import DocumentExplorer, Explorer, Probed, Server, explore

__all__ = ["DocumentExplorer", "Explorer", "Probed", "Server", "card", "draw", "explore"]

_HOMES = {
    "show.cluster_picture": "draw",
    "show.dataset_card": "card",
    "show.explorer": "DocumentExplorer Explorer Probed Server explore",
}

__getattr__, __dir__ = surface(__name__, __all__, _HOMES, formerly={"draw_document": "show.draw"})
