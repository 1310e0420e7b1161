"""What determines a study, whatever its experiment. Needs no torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic, TypeVar

from percolab.ground.version import __version__
from percolab.study.draws import AnyRecipe, network_seeds, redrawn

O = TypeVar("O")  # noqa: E741


@dataclass(frozen=True)
class Settings(Generic[O]):
    """Everything that determines a study."""

    experiment: str
    scale: str
    data: tuple[str, ...]
    recipes: tuple[AnyRecipe, ...]
    """of each of the data, in draw 0"""
    training: Any
    """`TrainConfig` of every network, but for its seeds; on documents `CorpusTrainConfig`"""
    seeds: int
    """networks for each target: their initial weights and orders of rows"""
    options: O
    """the experiment's own"""
    draws: int = 1
    """of the data"""
    draw: int = 0
    """which of these draws the recipes and seeds are of"""
    network: str = ""
    """``module:function`` of one's own networks: ``make(data, seed)`` returns one"""
    layers: tuple[str, ...] = ()
    """modules of one's own networks that are read"""
    store: str = ""
    """where the data are, if they are not made from the recipe"""
    digest: str = ""
    """of the targets in the store, and of the file that makes networks"""
    asked: tuple[str, ...] = ()
    """which part of its grid is computed now; other parts can be added later, in the same directory"""
    command: str = ""
    """what runs it"""

    @property
    def recipe(self) -> AnyRecipe:
        """The recipe, where there is one."""
        return self.recipes[0]

    @property
    def network_seeds(self) -> list[int]:
        """The seeds of the networks."""
        return network_seeds(self.seeds, self.draw)

    @property
    def prefix(self) -> str:
        """What the names of the cells of this draw begin with."""
        return f"draw-{self.draw}/" if self.draw else ""

    def drawn(self, draw: int) -> Settings[O]:
        """Return the settings of a draw."""
        return replace(self, recipes=tuple(redrawn(recipe, draw) for recipe in self.recipes), draw=draw)

    def to_dict(self) -> dict[str, Any]:
        """Return all but the number of draws and the part that is asked for, equal after a round trip through JSON.

        More of the same study goes on where less of it ended.
        """
        values = {**asdict(self), "recipes": [recipe.to_dict() for recipe in self.recipes], "percolab": __version__}
        for name in ("draws", "asked", "command"):
            del values[name]
        return dict(json.loads(json.dumps(values)))
