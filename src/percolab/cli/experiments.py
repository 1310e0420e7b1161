"""The commands ``percolab reproduce | represent | scaling | diff``; none imports torch before it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from percolab.cli import options
from percolab.cli.errors import UnfinishedError, command
from percolab.cli.options import argument, choice_option, number, number_option, output_option, word_option
from percolab.cli.output import print_json, print_wrote
from percolab.corpora.corpus import KIND as CORPUS
from percolab.corpora.corpus import Corpus
from percolab.experiments import FORMERLY, REPRESENT
from percolab.ground import files
from percolab.ground.extras import missing
from percolab.ground.foreign_files import read_array
from percolab.ground.progress import bar, clock
from percolab.ground.validation import check_choice
from percolab.nn.config import FITTED_FOM, SCALES
from percolab.store import finished
from percolab.study.settings import DATA, HIERARCHY

ExperimentOutput = Annotated[Path | None, output_option("DIR", "Directory. Default: EXPERIMENT-SCALE.")]
Scale = Annotated[str, choice_option(SCALES, "small: about 10,000 points. ")]
OtherEpochs = Annotated[int | None, number_option("Another number of epochs.")]


def need_packages() -> None:
    """Raise, in one line, unless the packages that experiments need are installed."""
    import importlib.util

    needed = {"torch": "torch", "sklearn": "scikit-learn", "pandas": "pandas", "matplotlib": "matplotlib"}
    absent = [name for module, name in needed.items() if importlib.util.find_spec(module) is None]
    if absent:
        raise missing("this command needs", ", ".join(absent), "nn")


def look_here(*names: str | None) -> None:
    """Let modules that the user names be found in the current directory, unless an installed one has the name."""
    if any(":" in name for name in names if name):
        sys.path.append("")


def one_of(given: dict[str, Any]) -> None:
    """Raise unless exactly one of these is given."""
    there = [name for name, value in given.items() if value is not None]
    if len(there) != 1:
        raise ValueError(f"{' or '.join(given)} must be given, got {' and '.join(there) or 'none'}")


def own_networks(
    dataset: Any, sources: dict[str, Any], factor: int | None, seed: int, device: str
) -> dict[str, list[Any]]:
    """Return networks by role: those of a run or the user's, each with an untrained one; or those of a folder."""
    from percolab.nn.training.training import load_model
    from percolab.study.measured import TRAINED, UNTRAINED
    from percolab.study.networks import own_network, with_fresh_weights
    from percolab.study.sources import folder

    if sources["activations"] is not None:
        networks = folder(sources["activations"]).networks(factor)
        if TRAINED not in networks:
            raise ValueError(f"manifest.json must have networks of the role {TRAINED!r}, got {list(networks)}")
        return networks
    if sources["run"] is not None:
        model = load_model(sources["run"], dataset, device=device)
    else:
        look_here(sources["network"])
        model = own_network(sources["network"], dataset, seed)
    return {TRAINED: [model], UNTRAINED: [with_fresh_weights(model, seed)]}


@contextmanager
def resumable(how: str) -> Iterator[None]:
    """Exit at Ctrl-C with a line that says how to resume."""
    try:
        yield
    except KeyboardInterrupt as stop:
        done, _, rest = str(stop).partition("; ")  # training says after which epoch, and whether that is kept
        if "nothing was kept" in rest:
            how = "the same command begins this training again, and keeps what was finished before"
        raise UnfinishedError(f"{done or 'interrupted'}; {how}") from None


def run_in(directory: Path, run: Callable[..., dict[str, Any]], *, quiet: bool, **given: Any) -> dict[str, Any]:
    """Run an experiment in a directory, showing progress; return its numbers."""
    with resumable("the same command resumes it"), bar(visible=not quiet) as display:
        return run(output=directory, progress=display, **given)


@command
def reproduce(
    name: Annotated[str, argument("EXPERIMENT", f"{' or '.join(HIERARCHY)}.", HIERARCHY)],
    scale: Scale = "paper",
    output: ExperimentOutput = None,
    epochs: OtherEpochs = None,
    seeds: Annotated[int | None, number_option("Networks to train, one per seed. Default: 5, small: 2.")] = None,
    fit_from: Annotated[float, number_option("FOM from which a second power law is fitted.", number)] = FITTED_FOM,
    draws: options.Draws = 1,
    overwrite: options.OverwriteRun = False,
    device: options.Device = "auto",
    ray: options.Ray = None,
    workers: options.Processes = 1,
    quiet: options.Quiet = False,
) -> None:
    """Run an experiment of the paper: dataset, baselines, networks, probes, controls, figures, report.

    DIR gets report.html, which needs nothing else, and results.json with all numbers.
    Networks of several seeds are trained at once, and probed beside untrained ones, random features and the raw input.
    A stage that was already run with the same inputs is not run again.
    After an interruption, give the same command.

    Examples
    --------
    # minutes on a laptop
    percolab reproduce one-cluster --scale small
    # the paper's scale, best on a GPU
    percolab reproduce multi-cluster -o multi
    """
    check_choice("name", name, HIERARCHY)
    given = {"data": name, "epochs": epochs, "seeds": seeds, "fit_from": fit_from, "draws": draws}
    directory = output or Path(f"{name}-{scale}")
    _run("paper", scale, directory, given, device=device, overwrite=overwrite, ray=ray, workers=workers, quiet=quiet)


