"""Verification: every law that applies to a dataset, in one table.

    import percolab as pl

    outcome = pl.verify(ds)
    print(outcome)
    assert outcome.passed

`pl.verify()` without a dataset makes a standard suite and checks that. docs/theory.md says what is checked, how, and
how often correct data would fail.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from percolab.corpora.collection import StoredDocuments
from percolab.corpora.corpus import Corpus
from percolab.dataset.dataset import Dataset
from percolab.dataset.generation import generate
from percolab.ground.progress import Progress, shown
from percolab.model.recipe import ENGINE_NAMES, Recipe, Seeds
from percolab.worlds.remade import remade
from percolab.worlds.superposed import Superposed

if TYPE_CHECKING:
    from rich.table import Table

    from percolab.checks.result import Check

SUITE_POINTS, SUITE_DIM, SUITE_SEED = 200_000, 100, 0
SMALL_TREES, PAIRED_TREES = 500_000, 200_000
"""Trees of 6 points for Prüfer codes, and of 5 for pairs of a tree and its merger tree, grown by each sampler."""

SUITE_WORDS = "the standard suite: data made by both engines for the purpose"

UNTRIED = ("not enough data", "does not apply")
STYLES = {"pass": "green", "fail": "bold red", "not enough data": "yellow", "does not apply": "dim"}


@dataclass(frozen=True)
class Verification:
    """The outcome of `verify`: one `Check` for each law and dataset."""

    checks: tuple[Check, ...]
    subject: str = ""
    """what was checked, in a sentence"""

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

    def table(self) -> Table:
        """Return the outcome as a table for the terminal; below it, why laws were not tried."""
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
        result.caption = Text("\n".join([*lines, self.summary, *self._needs()]))
        return result

    def _needs(self) -> list[str]:
        few = [check for check in self.checks if check.verdict in UNTRIED]
        return [f"{check.data + ', ' if check.data else ''}{check.law}: {check.note}" for check in few]

    def __str__(self) -> str:
        from io import StringIO

        from rich.console import Console

        text = StringIO()
        Console(file=text, width=120).print(self.table())
        return text.getvalue()

    def __repr__(self) -> str:
        return f"Verification({self.summary})"

    def _repr_html_(self) -> str:
        from percolab.checks import report

        return report.as_html(self)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the checks as plain values, ready for JSON."""
        names = ("data", "law", "expected", "measured", "p_value", "error", "verdict", "note")
        return [{name: getattr(check, name) for name in names} for check in self.checks]

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write one HTML page with a figure for each law, into a folder or to a file; return where it is."""
        from percolab.checks import report

        return report.write_report(self, path)


def verify(
    dataset: Dataset | Superposed | Corpus | StoredDocuments | None = None, *, progress: bool | Progress = False
) -> Verification:
    """Check every law that applies to a dataset or a corpus, or to a standard suite if none is given.

    A law whose p-value is below 1e-5 fails; one that the data are too few for says how many it needs, and one that they
    are not subject to, being edited, taken, or with another target, says why. P-values come
    from independent parts of the data, so correct data fail a law less than once in 10,000 times. The checks make their
    choices from a fixed seed: the same data always get the same verdict.

    The suite is both engines in modes one_cluster and distribution, 200,000 points in 100 dimensions each, and each
    engine's sampler alone on 500,000 trees of 6 points and 200,000 of 5.

    Parameters
    ----------
    dataset
        What to check; of X at most 150 million entries are read. Of a superposed world, the laws of how factors are
        put together, and all laws of each factor, whose positions are made again. Of a corpus, or of
        documents in a store, how contexts and tokens are drawn in the first documents, and whether beliefs are true as
        often as they say.
    progress
        True shows a bar; a function is called with (data, kinds of laws done, kinds in all).
    """
    from percolab.checks.laws import all_checks

    with shown(progress) as tell:
        if isinstance(dataset, Corpus | StoredDocuments):
            return Verification(tuple(_documents(dataset, tell)), describe_documents(dataset))
        if isinstance(dataset, Superposed):
            return Verification(tuple(_world(dataset, tell)), f"{_name(dataset.provenance)}{dataset!r}")
        if dataset is not None:
            return Verification(tuple(all_checks(dataset, tell)), describe(dataset))
        return Verification(tuple(_suite(tell)), SUITE_WORDS)


def describe(dataset: Dataset) -> str:
    """Return which dataset this is, in a sentence: its name where it was loaded, its sizes and its recipe."""
    recipe = dataset.recipe
    seeds = f"{recipe.seeds.graph}, {recipe.seeds.embed}, {recipe.seeds.value}"
    return (
        f"{_name(dataset.provenance)}{len(dataset):,} points in {recipe.dim} dimensions, mode {recipe.mode}, "
        f"engine {recipe.engine}, seeds {seeds}"
    )


def describe_documents(documents: Corpus | StoredDocuments) -> str:
    """Return which documents these are, in a sentence."""
    corpus = documents if isinstance(documents, Corpus) else documents.corpus
    stored = "" if isinstance(documents, Corpus) else f"{_name(documents.provenance)}{len(documents):,} "
    count = len(corpus.lexicons)
    return (
        f"{stored}documents of {corpus.length:,} tokens out of {corpus.n_tokens:,}, "
        f"{count} lexicon{'s' * (count > 1)}, renewal {corpus.renewal:g}, "
        f"contexts of at least {corpus.min_size} tokens, seed {corpus.seed}"
    )


def _name(provenance: dict[str, Any]) -> str:
    origin = provenance.get("loaded_from", "")
    return f"{PurePath(origin).name}: " if origin else ""


def _world(world: Superposed, progress: Progress) -> Iterator[Check]:
    from percolab.checks import superposed
    from percolab.checks.laws import all_checks

    progress("world", 0, 1)
    for check in superposed.checks(world):
        yield replace(check, data="world")
    progress("world", 1, 1)
    for k, factor in enumerate(world.factors):
        # Its own X goes with it, or all would stay in memory.
        for check in all_checks(remade(factor), progress, f"factor {k}"):
            yield replace(check, data=f"factor {k}")


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
    from percolab.checks.laws import all_checks

    for engine in ENGINE_NAMES:
        yield from _sampler(engine, progress)
        for mode in ("one_cluster", "distribution"):
            recipe = Recipe(SUITE_POINTS, SUITE_DIM, mode, seeds=Seeds.from_int(SUITE_SEED), engine=engine)
            name = f"{engine}, {mode}"
            for check in all_checks(generate(recipe), progress, name):
                yield replace(check, data=name)


def _sampler(engine: str, progress: Progress) -> Iterator[Check]:
    from percolab.checks import small

    name = f"{engine} sampler"
    progress(name, 0, 2)
    yield replace(small.prufer(small.small_forest(engine, 6, SMALL_TREES, SUITE_SEED), (6,)), data=name)
    progress(name, 1, 2)
    yield replace(small.joint(small.small_forest(engine, 5, PAIRED_TREES, SUITE_SEED), (5,)), data=name)
    progress(name, 2, 2)
