"""The commands ``percolab represent | scaling``; neither imports torch before it runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from percolab.cli.errors import command
from percolab.cli.experiments import (
    Device,
    Draws,
    ExperimentOutput,
    Layers,
    Network,
    OtherEpochs,
    Overwrite,
    Ray,
    need_packages,
    print_report,
    run_in,
)
from percolab.cli.options import Quiet, choice_option, completion, number_option
from percolab.experiments import FORMERLY, REPRESENT
from percolab.ground.validation import check_choice
from percolab.nn.config import SCALES
from percolab.study.scales import DATA, HIERARCHY


@command(
    "# minutes on a laptop",
    "percolab represent relevance --scale small",
    "# full scale, for which a GPU is wanted",
    "percolab represent steering --data superposed-4 --draws 5 -o steering",
)
def represent(
    name: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT", help=f"One of {', '.join(REPRESENT)}.", autocompletion=completion(REPRESENT)
        ),
    ],
    scale: Annotated[str, choice_option("--scale", SCALES, "paper", "small: about 10,000 points. ")] = "paper",
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="NAME",
            help="superposed-2 or -4 for relevance and steering, else one-cluster or multi-cluster; or a store.",
            autocompletion=completion(DATA),
        ),
    ] = None,
    seeds: Annotated[
        int | None, number_option("--seeds", "Networks for each target. Default: 5, for documents 2.")
    ] = None,
    output: ExperimentOutput = None,
    epochs: OtherEpochs = None,
    draws: Draws = 1,
    network: Network = None,
    layers: Layers = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    ray: Ray = None,
    quiet: Quiet = False,
) -> None:
    """Ask what networks represent, against a control: training, measures, intervals, figures, report.

    trained: are latents easier to read after training than before? By epoch and layer.
    crossed: are a network's own values read better than those of networks trained on others?
    relevance: is a concept told from its sibling better where the target depends on it?
    steering (or dose): does steering activations along a direction change the prediction as the truth says?
    edit: does a change of one value, learned, move activations along a shared direction?

    DIR gets report.html, which needs nothing else, results.json with all estimates, table.parquet, and cells/.
    A cell that is there already, made from the same things, is not computed again.
    After an interruption, give the same command.
    """
    check_choice("name", FORMERLY.get(name, name), REPRESENT)
    need_packages()
    from percolab.experiments import running

    sys.path.insert(0, "")  # where networks of one's own are looked for
    names = None if layers is None else layers.split(",")
    chosen = running.find(name).settings(
        scale, data=data, seeds=seeds, epochs=epochs, draws=draws, network=network, layers=names
    )
    directory = output or Path(f"{name}-{scale}")
    how: dict[str, Any] = {"device": device, "overwrite": overwrite, "ray": ray, "quiet": quiet}
    results = run_in(directory, running.represent, chosen=chosen, **how)
    if not quiet:
        _print(directory, results)


@command(
    "# minutes on a laptop",
    "percolab scaling --scale small",
)
def scaling(
    scale: Annotated[str, choice_option("--scale", SCALES, "paper", "small: about 10,000 points. ")] = "paper",
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="A,B", help=f"Some of {', '.join(HIERARCHY)}, or a store. Default: all."),
    ] = None,
    seeds: Annotated[int, number_option("--seeds", "Chains of nested training rows.", default=5)] = 5,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Directory. Default: scaling-SCALE.")
    ] = None,
    draws: Draws = 1,
    network: Network = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    ray: Ray = None,
    quiet: Quiet = False,
) -> None:
    """Measure how the test error falls with training rows and with width: one cluster and many, 1NN and network.

    DIR gets report.html, which needs nothing else, and results.json with all errors and exponents.
    What is measured already, with the same settings, is not measured again. After an interruption, give the same
    command.
    """
    need_packages()
    from percolab.experiments import running

    names = None if data is None else data.split(",")
    sys.path.insert(0, "")  # where networks of one's own are looked for
    chosen = running.find("scaling").settings(scale, seeds=seeds, data=names, draws=draws, network=network)
    directory = output or Path(f"scaling-{scale}")
    how: dict[str, Any] = {"device": device, "overwrite": overwrite, "ray": ray, "quiet": quiet}
    results = run_in(directory, running.scaling, chosen=chosen, **how)
    if not quiet:
        _print(directory, results)


def _print(directory: Path, results: dict[str, Any]) -> None:
    """Print the answers, and where the report is."""
    from percolab.intervals import Estimate

    for line in results["headline"]:
        note = f" ({line['note']})" if line["note"] else ""
        number = Estimate(*(line["estimate"][part] for part in ("value", "low", "high"))).text()
        print(f"{line['what']}: {number}, {line['answer']}{note}")
    print_report(directory, results)
