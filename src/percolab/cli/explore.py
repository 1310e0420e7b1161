"""The command ``percolab explore``: a page that shows a dataset, a network and features."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Annotated, Any

import typer

from percolab.cli.errors import command
from percolab.cli.experiments import need_packages, network_of
from percolab.cli.options import Overwrite, Store, number_option, output_option, word_option
from percolab.cli.options import seed as seed_number
from percolab.cli.output import print_wrote
from percolab.corpora.collection import StoredDocuments
from percolab.features.inputs import read_codes
from percolab.ground import files
from percolab.ground.progress import bar
from percolab.store import finished

LOOPBACK = "127.0.0.1"


@command
def explore(
    path: Store,
    output: Annotated[Path | None, output_option("FILE", "The page, .html.")] = None,
    run: Annotated[list[Path] | None, word_option("DIR", "Run of percolab train; several for documents.")] = None,
    features: Annotated[Path | None, word_option("FILE", "Codes of features, .npz or .npy; they are scored.")] = None,
    points: Annotated[int, number_option("Most points that are drawn.")] = 100_000,
    min_size: Annotated[int, number_option("Fewest points of a concept.")] = 20,
    seed: Annotated[int, number_option("Seed of the sample.", seed_number)] = 0,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the page from the store, until Ctrl-C, instead of writing a file.")
    ] = False,
    host: Annotated[str, word_option("NAME", "Where --serve listens.")] = LOOPBACK,
    port: Annotated[int, number_option("Where --serve listens; 0 takes a free one.")] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Write a page that shows a dataset: points in space beside the tree of latents, linked both ways.

    The page opens offline in any browser. If there are more points than --points, it shows a uniform random sample of
    them and says so.
    FILE of --features is what scipy.sparse.save_npz wrote, a .npy with an array (rows, features), or a .npz with an
    array named codes; rows in the .npz name the dataset's row of each row of the codes.
    The page of documents shows each as a strip of tokens with the beliefs over its lexicon's tree; codes belong to the
    first documents, one row per position. With --run it shows what a linear probe reads from that network, and from an
    untrained one, below the exact beliefs.
    With --serve the page reads the points of a latent from the store when you look at it, and nothing is written. The
    server listens only on this machine, unless --host is given; anyone who can reach that address can see the dataset.

    Examples
    --------
    percolab explore small.zarr -o explorer.html
    percolab explore docs.zarr -o documents.html
    # documents, and what probes read from networks trained on them
    percolab explore docs.zarr --run own --run other -o documents.html
    # with a network's predictions and the codes of a dictionary
    percolab explore small.zarr --run run --features codes.npz -o explorer.html
    # a store larger than memory
    percolab explore big.zarr --serve
    """
    from percolab.show.explorer import explore as build

    if (output is None) != serve:
        raise ValueError(f"output must be {'left out with' if serve else 'given unless'} serve, got {output}")
    if output is not None:
        files.check_output(output, overwrite=overwrite)
    given = {} if features is None else read_codes("features", features)
    dataset, runs = finished.load(path), run or []
    shown: dict[str, Any] = {"codes": given.get("codes"), "name": PurePath(path).name, "n_points": points}
    with bar(label="reading") as display:
        if isinstance(dataset, StoredDocuments):
            if serve or "rows" in given:
                raise ValueError("serve and rows must be left out for documents")
            shown["scores"] = _document_scores(dataset, shown["codes"])
            shown["beliefs"] = _beliefs(dataset, runs, points) if runs else None
        else:
            if len(runs) > 1:
                raise ValueError(f"run must be given once for points, got {len(runs)}")
            shown |= {"rows": given.get("rows"), "min_size": min_size, "seed": seed, "progress": display}
            shown["prediction"] = _predictions(runs[0], dataset) if runs else None
            if features is not None:
                shown["scores"] = _scores(dataset, shown["codes"], shown["rows"], min_size)
                shown["features_name"] = features.name
        page: Any = build(dataset, **shown)
    if output is not None:
        page.save(output, overwrite=overwrite)
        print_wrote(output)
    else:
        server = page.serve(host=host, port=port)
        print(f"{server.address} (Ctrl-C ends it)", flush=True)
        server.run()


def _document_scores(documents: StoredDocuments, codes: Any) -> list[Any] | None:
    """Return a score for each lexicon, of codes at the positions of the first documents."""
    from percolab.features import score

    if codes is None:
        return None
    corpus, first = documents.corpus, documents.recipe.lo
    coded = corpus.documents(first, first + codes.shape[0] // corpus.length)
    return [score(corpus, codes, factor=k, documents=coded) for k in range(len(corpus.lexicons))]


def _beliefs(documents: StoredDocuments, runs: list[Path], points: int) -> Any:
    """Return the readings of probes from the networks of runs, and from an untrained one of the first one's shape."""
    need_packages()
    from percolab.nn.networks.transformer import Transformer
    from percolab.show.explorer.passages import MOST_DOCUMENTS
    from percolab.study import probed_beliefs

    corpus, first = documents.corpus, documents.recipe.lo
    networks: dict[str, Any] = {}
    for run in runs:
        network, known = network_of(run, None, "auto")
        if (known.n_tokens, known.length) != (corpus.n_tokens, corpus.length):
            raise ValueError(f"run must be on documents of {corpus.length} of {corpus.n_tokens} tokens, got {run}")
        networks[run.name] = network, [k for k, share in enumerate(known.shares) if share]
    first_network = next(iter(networks.values()))[0]
    networks["fresh weights"] = Transformer(**first_network.shape, seed=len(networks)), []
    count = min(len(documents), MOST_DOCUMENTS, max(1, points // corpus.length))
    return probed_beliefs(corpus, networks, corpus.documents(first, first + count))


def _predictions(run: Path, dataset: Any) -> Any:
    need_packages()
    from percolab.nn.networks.model import predictor
    from percolab.nn.training.training import load_model

    return predictor(load_model(run, dataset))


def _scores(dataset: Any, codes: Any, rows: Any, min_size: int) -> list[Any]:
    """Return a score for each hierarchy, of all concepts and not only of distinct ones: the page shows them all."""
    from percolab.features import score

    count = len(getattr(dataset, "factors", (dataset,)))
    return [score(dataset, codes, rows, factor=k, min_size=min_size, ratio=1) for k in range(count)]
