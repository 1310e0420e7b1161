"""The commands ``percolab score | benchmark``; neither imports torch before it runs."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from percolab.benchmark.tasks import TASKS
from percolab.cli import options
from percolab.cli.errors import UnfinishedError, command
from percolab.cli.experiments import look_here, need_packages, one_of, own_networks, run_in
from percolab.cli.options import argument, choice_option, number, number_option, output_option, word_option
from percolab.cli.output import aligned, print_json, write
from percolab.features.inputs import read_codes
from percolab.features.register import METHODS, TRUTHFUL, has_sae_lens
from percolab.ground import files
from percolab.ground.foreign_files import read_array
from percolab.ground.progress import bar
from percolab.nn.config import SCALES
from percolab.store.finished import load_points

if TYPE_CHECKING:
    from percolab.features.result import Score

#: Methods that make features of activations.
_METHODS = tuple(name for name, (method, *_) in METHODS.items() if method not in TRUTHFUL)
SUFFIXES = (".html", ".csv", ".json")
BRIEF = 10  #: Columns of the benchmark's table that are printed.
#: The numbers of a summary in the table on the terminal.
PRINTED_MEASURES = (
    "recovery", "chance", "recovered", "purity", "splitting", "absorption_edge", "absorption", "absorption_null", "l0",
    "explained_variance", "cosine", "features", "dead", "dense",
)  # fmt: skip


@command
def score(
    path: options.Store,
    codes: Annotated[
        Path | None,
        argument("CODES", "Codes (rows, features): a SciPy sparse .npz, an .npz with an array codes, or an .npy."),
    ] = None,
    run: Annotated[Path | None, word_option("DIR", "In place of CODES: a run of percolab train.")] = None,
    network: options.Trained = None,
    activations: options.Activations = None,
    method: Annotated[
        list[str] | None,
        word_option(
            "NAME",
            f"Without CODES: what turns activations into features: {', '.join(_METHODS)}, package.module:Class, or "
            "one of these with options, such as kmeans@n_features=1024. May be repeated. Default: neurons and kmeans.",
            _METHODS,
        ),
    ] = None,
    layer: Annotated[str | None, word_option("NAME", "The module to read. Default: the last block.")] = None,
    rows: Annotated[Path | None, word_option("FILE", "An .npy: the dataset's row of each row of the codes.")] = None,
    factor: options.Factor = None,
    min_size: Annotated[int, number_option("Fewest rows of a concept.")] = 20,
    threshold: Annotated[float, number_option("A feature fires above this value.", number)] = 0.0,
    draws: Annotated[int, number_option("Draws of chance.")] = 5,
    seed: Annotated[int, number_option("Seed of the draws.", options.seed)] = 0,
    output: Annotated[Path | None, output_option("FILE", ".html: a page; .csv: concepts; .json: everything.")] = None,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
    device: options.Device = "auto",
) -> None:
    """Score features against the concepts of a dataset: codes made elsewhere, or methods on a trained network.

    An .npz with an array codes may also hold rows, and the decoder: directions (features, d), bias (d,) and
    activations (rows, d).
    With --run or --network, every method is also scored on an untrained network of the same shape and on X; with
    --activations, on all roles of the folder and on X.

    Examples
    --------
    percolab score one.zarr codes.npz
    percolab score world.zarr codes.npz --factor 1 -o score.html
    # methods on a network of percolab train, beside an untrained one
    percolab score one.zarr --run run --method neurons --method kmeans@n_features=1024
    # the same on a network of your own, which was trained elsewhere
    percolab score one.zarr --network my_module:make --layer encoder.2
    """
    sources = {"codes": codes, "run": run, "network": network, "activations": activations}
    one_of(sources)
    if output is not None:
        known = SUFFIXES if codes is not None else SUFFIXES[:1]
        if output.suffix not in known:
            raise ValueError(f"output must end in {' or '.join(known)}, got {output.name!r}")
        files.check_output(output, overwrite=overwrite)
    settings = {"factor": factor, "min_size": min_size, "threshold": threshold, "draws": draws, "seed": seed}
    if codes is None:
        if rows is not None:
            given = next(name for name, value in sources.items() if value is not None)
            raise ValueError(f"rows must come with codes, got --{given}")
        methods = method or ["neurons", "kmeans"]
        scored = _score_networks(path, sources, methods, layer=layer, device=device, **settings)
    else:
        for name, value in (("method", method), ("layer", layer), ("device", device != "auto")):
            if value:
                raise ValueError(f"{name} must come with run or network or activations, got CODES")
        scored = _score_codes(path, codes, rows, settings)
    if output is not None:
        write(output, scored.content(output.suffix), overwrite=overwrite, as_json=as_json)
    if as_json:
        print_json(scored.values)
    else:
        print(scored.text)


class Scored(NamedTuple):
    """The output of `score`: a file by its suffix, values for programs, and text."""

    content: Callable[[str], bytes]
    values: Any
    text: str


def _score_codes(path: str, codes: Path, rows: Path | None, settings: dict[str, Any]) -> Scored:
    """Score the codes in a file."""
    from percolab import features

    given = read_codes("codes", codes)
    if rows is not None:
        given["rows"] = read_array("rows", rows)
    with bar(label="reading") as display:
        score = features.score(load_points(path), progress=display, **settings, **given)
    content = partial(_content, score, title=f"{codes.name} against {PurePath(path).name}")
    return Scored(content, score.summary, _text(score))


def _score_networks(path: str, sources: dict[str, Any], methods: list[str], *, device: str, **settings: Any) -> Scored:
    """Score methods on the networks of a run, of the user, or of a folder."""
    need_packages()
    from percolab.benchmark import one_network
    from percolab.study.measured import RAW

    look_here(*methods)
    with bar(label="reading") as display:
        dataset = load_points(path)
        networks = own_networks(dataset, sources, settings["factor"], settings["seed"], device)
        single = {role: members[0] for role, members in networks.items()} | {RAW: None}
        scores = one_network.compare(dataset, single, methods, device=device, progress=display, **settings)
    values = [{"method": row.method, "network": row.network, **row.score.summary} for row in scores]
    text = f"{aligned(one_network.rows(scores), 2)}\n{one_network.ONE_EACH}"
    title = f"Features of the network in {next(filter(None, sources.values()))}"
    return Scored(lambda _: one_network.page(scores, title), values, text)


def _text(score: Score) -> str:
    """Return the summary and the table by size as text."""
    from percolab.features.result import CONTROL, number

    lines = [
        f"{name.replace('_', ' '):20}{number(name, score.summary[name]):>10}"
        for name in PRINTED_MEASURES
        if not math.isnan(score.summary.get(name, math.nan))
    ]
    notes = f"means over {score.counted}", f"{CONTROL} or percolab score --run"
    return "\n".join([*lines, "", *notes, "", aligned(score.size_table(), 0)])


def _content(score: Score, suffix: str, title: str) -> bytes:
    """Return a score as a page, a table of concepts or all of its numbers, by the suffix of its file."""
    if suffix == ".html":
        from percolab.features.result import MEANINGS
        from percolab.show import pages

        caption = "Recovery by size over chance, purity of features, splitting by size, absorption by depth."
        body = [pages.picture(score.plot(), caption, wide=True), score._repr_html_(), pages.definitions(MEANINGS)]
        lead = f"{score.settings['rows']:,} rows, concepts of at least {score.settings['min_size']:,}."
        return pages.page(title, lead, body, verdict=score.verdict)
    if suffix == ".csv":
        return str(score.concepts.to_csv(index=False)).encode()
    tables = {name: getattr(score, name).to_dict("list") for name in ("concepts", "features")}
    by = {f"by_{name}": score.by(name).to_dict("list") for name in ("size", "depth", "fom")}
    return files.json_text({"summary": score.summary, "settings": score.settings, **by, **tables})


# ---------------------------------------------------------------------- the benchmark


def _split(names: str | None) -> list[str] | None:
    return None if names is None else [name for name in names.split(",") if name]


@command
def benchmark(
    output: Annotated[Path | None, output_option("DIR", "Directory. Default: benchmark-SCALE.")] = None,
    scale: Annotated[str, choice_option(SCALES, "small: minutes on a laptop. ")] = "paper",
    tasks: Annotated[str | None, word_option("A,B,…", f"Some of {', '.join(TASKS)}. Default: all.", TASKS)] = None,
    method: Annotated[
        list[str] | None,
        word_option(
            "NAME",
            "Another method beside the usual ones: package.module:Class, a name with other options, such as "
            "batchtopk@n_features=1024, or pretrained@path=FOLDER. May be repeated.",
        ),
    ] = None,
    only: Annotated[
        str | None,
        word_option("A,B,…", f"Compute only these methods, of {', '.join(METHODS)} or as for --method.", METHODS),
    ] = None,
    again: Annotated[
        str | None, word_option("A,B,…", "Compute the cells of these methods again, even if they exist.", METHODS)
    ] = None,
    seeds: Annotated[int | None, number_option("Networks per target and draw. Default: 3, small: 1.")] = None,
    draws: options.Draws = 1,
    network: options.Network = None,
    layer: Annotated[str | None, word_option("NAME", "The module to read. Default: the task's module.")] = None,
    activations: options.Activations = None,
    data: Annotated[Path | None, word_option("STORE", "Your own points in place of the task's data.")] = None,
    time_limit: Annotated[float | None, number_option("Start no further cell after this many seconds.", number)] = None,
    check: Annotated[Path | None, word_option("DIR", "Run nothing; check result files and tabulate them.")] = None,
    overwrite: options.OverwriteRun = False,
    device: options.Device = "auto",
    ray: options.Ray = None,
    workers: options.Processes = 1,
    quiet: options.Quiet = False,
) -> None:
    """Compare methods: how well their features match concepts in trained networks, and what the controls give.

    Methods are fitted on some rows, choose thresholds and sparsity on other rows, and are scored on a third part.
    DIR/TASK gets report.html, which needs nothing else, results.json, and result files to submit.
    A cell that was already computed from the same inputs is not computed again: the same command resumes.
    It exits with 130 if the time limit or Ctrl-C leaves cells undone, and with 1 if a cell failed.

    Examples
    --------
    # minutes on a laptop
    percolab benchmark --scale small --tasks superposed-2 --draws 3
    # your own method beside the others
    percolab benchmark --scale small --tasks superposed-2 --method my_package:MyMethod
    # check result files that others made, and print their table
    percolab benchmark --check results
    # a part of the full benchmark, best on a GPU
    percolab benchmark --tasks superposed-4 --only kmeans,batchtopk --time-limit 500
    """
    need_packages()
    from percolab.benchmark.declaration import benchmark as run

    if check is not None:
        _check(check)
        return
    look_here(network, only, again, *(method or ()))
    directory = output or Path(f"benchmark-{scale}")
    results = run_in(
        directory, run, quiet=quiet, tasks=_split(tasks) or TASKS, scale=scale, methods=method or (),
        only=_split(only), again=_split(again) or (), seeds=seeds, draws=draws, network=network, layer=layer,
        activations=activations, data=data, time_limit=time_limit, overwrite=overwrite, device=device, ray=ray,
        workers=workers,
    )  # fmt: skip
    if not quiet and only is None and not has_sae_lens():
        print("left out, since SAELens is not installed: sparse autoencoders (pip install 'percolab[sae]')")
    left = {name: len(set(result["missing"]) - set(result["failed"])) for name, result in results.items()}
    failed = {f"{name} {cell}": why for name, result in results.items() for cell, why in result["failed"].items()}
    for name, result in results.items() if not quiet else ():
        table = result.get("table", {"head": [], "rows": []})
        if table["rows"]:
            _print_methods([name, *table["head"][1:]], table["rows"])
        for line in result["headline"]:
            print(f"{line['what']}: {line['verdict']} ({line['note']})")
        state = f"{left[name]} cells left" if left[name] else "done" if not result["failed"] else "failed"
        print(f"{directory / name / 'report.html'}: {state}")
    if failed:
        cell, why = next(iter(failed.items()))
        print(f"error: the first of {len(failed)} that failed is {cell}: {why}", file=sys.stderr)
        raise typer.Exit(1)
    if any(left.values()):
        cells = ", ".join(f"{count} cells of {name}" for name, count in left.items() if count)
        raise UnfinishedError(f"unfinished: {cells} are left; the same command resumes")


def _print_methods(head: list[str], lines: list[list[str]]) -> None:
    print(aligned([line[:BRIEF] for line in (head, *lines)], 1))
    if any(line[0] == "kmeans-1" for line in lines):
        print("kmeans-1 is k-means with one firing centre per row")


def _check(directory: Path) -> None:
    """Check result files, and print their table."""
    from percolab.benchmark.declaration import table
    from percolab.benchmark.endpoints import tested
    from percolab.benchmark.submissions import REPORT, check

    for task in check(directory):
        head, lines = table(task.rows)
        print("\n".join((task.title, *task.lacking)))
        _print_methods(head, lines)
        for test in tested(task.rows):
            print(f"{test.endpoint}: {test.method}, {test.estimate.estimate.text()}: {test.verdict} ({test.words})")
    print(f"{directory / REPORT}: all files are as they should be")
