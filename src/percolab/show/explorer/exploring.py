"""`explore`: a dataset as one page that opens offline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from percolab.corpora.collection import StoredDocuments
from percolab.corpora.corpus import Corpus
from percolab.ground import files
from percolab.ground.arrays import as_array
from percolab.ground.progress import Progress, shown
from percolab.ground.validation import check_integer, check_number, check_seed
from percolab.show.explorer import data, page, passages, shown_features
from percolab.show.explorer.packing import pack
from percolab.show.explorer.serve import LOOPBACK, Server
from percolab.worlds.superposed import AnyDataset, check_samples

MOST_POINTS = 100_000  #: Points that are drawn by default.
MIN_SIZE = 20
HEIGHT = 760  #: Height of the frame in a notebook.


class DocumentExplorer:
    """A page of documents made by `explore`. A notebook shows it; `save` writes it."""

    def __init__(self, name: str, packed: bytes) -> None:
        self._name, self._packed = name, packed

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, {len(self._packed):,} bytes of data)"

    @property
    def html(self) -> str:
        """The page."""
        return passages.build(self._packed, title=f"Explorer: {self._name}")

    def _repr_html_(self) -> str:
        # A separate frame keeps the page's styles and scripts apart from the notebook's.
        return (
            f'<iframe title="percolab explorer" style="width: 100%; height: {HEIGHT}px; border: 0" '
            f'srcdoc="{escape(self.html)}"></iframe>'
        )

    def save(self, output: files.PathLike, *, overwrite: bool = False) -> None:
        """Write the page to a file."""
        files.check_output(output, overwrite=overwrite)
        content = self.html.encode()
        with files.new_files(Path(output), overwrite=overwrite) as (file,):
            file.write(content)


class Explorer(DocumentExplorer):
    """A page of points made by `explore`. `serve` gives access to more of the dataset."""

    def __init__(self, subject: data.Subject, packed: bytes, n_trees: int) -> None:
        super().__init__(subject.name, packed)
        self._subject, self._n_trees = subject, n_trees

    @property
    def html(self) -> str:
        """The page."""
        return page.build(self._packed, self._n_trees, title=f"Explorer: {self._name}")

    def serve(self, *, host: str = LOOPBACK, port: int = 0) -> Server:
        """Return a server of the page that reads more of the dataset on demand; port 0 takes a free port."""
        return Server(self._subject, self._packed, self._n_trees, host=host, port=port)


def explore(
    dataset: AnyDataset | Corpus | StoredDocuments,
    *,
    prediction: Any = None,
    codes: Any = None,
    scores: Any = None,
    beliefs: Mapping[str, passages.Probed] | None = None,
    rows: Any = None,
    threshold: float = 0.0,
    name: str = "",
    features_name: str = "",
    n_points: int = MOST_POINTS,
    min_size: int = MIN_SIZE,
    seed: int = 0,
    progress: bool | Progress = False,
) -> Any:
    """Return a page that shows a dataset: points in space beside the tree of latents, linked both ways.

    For documents it is another page, a `DocumentExplorer`: each document is a strip of tokens, with the exact beliefs
    over its lexicon's tree at every position. For a corpus, held-out documents are shown, from 2^40 on; at most 200 are
    shown.

    Only the drawn points of X are read: all, or a uniform sample of `n_points`, which the page states. Components are
    computed from the drawn points. Needs Bokeh, in the extra ``explore``.

    Parameters
    ----------
    dataset
        A dataset or a superposed world, in memory or loaded; a `Corpus`, or stored documents.
    prediction
        The predictions of a network: one value, or label, per row of the dataset, or a function of rows of X.
    codes
        (rows, features) activations of features, dense or sparse. For documents, rows are positions of the first ones;
        the codes of several networks may be given by name.
    scores
        The result of `percolab.features.score` for these codes; for a world one per factor, for documents one per
        lexicon, or none.
    beliefs
        For documents, the beliefs read from networks, by name: `percolab.study.probed_beliefs` makes them.
    rows
        Row i of the codes is row ``rows[i]`` of the dataset; only these rows are drawn. None: all rows in order.
    threshold
        Features fire above this value.
    name, features_name
        What the page calls the dataset and the features.
    n_points
        Most points drawn; for documents, most positions.
    min_size
        Fewest points of a concept; doubled until a tree has at most 20,000 concepts.
    seed
        Seed of the sample.
    progress
        True shows a bar; or a function that is called with (stage, done, total).
    """
    if isinstance(dataset, Corpus | StoredDocuments):
        if prediction is not None or rows is not None:
            raise ValueError("prediction and rows must be left out for documents")
        most, known = check_integer("n_points", n_points, 1), name or "documents"
        return DocumentExplorer(known, passages.gather(dataset, codes, scores, known, most, beliefs or {}))
    if beliefs is not None:
        raise ValueError("beliefs must be left out for points")
    subject = _subject(dataset, prediction, name or "dataset", n_points, min_size, seed)
    if codes is not None or scores is not None:
        if codes is None or scores is None:
            missing = "codes" if codes is None else "scores"
            raise ValueError(f"codes and scores must be given together, got no {missing}")
        limit = check_number("threshold", threshold, 0)
        features = shown_features.gather(
            codes, rows, scores, len(dataset), len(subject.truths), limit, features_name or "features"
        )
        subject = replace(subject, features=features)
    with shown(progress) as report:
        packed = pack(data.overview(subject, report))
    return Explorer(subject, packed, len(subject.truths))


def _subject(dataset: AnyDataset, prediction: Any, name: str, n_points: int, min_size: int, seed: int) -> data.Subject:
    check_samples(dataset)
    if len(dataset) < 1:
        raise ValueError("dataset must have at least 1 point, got 0")
    if prediction is not None and not callable(prediction):
        prediction = as_array(prediction)
        if prediction.shape[:1] != (len(dataset),) or prediction.dtype.kind not in "biuf":
            rule = f"prediction must have a number for each of the {len(dataset)} rows"
            raise ValueError(f"{rule}, got {prediction.dtype} of shape {prediction.shape}")
    return data.Subject(
        dataset=dataset,
        name=name,
        prediction=prediction,
        features=None,
        n_points=check_integer("n_points", n_points, 1),
        min_size=check_integer("min_size", min_size, 2),
        seed=check_seed("seed", seed),
    )