@command
def represent(
    name: Annotated[str, argument("EXPERIMENT", f"One of {', '.join(REPRESENT)}.", REPRESENT)],
    scale: Scale = "paper",
    data: Annotated[
        str | None,
        word_option(
            "NAME",
            "superposed-2 or -4 for relevance and steering, else one-cluster or multi-cluster; or a store.",
            DATA,
        ),
    ] = None,
    seeds: Annotated[int | None, number_option("Networks per target. Default: 5; for documents 2.")] = None,
    output: ExperimentOutput = None,
    epochs: OtherEpochs = None,
    draws: options.Draws = 1,
    network: options.Network = None,
    layers: options.Layers = None,
    activations: options.Activations = None,
    readers: Annotated[str | None, word_option("A,B", "Readers of networks on documents: beliefs,kmeans.")] = None,
    overwrite: options.OverwriteRun = False,
    device: options.Device = "auto",
    ray: options.Ray = None,
    workers: options.Processes = 1,
    quiet: options.Quiet = False,
) -> None:
    """Ask what networks represent, against a control: training, measures, intervals, figures, report.

    trained: are latents easier to read after training than before? By epoch and layer.
    crossed: can probes read a network's own values better than the values of other networks?
    relevance: are sibling concepts easier to tell apart where the target depends on them?
    steering (or dose): does steering activations along a direction change the prediction as the truth says?
    edit: when a network learns a change of one value, do activations move along a shared direction?
    documents: do transformers learn the contexts of their documents, because these contexts matter?
    ownership: does a crosscoder tell which of two networks learned a concept?
    causation: which part of the activations carries the context that predictions depend on?

    DIR gets report.html, which needs nothing else, results.json with all estimates, table.parquet, and cells/.
    A cell that was already computed from the same inputs is not computed again.
    After an interruption, give the same command.

    Examples
    --------
    # minutes on a laptop
    percolab represent relevance --scale small
    # full scale, best on a GPU
    percolab represent steering --data superposed-4 --draws 5 -o steering
    """
    check_choice("name", FORMERLY.get(name, name), REPRESENT)
    given: dict[str, Any] = {"data": data, "seeds": seeds, "epochs": epochs, "draws": draws, "network": network}
    given |= {"layers": layers and layers.split(","), "readers": _listed(readers), "activations": activations}
    _run(name, scale, output, given, device=device, overwrite=overwrite, ray=ray, workers=workers, quiet=quiet)


@command
def scaling(
    scale: Scale = "paper",
    data: Annotated[str | None, word_option("A,B", f"Any of {', '.join(HIERARCHY)}; a store. Default: all.")] = None,
    seeds: Annotated[int, number_option("Chains of nested training rows.")] = 5,
    output: Annotated[Path | None, output_option("DIR", "Directory. Default: scaling-SCALE.")] = None,
    draws: options.Draws = 1,
    network: options.Network = None,
    overwrite: options.OverwriteRun = False,
    device: options.Device = "auto",
    ray: options.Ray = None,
    workers: options.Processes = 1,
    quiet: options.Quiet = False,
) -> None:
    """Measure how the test error falls with training rows and with width: one cluster and many, 1NN and network.

    DIR gets report.html, which needs nothing else, and results.json with all errors and exponents.
    What was already measured with the same settings is not measured again.
    After an interruption, give the same command.

    Examples
    --------
    # minutes on a laptop
    percolab scaling --scale small
    """
    given = {"data": None if data is None else data.split(","), "seeds": seeds, "draws": draws, "network": network}
    _run("scaling", scale, output, given, device=device, overwrite=overwrite, ray=ray, workers=workers, quiet=quiet)


