"""The commands ``percolab generate`` and ``percolab documents``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from percolab.cli import options
from percolab.cli.errors import command
from percolab.cli.experiments import resumable
from percolab.cli.networks import MOST_CORPUS
from percolab.cli.options import argument, choice_option, given, listed, number, number_option, read_target, word_option
from percolab.corpora.collection import DocumentRange
from percolab.corpora.corpus import Corpus
from percolab.ground import progress
from percolab.ground.foreign_files import read_json
from percolab.ground.memory import readable
from percolab.ground.validation import check_choice, check_integer
from percolab.model.recipe import DEFAULT_ENGINE, ENGINE_NAMES, MODES, Recipe, Seeds
from percolab.show import summary
from percolab.store import commit
from percolab.store.schema import AnyRecipe
from percolab.store.shards import generate_store, recipe_to_resume
from percolab.worlds import generation
from percolab.worlds.generation import PRESETS
from percolab.worlds.superposed import AnyDataset
from percolab.worlds.superposition import Superposition, recipe_from_dict

DTYPES = ("float32", "float64")


@command
def generate(
    output: options.Output,
    preset: Annotated[str | None, argument("PRESET", f"One of {', '.join(PRESETS)}.", tuple(PRESETS))] = None,
    n_points: Annotated[int | None, number_option("Number of points before any filter, such as 20000 or 1e6.")] = None,
    dim: Annotated[int | None, number_option("Dimension of the space, at least 2.")] = None,
    mode: Annotated[str | None, choice_option(MODES, default="distribution")] = None,
    create_prob: Annotated[float | None, number_option("Chance of a new cluster; implies mode custom.", number)] = None,
    mean_degree: Annotated[
        float | None, number_option("Mean number of bonds per point; implies mode random_graph.", number)
    ] = None,
    seed: Annotated[int | None, number_option("S for the seeds S, S+10000, S+20000.", options.seed)] = None,
    graph_seed: Annotated[int | None, number_option("Seed of clusters, bonds, latents.", options.seed)] = None,
    embed_seed: Annotated[int | None, number_option("Seed of positions.", options.seed)] = None,
    value_seed: Annotated[int | None, number_option("Seed of values and targets.", options.seed)] = None,
    engine: Annotated[str | None, choice_option(ENGINE_NAMES, default=DEFAULT_ENGINE)] = None,
    min_cluster_size: Annotated[int | None, number_option("Keep clusters of at least this many points.")] = None,
    dtype: Annotated[str | None, choice_option(DTYPES, default="the engine's own")] = None,
    target: options.TargetWord = None,
    recipe_file: Annotated[Path | None, word_option("FILE", "A recipe of any kind, as JSON.", names="--recipe")] = None,
    threads: options.Threads = None,
    shards: options.Shards = None,
    runner: options.Runner = None,
    workers: options.Workers = None,
    address: options.Address = None,
    overwrite: options.Overwrite = False,
    no_sync: options.NoSync = False,
    quiet: options.Quiet = False,
) -> None:
    """Make a dataset and write it to a Zarr store.

    Either name a preset, or give --recipe, or at least --n-points and --dim.
    A preset or a recipe fixes everything except --dtype, --min-cluster-size, --target and --threads.
    The preset or recipe of a superposed world fixes everything except --threads.
    A recipe in a file may have edits or several factors; in Python, to_json() of a recipe returns its text.
    Seeds that you do not give are drawn, printed and recorded.
    The same recipe gives the same data.
    With --shards nothing larger than a shard is held in memory, and the same command resumes after an interruption.

    Examples
    --------
    # the paper's dataset of one cluster
    percolab generate paper-one-cluster -o a.zarr
    # clusters of all sizes, without the small ones
    percolab generate --n-points 1e6 --dim 50 --min-cluster-size 99 -o b.zarr
    # the same clusters and positions twice, with different targets
    percolab generate --n-points 20000 --dim 50 --seed 7 -o c.zarr
    percolab generate --n-points 20000 --dim 50 --seed 7 --value-seed 8 -o d.zarr
    # a single cluster
    percolab generate --n-points 5000 --dim 20 --mode one_cluster -o e.zarr
    # off the critical point: a random graph with a giant cluster
    percolab generate --n-points 1e5 --dim 10 --mean-degree 2 -o g.zarr
    # labels of 20 classes in place of numbers
    percolab generate --n-points 5000 --dim 20 --mode one_cluster --target classes:n_groups=20 -o i.zarr
    # two hierarchies in one X
    percolab generate superposed-2 -o h.zarr
    # larger than memory; if interrupted, the same command resumes it
    percolab generate --n-points 1e7 --dim 100 --seed 7 --shards 32 -o f.zarr
    """
    fixed: dict[str, Any] = {"n_points": n_points, "dim": dim, "mode": mode, "engine": engine}
    fixed |= {"create_prob": create_prob, "mean_degree": mean_degree}
    seeds = {"seed": seed, "graph_seed": graph_seed, "embed_seed": embed_seed, "value_seed": value_seed}
    free = given({"min_cluster_size": min_cluster_size, "dtype": dtype, "target": target and read_target(target)})
    recipe: Recipe | Superposition
    if preset is not None or recipe_file is not None:
        recipe = _ready(preset, recipe_file, given(fixed | seeds), free)
    elif n_points is None or dim is None:
        raise ValueError(f"n_points and dim must be given, or one of {', '.join(PRESETS)}")
    else:
        begun = None if shards is None else partial(recipe_to_resume, output, overwrite=overwrite)
        implied = None if mean_degree is None else "random_graph"
        fixed["mode"] = mode or ("custom" if create_prob is not None else implied)
        recipe = Recipe.from_dict({**given(fixed), "seeds": _seeds(seeds, begun), **free})
    sharding = _sharding(shards, {"runner": runner, "workers": workers, "address": address})
    if shards is not None:
        if threads is not None:
            raise ValueError(f"threads must be left out with shards, where each worker has one, got {threads}")
        if isinstance(recipe, Superposition):
            raise ValueError(f"shards must be left out for a superposed world, which is made whole, got {shards}")
        in_shards(recipe, output, {"shards": shards, "sync": not no_sync, **sharding}, overwrite, quiet)
        return
    maker = partial(generation.generate, recipe, threads=threads)
    make(maker, output, overwrite=overwrite, sync=not no_sync, quiet=quiet)


def _sharding(shards: int | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of shards that were given; raise if they are given without shards."""
    for option, value in given(options).items() if shards is None else ():
        raise ValueError(f"{option} must be left out unless shards is given, got {value}")
    return given(options)


