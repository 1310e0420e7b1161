"""The experiments as functions: the paper's, those on what networks represent, and scaling."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from percolab.experiments import FORMERLY, REPRESENT
from percolab.ground.validation import check_choice
from percolab.study.experiment import Experiment
from percolab.study.settings import Settings


def find(name: str) -> Experiment[Any]:
    """Return an experiment by the name of its module."""
    return importlib.import_module(f"percolab.experiments.{FORMERLY.get(name, name)}").EXPERIMENT


def experiment(name: str, scale: str = "paper", **given: Any) -> Settings[Any]:
    """Return the settings of an experiment of the paper, at its scale or a small one.

    Parameters
    ----------
    name
        ``"one-cluster"`` or ``"multi-cluster"``.
    scale
        ``"paper"``, or ``"small"``: about 10,000 points and a smaller network, minutes on a laptop.
    given
        `epochs`: another number of epochs than the experiment's own. `seeds`: how many networks are trained, by default
        5 at the paper's scale and 2 at the small one; the first has the paper's seed. `fit_from`: FOM from which a
        second power law is fitted, beside the one of all latents. `draws`: draws of the data; from three on, intervals
        are over draws.
    """
    check_choice("experiment", name, find("paper").data)
    return find("paper").settings(scale, data=name, **given)


def reproduce(
    chosen: str | Settings[Any], output: str | os.PathLike[str], *, scale: str = "paper", **given: Any
) -> dict[str, Any]:
    """Run an experiment of the paper from data to report, resuming an earlier run in `output`; return all its numbers.

    Parameters
    ----------
    chosen
        ``"one-cluster"``, ``"multi-cluster"``, or settings from `experiment`.
    output
        Directory; it must be empty, new, or hold the same experiment.
    scale
        ``"paper"`` or ``"small"``.
    given
        `epochs`, `seeds`, `fit_from` and `draws` as for `experiment`; `device`, `overwrite`, `ray`, `workers` and
        `progress` as for `percolab.study.experiment.Experiment.run`.
    """
    return _run(chosen, output, given, experiment, chosen, scale)


def represent(
    chosen: str | Settings[Any], output: str | os.PathLike[str], *, scale: str = "paper", **given: Any
) -> dict[str, Any]:
    """Run an experiment on what networks represent, resuming an earlier run in `output`; return all its numbers.

    Parameters
    ----------
    chosen
        ``"trained"``, ``"crossed"``, ``"relevance"``, ``"steering"`` or ``"edit"``; or settings of one of them.
    output
        Directory; it must be empty, new, or hold the same experiment.
    scale
        ``"paper"``, or ``"small"``: minutes on a laptop.
    given
        `data`, `seeds`, `epochs`, `draws` and the experiment's own options, as for
        `percolab.study.experiment.Experiment.settings`; `device`, `overwrite`, `ray`, `workers` and `progress` as for
        `run`.
    """
    name = chosen if isinstance(chosen, str) else chosen.experiment
    check_choice("experiment", FORMERLY.get(name, name), REPRESENT)
    return _run(chosen, output, given, find(name).settings, scale)


def scaling(
    output: str | os.PathLike[str], chosen: Settings[Any] | None = None, *, scale: str = "paper", **given: Any
) -> dict[str, Any]:
    """Measure how errors fall with rows and width, resuming an earlier run in `output`; return all numbers.

    Parameters
    ----------
    output
        Directory; it must be empty, new, or hold the same experiment.
    chosen
        Settings; None makes them from all else.
    scale
        ``"paper"``, or ``"small"``: minutes on a laptop.
    given
        As for `represent`; `data` is some of ``"one-cluster"`` and ``"multi-cluster"``, by default both.
    """
    return _run(chosen, output, given, find("scaling").settings, scale)


HOW = ("device", "overwrite", "ray", "workers", "progress")


def _run(chosen: Any, output: Any, given: dict[str, Any], settings: Callable[..., Any], *names: Any) -> dict[str, Any]:
    """Run a study; arguments in `HOW` are for `Experiment.run`, all others are settings."""
    how = {name: given.pop(name) for name in HOW if name in given}
    asked = chosen if isinstance(chosen, Settings) else settings(*names, **given)
    return find(asked.experiment).run(asked, output, **how)
