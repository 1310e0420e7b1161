"""The commands ``percolab train | baselines | probe | reproduce``; none imports torch before it runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path, PurePath
from typing import Annotated, Any

import typer

from percolab.cli.errors import UnfinishedError, command
from percolab.cli.options import (
    AsJson,
    Quiet,
    Store,
    choice_option,
    completion,
    given,
    number,
    number_option,
    word_option,
)
from percolab.cli.options import seed as seed_number
from percolab.ground import files
from percolab.ground.extras import missing
from percolab.ground.foreign_files import read_json
from percolab.ground.validation import check_choice, check_integer
from percolab.nn.config import FITTED_FOM, SCALES, UNTRAINED, CorpusTrainConfig, ProbeConfig, TrainConfig, training_from
from percolab.study.scales import HIERARCHY

Device = Annotated[
    str,
    word_option("--device", "NAME", "auto, cpu, cuda or cuda:N.", ("auto", "cpu", "cuda")),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Start again where there is another run.")]
ExperimentOutput = Annotated[Path | None, word_option("-o --output", "DIR", "Directory. Default: EXPERIMENT-SCALE.")]
OtherEpochs = Annotated[int | None, number_option("--epochs", "Another number of epochs.")]
Draws = Annotated[int, number_option("--draws", "Draws of the data; from 3 on, intervals are over draws.", default=1)]
Network = Annotated[
    str | None,
    word_option("--network", "MODULE:FUNCTION", "Networks of your own: make(data, seed) returns one."),
]
Layers = Annotated[str | None, word_option("--layers", "A,B", "Modules of --network that are read.")]
Ray = Annotated[
    str | None,
    word_option("--ray", "ADDRESS", "Compute on a Ray cluster: HOST:PORT, ray://HOST:PORT or auto."),
]
LOGS = ("tensorboard", "wandb")
DEPTH_STEP = 5
MOST_CORPUS = 1 << 28
"""Bytes of a corpus as JSON; a lexicon without a recipe is written as its columns."""


def _both(name: str) -> str:
    """Return the defaults of a setting for datasets and for documents."""
    return f"{getattr(TrainConfig, name)}, for documents {getattr(CorpusTrainConfig, name)}"


def need_packages() -> None:
    """Raise, in one line, unless what the experiments need is installed."""
    import importlib.util

    needed = {"torch": "torch", "sklearn": "scikit-learn", "pandas": "pandas", "matplotlib": "matplotlib"}
    absent = [name for module, name in needed.items() if importlib.util.find_spec(module) is None]
    if absent:
        raise missing("this command needs", ", ".join(absent), "nn")


@contextmanager
def resumable(how: str) -> Iterator[None]:
    """Leave at Ctrl-C with a line that says how to resume."""
    try:
        yield
    except KeyboardInterrupt as stop:
        done, _, rest = str(stop).partition("; ")  # training says after which epoch, and whether that is kept
        if "nothing was kept" in rest:
            how = "the same command begins this training again, and keeps what was finished before"
        raise UnfinishedError(f"{done or 'interrupted'}; {how}") from None


def run_in(directory: Path, run: Callable[..., dict[str, Any]], *, quiet: bool, **given: Any) -> dict[str, Any]:
    """Run an experiment in a directory, showing how far it is; return its numbers."""
    from percolab.ground.progress import bar

    with resumable("the same command resumes it"), bar(visible=not quiet) as display:
        return run(output=directory, progress=display, **given)


def print_report(directory: Path, results: dict[str, Any], words: str = "") -> None:
    """Print where the report is, and the time that all stages took."""
    from percolab.ground.progress import clock
    from percolab.study.directory import REPORT

    print(f"{directory / REPORT}: {words}{clock(sum(results['seconds'].values()))} in all")


@command(
    "percolab train one.zarr -o run",
    "# after Ctrl-C",
    "percolab train one.zarr -o run --resume",
)
def train(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="A dataset, or documents: a store, or a corpus as JSON.", show_default=False
        ),
    ],
    output: Annotated[Path, word_option("-o --output", "DIR", "Directory of the run.")],
    d_model: Annotated[
        int | None, number_option("--d-model", "Width of the residual stream.", default=TrainConfig.d_model)
    ] = None,
    n_blocks: Annotated[int | None, number_option("--n-blocks", "Number of blocks.", default=_both("n_blocks"))] = None,
    n_heads: Annotated[
        int | None, number_option("--n-heads", "Documents: heads of attention.", default=CorpusTrainConfig.n_heads)
    ] = None,
    expansion: Annotated[
        int | None, number_option("--expansion", "Hidden width over --d-model.", default=TrainConfig.expansion)
    ] = None,
    epochs: Annotated[
        int | None, number_option("--epochs", "Dataset: number of epochs.", default=TrainConfig.epochs)
    ] = None,
    steps: Annotated[
        int | None, number_option("--steps", "Documents: number of steps.", default=CorpusTrainConfig.steps)
    ] = None,
    warmup: Annotated[
        int | None,
        number_option("--warmup", "Documents: steps to the full learning rate.", default=CorpusTrainConfig.warmup),
    ] = None,
    every: Annotated[
        int | None,
        number_option("--every", "Documents: steps between held-out losses.", default=CorpusTrainConfig.every),
    ] = None,
    batch_size: Annotated[
        int | None, number_option("--batch-size", "Rows or documents of a step.", default=_both("batch_size"))
    ] = None,
    lr: Annotated[float | None, number_option("--lr", "Largest learning rate.", number, _both("lr"))] = None,
    min_lr: Annotated[
        float | None, number_option("--min-lr", "Learning rate at the end.", number, _both("min_lr"))
    ] = None,
    weight_decay: Annotated[
        float | None, number_option("--weight-decay", "Weight decay of AdamW.", number, TrainConfig.weight_decay)
    ] = None,
    seed: Annotated[
        int | None, number_option("--seed", "Seed of split, weights and shuffles.", seed_number, TrainConfig.seed)
    ] = None,
    tf32: Annotated[bool, typer.Option("--tf32/--no-tf32", help="TF32 matrix products on CUDA.")] = TrainConfig.tf32,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in DIR.")] = False,
    overwrite: Overwrite = False,
    log: Annotated[
        str | None,
        word_option("--log", "NAME", "tensorboard or wandb, if installed.", LOGS),
    ] = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Train the paper's residual MLP on a dataset, or a transformer on the documents of a corpus.

    DIR gets config.json, metrics.csv, checkpoint.pt, training.png and result.json.
    Of documents the corpus alone is used: training takes as many as it needs, and tests on others.
    Their loss stands beside the floor, which no predictor is below on average; excess.png shows both.
    Ctrl-C stops after the epoch or step and keeps it; --resume goes on to the same final weights.
    With --resume and no other option the run's own configuration is used.
    On CUDA an epoch, or a step on documents, is one CUDA graph; products are in TF32 unless --no-tf32 is given.
    """
    need_packages()
    from percolab.corpora.corpus import Corpus
    from percolab.ground.progress import bar
    from percolab.nn.networks.objective import NAMES, objective
    from percolab.nn.training import checkpoint, history, training
    from percolab.nn.training.history import by_epoch, logger
    from percolab.study import pictures

    chosen = given(
        {
            "d_model": d_model, "n_blocks": n_blocks, "n_heads": n_heads, "expansion": expansion, "epochs": epochs,
            "steps": steps, "warmup": warmup, "every": every, "batch_size": batch_size, "lr": lr, "min_lr": min_lr,
            "weight_decay": weight_decay, "seed": seed, "tf32": None if tf32 else False,
        }
    )  # fmt: skip
    data = _training_data(path)
    kind, what = (CorpusTrainConfig, "documents") if isinstance(data, Corpus) else (TrainConfig, "a dataset")
    for name in chosen.keys() - {field.name for field in fields(kind)}:
        raise ValueError(f"{name} must be left out for {what}, got {chosen[name]}")
    begun: Any = training_from(checkpoint.load(output / "checkpoint.pt")["configs"][0]) if resume else kind()
    if not isinstance(begun, kind):
        raise ValueError(f"checkpoint must be of a run on {what}, got another in {str(output)!r}")
    config = replace(begun, **chosen)
    measure = "excess" if isinstance(data, Corpus) else objective(data.y).measure_name
    logged = [] if log is None else [logger(log, output, asdict(config), measure)]
    with resumable("the same command with --resume continues"), bar(visible=not quiet) as display:
        told = [by_epoch(display, measure), *logged]

        def tell(epoch: int, epochs: int, loss: float, score: float) -> None:
            for one in told:
                one(epoch, epochs, loss, score)

        result = training.train(
            data, config, run_dir=output, resume=resume, overwrite=overwrite, device=device, progress=tell
        )
    title = f"Training on {PurePath(path).name}"
    figures = {"training": history.training_curve(result.history, title)}
    scores = {part: training.numbers(getattr(result, part)) for part in ("test", "validation")}
    tables = {}
    if isinstance(data, Corpus):
        figures["excess"] = history.excess_curve(result.test, title)
        tables = {name: getattr(result.test, name).to_dict("list") for name in ("by_position", "by_size")}
    pictures.write(figures, output)
    files.write_json(output / "result.json", {**scores, **tables, "seconds": result.seconds, "device": result.device})
    if not quiet:
        shown = ", ".join(f"{NAMES[name]} {value:.4g}" for name, value in scores["test"].items())
        print(f"{output}: test {shown}, {result.seconds:.1f} s of training")


