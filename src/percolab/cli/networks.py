"""The commands ``percolab train | baselines | probe``; none imports torch before it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path, PurePath
from typing import Annotated, Any

import typer

from percolab.cli import options
from percolab.cli.errors import command
from percolab.cli.experiments import need_packages, one_of, own_networks, resumable
from percolab.cli.options import argument, given, integer, number, number_option, output_option, word_option
from percolab.cli.output import print_json
from percolab.corpora.corpus import Corpus
from percolab.ground import files
from percolab.ground.foreign_files import read_json
from percolab.ground.progress import bar
from percolab.ground.validation import check_integer
from percolab.nn.config import UNTRAINED, CorpusTrainConfig, ProbeConfig, TrainConfig, training_from
from percolab.store import finished
from percolab.worlds.superposed import truth

DEPTH_STEP = 5
MOST_CORPUS = 1 << 28  #: Bytes of a corpus as JSON; a lexicon without a recipe is written as its columns.


def config_option(name: str, text: str, parser: Callable[[object], float] = integer) -> Any:
    """Return an option for a field of `TrainConfig` or `CorpusTrainConfig`, with its defaults."""
    usual = [getattr(kind, name) for kind in (TrainConfig, CorpusTrainConfig) if hasattr(kind, name)]
    default = usual[0] if len(set(usual)) == 1 else f"{usual[0]}, for documents {usual[1]}"
    return number_option(f"{text} Default: {default}.", parser)


@command
def train(
    path: Annotated[str, argument("PATH", "A dataset, or documents: a store, or a corpus as JSON.")],
    output: Annotated[Path, output_option("DIR", "Directory of the run.")],
    d_model: Annotated[int | None, config_option("d_model", "Width of the residual stream.")] = None,
    n_blocks: Annotated[int | None, config_option("n_blocks", "Number of blocks.")] = None,
    n_heads: Annotated[int | None, config_option("n_heads", "Documents: heads of attention.")] = None,
    expansion: Annotated[int | None, config_option("expansion", "Hidden width as a multiple of --d-model.")] = None,
    epochs: Annotated[int | None, config_option("epochs", "Dataset: number of epochs.")] = None,
    steps: Annotated[int | None, config_option("steps", "Documents: number of steps.")] = None,
    warmup: Annotated[int | None, config_option("warmup", "Documents: steps to the full learning rate.")] = None,
    every: Annotated[int | None, config_option("every", "Documents: steps between held-out losses.")] = None,
    batch_size: Annotated[int | None, config_option("batch_size", "Rows or documents per step.")] = None,
    lr: Annotated[float | None, config_option("lr", "Largest learning rate.", number)] = None,
    min_lr: Annotated[float | None, config_option("min_lr", "Learning rate at the end.", number)] = None,
    weight_decay: Annotated[float | None, config_option("weight_decay", "Weight decay of AdamW.", number)] = None,
    seed: Annotated[int | None, config_option("seed", "Seed of split, weights and shuffles.", options.seed)] = None,
    tf32: Annotated[bool, typer.Option("--tf32/--no-tf32", help="TF32 matrix products on CUDA.")] = TrainConfig.tf32,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in DIR.")] = False,
    overwrite: options.OverwriteRun = False,
    device: options.Device = "auto",
    quiet: options.Quiet = False,
) -> None:
    """Train the paper's residual MLP on a dataset, or a transformer on the documents of a corpus.

    DIR gets config.json, metrics.csv, checkpoint.pt, training.png and result.json.
    Training on documents uses only their corpus: it draws as many documents as it needs, and tests on others.
    The loss is compared with the floor, the lowest mean loss of any predictor; excess.png shows both.
    Ctrl-C stops after the current epoch or step and keeps it; --resume continues to the same final weights.
    With --resume and no other option, the run keeps its own configuration.
    On CUDA an epoch, or a step on documents, is one CUDA graph; products are in TF32 unless --no-tf32 is given.

    Examples
    --------
    percolab train one.zarr -o run
    # after Ctrl-C
    percolab train one.zarr -o run --resume
    """
    need_packages()
    from percolab.nn.networks.objective import in_words, objective
    from percolab.nn.training import checkpoint, history, training
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
    how: dict[str, Any] = {"run_dir": output, "resume": resume, "overwrite": overwrite, "device": device}
    with resumable("the same command with --resume continues"), bar(visible=not quiet) as display:
        result = training.train(data, config, progress=history.by_epoch(display, measure), **how)
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
        shown = ", ".join(f"{in_words(name)} {value:.4g}" for name, value in scores["test"].items())
        print(f"{output}: test {shown}, {result.seconds:.1f} s of training")


def _training_data(path: str) -> Any:
    """Return the dataset, the world or the corpus at a path."""
    if not path.endswith(".json"):
        stored = finished.load(path)
        return getattr(stored, "corpus", stored)  # of stored documents the corpus alone is used
    return Corpus.from_dict(read_json("path", path, MOST_CORPUS))


@command
def baselines(path: options.Store, device: options.Device = "auto", as_json: options.AsJson = False) -> None:
    """Score the baselines of Table 1 on a dataset: the mean, ridge regression, and the nearest other point.

    Examples
    --------
    percolab baselines one.zarr
    """
    need_packages()
    from percolab.nn.networks import baseline
    from percolab.nn.networks.objective import in_words

    scores = baseline.baselines(finished.load_points(path), device=device, progress=True)
    by_name = {name: asdict(score) for name, score in scores.items()}
    if as_json:
        print_json(by_name)
        return
    print(" " * 27 + "".join(f"{in_words(name):>10}" for name in next(iter(by_name.values()))))
    for name, score in by_name.items():
        print(f"{name.replace('_', ' '):27}" + "".join(f"{value:10.4g}" for value in score.values()))


@command
def probe(
    path: options.Store,
    output: Annotated[Path, output_option("DIR", "Directory for tables and figures.")],
    run: Annotated[Path | None, word_option("DIR", "A run of percolab train on this dataset.")] = None,
    network: options.Trained = None,
    layers: options.Layers = None,
    activations: options.Activations = None,
    min_latent_size: Annotated[int, number_option("Fewest points of a latent.")] = ProbeConfig.min_latent_size,
    max_depth: Annotated[int, number_option(f"Deepest depth, in steps of {DEPTH_STEP}.")] = ProbeConfig.depths[-1],
    draws: Annotated[int, number_option("Draws of fresh values and permuted targets.")] = ProbeConfig.draws,
    untrained: Annotated[int, number_option("Untrained networks of the same shape, as a control.")] = UNTRAINED,
    factor: options.Factor = None,
    overwrite: options.OverwriteRun = False,
    device: options.Device = "auto",
) -> None:
    """Probe every layer of a trained network for the latents of its dataset, beside untrained networks.

    DIR gets per_latent and per_depth (.csv and .parquet), fig4.png, fig5.png, fig7.png and memorising.png.
    Both protocols are run: points held out at random, as in the paper, and whole subtrees held out.
    With --network or --activations, DIR gets report.html, results.json and table.parquet of percolab.compare instead:
    errors of probes and separations of siblings, unit by unit, beside untrained networks and the raw input.

    Examples
    --------
    percolab probe one.zarr --run run -o probes
    # your own network, trained elsewhere, beside the same network with fresh weights and the raw input
    percolab probe one.zarr --network my_module:make --layers encoder.0,encoder.2 -o probes
    """
    need_packages()
    sources = {"run": run, "network": network, "activations": activations}
    one_of(sources)
    if run is None:
        usual = {"draws": (draws, ProbeConfig.draws), "untrained": (untrained, UNTRAINED)}
        usual |= {"max_depth": (max_depth, ProbeConfig.depths[-1])}
        for name, (value, default) in usual.items():
            if value != default:
                raise ValueError(f"{name} must come with run, got {value}")
        least = None if min_latent_size == ProbeConfig.min_latent_size else min_latent_size
        how: dict[str, Any] = {"factor": factor, "overwrite": overwrite, "device": device}
        _probe_own(path, output, sources, layers, least, **how)
        return
    if layers is not None:
        raise ValueError(f"layers must come with network or activations, got {layers!r} with a run")
    from percolab.experiments import paper_figures
    from percolab.nn.probing import controls, probed_networks
    from percolab.study import pictures

    if (output / "per_latent.csv").exists() and not overwrite:
        raise FileExistsError(f"output must not hold probes unless overwrite is given, got {str(output)!r}")
    if output.exists() and not output.is_dir():
        raise FileExistsError(f"output must be a directory, got {str(output)!r}")
    depths = tuple(range(0, check_integer("max_depth", max_depth, 0) + 1, DEPTH_STEP))
    config = ProbeConfig(depths=depths, min_latent_size=min_latent_size, draws=draws)
    check_integer("untrained", untrained, 1)
    dataset = finished.load_points(path)
    forest = truth(dataset, factor).forest
    probes = probed_networks.probe_run(dataset, run, config, untrained, factor=factor, device=device, progress=True)
    output.mkdir(parents=True, exist_ok=True)
    for skipped in probes.skipped:
        print(f"not probed: {skipped}")
    pictures.write(paper_figures.of_probes(forest, probes.by_protocol, PurePath(path).name), output)
    for stem, table in controls.of_kinds(forest, probes.by_protocol).items():
        files.write_table(table, output / stem)
    shown = [row for row in controls.table(probes.by_protocol["random"], ("z",)) if row["kind"] != controls.RANDOM]
    for row in shown:
        print(f"{row['kind']:10} {row['representation']:16} z: relative error {row['z']['value']:.3f}")
    print(f"{output}: {probes.networks} networks, {probes.seconds:.1f} s of probing")


def _probe_own(
    path: str, output: Path, sources: dict[str, Any], layers: str | None, min_size: int | None, *, factor: int | None,
    overwrite: bool, device: str,
) -> None:  # fmt: skip
    """Compare networks of one's own with untrained ones and the raw input, by probes and separation."""
    from percolab.study.comparison import check_folder, compare
    from percolab.study.readers import LatentProbe, Separation

    check_folder(output, overwrite=overwrite)  # before networks are read, which may take long
    dataset = finished.load_points(path)
    networks: dict[str, Any] = own_networks(dataset, sources, factor, 0, device)
    if factor is not None:
        networks["trained"] = {factor: networks["trained"]}
    chosen = layers.split(",") if layers else None
    readers = [LatentProbe(min_size=min_size), Separation(min_size=min_size)]
    result = compare(dataset, {**networks, "raw": None}, readers, layers=chosen, device=device)
    result.save(output, overwrite=overwrite)
    print(result.verdict)
    print(result.contrasts[["contrast", "layer", "reader", "value", "low", "high"]].round(3).to_string(index=False))
