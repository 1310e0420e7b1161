"""The commands ``percolab train | baselines | probe | reproduce``, added to the main program by `register`.

Nothing here imports torch until a command runs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path, PurePath
from typing import Annotated, Any

import typer

from percolab.cli.options import integer, number, number_option
from percolab.ground import files


def _need_packages() -> None:
    """Raise, in one line, unless what the experiments need is installed."""
    import importlib.util

    needed = {"torch": "torch", "sklearn": "scikit-learn", "pandas": "pandas", "matplotlib": "matplotlib"}
    missing = [name for module, name in needed.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise ImportError(f"this command needs {', '.join(missing)}: pip install 'percolab[nn]'")


@contextmanager
def _resumable() -> Iterator[None]:
    """Leave at Ctrl-C with a line that says how to go on."""
    try:
        yield
    except KeyboardInterrupt as stop:
        print(f"error: {str(stop) or 'interrupted; give the same command to continue'}", file=sys.stderr)
        raise SystemExit(130) from stop


Store = Annotated[str, typer.Argument(metavar="PATH", help="A dataset written by percolab.", show_default=False)]
Device = Annotated[str, typer.Option("--device", metavar="NAME", help="auto, cpu, cuda or cuda:N.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Start again where there is another run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def train(
    path: Store,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Directory of the run.")],
    d_model: Annotated[int | None, number_option("--d-model", "Width of the residual stream. Default: 256.")] = None,
    n_blocks: Annotated[int | None, number_option("--n-blocks", "Number of blocks. Default: 3.")] = None,
    expansion: Annotated[int | None, number_option("--expansion", "Hidden width over d_model. Default: 4.")] = None,
    epochs: Annotated[int | None, number_option("--epochs", "Number of epochs. Default: 500.")] = None,
    batch_size: Annotated[int | None, number_option("--batch-size", "Rows of a step. Default: 1024.")] = None,
    lr: Annotated[float | None, number_option("--lr", "Learning rate at the start. Default: 1e-4.", number)] = None,
    min_lr: Annotated[
        float | None, number_option("--min-lr", "Learning rate at the end. Default: 1e-6.", number)
    ] = None,
    weight_decay: Annotated[
        float | None, number_option("--weight-decay", "Weight decay of AdamW. Default: 0.01.", number)
    ] = None,
    seed: Annotated[int | None, number_option("--seed", "Seed of split, weights and shuffles. Default: 42.")] = None,
    tf32: Annotated[bool, typer.Option("--tf32/--no-tf32", help="TF32 matrix products on CUDA.")] = True,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in DIR.")] = False,
    overwrite: Overwrite = False,
    log: Annotated[
        str | None, typer.Option("--log", metavar="NAME", help="tensorboard or wandb, if installed.")
    ] = None,
    device: Device = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Train the paper's residual MLP on a dataset.

    DIR gets config.json, metrics.csv, checkpoint.pt, training.png and result.json.
    Ctrl-C stops after the epoch and keeps it; --resume goes on to the same final weights.
    With --resume and no other option the run's own configuration is used.
    On CUDA an epoch is one CUDA graph, and matrix products are in TF32 unless --no-tf32 is given.
    """
    _need_packages()
    from percolab.ground.progress import bar
    from percolab.nn import checkpoint, figures, progress, training
    from percolab.nn.config import TrainConfig
    from percolab.store import reading

    given = {
        "d_model": d_model, "n_blocks": n_blocks, "expansion": expansion, "epochs": epochs, "batch_size": batch_size,
        "lr": lr, "min_lr": min_lr, "weight_decay": weight_decay, "seed": seed,
    }  # fmt: skip
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if not tf32:
        chosen["tf32"] = False
    kept = checkpoint.load(output / "checkpoint.pt")["config"] if resume else {}
    config = TrainConfig(**{**kept, **chosen})
    dataset = reading.load(path)
    logged = [] if log is None else [progress.logger(log, output, asdict(config))]
    with _resumable(), bar(visible=not quiet) as display:
        told = [progress.by_epoch(display), *logged]

        def tell(epoch: int, epochs: int, loss: float, r2: float) -> None:
            for one in told:
                one(epoch, epochs, loss, r2)

        result = training.train(
            dataset, config, run_dir=output, resume=resume, overwrite=overwrite, device=device, progress=tell
        )
    with files.replacing(output / "training.png") as partial:
        figures.training_curve(result.history, f"Training on {PurePath(path).name}").savefig(partial, dpi=160)
    numbers = {"test": asdict(result.test), "validation": asdict(result.validation), "seconds": result.seconds}
    files.write_json(output / "result.json", {**numbers, "device": result.device})
    if not quiet:
        print(f"{output}: test R² {result.test.r2:.4f}, MSE {result.test.mse:.4g}, {result.seconds:.1f} s of training")


