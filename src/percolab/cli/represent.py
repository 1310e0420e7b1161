"""The commands ``percolab represent | scaling``; neither imports torch before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from percolab.cli.errors import Command
from percolab.cli.experiments import (
    Device,
    ExperimentOutput,
    OtherEpochs,
    Overwrite,
    need_packages,
    print_report,
    run_in,
)
from percolab.cli.options import Quiet, choice_option, completion, examples, number_option
from percolab.nn.config import SCALES
from percolab.nn.represent.settings import DATA, EXPERIMENTS, settings
from percolab.nn.scaling.settings import DATA as SCALED
from percolab.nn.scaling.settings import scaling_settings

ALL_DATA = tuple(dict.fromkeys(name for names in DATA.values() for name in names))


def represent(
    name: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT", help=f"One of {', '.join(EXPERIMENTS)}.", autocompletion=completion(EXPERIMENTS)
        ),
    ],
    scale: Annotated[str, choice_option("--scale", SCALES, "paper", "small: about 10,000 points. ")] = "paper",
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="NAME",
            help="superposed-2 (default) or -4 for relevance and dose, else one-cluster (default) or multi-cluster.",
            autocompletion=completion(ALL_DATA),
        ),
    ] = None,
    seeds: Annotated[int, number_option("--seeds", "Networks for each target.", default=5)] = 5,
    output: ExperimentOutput = None,
    epochs: OtherEpochs = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Ask what networks represent, against a control: training, measures, intervals, figures, report.

    trained: are latents easier to read after training than before? By epoch and layer.
    crossed: are a network's own values read better than those of networks trained on others?
    relevance: is a concept told from its sibling better where the target depends on it?
    dose: does pushing activations along a direction change the prediction as the truth says?
    edit: does a change of one value, learned, move activations along a shared direction?

    DIR gets report.html, which needs nothing else, results.json with all estimates, and measures.npz.
    A stage that is there already, made from the same things, is not run again.
    After an interruption, give the same command.
    """
    chosen = settings(name, scale, data=data, seeds=seeds, epochs=epochs)
    need_packages()
    from percolab.nn.represent import running

    directory = output or Path(f"{name}-{scale}")
    results = run_in(directory, running.represent, chosen, device=device, overwrite=overwrite, quiet=quiet)
    if not quiet:
        _print(directory, results)


def scaling(
    scale: Annotated[str, choice_option("--scale", SCALES, "paper", "small: some thousand points. ")] = "paper",
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="A,B", help=f"Some of {', '.join(SCALED)}. Default: all."),
    ] = None,
    seeds: Annotated[int, number_option("--seeds", "Chains of nested training rows.", default=5)] = 5,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Directory. Default: scaling-SCALE.")
    ] = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Measure how the test error falls with training rows and with width: one cluster and many, 1NN and network.

    DIR gets report.html, which needs nothing else, and results.json with all errors and exponents.
    What is measured already, with the same settings, is not measured again. After an interruption, give the same
    command.
    """
    chosen = scaling_settings(scale, seeds=seeds, data=SCALED if data is None else data.split(","))
    need_packages()
    from percolab.nn.scaling import running

    directory = output or Path(f"scaling-{scale}")
    results = run_in(directory, running.scaling, chosen, device=device, overwrite=overwrite, quiet=quiet)
    if not quiet:
        _print(directory, results)


def _print(directory: Path, results: dict[str, Any]) -> None:
    """Print the answers, and where the report is."""
    from percolab.nn.frame.page import number

    for line in results["headline"]:
        note = f" ({line['note']})" if line["note"] else ""
        print(f"{line['what']}: {number(line['estimate'])}, {line['answer']}{note}")
    print_report(directory, results)


def register(app: typer.Typer) -> None:
    """Add the command to a program."""
    app.command(
        cls=Command,
        epilog=examples(
            "# minutes on a laptop",
            "percolab represent relevance --scale small",
            "# full scale, for which a GPU is wanted",
            "percolab represent dose --data superposed-4 -o dose",
        ),
    )(represent)
    app.command(cls=Command, epilog=examples("# minutes on a laptop", "percolab scaling --scale small"))(scaling)
