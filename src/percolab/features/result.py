"""A score: tables of concepts and of features, their summary, and views of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from percolab.features.thresholds import RECOVERED, SUMMARY_RATIO
from percolab.ground.arrays import Floats, Ints
from percolab.ground.validation import check_choice
from percolab.show import pages

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

BINNED = ("size", "depth", "fom")
COUNTS = ("concepts", "features", "dead", "dense")
#: Columns of the table by size.
BY_SIZE = ("concepts", "recovery", "chance", "recovered", "splitting", "absorption", "absorption_null")
#: Columns of concepts whose means are in a summary, under the same names.
AVERAGED = ("f1_union", "absorption_edge", "absorption", "absorption_null", "absorption_carried", "cosine")
#: What the names in a summary mean, for pages.
MEANINGS = (
    "Recovery is the mean over concepts of the best F1 of any feature, recovered the share above 0.8; chance is "
    "recovery with the rows, or whole documents, of every feature permuted. Purity is the mean over features of the "
    "best F1 over concepts. "
    "Splitting is how many features are taken for a concept, each because it raises F1 of their union by 0.03. "
    "Absorption is the share of a concept's rows where its feature is silent and the feature of a smaller concept "
    "inside fires; absorption null is what independent misses would give; absorption edge is recall of the upper "
    "concept's feature outside the lower one minus inside. L0 is how many features fire on a row."
)
CONTROL = (
    "chance is not the control: the control is the same method on an untrained network and on the raw input, see "
    "percolab.compare"
)


@dataclass(frozen=True, eq=False)
class Score:
    """How well features match concepts. Made by `score`.

    Columns of `concepts`, one row per concept, in preorder:

    - ``latent``, ``size`` (rows that were given), ``depth`` and ``fom`` (figure of merit) of the latent in its forest;
      ``upper``, the nearest concept above, -1 if none; ``summarised``, whether summaries count it.
    - ``best_feature`` and ``f1``, its F1; -1 and 0 where no feature fires on a row of the concept.
      ``chance``: the best F1 after each feature's rows are permuted, of documents whole documents, mean of the draws.
      ``recovering``: number of features with F1 above 0.8.
    - ``k`` and ``f1_union``: starting from the best feature, the feature that raises F1 of the union most is added
      until the raise is below 0.03; the number of features taken, and the F1 of their union.
    - ``absorption_edge``: recall of the upper concept's feature on its rows outside this concept, minus inside.
    - ``absorption``: share of rows where the concept's feature is silent and an absorber fires, another feature with
      F1 of at least 0.5 for a concept inside of at most half the size; ``absorption_null``: the product of the two
      shares, which independent misses give; ``absorption_carried``: the share where one absorber also has 0.4 of what
      all codes have along the concept's direction. NaN where the concept's own F1 is below 0.5.
    - ``cosine``: of the best feature's decoder vector with the mean activation of the concept minus its sibling's, in
      documents minus the mean of the other positions of the nearest context above; NaN at tops.

    Columns of `features`, one row per feature: ``feature``, ``fired`` (on how many rows), ``dead`` (on none), ``dense``
    (on more than half), ``latent`` and ``f1`` of the best match over the concepts listed (-1 and 0 if there is none),
    its ``precision`` and ``recall``; ``purity``, the best F1, and ``recovered``, the number of F1 above 0.8, over the
    concepts that summaries count.
    """

    concepts: pandas.DataFrame
    features: pandas.DataFrame
    #: Means over the concepts that are summarised and the features that live. ``recovery`` is the mean F1 of concepts
    #: and ``recovered`` the share above 0.8; ``splitting`` the mean k of those that have a feature, ``split`` the share
    #: with k > 1 of those whose union is above 0.8; ``features_per_concept`` how many features have F1 above 0.8 for a
    #: recovered concept, ``concepts_per_feature`` the other way round; ``purity`` and ``pure`` the mean and the share
    #: above 0.8 of features. ``concepts``, ``features``, ``dead`` and ``dense`` are counts, ``l0`` is how many features
    #: fire on a row, ``explained_variance`` is there where a decoder was given.
    summary: dict[str, float]
    chance_draws: Floats  #: (draws, concepts) best F1 in each draw of chance; `chance` is their mean
    #: the settings of the score: rows, min_size, ratio, threshold, draws, seed; for documents also about and truth
    settings: dict[str, Any] = field(default_factory=dict)
    #: (rows,) for each row of the codes, the deepest concept over it that a feature firing there absorbs from, -1 for
    #: none: a row of a concept with number i is absorbed where the concept's feature is silent and this is at least i
    absorbed_from: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def counted(self) -> str:
        """The number of concepts that the means are over, and which listed concepts they leave out, as text."""
        count, listed = int(self.summary["concepts"]), len(self.concepts)
        lists_nested = self.settings.get("ratio", SUMMARY_RATIO) > SUMMARY_RATIO
        nested = ", nor any of more than 2/3 of the rows of the one above" if lists_nested else ""
        left_out = f" of {listed:,}" if count < listed else ""
        return f"{count:,}{left_out} concepts{f' (not the one of all rows{nested})' if left_out else ''}"

    def __repr__(self) -> str:
        means, sizes = self.summary, f"{len(self.features):,} features, {self.counted}"
        chance, recovered = f"(chance {means['chance']:.3f})", f"{means['recovered']:.1%} recovered"
        return f"Score({sizes}: recovery {means['recovery']:.3f} {chance}, {recovered}; {CONTROL})"

    @property
    def verdict(self) -> str:
        """The result, in one sentence."""
        means = self.summary
        return (
            f"{len(self.features):,} features recover {means['recovered']:.0%} of {int(means['concepts']):,} concepts; "
            f"the mean best F1 is {means['recovery']:.3f}, by chance {means['chance']:.3f}, which is not the control."
        )

    def by(self, column: str = "size") -> pandas.DataFrame:
        """Return means over concepts in bins of "size", "depth" or "fom", each twice as wide as the one before.

        A bin holds from ≤ value < to, over the concepts that summaries count. `chance_low` and `chance_high` are the
        least and the largest mean of any draw.
        """
        import pandas

        check_choice("column", column, BINNED)
        table = summarised(self.concepts, self.settings["rows"])
        draws = self.chance_draws[:, self.concepts["summarised"].to_numpy()]
        shift = 1.0 if column == "depth" else 0.0  # depths start at 0
        bins = np.floor(np.log2(table[column].to_numpy() + shift)).astype(np.int64)
        lines = []
        for value in np.unique(bins):
            in_bin = bins == value
            low, high = 2.0**value - shift, 2.0 ** (value + 1) - shift
            chance = draws[:, in_bin].mean(axis=1)
            lines.append(
                {"from": low, "to": high, "concepts": int(in_bin.sum()), **concept_means(table[in_bin])}
                | {"chance_low": float(chance.min()), "chance_high": float(chance.max())}
            )
        return pandas.DataFrame(lines)

    def plot(self) -> Figure:
        """Draw recovery by size over chance, purity, splitting by size, and absorption by depth."""
        from percolab.features.plots import draw_score

        return draw_score(self)

    def size_table(self) -> list[list[str]]:
        """Return the means by size as a table of text, its head first."""
        lines = [["rows of a concept", *(name.replace("_", " ") for name in BY_SIZE)]]
        for _, row in self.by("size").iterrows():
            ends = f"{max(row['from'], self.settings['min_size']):,.0f} to {row['to'] - 1:,.0f}"
            lines.append([ends, *(number(name, row[name]) for name in BY_SIZE)])
        return lines

    def _repr_html_(self) -> str:
        known = {name: value for name, value in self.summary.items() if not np.isnan(value)}
        lines = [(name.replace("_", " "), number(name, value)) for name, value in known.items()]
        head, *body = self.size_table()
        title = f"{len(self.features):,} features against {self.counted}"
        summary, by_size = pages.table(lines, numbers=[1]), pages.table(body, head, numbers=range(1, len(head)))
        control = pages.paragraph(f"{CONTROL.capitalize()}.")
        return "\n".join([pages.heading(title), control, by_size, pages.folded("All numbers", [summary])])


def summarised(concepts: pandas.DataFrame, n_rows: int) -> pandas.DataFrame:
    """Return the concepts that summaries count, without edges to a concept of all rows."""
    whole = concepts["latent"][concepts["size"] == n_rows]
    table = concepts[concepts["summarised"]].copy()
    table.loc[table["upper"].isin(whole), "absorption_edge"] = np.nan
    return table


def number(name: str, value: float) -> str:
    """Return a number as a table shows it; empty for NaN."""
    return "" if np.isnan(value) else f"{value:,.0f}" if name in COUNTS else f"{value:.3f}"


def concept_means(table: pandas.DataFrame) -> dict[str, float]:
    """Return the means over some concepts; NaN if there are none to average."""
    split, union = table["k"] > 1, table["f1_union"] > RECOVERED
    return {
        "recovery": mean(table["f1"]),
        "recovered": mean(table["f1"] > RECOVERED),
        "chance": mean(table["chance"]),
        "splitting": mean(table["k"][table["k"] > 0]),
        "split": mean(split[union]),
        **{name: mean(table[name]) for name in AVERAGED},
        "features_per_concept": mean(table["recovering"][table["recovering"] > 0]),
    }


def feature_means(table: pandas.DataFrame) -> dict[str, float]:
    """Return the means over live features."""
    live = table[~table["dead"]]
    return {
        "purity": mean(live["purity"]),
        "pure": mean(live["purity"] > RECOVERED),
        "concepts_per_feature": mean(live["recovered"][live["recovered"] > 0]),
        "features": float(len(table)),
        "dead": float(table["dead"].sum()),
        "dense": float(table["dense"].sum()),
    }


def mean(values: Any) -> float:
    """Return the mean of the values that are not NaN; NaN if there are none."""
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    return float(known.mean()) if known.size else float("nan")