@command
def diff(
    first: Annotated[Path, argument("A", "A run of percolab train, or activations as .npy.")],
    second: Annotated[Path, argument("B", "A second run or file, on the same inputs.")],
    layer: Annotated[str | None, word_option("NAME", "Module to read. Default: the last block.")] = None,
    data: Annotated[str | None, word_option("PATH", "The dataset that runs on points were trained on.")] = None,
    documents: Annotated[int, number_option("Number of held-out documents to read.")] = 2000,
    method: Annotated[str, word_option("NAME", "Method, such as topk@n_features=1024+k=16.")] = "topk",
    features: Annotated[int, number_option("Number of one-sided features to list.")] = 12,
    seed: Annotated[int, number_option("Seed of the method.", options.seed)] = 0,
    output: Annotated[Path | None, output_option("FILE", "A page, .html.")] = None,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
    device: options.Device = "auto",
) -> None:
    """Find what two networks do not share: a crosscoder on the activations of both, and the owner of each feature.

    The share of a feature is the norm of its decoder vector's half for B over the sum of both halves' norms.
    It is 0 if only A has the feature, 1 if only B has it, 1/2 if both have it.
    Runs on documents know their lexicons, so every matched concept has a true owner; shares are scored against it.
    For all networks, the features with the most one-sided shares are listed with the places where they fire most.
    percolab represent ownership does this for pairs whose differences are known, with intervals.

    Examples
    --------
    # two runs of percolab train on documents
    percolab diff run-a run-b -o diff.html
    # activations of any two networks, for the same inputs
    percolab diff a.npy b.npy --method topk@n_features=1024+k=16
    """
    need_packages()
    from percolab.study.crosscoder import diff as run

    if output is not None:
        files.check_output(output, overwrite=overwrite)
    (network_a, known_a), (network_b, known_b) = (network_of(place, data, device) for place in (first, second))
    options: dict[str, Any] = {"layer": layer, "documents": documents, "method": method, "seed": seed}
    inputs: Any = None
    if isinstance(known_a, Corpus) and isinstance(known_b, Corpus):
        lexicons = [{k for k, share in enumerate(corpus.shares) if share} for corpus in (known_a, known_b)]
        inputs = known_a.replace(shares=[float(k in lexicons[0] | lexicons[1]) for k in range(len(known_a.lexicons))])
        if inputs != known_b.replace(shares=inputs.shares):
            raise ValueError("A and B must be runs on corpora that differ in nothing but shares, got others")
        options["trained_on"] = lexicons
    elif known_a is not None and known_b is not None:
        inputs = getattr(known_a, "X", known_a)
    elif known_a is not known_b:
        raise ValueError("A and B must both be runs, or both be activations, got one of each")
    with bar(label="reading") as display:
        result = run(network_a, network_b, inputs, device=device, progress=display, **options)
    if output is not None:
        result.save(output, overwrite=overwrite)
    listed = result.one_sided(features)
    if as_json:
        places = [result.firing(feature).to_dict("records") for feature in listed["feature"]]
        rows = [{**row, "fires": where} for row, where in zip(listed.to_dict("records"), places, strict=True)]
        concepts = None if result.concepts is None else result.concepts.to_dict("records")
        print_json({**result.summary, "one_sided": rows, "concept_table": concepts})
        return
    print(result)
    if result.concepts is not None and len(result.matched):
        print(result.matched.groupby(["lexicon", "owner"])["share"].describe()[["count", "min", "50%", "max"]].round(2))
    print(listed.assign(fires=[result.places(feature, 2) for feature in listed["feature"]]).to_string(index=False))
    if output is not None:
        print_wrote(output)


def network_of(place: Path, data: str | None, device: str) -> tuple[Any, Any]:
    """Return a network and its data: a run on documents has its corpus, a run on points needs the dataset's path."""
    from percolab.nn.training import checkpoint
    from percolab.nn.training.training import load_model

    if place.suffix == ".npy":
        return read_array("activations", place), None
    recipe = checkpoint.load(place / "checkpoint.pt")["recipe"]
    if recipe.get("kind") == CORPUS:
        trained_on: Any = Corpus.from_dict(recipe)
    elif data is None:
        raise ValueError(f"data must be given for runs on points, got None for {str(place)!r}")
    else:
        trained_on = finished.load_points(data)
    return load_model(place, trained_on, device=device), trained_on


def _listed(readers: str | None) -> list[str] | None:
    if not readers:
        return None
    need_packages()
    from percolab.study.readers import listed_readers

    return listed_readers(readers)


def _run(name: str, scale: str, output: Path | None, given: dict[str, Any], *, quiet: bool, **how: Any) -> None:
    """Run an experiment, print the answers, and where the report is."""
    need_packages()
    from percolab.experiments.runs import find
    from percolab.intervals import Estimate
    from percolab.study.directory import REPORT

    look_here(given.get("network"), *(given.get("readers") or ()))
    experiment, directory = find(name), output or Path(f"{name}-{scale}")
    results = run_in(directory, experiment.run, settings=experiment.settings(scale, **given), quiet=quiet, **how)
    if quiet:
        return
    for line in results["headline"]:
        note = f" ({line['note']})" if line["note"] else ""
        number = Estimate(*(line["estimate"][part] for part in ("value", "low", "high"))).text()
        print(f"{line['what']}: {number}, {line['answer']}{note}")
    print(f"{directory / REPORT}: {clock(sum(results['seconds'].values()))} in all")
