"""An experiment from data to report: training, measures, estimates, figures, page."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from percolab.ground.files import replacing, write_json
from percolab.ground.progress import Progress, shown
from percolab.ground.version import provenance
from percolab.nn import figures, run
from percolab.nn.device import Device, choose_device, device_name
from percolab.nn.represent import crossed, dose, edit, page, relevance, trained
from percolab.nn.represent.networks import FILE
from percolab.nn.represent.settings import Settings
from percolab.nn.represent.work import Arrays, Row, Work
from percolab.nn.stages import Stages, claim

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PACKAGES = (*run.PACKAGES, "scikit-learn", "pandas")
REPORT, RESULTS, MEASURES = "report.html", "results.json", "measures.npz"


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
    output
        Directory; it must be empty, new, or hold the same experiment.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    overwrite
        Start again where `output` holds another experiment.
    progress
        True shows bars; a function is called with (stage, done, total).
    """
    chosen_device, directory = choose_device(device), Path(output)
    claim(directory, chosen.to_dict(), overwrite=overwrite)
    with shown(progress) as tell:
        return _run(Work(chosen, directory, chosen_device, tell), MODULES[chosen.experiment])


def _run(work: Work, experiment: Experiment) -> dict[str, Any]:
    s, output = work.settings, work.output
    stages, made_from = Stages(output, work.progress), s.to_dict()
    # Networks are large, and once they are measured nothing needs them.
    measured = stages.has("measures", made_from, [MEASURES])
    scores = stages.run("training", made_from, lambda: experiment.train(work), [] if measured else [FILE])
    stages.run("measures", made_from, lambda: _measure(work, experiment), [MEASURES])
    start = time.perf_counter()
    with np.load(output / MEASURES) as kept:
        rows = experiment.analyse(dict(kept), work)
    drawn = experiment.draw(rows, s)
    (output / "figures").mkdir(exist_ok=True)
    figures.write(drawn, output / "figures", work.progress)
    results = {
        "experiment": s.experiment,
        "scale": s.scale,
        "command": s.command,
        "headline": [line.to_dict() for line in experiment.headline(rows, s)],
        "estimates": rows,
        "training": scores,
        "settings": made_from,
        "seconds": {**stages.seconds, "report": time.perf_counter() - start},
        "provenance": provenance(PACKAGES, device=device_name(work.device)),
    }
    images = {name: (output / "figures" / f"{name}.png").read_bytes() for name in drawn}
    with replacing(output / REPORT) as partial:
        partial.write_bytes(page.make(results, experiment.WORDS, experiment.headline(rows, s), images))
    write_json(output / RESULTS, results)
    work.progress("report", 1, 1)
    return results


def _measure(work: Work, experiment: Experiment) -> dict[str, Any]:
    found = experiment.measure(work)
    with replacing(work.output / MEASURES) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **found)  # type: ignore[arg-type]
    return {name: list(values.shape) for name, values in found.items()}
