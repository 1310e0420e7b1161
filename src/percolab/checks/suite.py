"""Verification: every law that applies to a dataset, in one table.

    import percolab as pl

    outcome = pl.verify(ds)
    print(outcome)
    assert outcome.passed

`pl.verify()` without a dataset makes and checks a standard suite of datasets. docs/theory.md lists the checks, their
methods, and how often correct data would fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import groupby
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from percolab.checks import random_graph, sizes, space, tree_laws, value_laws
from percolab.checks.independence import Subject
from percolab.checks.verdicts import ALARM, Check, does_not_apply, sound
from percolab.corpora.collection import StoredDocuments
from percolab.corpora.corpus import Corpus
from percolab.dataset.dataset import Dataset, construct
from percolab.ground import files
from percolab.ground.arrays import Ints
from percolab.ground.progress import Progress, shown, silent
from percolab.ground.text import counted
from percolab.ground.validation import check_finite, check_shape
from percolab.ground.version import __version__
from percolab.model.recipe import ENGINE_NAMES, Recipe, Seeds
from percolab.show import dot_rows, pages, style
from percolab.show.distributions import panel
from percolab.show.summary import one_line, summarise_documents
from percolab.store.schema import check_counts
from percolab.worlds.superposed import AnyDataset, Superposed, remade

if TYPE_CHECKING:
    from rich.table import Table


SUITE_POINTS, SUITE_DIM, SUITE_SEED = 200_000, 100, 0

SUITE_SUBJECT = "the standard suite: data made by both engines for the purpose"

UNTRIED = ("not enough data", "does not apply")
STYLES = {"pass": "green", "fail": "bold red", "not enough data": "yellow", "does not apply": "dim"}
_KINDS = (sizes, tree_laws, space, value_laws)
_KINDS_OF_A_RANDOM_GRAPH = (random_graph, space, value_laws)
_KINDS_OF_A_SUBSAMPLE = (value_laws,)


@dataclass(frozen=True)
class Verification:
    """The outcome of `verify`: one `Check` for each law and dataset."""

    checks: tuple[Check, ...]
    subject: str = ""  #: what was checked, in a sentence

    @property
    def passed(self) -> bool:
        """Whether no law failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        """The laws that failed."""
        return tuple(check for check in self.checks if check.failed)

    def __iter__(self) -> Iterator[Check]:
        return iter(self.checks)

    def __len__(self) -> int:
        return len(self.checks)

    def __getitem__(self, law: str) -> Check:
        """Return the first check of a law, by its name."""
        for check in self.checks:
            if check.law == law:
                return check
        raise KeyError(law)

    @property
    def summary(self) -> str:
        """The outcome in one line."""
        verdicts = [check.verdict for check in self.checks]
        parts = [f"{verdicts.count(verdict)} {verdict}" for verdict in STYLES if verdict in verdicts]
        return ", ".join(parts) or "nothing was checked"

    @property
    def verdict(self) -> str:
        """Whether the data obey the laws, in a sentence."""
        tried = [check for check in self.checks if check.verdict not in UNTRIED]
        names = ", ".join(check.law for check in self.failures)
        outcome = f"{len(self.failures)} of {len(tried)} laws fail: {names}" if names else f"All {len(tried)} laws hold"
        untried = len(self.checks) - len(tried)
        return f"{outcome}; {untried} could not be tried on these data." if untried else f"{outcome}."

    def table(self) -> Table:
        """Return the outcome as a table for the terminal, with the reasons why laws were not tested below it."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        result = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), caption_justify="left")
        for name in ("law", "expected", "measured", "p or error", "verdict"):
            result.add_column(name, overflow="fold", no_wrap=name in ("law", "p or error"))
        data = ""
        for check in self.checks:
            if check.data != data:
                data = check.data
                result.add_section()
                result.add_row(Text(data, style="bold"))
            cells = (check.law, check.expected, check.measured, check.evidence)
            result.add_row(*map(Text, cells), Text(check.verdict, style=STYLES[check.verdict]))
        lines = [self.subject] if self.subject else []
        untried = [check for check in self.checks if check.verdict in UNTRIED]
        needs = [f"{check.data + ', ' if check.data else ''}{check.law}: {check.note}" for check in untried]
        result.caption = Text("\n".join([*lines, self.summary, *needs]))
        return result

    def __str__(self) -> str:
        from io import StringIO

        from rich.console import Console

        text = StringIO()
        Console(file=text, width=120).print(self.table())
        return text.getvalue()

    def __repr__(self) -> str:
        return f"Verification({self.summary})"

    def _repr_html_(self) -> str:
        return "".join([pages.paragraph(self.summary), *_tables(self.checks)])

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the checks as plain values, ready for JSON."""
        names = ("data", "law", "expected", "measured", "p_value", "error", "verdict", "note")
        return [{name: getattr(check, name) for name in names} for check in self.checks]

    def report(self, path: files.PathLike) -> Path:
        """Write one HTML page with a figure for each law, into a folder or to a file; return its path."""
        target = Path(path) if Path(path).suffix == ".html" else Path(path) / FILE_NAME
        with style.sheet():
            body = [_p_values(self.checks), *_tables(self.checks)]
            figures = (
                panel(check.draw, f"{check.law}: {check.verdict}. {check.note}")
                for check in self.checks
                if check.draw is not None
            )
            body += [pages.definitions(DEFINITIONS), pages.heading("A figure for each law"), pages.grid(figures)]
        target.parent.mkdir(parents=True, exist_ok=True)
        lead = f"{self.subject or 'Data without a name'}. percolab {__version__}."
        look = "good" if self.passed else "bad"
        with files.new_files(target, overwrite=True) as (file,):
            file.write(pages.page("Laws that the data obey", lead, body, verdict=self.verdict, look=look))
        return target


