"""What the report of dose and response says and shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from percolab.nn.frame.drawing import by_layer, by_number
from percolab.nn.frame.page import Line, Words
from percolab.nn.frame.table import Row, select
from percolab.nn.networks.recording import RAW, label
from percolab.nn.represent.dose_estimates import LESS_OTHER
from percolab.nn.represent.settings import Settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAME = "1 if it does not matter where a sample is"

WORDS = Words(
    title="Dose and response",
    question="Does pushing activations along a concept's direction change the prediction as the truth says it should?",
    method="The activations of a concept's samples are pushed after some layer, and the rest of the network is run. "
    "Along the concept's own direction, to its sibling's mean activation, the mean change of the prediction is "
    "compared with the true difference of mean y; along the direction of a probe of z, with the law: moved as far as "
    "the reading rises where z is larger by δ, the prediction should change by δ / √(1 + number of latents above the "
    "point) where there is a latent of that depth, and by 0 elsewhere; along a feature of k-means, the part of the "
    "own direction that it carries, with the true difference of mean y again. The slope is that of a line through the "
    "origin, over all concepts: 1 is what the truth says, 0 is no response. A probe's direction is the one along "
    "which activations vary with its reading. Leakage is the mean size of the response to the same push on samples "
    "elsewhere, over that on the concept's own: 0 is a response of the concept alone, 1 is a response that does not "
    "depend on where a sample is.",
    control="The same is done where the hierarchy is irrelevant to the target, in the network before training, along "
    "random directions of the same length, along directions of probes of fresh values, and along the feature of "
    "another concept. Of fresh values the interval is where 95% of further draws fall, and a probe's slope counts as "
    "found only outside of it: with few latents at a depth, any values go along with y by chance. A feature's slope "
    "counts by what it has beyond that of another concept's feature. After the last "
    "block the readout is linear, so the mean response to a difference of means is right by construction, whatever "
    "was learned: the last block is left out.",
    captions={
        "own": "Slope of the response along a concept's own direction by layer, at dose 1: the whole way to the "
        "sibling.",
        "r2": "r² of the same lines.",
        "dose": "Slope by dose where the hierarchy is relevant. A constant slope is a response in proportion.",
        "probe": "Slope of the response along a probe's direction, over what the law predicts, at dose 1.",
        "feature": "Slope of the response along the part of the own direction that the concept's feature carries.",
    },
)


def headline(rows: Sequence[Row], s: Settings) -> list[Line]:
    """Return slopes along own, probe and feature directions in every layer, each with a control."""
    lines = []
    for layer in (name for name in dict.fromkeys(r["layer"] for r in rows) if name != RAW):
        here = select(rows, network="trained", layer=layer, dose=1.0)
        slopes = {(r["direction"], r["case"]): r for r in select(here, measure="slope")}
        where = label(layer)
        for direction, along, control, words in (
            ("own", "the own direction", ("own", "irrelevant"), "irrelevant"),
            ("probe", "the probe direction", ("fresh probe", "relevant"), "fresh values"),
            (LESS_OTHER, "the feature's direction less another's", ("other feature", "relevant"), "another feature"),
        ):
            if (direction, "relevant") in slopes:
                what = f"slope along {along}, {where}"
                band = direction == "probe"
                lines.append(Line(what, slopes[direction, "relevant"], 1, 0.0, slopes[control], words, band=band))
        leaks = select(here, measure="leakage")
        lines += [
            Line(f"leakage of the {leak['direction']} direction, {where}", leak, -1, 1.0, note=SAME) for leak in leaks
        ]
    return lines


def draw(rows: Sequence[Row], s: Settings) -> dict[str, Figure]:
    """Draw slopes and r² by layer and by dose."""
    names = list(dict.fromkeys(r["layer"] for r in rows))
    title = f"{s.data}: "

    def at(measure: str, direction: str, case: str, network: str = "trained", dose: float = 1.0) -> list[Row]:
        return select(rows, measure=measure, direction=direction, case=case, network=network, dose=dose)

    def cases(measure: str) -> dict[str, list[Row]]:
        return {
            "relevant": at(measure, "own", "relevant"),
            "irrelevant": at(measure, "own", "irrelevant"),
            "random direction": at(measure, "random", "relevant"),
            "untrained": at(measure, "own", "relevant", "untrained"),
        }

    dose = {
        label(n): select(rows, measure="slope", direction="own", case="relevant", network="trained", layer=n)
        for n in names
    }
    probe = {
        "relevant": at("slope", "probe", "relevant"),
        "irrelevant": at("slope", "probe", "irrelevant"),
        "fresh values (null)": at("slope", "fresh probe", "relevant"),
        "untrained": at("slope", "probe", "relevant", "untrained"),
    }
    feature = {
        "relevant": at("slope", "feature", "relevant"),
        "irrelevant": at("slope", "feature", "irrelevant"),
        "feature of an unrelated concept": at("slope", "other feature", "relevant"),
    }
    with_features = [n for n in names if any(r["layer"] == n for r in feature["relevant"])]
    slope = "slope, response over truth"
    drawn = {
        "own": by_layer(cases("slope"), names, title + "own directions", slope),
        "r2": by_layer(cases("r2"), names, title + "own directions", "r²"),
        "dose": by_number(dose, "dose", title + "own directions by dose", "dose", slope, ticks=True),
        "probe": by_layer(probe, names, title + "probes' directions", slope),
    }
    if with_features:
        drawn["feature"] = by_layer(feature, with_features, title + "features' directions", slope)
    return drawn