def _ready(preset: str | None, file: Path | None, rest: dict[str, Any], free: dict[str, Any]) -> Recipe | Superposition:
    """Return the recipe of a preset or a file, changed by the options that it leaves free."""
    if preset is not None and file is not None:
        raise ValueError(f"recipe must be left out with the preset {preset}, got {str(file)!r}")
    name = f"the preset {preset}" if preset is not None else "a recipe"
    for option, value in rest.items():
        raise ValueError(f"{option} must be left out with {name}, got {value}")
    if file is not None:
        recipe = recipe_from_dict(read_json("recipe", file))
    else:
        recipe = PRESETS[check_choice("preset", preset, tuple(PRESETS))]
    if isinstance(recipe, Recipe):
        return replace(recipe, **free)
    for option, value in free.items():
        raise ValueError(f"{option} must be left out for a superposed world, got {value}")
    return recipe


def _seeds(options: dict[str, int | None], begun: Callable[[], Recipe | None] | None) -> Seeds | None:
    """Return the seeds of ``--seed``, or of a run to resume, replaced by the seeds that are given by name."""
    named = given({name: options[f"{name}_seed"] for name in ("graph", "embed", "value")})
    if options["seed"] is not None:
        return replace(Seeds.from_int(options["seed"]), **named)
    recipe = begun() if begun is not None and len(named) < 3 else None
    if recipe is not None:
        return replace(recipe.seeds, **named)
    return Seeds(**named) if named else None


# ---------------------------------------------------------------------- making it


def make(made_with: Callable[..., AnyDataset], output: str, *, overwrite: bool, sync: bool = True, quiet: bool) -> None:
    """Make a dataset or a world in memory, write it, and describe it; `made_with` is called with `progress`."""
    commit.check_target(output, overwrite=overwrite)
    with progress.bar(visible=not quiet, label="making") as display:
        dataset = made_with(progress=display)
        commit.save(dataset, output, overwrite=overwrite, sync=sync, progress=display)
    if not quiet:
        print(f"{output}: {summary.one_line(summary.summarise(dataset))}")


