"""An experiment from data to report: training, measures, estimates, figures, page."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from percolab.ground.progress import Progress
from percolab.nn.frame import page
from percolab.nn.frame.frame import Arrays, opened
from percolab.nn.frame.resuming import forget
from percolab.nn.frame.table import Row
from percolab.nn.networks.device import Device
from percolab.nn.represent import crossed, dose, edit, relevance, trained
from percolab.nn.represent.networks import FILE
from percolab.nn.represent.settings import Settings
from percolab.nn.represent.work import Work

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = "measures"
"""Stage of what was measured of the networks."""


class Experiment(Protocol):
    """What a module of an experiment has."""

    WORDS: page.Words

    def train(self, work: Work) -> dict[str, Any]:
        """Train the networks and write them to the directory; return plain values."""

    def measure(self, work: Work) -> Arrays:
        """Measure the networks."""

    def analyse(self, found: Arrays, work: Work) -> list[Row]:
        """Return estimates with intervals, from what was measured and the data; networks are not asked."""

    def headline(self, rows: Sequence[Row], s: Settings) -> list[page.Line]:
        """Return the estimates that answer the question, each with its null."""

    def draw(self, rows: Sequence[Row], s: Settings) -> dict[str, Figure]:
        """Draw the estimates."""


MODULES: dict[str, Any] = {
    "trained": trained,
    "crossed": crossed,
    "relevance": relevance,
    "dose": dose,
    "edit": edit,
}


def represent(
    chosen: Settings,
    output: str | os.PathLike[str],
    *,
    device: Device = "auto",
    overwrite: bool = False,
    progress: bool | Progress = False,
) -> dict[str, Any]:
    """Run an experiment on what networks represent, resuming what is in `output`; return all its numbers.

    Parameters
    ----------
    chosen
        From `settings`.
    output, device, overwrite, progress
        As for `percolab.nn.reproduce`.
    """
    with opened(Work, chosen, output, device=device, overwrite=overwrite, progress=progress) as work:
        return _run(work, MODULES[chosen.experiment])


def _run(work: Work, experiment: Experiment) -> dict[str, Any]:
    s, stages, made_from = work.settings, work.stages, work.settings.to_dict()
    # Networks are large, and once they are measured nothing needs them.
    measured = stages.has(MEASURES, made_from, [f"{MEASURES}.npz"])
    scores = stages.run("training", made_from, lambda: experiment.train(work), [] if measured else [FILE])
    forget(work.output)
    found = work.arrays(MEASURES, made_from, lambda: experiment.measure(work))
    begun = time.perf_counter()
    rows = experiment.analyse(found, work)
    answers = page.Answers(rows, experiment.headline(rows, s), scores, experiment.WORDS)
    return page.publish(work, s.experiment, answers, experiment.draw(rows, s), begun=begun)