def verify(
    dataset: AnyDataset | Corpus | StoredDocuments | None = None, *, progress: bool | Progress = False
) -> Verification:
    """Check every law that applies to a dataset or a corpus, or to a standard suite if none is given.

    A law fails if its p-value is below 1e-5. A law that needs more data says how much it needs. A law that does not
    apply says why: the data were edited or subsampled, or have another target. P-values come from independent parts of
    the data, so correct data fail a law less than once in 10,000 times. The checks make their choices from a fixed
    seed: the same data always get the same verdict.

    The suite is both engines in modes one_cluster and distribution, 200,000 points in 100 dimensions each.

    Parameters
    ----------
    dataset
        The data to check; at most 150 million entries of X are read. For a superposed world, the checks cover how
        factors are combined, and all laws of each factor, whose positions are made again. For a corpus or stored
        documents, they cover how contexts and tokens of the first documents are drawn, and whether beliefs are
        calibrated.
    progress
        True shows a bar; a function is called with (data, kinds of laws done, kinds in all).
    """
    with shown(progress) as tell:
        if dataset is None:
            return Verification(tuple(_suite(tell)), SUITE_SUBJECT)
        if isinstance(dataset, Corpus | StoredDocuments):
            checks = _documents(dataset, tell)
        elif isinstance(dataset, Dataset | Superposed):
            checks = _world(dataset, tell) if isinstance(dataset, Superposed) else all_checks(dataset, tell)
        else:
            raise ValueError(f"dataset must be a dataset, a world, a corpus or documents, got {type(dataset).__name__}")
        return Verification(tuple(checks), describe(dataset))


def describe(data: AnyDataset | Corpus | StoredDocuments) -> str:
    """Return a description of data: their name if they were loaded, sizes and seeds. Damaged arrays are not read."""
    if isinstance(data, Corpus):
        lexicons = f"{counted(len(data.lexicons), 'lexicon')}, renewal {data.renewal:g}, seed {data.seed}"
        return f"documents of {data.length:,} tokens out of {data.n_tokens:,}, {lexicons}"
    origin = data.provenance.get("loaded_from", "")
    name = f"{PurePath(origin).name}: " if origin else ""
    if isinstance(data, StoredDocuments):
        return name + one_line(summarise_documents(data.recipe))
    seeds = f", seeds {', '.join(map(str, astuple(data.recipe.seeds)))}" if isinstance(data, Dataset) else ""
    return f"{name}{data!r}{seeds}"


def _world(world: Superposed, progress: Progress) -> Iterator[Check]:
    from percolab.checks import factors

    progress("world", 0, 1)
    yield from (replace(check, data="world") for check in factors.checks(world))
    progress("world", 1, 1)
    for k, factor in enumerate(world.factors):
        # The factor is remade inside the loop, so that only one X is in memory at a time.
        yield from (replace(check, data=f"factor {k}") for check in all_checks(remade(factor), progress, f"factor {k}"))


def _documents(documents: Corpus | StoredDocuments, progress: Progress) -> Iterator[Check]:
    from percolab.checks import tokens

    progress("documents", 0, 1)
    if isinstance(documents, StoredDocuments):
        yield tokens.remade(documents)
        yield from tokens.checks(tokens.Sample.stored(documents))
    else:
        yield from tokens.checks(tokens.Sample.of(documents))
    progress("documents", 1, 1)


def _suite(progress: Progress) -> Iterator[Check]:
    for engine in ENGINE_NAMES:
        for mode in ("one_cluster", "distribution"):
            recipe = Recipe(SUITE_POINTS, SUITE_DIM, mode, seeds=Seeds.from_int(SUITE_SEED), engine=engine)
            name = f"{engine}, {mode}"
            yield from (replace(check, data=name) for check in all_checks(construct(recipe), progress, name))


# ---------------------------------------------------------------------- laws
#
# The laws that a dataset must obey, each as a check that can fail, one module per kind of law: `sizes`, `tree_laws`,
# `space` and `value_laws`; `random_graph` replaces the first two where clusters have cycles. Every check takes what it
# needs from a `Subject` and returns a `Check`.


