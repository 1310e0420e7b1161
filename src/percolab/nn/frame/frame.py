"""The frame of an experiment: a directory is claimed, stages are run, and a report and all numbers are written.

An experiment is a class of its own on top of `Frame`, and its function opens one with `opened`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from percolab.ground.files import replacing, write_json
from percolab.ground.progress import Progress, shown
from percolab.ground.version import provenance
from percolab.nn.frame.drawing import write
from percolab.nn.frame.stages import Stages, claim
from percolab.nn.networks.device import Device, choose_device, device_name
from percolab.nn.training import run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PACKAGES = (*run.PACKAGES, "scikit-learn", "pandas")
REPORT, RESULTS, FIGURES = "report.html", "results.json", "figures"
Arrays = dict[str, NDArray[Any]]
Page = Callable[[Mapping[str, Any], Mapping[str, bytes]], bytes]
"""Makes a report from all numbers and the figures, PNGs by name."""


class Chosen(Protocol):
    """What says everything that determines an experiment."""

    @property
    def scale(self) -> str:
        """``"paper"`` or ``"small"``."""

    @property
    def command(self) -> str:
        """The command that runs it."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, equal after a round trip through JSON."""


S = TypeVar("S", bound=Chosen)
F = TypeVar("F", bound="Frame[Any]")


@dataclass(frozen=True, eq=False)
class Frame(Generic[S]):
    """One experiment while it runs."""

    settings: S
    output: Path
    device: torch.device
    progress: Progress

    @cached_property
    def stages(self) -> Stages:
        """The stages that were run, with the time that each took."""
        return Stages(self.output, self.progress, device_name(self.device))

    def arrays(self, name: str, made_from: Mapping[str, Any], make: Callable[[], Arrays]) -> Arrays:
        """Return the arrays of a stage, which are kept in NAME.npz, and their shapes in NAME.json."""
        file = self.output / f"{name}.npz"

        def made() -> dict[str, Any]:
            found = make()
            file.parent.mkdir(exist_ok=True)
            with replacing(file) as partial, partial.open("wb") as out:
                np.savez_compressed(out, **found)  # type: ignore[arg-type]
            return {key: list(values.shape) for key, values in found.items()}

        self.stages.run(name, made_from, made, [f"{name}.npz"])
        with np.load(file) as kept:
            return dict(kept)

    def draw(self, drawn: Mapping[str, Figure]) -> dict[str, str]:
        """Write figures; return their files by name, relative to the directory."""
        (self.output / FIGURES).mkdir(exist_ok=True)
        write(drawn, self.output / FIGURES, self.progress)
        return {name: f"{FIGURES}/{name}.png" for name in drawn}

    def report(
        self, name: str, values: Mapping[str, Any], drawn: Mapping[str, str], page: Page, *, begun: float
    ) -> dict[str, Any]:
        """Write the report and results.json; return all numbers.

        Parameters
        ----------
        name
            Of the experiment.
        values
            What was found, plain values; how it was made is added.
        drawn
            Files of the figures, by name.
        page
            Makes the report.
        begun
            When the work that belongs to no stage began, by `time.perf_counter`.
        """
        results = {
            "experiment": name,
            "scale": self.settings.scale,
            "command": self.settings.command,
            **values,
            "seconds": {**self.stages.seconds, "report": time.perf_counter() - begun},
            "devices": self.stages.devices,
            "provenance": provenance(PACKAGES, device=device_name(self.device)),
        }
        images = {name: (self.output / file).read_bytes() for name, file in drawn.items()}
        with replacing(self.output / REPORT) as partial:
            partial.write_bytes(page(results, images))
        write_json(self.output / RESULTS, results)
        self.progress("report", 1, 1)
        return results


@contextmanager
def opened(
    kind: type[F],
    settings: Chosen,
    output: str | os.PathLike[str],
    *,
    device: Device = "auto",
    overwrite: bool = False,
    progress: bool | Progress = False,
) -> Iterator[F]:
    """Yield an experiment of a class in a directory that is its own, or say why it cannot be.

    Its settings are everything that determines it; all else is as for `percolab.nn.reproduce`.
    """
    place, directory = choose_device(device), Path(output)
    claim(directory, settings.to_dict(), overwrite=overwrite)
    with shown(progress) as tell:
        yield kind(settings, directory, place, tell)