def in_shards(recipe: AnyRecipe, output: str, how: dict[str, Any], overwrite: bool, quiet: bool) -> None:
    """Make a dataset or documents straight into a store, and say what was made."""
    with resumable("the same command resumes it"), progress.bar(visible=not quiet) as display:
        made = generate_store(recipe, output, overwrite=overwrite, progress=display, **how)
    if quiet:
        return
    if isinstance(recipe, Recipe):
        sizes = {"n_points": made.n_points, "n_clusters": made.n_clusters, "n_latents": made.n_points - made.n_clusters}
        made_of = {"recipe": recipe.to_dict(), "dim": recipe.dim, **sizes}
    else:
        made_of = summary.summarise_documents(recipe)
    print(f"{output}: {summary.one_line(made_of)}")
    if made.shards_made and how["shards"] is None:
        print(f"{made.rows_made:,} documents were missing and are written")
    elif made.shards_made:
        taken = readable(made.peak_bytes)
        print(f"made {made.shards_made} of {made.shards} shards; a worker took up to {taken} of memory")
    elif made.rows_made and not made.n_points:
        print("no point is in a cluster that large, so there was no shard to make")
    elif made.rows_made:
        print("the columns of clusters were damaged and are written again")
    else:
        print("nothing was missing, and everything matches its digests")


# ---------------------------------------------------------------------- the command ``percolab documents``


@command
def documents(
    output: options.Output,
    count: Annotated[int, number_option("Number of documents.")],
    first: Annotated[int, number_option("Number of the first document.")] = 0,
    tokens: Annotated[int | None, number_option("Number of tokens in a lexicon.")] = None,
    length: Annotated[int | None, number_option("Number of tokens per document. Default: 64.")] = None,
    lexicons: Annotated[int | None, number_option("Number of lexicons. Default: 1.")] = None,
    shares: Annotated[str | None, word_option("NUMBERS", "Share of each lexicon, such as 1,3. Default: equal.")] = None,
    renewal: Annotated[float | None, number_option("Chance of a fresh context. Default: 0.0625.", number)] = None,
    min_size: Annotated[int | None, number_option("Smallest number of tokens in a context. Default: 32.")] = None,
    seed: Annotated[
        int | None, number_option("Seed of documents and ids; lexicon k has this seed + k. Default: 0.", options.seed)
    ] = None,
    recipe_file: Annotated[Path | None, word_option("FILE", "Instead, a corpus as JSON.", names="--recipe")] = None,
    shards: options.Shards = None,
    runner: options.Runner = None,
    workers: options.Workers = None,
    address: options.Address = None,
    overwrite: options.Overwrite = False,
    no_sync: options.NoSync = False,
    quiet: options.Quiet = False,
) -> None:
    """Make documents and write them to a Zarr store, with their contexts and the exact loss of the best predictor.

    A lexicon is a percolation cluster, and its points are tokens; a context is a latent, and holds the tokens below it.
    Each token of a document is drawn from a context, which changes at random positions.
    The same options give the same documents, and the same command resumes after an interruption.

    Examples
    --------
    percolab documents --tokens 2048 --count 1e5 -o docs.zarr
    # two lexicons over the same tokens, one for each half of the documents
    percolab documents --tokens 2048 --lexicons 2 --seed 1 --count 1e5 -o two.zarr
    # documents for tests, of the same lexicon
    percolab documents --tokens 2048 --count 1e4 --first 1099511627776 -o test.zarr
    # many documents, made by several processes; if interrupted, the same command resumes
    percolab documents --tokens 8192 --count 1e7 --shards 32 -o many.zarr
    """
    fields = {"length": length, "renewal": renewal, "min_size": min_size, "seed": seed}
    if recipe_file is not None:
        for option, value in given({"tokens": tokens, "lexicons": lexicons, "shares": shares, **fields}).items():
            raise ValueError(f"{option} must be left out with a recipe, got {value}")
        corpus = Corpus.from_dict(read_json("recipe", recipe_file, MOST_CORPUS))
    elif tokens is None:
        raise ValueError("tokens must be given, or a recipe")
    else:
        corpus = _corpus(tokens, 1 if lexicons is None else lexicons, shares, given(fields))
    sharding = _sharding(shards, {"runner": runner, "workers": workers, "address": address})
    wanted = DocumentRange(corpus, first, first + count)
    in_shards(wanted, output, {"shards": shards, "sync": not no_sync, **sharding}, overwrite, quiet)


def _corpus(n_tokens: int, n_lexicons: int, shares: str | None, fields: dict[str, Any]) -> Corpus:
    """Return the corpus of these options: each lexicon is one cluster, the next one grown from the next seed."""
    seed = fields.get("seed", 0)
    count = check_integer("lexicons", n_lexicons, 1)
    sources = [Recipe(n_tokens, 2, "one_cluster", seeds=seed + k) for k in range(count)]
    return Corpus(sources, shares=listed("shares", shares), **fields)