def _training_data(path: str) -> Any:
    """Return the dataset, the world or the corpus at a path."""
    from percolab.corpora.corpus import Corpus
    from percolab.store import worlds

    if not path.endswith(".json"):
        stored = worlds.load(path)
        return getattr(stored, "corpus", stored)  # of stored documents the corpus alone is used
    return Corpus.from_dict(read_json("path", path, MOST_CORPUS))


@command("percolab baselines one.zarr")
def baselines(path: Store, device: Device = "auto", as_json: AsJson = False) -> None:
    """Score the baselines of Table 1 on a dataset: the mean, ridge regression, and the nearest other point."""
    need_packages()
    from percolab.nn.networks import baseline
    from percolab.nn.networks.objective import NAMES
    from percolab.store import worlds

    scores = baseline.baselines(worlds.load_points(path), device=device, progress=True)
    found = {name: asdict(score) for name, score in scores.items()}
    if as_json:
        print(json.dumps(found, indent=1))
        return
    print(" " * 27 + "".join(f"{NAMES[name]:>10}" for name in next(iter(found.values()))))
    for name, score in found.items():
        print(f"{name.replace('_', ' '):27}" + "".join(f"{value:10.4g}" for value in score.values()))


@command("percolab probe one.zarr --run run -o probes")
def probe(
    path: Store,
    run: Annotated[Path, word_option("--run", "DIR", "A run of percolab train on this dataset.")],
    output: Annotated[Path, word_option("-o --output", "DIR", "Directory for tables and figures.")],
    min_latent_size: Annotated[
        int,
        number_option("--min-latent-size", "Points a latent must have.", default=ProbeConfig.min_latent_size),
    ] = ProbeConfig.min_latent_size,
    max_depth: Annotated[
        int, number_option("--max-depth", f"Deepest depth, in steps of {DEPTH_STEP}.", default=ProbeConfig.depths[-1])
    ] = ProbeConfig.depths[-1],
    draws: Annotated[
        int, number_option("--draws", "Draws of fresh values and permuted targets.", default=ProbeConfig.draws)
    ] = ProbeConfig.draws,
    untrained: Annotated[
        int, number_option("--untrained", "Untrained networks of the same shape, as a control.", default=UNTRAINED)
    ] = UNTRAINED,
    factor: Annotated[int | None, number_option("--factor", "Which hierarchy of a superposed world.")] = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Probe every layer of a trained network for the latents of its dataset, beside untrained networks.

    DIR gets per_latent and per_depth (.csv and .parquet), fig4.png, fig5.png, fig7.png and memorising.png.
    Both protocols are run: points held out at random, as in the paper, and whole subtrees held out.
    """
    need_packages()
    from percolab.experiments import figures
    from percolab.nn.probing import controls, probed_networks
    from percolab.store import worlds
    from percolab.study import pictures
    from percolab.worlds.superposed import truth

    if (output / "per_latent.csv").exists() and not overwrite:
        raise FileExistsError(f"output must not hold probes unless overwrite is given, got {str(output)!r}")
    if output.exists() and not output.is_dir():
        raise FileExistsError(f"output must be a directory, got {str(output)!r}")
    depths = tuple(range(0, check_integer("max_depth", max_depth, 0) + 1, DEPTH_STEP))
    config = ProbeConfig(depths=depths, min_latent_size=min_latent_size, draws=draws)
    check_integer("untrained", untrained, 1)
    dataset = worlds.load_points(path)
    forest = truth(dataset, factor).forest
    found = probed_networks.probe_run(dataset, run, config, untrained, factor=factor, device=device, progress=True)
    output.mkdir(parents=True, exist_ok=True)
    for words in found.skipped:
        print(f"not probed: {words}")
    pictures.write(figures.of_probes(forest, found.by_protocol, PurePath(path).name), output)
    for stem, table in controls.of_kinds(forest, found.by_protocol).items():
        files.write_table(table, output / stem)
    shown = [row for row in controls.table(found.by_protocol["random"], ("z",)) if row["kind"] != controls.RANDOM]
    for row in shown:
        print(f"{row['kind']:10} {row['representation']:16} z: relative error {row['z']['value']:.3f}")
    print(f"{output}: {found.networks} networks, {found.seconds:.1f} s of probing")


@command(
    "# minutes on a laptop",
    "percolab reproduce one-cluster --scale small",
    "# the paper's scale, for which a GPU is wanted",
    "percolab reproduce multi-cluster -o multi",
)
def reproduce(
    name: Annotated[
        str,
        typer.Argument(metavar="EXPERIMENT", help=f"{' or '.join(HIERARCHY)}.", autocompletion=completion(HIERARCHY)),
    ],
    scale: Annotated[str, choice_option("--scale", SCALES, "paper", "small: about 10,000 points. ")] = "paper",
    output: ExperimentOutput = None,
    epochs: OtherEpochs = None,
    seeds: Annotated[
        int | None, number_option("--seeds", "Networks to train, each with its own seed. Default: 5, small: 2.")
    ] = None,
    fit_from: Annotated[
        float, number_option("--fit-from", "FOM from which a second power law is fitted.", number, FITTED_FOM)
    ] = FITTED_FOM,
    draws: Draws = 1,
    overwrite: Overwrite = False,
    device: Device = "auto",
    ray: Ray = None,
    quiet: Quiet = False,
) -> None:
    """Run an experiment of the paper: dataset, baselines, networks, probes, controls, figures, report.

    DIR gets report.html, which needs nothing else, and results.json with all numbers.
    Networks of several seeds are trained at once, and probed beside untrained ones, random features and the raw input.
    A stage that is there already, made from the same things, is not run again.
    After an interruption, give the same command.
    """
    check_choice("name", name, HIERARCHY)
    check_choice("scale", scale, SCALES)
    need_packages()
    from percolab.experiments import running

    chosen = running.experiment(name, scale, epochs=epochs, seeds=seeds, fit_from=fit_from, draws=draws)
    directory = output or Path(f"{name}-{scale}")
    how: dict[str, Any] = {"device": device, "overwrite": overwrite, "ray": ray, "quiet": quiet}
    results = run_in(directory, running.reproduce, chosen=chosen, **how)
    if not quiet:
        test = results["training"]["test"]["r2"]["value"]
        print_report(directory, results, f"test R² {test:.4f} (mean of {chosen.seeds}), ")
