"""The command ``percolab documents``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from percolab.cli.errors import command
from percolab.cli.experiments import MOST_CORPUS
from percolab.cli.generate import in_shards
from percolab.cli.options import (
    Address,
    NoSync,
    Output,
    Overwrite,
    Quiet,
    Runner,
    Shards,
    Workers,
    given,
    number,
    number_option,
)
from percolab.cli.options import seed as seed_number
from percolab.corpora.collection import DocumentRange
from percolab.corpora.corpus import Corpus
from percolab.ground.foreign_files import read_json
from percolab.ground.validation import check_integer
from percolab.model.recipe import Recipe


@command(
    "percolab documents --tokens 2048 --count 1e5 -o docs.zarr",
    "# two lexicons over the same tokens, one for each half of the documents",
    "percolab documents --tokens 2048 --lexicons 2 --seed 1 --count 1e5 -o two.zarr",
    "# documents for tests, of the same lexicon",
    "percolab documents --tokens 2048 --count 1e4 --first 1099511627776 -o test.zarr",
    "# many of them, by several processes; the same command resumes it if interrupted",
    "percolab documents --tokens 8192 --count 1e7 --shards 32 -o many.zarr",
)
def documents(
    output: Output,
    count: Annotated[int, number_option("--count", "Number of documents.")],
    first: Annotated[int, number_option("--first", "Number of the first document.", default=0)] = 0,
    tokens: Annotated[int | None, number_option("--tokens", "Number of tokens of a lexicon.")] = None,
    length: Annotated[int | None, number_option("--length", "Tokens of a document.", default=64)] = None,
    lexicons: Annotated[int | None, number_option("--lexicons", "Number of lexicons.", default=1)] = None,
    shares: Annotated[
        str | None,
        typer.Option("--shares", metavar="NUMBERS", help="Share of each lexicon, as 1,3. Default: all the same."),
    ] = None,
    renewal: Annotated[
        float | None, number_option("--renewal", "Chance of a fresh context at a position.", number, 1 / 16)
    ] = None,
    min_size: Annotated[int | None, number_option("--min-size", "Fewest tokens of a context.", default=32)] = None,
    seed: Annotated[
        int | None,
        number_option("--seed", "Seed of documents and ids; lexicon k has it + k.", seed_number, 0),
    ] = None,
    recipe_file: Annotated[
        Path | None,
        typer.Option("--recipe", metavar="FILE", help="A corpus as JSON, in place of the above.", show_default=False),
    ] = None,
    shards: Shards = None,
    runner: Runner = None,
    workers: Workers = None,
    address: Address = None,
    overwrite: Overwrite = False,
    no_sync: NoSync = False,
    quiet: Quiet = False,
) -> None:
    """Make documents and write them to a Zarr store, with their contexts and the exact loss of the best predictor.

    A token is a point of a lexicon, a percolation cluster; a context is a latent of it, and holds the tokens below.
    Each token of a document is drawn from a context, which is drawn anew now and then.
    The same options give the same documents, and the same command resumes what was interrupted.
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
    sharding = given({"runner": runner, "workers": workers, "address": address})
    for option, value in sharding.items() if shards is None else ():
        raise ValueError(f"{option} must be left out unless shards is given, got {value}")
    wanted = DocumentRange(corpus, first, first + count)
    in_shards(wanted, output, {"shards": shards, "sync": not no_sync, **sharding}, overwrite, quiet)


def _corpus(n_tokens: int, n_lexicons: int, shares: str | None, fields: dict[str, Any]) -> Corpus:
    """Return the corpus of these options: each lexicon is one cluster, the next one grown from the next seed."""
    seed = fields.get("seed", 0)
    count = check_integer("lexicons", n_lexicons, 1)
    sources = [Recipe(n_tokens, 2, "one_cluster", seeds=seed + k) for k in range(count)]
    numbers = None if shares is None else [number(word) for word in shares.split(",")]
    return Corpus(sources, shares=numbers, **fields)