def all_checks(dataset: Dataset, progress: Progress = silent, stage: str = "laws") -> Iterator[Check]:
    """Yield every check of a dataset; only the check of the data model if its forest breaks the model."""
    total = 1 + len(_KINDS)
    progress(stage, 0, total)
    subject = Subject(dataset)
    note = f"{counted(subject.forest.n_points, 'point')}, {counted(subject.forest.n_clusters, 'cluster')}"
    first = sound("every invariant holds", lambda: _validate_arrays(subject), note)
    yield first
    if first.failed:
        return
    kinds: tuple[Any, ...] = _KINDS
    if dataset.source_row is not None:
        kinds = _KINDS_OF_A_SUBSAMPLE
        why = "a subsample has lost latents, and some of its bonds have other ends"
        yield does_not_apply("clusters, trees and positions", "the laws of whole clusters", why)
    elif dataset.recipe.mode == "random_graph":
        kinds = _KINDS_OF_A_RANDOM_GRAPH
        why = "a cluster in which a bond closed a cycle is not a uniform tree"
        yield does_not_apply("depths and distances", "the laws of uniform trees", why)
    for done, kind in enumerate(kinds, 1):
        progress(stage, done, total)
        yield from kind.checks(subject)
    progress(stage, total, total)


def _validate_arrays(subject: Subject) -> None:
    """Check the invariants of the forest, and that all arrays fit it and the recipe, and are finite."""
    dataset, forest, recipe = subject.dataset, subject.forest, subject.recipe
    forest.validate()
    n, n_latents = forest.n_points, forest.n_latents
    target = recipe.target
    shapes = {"X": (n, recipe.dim), "y": (n, *target.y_shape), "latent_z": (n_latents,), "point_z": (n,)}
    for name, shape in shapes.items():
        check_shape(name, getattr(dataset, name), shape)
    if np.dtype(dataset.y.dtype) != target.y_dtype:
        raise ValueError(f"y must be {target.y_dtype} with target {target.kind!r}, got {dataset.y.dtype}")
    if dataset.source_row is None:
        check_counts(recipe, n, forest.n_clusters)
        least = recipe.min_cluster_size
        if n and forest.cluster_size[-1] < least:
            raise ValueError(f"cluster sizes must be at least {least} as in the recipe, got {forest.cluster_size[-1]}")
        for edit in recipe.edits:
            edit.check(n, n_latents)
    else:
        _validate_sources(subject, dataset.source_row)
    for name in ("y", "latent_z", "point_z"):
        check_finite(name, getattr(dataset, name))
    if not all(np.isfinite(subject.part.X[lo : lo + (1 << 15)]).all() for lo in range(0, len(subject.part.X), 1 << 15)):
        raise ValueError("X must be finite, got a row that is not")


def _validate_sources(subject: Subject, source_row: Ints) -> None:
    """Check that rows of a subsample come from different rows, in leaf order within each cluster."""
    forest = subject.forest
    check_shape("source_row", source_row, (forest.n_points,))
    if np.unique(source_row).size < source_row.size:
        raise ValueError("source_row must not repeat, got a row twice")
    falls = np.flatnonzero(np.diff(source_row) <= 0) + 1
    inside = falls[~np.isin(falls, forest.cluster_start)]
    if inside.size:
        raise ValueError(f"source_row[{inside[0]}] must be above the one before it, got {source_row[inside[0]]}")


# ---------------------------------------------------------------------- one page with a figure for each law


FILE_NAME = "verify.html"
NO_BREAK = "\u00a0"
#: How a page shows each verdict.
LOOKS = {"pass": "good", "fail": "bad", "not enough data": "mixed", "does not apply": "mixed"}
DEFINITIONS = (
    "One line per law: what theory expects, what was measured, and how likely data as far off would be if the law "
    "holds (p), or the largest deviation from a law that holds exactly (error). A law fails below p = 0.00001. A law "
    "that needs more data than these says how much."
)
LEAST_P = 1e-8  #: Smaller p-values are drawn at this value.


def _p_values(checks: Sequence[Check]) -> str:
    """Return one picture of all laws that have a p-value; laws left of the line fail."""
    tried = [check for check in checks if check.p_value is not None]
    if not tried:
        return ""
    named = {f"{check.data}: {check.law}" if check.data else check.law: check.p_value or 0.0 for check in tried}
    marks = {"law": {name: dot_rows.Mark(max(p, LEAST_P)) for name, p in named.items()}}
    xlabel = "p: how likely data as far from the law are, if it holds"
    picture = dot_rows.Panel([*named], marks, xlabel, zero=ALARM, log=True, colours={"law": style.BLUE})
    return pages.picture(dot_rows.draw(picture), "The p-value of every law. Left of the line, at 0.00001, a law fails.")


def _tables(checks: Sequence[Check]) -> Iterator[str]:
    """Yield the heading, if the dataset has a name, and the table of each dataset."""
    head = ("law", "expected", "measured", "p or error", "note", "verdict")
    for data, group in groupby(checks, lambda check: check.data):
        rows, looks = [], []
        for check in group:
            evidence = check.evidence.replace(" ", NO_BREAK)
            rows.append((check.law, check.expected, check.measured, evidence, check.note, check.verdict))
            looks.append(LOOKS[check.verdict])
        yield from [pages.heading(data)] if data else []
        yield pages.table(rows, head, looks, stack=True)
