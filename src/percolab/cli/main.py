"""The command line: ``percolab generate | info | verify | draw | figures | export``."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Annotated, Any

import typer

from percolab.cli.experiments import register as register_experiments
from percolab.cli.options import integer, number, number_option
from percolab.ground import files
from percolab.ground.progress import Progress
from percolab.ground.text import one_line
from percolab.ground.validation import check_choice
from percolab.ground.version import __version__
from percolab.model.recipe import DEFAULT_ENGINE, ENGINE_NAMES, MODES, PRESETS, Recipe, Seeds
from percolab.store.runners import RUNNERS, WorkerError
from percolab.store.schema import StoreError

BAD_INPUT, FAILURE, INTERRUPTED = 2, 1, 130
EXPORTS = ("npz", "parquet")
TABLE_WIDTH = 110
"""Width of wide tables where no terminal says how much room there is."""
DTYPES = ("float32", "float64")

# Typer carries a copy of click in some versions and imports it in others; this is the one that it raises from.
UsageError: type[Any] = typer.BadParameter.__bases__[0]


def _examples(*lines: str) -> str:
    """Return the end of a help page."""
    return "[bold]Examples[/bold]\n\n" + "\n".join(lines)


app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog=_examples(
        "percolab generate paper-one-cluster -o one.zarr",
        "percolab generate --n-points 20000 --dim 50 --seed 7 -o small.zarr",
        "percolab info small.zarr",
        "percolab verify small.zarr",
        "percolab draw small.zarr -o small.png",
        "percolab export small.zarr --format npz -o small",
        "percolab generate --help",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)


class UnfinishedError(Exception):
    """The user interrupted a command that can be resumed later."""


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code: 0, 2 for bad input, 1 for a failure, 130 if interrupted."""
    try:
        code = int(app(args=list(arguments), prog_name="percolab", standalone_mode=False) or 0)
        sys.stdout.flush()
        if code == INTERRUPTED:  # some versions of typer return this, others raise Abort
            raise KeyboardInterrupt
        return code
    except UsageError as error:
        return _fail(_usage(error), BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted, nothing was written", INTERRUPTED)
    except UnfinishedError as error:
        return _fail(str(error), INTERRUPTED)
    except (StoreError, WorkerError) as error:
        return _fail(str(error), FAILURE)
    except (ValueError, MemoryError) as error:
        return _fail(str(error) or "out of memory", BAD_INPUT)
    except ImportError as error:
        return _fail(str(error), FAILURE)
    except OSError as error:
        return _os_failure(error)


def _fail(message: str, code: int) -> int:
    print(f"error: {one_line(message)}", file=sys.stderr)
    return code


def _usage(error: Any) -> str:
    """Return a wrong use of an option in the form of all our messages: what, rule, value."""
    if isinstance(error, typer.BadParameter) and error.param is not None and error.param.opts:
        name = max(error.param.opts, key=len)
        name = name if name.startswith("-") else name.upper()
        return f"{name} {error.message or 'must be given'}"
    return f"{error.format_message()} (see percolab --help)"


def _os_failure(error: OSError) -> int:
    if error.errno is None:  # raised by our own checks, with a sentence
        return _fail(str(error), BAD_INPUT)
    if error.errno == errno.EPIPE:  # the reader of our output has left, and there is nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    place = f": {error.filename}" if error.filename else ""
    return _fail(f"{error.strerror}{place}", FAILURE)


# ---------------------------------------------------------------------- options


def _choice_option(name: str, values: Sequence[str], default: str) -> Any:
    text = f"One of {', '.join(values)}. Default: {default}."
    return typer.Option(name, metavar="NAME", help=text, show_default=False)


Store = Annotated[str, typer.Argument(metavar="PATH", help="A dataset written by percolab.", show_default=False)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there, once the new one is complete.")]


def _version(asked: bool) -> None:
    if asked:
        print(f"percolab {__version__}")
        raise typer.Exit


@app.callback()
def _percolab(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Make and inspect percolation datasets: points on fractal clusters, with the hierarchy of latents behind them."""


# ---------------------------------------------------------------------- commands


@app.command(
    epilog=_examples(
        "[dim]# the paper's dataset of one cluster[/dim]",
        "percolab generate paper-one-cluster -o a.zarr",
        "[dim]# clusters of all sizes, the small ones left out[/dim]",
        "percolab generate --n-points 1000000 --dim 50 --min-cluster-size 99 -o b.zarr",
        "[dim]# the same clusters and positions twice, with different targets[/dim]",
        "percolab generate --n-points 20000 --dim 50 --seed 7 -o c.zarr",
        "percolab generate --n-points 20000 --dim 50 --seed 7 --value-seed 8 -o d.zarr",
        "[dim]# a single cluster[/dim]",
        "percolab generate --n-points 5000 --dim 20 --mode one_cluster -o e.zarr",
        "[dim]# more than fits in memory; the same command resumes it if it is interrupted[/dim]",
        "percolab generate --n-points 10000000 --dim 100 --seed 7 --shards 32 -o f.zarr",
    )
)
def generate(
    output: Annotated[str, typer.Option("-o", "--output", metavar="PATH", help="Zarr store to write, or a URL.")],
    preset: Annotated[str | None, typer.Argument(metavar="PRESET", help=f"{' or '.join(PRESETS)}.")] = None,
    n_points: Annotated[int | None, number_option("--n-points", "Number of points before any filter.")] = None,
    dim: Annotated[int | None, number_option("--dim", "Dimension of the space, at least 2.")] = None,
    mode: Annotated[str | None, _choice_option("--mode", MODES, "distribution")] = None,
    create_prob: Annotated[
        float | None,
        typer.Option(
            "--create-prob", parser=number, metavar="P", help="Chance of a new cluster, 0 to 1, in mode custom."
        ),
    ] = None,
    seed: Annotated[int | None, number_option("--seed", "S for the seeds S, S+10000, S+20000.")] = None,
    graph_seed: Annotated[int | None, number_option("--graph-seed", "Seed of clusters, bonds, latents.")] = None,
    embed_seed: Annotated[int | None, number_option("--embed-seed", "Seed of positions.")] = None,
    value_seed: Annotated[int | None, number_option("--value-seed", "Seed of values and targets.")] = None,
    engine: Annotated[str | None, _choice_option("--engine", ENGINE_NAMES, DEFAULT_ENGINE)] = None,
    min_cluster_size: Annotated[
        int | None, number_option("--min-cluster-size", "Keep clusters of at least this many points.")
    ] = None,
    dtype: Annotated[str | None, _choice_option("--dtype", DTYPES, "the engine's own")] = None,
    threads: Annotated[int | None, number_option("--threads", "Number of threads. Default: all cores.")] = None,
    shards: Annotated[
        int | None, number_option("--shards", "Make it in this many shards, none of which has to fit with another.")
    ] = None,
    runner: Annotated[str | None, _choice_option("--runner", RUNNERS, "local, in processes")] = None,
    workers: Annotated[
        int | None, number_option("--workers", "Shards made at a time. Default: one for each processor.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="ADDRESS", help="Address of the Ray cluster. Default: one on this machine."),
    ] = None,
    overwrite: Overwrite = False,
    no_sync: Annotated[
        bool, typer.Option("--no-sync", help="Do not wait until the disk has it; a power cut may then leave half.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar, no summary.")] = False,
) -> None:
    """Make a dataset and write it to a Zarr store.

    Either name a preset or give at least --n-points and --dim.
    A preset fixes all but --dtype, --min-cluster-size and --threads.
    Seeds not given are drawn, printed and recorded.
    The same recipe gives the same data.
    With --shards nothing larger than a shard is held in memory, and the same command resumes what was interrupted.
    """
    from percolab.dataset import generation
    from percolab.ground import progress
    from percolab.show import summary
    from percolab.store import saving
    from percolab.store.shards import recipe_to_resume

    fixed = {"n_points": n_points, "dim": dim, "mode": mode, "create_prob": create_prob, "engine": engine}
    seeds = {"seed": seed, "graph_seed": graph_seed, "embed_seed": embed_seed, "value_seed": value_seed}
    free = _given({"min_cluster_size": min_cluster_size, "dtype": dtype})
    if preset is None:
        if n_points is None or dim is None:
            raise ValueError(f"n_points and dim must be given, or one of {', '.join(PRESETS)}")
        named = {"graph": graph_seed, "embed": embed_seed, "value": value_seed}
        complete = seed is not None or None not in named.values()
        begun = None if complete or shards is None else recipe_to_resume(output, overwrite=overwrite)
        chosen = _seeds(seed, named, begun)
        recipe = Recipe.from_dict({**_given(fixed), "seeds": chosen, **free})
    else:
        recipe = replace(_preset(preset, _given(fixed | seeds)), **free)
    sharding = _given({"runner": runner, "workers": workers, "address": address})
    if shards is not None:
        if threads is not None:
            raise ValueError(f"threads must be left out with shards, where each worker has one, got {threads}")
        _generate_shards(recipe, output, {"shards": shards, "sync": not no_sync, **sharding}, overwrite, quiet)
        return
    for option, value in sharding.items():
        raise ValueError(f"{option} must be left out unless shards is given, got {value}")
    saving.check_target(output, overwrite=overwrite)
    with progress.bar(visible=not quiet) as report:
        made = generation.generate(recipe, threads=threads, progress=report)
        saving.save(made, output, overwrite=overwrite, sync=not no_sync, progress=report)
    if not quiet:
        print(f"{output}: {summary.one_line(summary.summarise(made))}")


def _generate_shards(recipe: Recipe, output: str, how: dict[str, Any], overwrite: bool, quiet: bool) -> None:
    from percolab.ground import progress
    from percolab.ground.memory import readable
    from percolab.show import summary
    from percolab.store.shards import generate_store

    try:
        with progress.bar(visible=not quiet) as report, _noticing_interrupts(report) as noticing:
            made = generate_store(recipe, output, overwrite=overwrite, progress=noticing, **how)
    except KeyboardInterrupt:
        raise UnfinishedError("interrupted; the same command resumes it") from None
    if quiet:
        return
    found = {"recipe": recipe.to_dict(), "dim": recipe.dim, "n_points": made.n_points, "n_clusters": made.n_clusters}
    print(f"{output}: {summary.one_line(found | {'n_latents': made.n_points - made.n_clusters})}")
    if made.shards_made:
        taken = readable(made.peak_bytes)
        print(f"made {made.shards_made} of {made.shards} shards; a worker took up to {taken} of memory")
    elif made.rows_made:
        print("the columns of clusters were damaged and are written again")
    else:
        print("nothing was missing, and everything matches its digests")


@contextmanager
def _noticing_interrupts(report: Progress) -> Iterator[Progress]:
    """Let the first interrupt end the work, and no other disturb its end.

    It is raised again at the next report, should it get lost: code that is called back from C cannot raise.
    """
    pressed: list[int] = []

    def press(number: int, _: Any) -> None:
        pressed.append(number)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    def noticing(stage: str, done: int, total: int) -> None:
        if pressed:
            raise KeyboardInterrupt
        report(stage, done, total)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield noticing
    finally:
        if not pressed:
            signal.signal(signal.SIGINT, before)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _preset(name: str, others: dict[str, Any]) -> Recipe:
    check_choice("preset", name, tuple(PRESETS))
    for option, value in others.items():
        raise ValueError(f"{option} must be left out with the preset {name}, got {value}")
    return PRESETS[name]


def _seeds(seed: int | None, named: dict[str, int | None], begun: Recipe | None) -> Seeds | None:
    """Return the seeds of `seed`, or else of a run to resume, with those given by name in their place."""
    given = _given(named)
    if seed is not None:
        return replace(Seeds.from_int(seed), **given)
    if begun is not None:
        return replace(begun.seeds, **given)
    return Seeds(**given) if given else None


@app.command(
    epilog=_examples(
        "percolab info one.zarr",
        "[dim]# read everything and compare it with its digests[/dim]",
        "percolab info one.zarr --verify",
        "[dim]# for programs[/dim]",
        "percolab info one.zarr --json",
        "[dim]# a page with figures[/dim]",
        "percolab info one.zarr --html card.html",
    )
)
def info(
    path: Store,
    verify: Annotated[bool, typer.Option("--verify", help="Read everything and compare it with its digests.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write the dataset's card, a page with figures.", show_default=False
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Print what a dataset holds: recipe, sizes, clusters, latents, depths, targets, provenance.

    X is read only with --verify, and one cluster of it with --html, so this is quick for a dataset of any size.
    Of more than 20 million points, depths and targets are not read either.
    """
    from percolab.show import summary
    from percolab.store import reading

    dataset = reading.load(path, verify=verify)
    if html is not None:
        from percolab.show import card

        card.write_card(dataset, html, name=PurePath(path).name, overwrite=overwrite)
    found = summary.summarise_store(path, dataset)
    found["store_bytes"] = summary.store_bytes(path)
    if verify:
        found["sha256"] = reading.digests(path)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        from rich.console import Console

        Console().print(summary.table(found, str(path)))
    if html is not None:
        print(f"wrote {html}", file=sys.stderr if as_json else sys.stdout)


@app.command(
    epilog=_examples(
        "percolab verify one.zarr",
        "[dim]# also a page with a figure for each law[/dim]",
        "percolab verify one.zarr --report out",
        "[dim]# both engines, on data made for the purpose; takes half a minute[/dim]",
        "percolab verify",
    )
)
def verify(
    path: Annotated[
        str | None, typer.Argument(metavar="[PATH]", help="A dataset; none for a standard suite.", show_default=False)
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FOLDER", help="Write a page with a figure for each law.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Check a dataset against theory: sizes, trees, hierarchy, positions, targets.

    Prints one line for each law: what is expected, what was measured, a p-value or the largest deviation, the verdict.
    The exit status is 1 if a law fails. Laws that a dataset is too small for say what they would need.
    """
    from percolab.checks.suite import verify as check
    from percolab.ground import progress
    from percolab.store import reading

    if report is not None:
        if report.is_file() and report.suffix != ".html":
            raise FileExistsError(f"report must be a folder or end in .html, got the file {str(report)!r}")
        files.check_directory(report)
    dataset = None if path is None else reading.load(path)
    with progress.line(visible=not as_json) as say:
        outcome = check(dataset, progress=say)
    if as_json:
        print(json.dumps(outcome.to_dicts(), indent=2))
    else:
        from rich.console import Console

        Console(width=None if sys.stdout.isatty() else TABLE_WIDTH).print(outcome.table())
    if report is not None:
        print(f"wrote {outcome.report(report)}", file=sys.stderr if as_json else sys.stdout)
    if not outcome.passed:
        raise typer.Exit(FAILURE)


@app.command(
    epilog=_examples(
        "percolab export one.zarr --format npz -o percolation",
        "percolab export one.zarr --format parquet -o one",
    )
)
def export(
    path: Store,
    form: Annotated[str, typer.Option("--format", metavar="|".join(EXPORTS), help="What to write.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="STEM", help="What the file names begin with.")],
    overwrite: Overwrite = False,
) -> None:
    """Write a dataset in another format, as two files.

    npz: the authors' files, STEM.npz and STEM_gt_features.npz.
    parquet: STEM.points.parquet and STEM.latents.parquet.
    """
    from percolab import exports
    from percolab.store import reading

    check_choice("format", form, EXPORTS)
    paths = exports.npz_paths(output) if form == "npz" else exports.parquet_paths(output)
    for file in paths:
        files.check_output(file, overwrite=overwrite)
    write = exports.to_npz if form == "npz" else exports.to_parquet
    write(reading.load(path), output, overwrite=overwrite)
    print(f"wrote {paths[0]} and {paths[1]}")


@app.command(
    epilog=_examples(
        "percolab draw one.zarr -o one.png",
        "[dim]# the fourth largest cluster, for print[/dim]",
        "percolab draw big.zarr --cluster 3 -o fourth.pdf",
    )
)
def draw(
    path: Store,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Figure: .png, .pdf or .svg.")],
    cluster: Annotated[
        int, typer.Option("--cluster", parser=integer, metavar="INTEGER", help="Which cluster; 0 is the largest.")
    ] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Draw a cluster in space beside its latent tree, in the same colours."""
    from percolab.show import drawing
    from percolab.store import reading

    form = check_choice("output", output.suffix, (".png", ".pdf", ".svg")).removeprefix(".")
    files.check_output(output, overwrite=overwrite)
    figure = drawing.draw_cluster(reading.load(path), cluster)
    with files.new_files(output, overwrite=overwrite) as (file,):
        figure.savefig(file, format=form, dpi=200)
    print(f"wrote {output}")


# ---------------------------------------------------------------------- experiments

register_experiments(app)


@app.command(
    epilog=_examples(
        "percolab figures --out figures",
        "[dim]# the distribution of cluster sizes alone[/dim]",
        "percolab figures --only 8 --out figures",
    )
)
def figures(
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where to write them.")] = Path("figures"),
    only: Annotated[
        list[int] | None,
        typer.Option(
            "--only", parser=integer, metavar="NUMBER", help="One figure; may be repeated.", show_default=False
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="From less data, to see whether they work.")] = False,
) -> None:
    """Draw figures 1, 2, 3, 6, 8, 9 and 10 of the paper from data made here, each as PNG and PDF.

    Figure 10 times samplers on this machine, for which it should be idle.
    """
    from percolab.figures import write

    if out.is_file():
        raise FileExistsError(f"out must be a folder, got the file {str(out)!r}")
    files.check_directory(out)
    write(out, only or (), quick=quick, done=lambda path: print(f"wrote {path}", flush=True))