def baselines(path: Store, device: Device = "auto", as_json: AsJson = False) -> None:
    """Score the baselines of Table 1 on a dataset: the mean, ridge regression, and the nearest other point."""
    _need_packages()
    from percolab.nn import baseline
    from percolab.store import reading

    found = {name: asdict(score) for name, score in baseline.baselines(reading.load(path), device=device).items()}
    if as_json:
        print(json.dumps(found, indent=1))
        return
    print(f"{'':20}{'R²':>8}{'MSE':>10}")
    for name, score in found.items():
        print(f"{name.replace('_', ' '):20}{score['r2']:8.4f}{score['mse']:10.4g}")


def probe(
    path: Store,
    run: Annotated[Path, typer.Option("--run", metavar="DIR", help="A run of percolab train on this dataset.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Directory for tables and figures.")],
    min_latent_size: Annotated[
        int, typer.Option("--min-latent-size", parser=integer, metavar="INTEGER", help="Points a latent must have.")
    ] = 150,
    max_depth: Annotated[
        int, typer.Option("--max-depth", parser=integer, metavar="INTEGER", help="Deepest depth, in steps of 5.")
    ] = 200,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Probe every layer of a trained network for the latents of its dataset.

    DIR gets per_latent and per_depth (.csv and .parquet), fig4.png, fig5.png, fig7.png and memorising.png.
    Both protocols are run: points held out at random, as in the paper, and whole subtrees held out.
    """
    _need_packages()
    from percolab.nn import figures, probing, recording, training
    from percolab.nn.config import ProbeConfig
    from percolab.store import reading

    if (output / "per_latent.csv").exists() and not overwrite:
        raise FileExistsError(f"output must not hold probes unless overwriting, got {str(output)!r}")
    config = ProbeConfig(depths=tuple(range(0, max_depth + 1, 5)), min_latent_size=min_latent_size)
    dataset = reading.load(path)
    model = training.load_model(run, dataset, device=device)
    recorded = recording.activations(model, dataset.X, device=device)
    result = probing.probes(dataset, recorded, config, device=device, progress=True)
    output.mkdir(parents=True, exist_ok=True)
    for word in result.skipped:
        print(word)
    figures.write(figures.of_probes(result.per_latent, result.per_depth, PurePath(path).name), output)
    files.write_table(result.per_depth, output / "per_depth")
    files.write_table(result.per_latent, output / "per_latent")
    print(f"{output}: {len(result.per_latent):,} errors of latents, {sum(result.seconds.values()):.1f} s of probing")


def reproduce(
    experiment: Annotated[str, typer.Argument(metavar="EXPERIMENT", help="one-cluster or multi-cluster.")],
    scale: Annotated[
        str, typer.Option("--scale", metavar="NAME", help="paper, or small: about 20,000 points.")
    ] = "paper",
    output: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="Directory. Default: EXPERIMENT-SCALE.")
    ] = None,
    epochs: Annotated[int | None, number_option("--epochs", "Another number of epochs.")] = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Run an experiment of the paper: dataset, baselines, training, probes, figures, report.

    DIR gets report.html, which needs nothing else, and results.json with all numbers.
    A stage that is there already, made from the same things, is not run again.
    After an interruption, give the same command.
    """
    _need_packages()
    from percolab.nn import experiments, reproduction

    chosen = experiments.experiment(experiment, scale, epochs=epochs)
    directory = output or Path(f"{experiment}-{scale}")
    with _resumable():
        reproduction.reproduce(chosen, directory, device=device, overwrite=overwrite, progress=True)
    print(f"wrote {directory / reproduction.REPORT}")


def register(app: typer.Typer) -> None:
    """Add the commands to a program."""
    for command in (train, baselines, probe, reproduce):
        app.command()(command)
