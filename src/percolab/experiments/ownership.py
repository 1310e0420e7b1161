"""Ownership.

Does a crosscoder tell which of two networks learned a concept?

A crosscoder is a TopK autoencoder of two networks' activations side by side. The share of a feature is the norm of its
decoder vector's half for the second network over the sum of both halves' norms. It should be 0 for a concept of the
first network alone, 1 for one of the second alone, and 1/2 for a concept that both have. Shares are read where a
feature matches a concept with an F1 above 0.5, on documents that the crosscoder was not fitted on.

Pairs of networks: swap, trained on one lexicon each from the same initial weights, which share no concept; tuned, a
network trained on the first lexicon and the same network trained further on both, which share the first lexicon's
concepts; reseeded, trained on the first lexicon from different initial weights, which share all. All read the same
documents, half of either lexicon.

AUC is the probability that a concept owned more by the second network has the larger share; 0.5 is chance. The
reseeded pair has no such concepts: its shares are the null. So a second AUC is the probability that a concept of one
network alone is more one-sided, by its distance from 1/2, than a concept of the reseeded pair. Misattributed is the
part of the matched concepts whose share is nearer to that of another owner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from percolab.experiments.documents import mean_of
from percolab.features.fairness import auc
from percolab.show import style
from percolab.study.cells import Cell
from percolab.study.crosscoder import BOTH, MATCHED, Difference, diff, draw_owners, misattributed_share, owner_auc
from percolab.study.estimates import Line, Row, row, select
from percolab.study.experiment import Details, Found, Results, declared
from percolab.study.material import Material, Networks, cell_of, networks_cell
from percolab.study.pictures import Picture
from percolab.study.settings import DOCUMENTS, Settings, corpus_training
from percolab.study.subject import AnyData

SWAP, TUNED, RESEEDED = PAIRS = "swap", "tuned", "reseeded"
#: Lexicons that the networks of a pair were trained on.
KNOWN = {SWAP: ((0,), (1,)), TUNED: ((0,), (0, 1)), RESEEDED: ((0,), (0,))}


@dataclass(frozen=True)
class Options:
    """Options of this experiment besides data and networks."""

    layer: str
    method: str  #: the crosscoder
    documents: int = 2000  #: held-out documents that are read


def options(scale: str, seeds: int, training: Any) -> Options:
    """Return the options of a scale."""
    if scale == "small":
        return Options("blocks.1", "topk@n_features=256+k=8+steps=600+batch_size=1024+lr=0.002", 1000)
    return Options("blocks.3", "topk@n_features=4096+k=32+steps=5000+batch_size=4096+lr=0.001")


# ---------------------------------------------------------------------- cells


@dataclass(frozen=True, eq=False)
class Owned:
    """The concepts of all pairs, as columns: a result of a cell."""

    pair: list[str]
    seed: list[int]
    owner: list[str]
    said: list[str]
    lexicon: list[int]
    latent: list[int]
    f1: NDArray[np.float64]
    share: NDArray[np.float64]

    @property
    def table(self) -> pandas.DataFrame:
        """One row for each concept of each pair of networks."""
        return pandas.DataFrame(vars(self))

    def tidy(self) -> pandas.DataFrame:
        """Return F1 and share below each other."""
        return self.table.melt(["pair", "seed", "owner", "said", "lexicon", "latent"], var_name="measure")


def cells(s: Settings[Options]) -> list[Cell[Any]]:
    """Return the cells of a draw: networks, networks trained further, and the concepts of all pairs."""
    networks = networks_cell(s, Material.train_by_factor, made_from=s.of_networks)
    further = networks_cell(s, tune, networks, name="tuned", made_from=s.of_networks)
    return [networks, further, cell_of(s, "pairs", Owned, measure, networks, further)]


def tune(data: Material, networks: Networks) -> Networks:
    """Train the networks of the first lexicon further, on both."""
    return data.train(models=_of_lexicon(networks, 0, data.data))


def _of_lexicon(networks: Networks, k: int, corpus: AnyData) -> list[Any]:
    return [networks.model(i, corpus) for i, factor in enumerate(networks.factors) if factor == k]


def measure(data: Material, networks: Networks, further: Networks) -> Owned:
    """Return the concepts of all pairs, with the shares of their features."""
    tables = []
    for pair, seed, difference in _differences(data, networks, further):
        assert difference.concepts is not None
        tables.append(difference.concepts.assign(pair=pair, seed=seed))
    table = pandas.concat(tables, ignore_index=True)
    lists = {name: table[name].tolist() for name in ("pair", "seed", "owner", "said", "lexicon", "latent")}
    return Owned(**lists, f1=table["f1"].to_numpy(np.float64), share=table["share"].to_numpy(np.float64))


def _differences(data: Material, networks: Networks, further: Networks) -> Iterator[tuple[str, int, Difference]]:
    s, here, corpus = data.settings, data.here, data.data
    first, second = (_of_lexicon(networks, k, corpus) for k in (0, 1))
    others = {SWAP: second, TUNED: _of_lexicon(further, 0, corpus), RESEEDED: first[1:] + first[:1]}
    layer = s.layers[0] if s.layers else s.options.layer
    counts = {pair: s.seeds - (pair == RESEEDED and s.seeds == 2) for pair in PAIRS}  # two networks are one such pair
    members = [(pair, i) for pair, count in counts.items() for i in range(count)]
    for done, (pair, i) in enumerate(members):
        here.progress("pairs", done, len(members))
        yield pair, i, diff(
            first[i], others[pair][i], corpus, layer=layer, trained_on=KNOWN[pair], documents=s.options.documents,
            method=s.options.method, seed=i, device=here.device, progress=here.progress,
        )  # fmt: skip
    here.progress("pairs", len(members), len(members))


# ---------------------------------------------------------------------- estimates


def analyse(s: Settings[Options], results: Results) -> Iterator[Row]:
    """Return AUCs, misattributed shares and the share of matched concepts, by pair."""
    table = results["pairs"].table
    matched = table[table["f1"] > MATCHED]
    null = matched[matched["pair"] == RESEEDED]
    for pair in PAIRS:
        measures: dict[str, list[float]] = {"matched": [], "misattributed": [], "auc": [], "auc over reseeded": []}
        for seed in sorted(set(table["seed"][table["pair"] == pair])):
            every, chosen = (part[(part["pair"] == pair) & (part["seed"] == seed)] for part in (table, matched))
            measures["matched"].append(len(chosen) / len(every))
            measures["misattributed"].append(misattributed_share(chosen))
            measures["auc"].append(owner_auc(chosen))
            both = pandas.concat([chosen[chosen["owner"] != BOTH], null])
            one_sided = (both["share"] - 0.5).abs().to_numpy()
            measures["auc over reseeded"].append(auc(one_sided, np.flatnonzero(both["owner"] != BOTH)))
        for measure_name, values in measures.items():
            if np.isfinite(values).all():
                yield row(mean_of(values), part="ownership", pair=pair, measure=measure_name)


def networks(s: Settings[Options], results: Results) -> dict[str, Any]:
    """Return the number of networks."""
    return {"networks": 3 * s.seeds}


def headline(rows: Sequence[Row], s: Settings[Options]) -> Iterator[Line]:
    """Return the AUCs, and the misattributed shares with that of the reseeded pair as control."""
    for pair in (SWAP, TUNED):
        for name in ("auc", "auc over reseeded"):
            for estimate in select(rows, pair=pair, measure=name):
                what = "AUC of owners" if name == "auc" else "AUC of one-sidedness over the reseeded pair"
                yield Line(f"{pair}: {what}", estimate, nothing=0.5, note="0.5 by chance")
    null = select(rows, pair=RESEEDED, measure="misattributed")
    for pair in (SWAP, TUNED):
        for estimate in select(rows, pair=pair, measure="misattributed"):
            control = null[0] if null else None
            yield Line(f"{pair}: misattributed concepts", estimate, control=control, control_words=RESEEDED)
    for pair in PAIRS:
        for estimate in select(rows, pair=pair, measure="matched"):
            yield Line(f"{pair}: concepts that a feature matches", estimate, note="F1 above 0.5")


def details(analyses: Sequence[Found], s: Settings[Options]) -> Details:
    """Draw the share of every matched concept, by pair and owner."""
    tables = [analysis.results["pairs"].table.assign(draw=draw) for draw, analysis in enumerate(analyses)]
    table = pandas.concat([table[table["f1"] > MATCHED] for table in tables], ignore_index=True)
    with style.sheet():
        figure = style.new_figure(6.4, 4.6)
        for axes, pair in zip(figure.subplots(len(PAIRS), 1, sharex=True), PAIRS, strict=True):
            draw_owners(axes, table[table["pair"] == pair])
            axes.set_title(pair, loc="left")
            axes.grid(axis="x")
        axes.set_xlabel("share of the second network in the decoder of the feature that matches")
    text = "One dot per matched concept, at the share of its feature, by its true owner. A right share is 0, 1/2 or 1."
    return Details([], {}, {"shares": Picture(figure, text)}, {"tables/concepts": table})


training = corpus_training
EXPERIMENT = declared(__name__, data=DOCUMENTS, own_networks=True, usual_seeds={"paper": 2, "small": 2})
