"""Causes.

Which part of a transformer's activations carries the context that its predictions depend on?

Transformers are trained on documents of one of two lexicons. For every pair of sibling contexts, held-out documents
have one context from a position on, and by the same random draws the other. The exact distribution of the next token
is known for both. Three kinds of networks are changed: trained on this lexicon (own), trained on the other (other),
and untrained.

Interchange: activations of one document are replaced by those of the other, in a subspace, at all positions where the
two differ. The score is the share of the exact divergence between the two predictions that this bridges: 1 for a
perfect network in which the subspace carries all of the context, 0 if it carries nothing. All subspaces are single
directions: the difference of mean activations (sibling), a linear discriminant (probe), the direction found by gradient
descent (learned), the two features of k-means or of a TopK autoencoder that change most, and a random direction, the
floor. The whole layer is the ceiling. Directions are fitted on documents that they are not tried on.

Steering: the difference of means is added to the activations of one document, or what the two features of a method
that change most add. The slope is the change of the prediction over the exact one: 1 is right. Ablation: the rise of
the loss at a context's positions above the rise at others when its direction is set to its mean, in nats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from percolab.experiments import documents
from percolab.experiments.documents import Options
from percolab.study.causes import RANDOM, SUBSPACES
from percolab.study.estimates import Line, Row, select
from percolab.study.measured import OTHER, TRAINED, UNTRAINED
from percolab.study.pictures import by_layer, drawn_by
from percolab.study.report import Words
from percolab.study.settings import Settings

#: By reader, the measure of a random direction.
CONTROL = {"interchange": RANDOM, "steering": "slope of a random direction", "ablation": "rise of a random direction"}


def options(scale: str, seeds: int, training: Any) -> Options:
    """Return the options of a scale."""
    if scale == "small":
        along, layer, count = "kmeans@n_features=64,topk@n_features=256+k=8+steps=400+batch_size=512", "blocks.0", 160
    else:
        along = "kmeans@n_features=512,topk@n_features=2048+k=16+steps=3000+batch_size=4096"
        layer, count = "blocks.1", 2000
    return Options((f"interchange@along={along}", f"steering@along={along}", "ablation"), (layer,), count)


def headline(rows: Sequence[Row], s: Settings[Options]) -> Iterator[Line]:
    """Return each reader's measures for trained networks, with a random direction and other networks as controls."""
    for reader, control in CONTROL.items():
        levels = select(rows, part="level", reader=reader, role=TRAINED)
        for row in levels:
            null = select(levels, measure=control)
            if row["measure"] != control:
                yield Line(f"{reader}: {row['measure']}", row, control=null[0], control_words="random direction")
        for row in select(rows, part="contrast", reader=reader, measure=levels[0]["measure"]) if levels else ():
            yield Line(f"{reader}, {row['measure']}: {row['contrast']}", row)
    yield from (line for line in documents.headline(rows, s) if line.what.startswith("excess"))


def interchange(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """What patching each subspace carries: 1 is all."""
    return _by_measure(select(rows, reader="interchange"), s, "share of the exact\ndivergence bridged")


def steering(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """How far steering moves the prediction: 1 is right."""
    return _by_measure(select(rows, reader="steering"), s, "slope (leakage:\nprobability)")


def _by_measure(rows: Sequence[Row], s: Settings[Options], unit: str) -> Any:
    """Draw the mean of every measure, roles side by side."""
    levels = select(rows, part="level")
    order = {name: place for place, name in enumerate(SUBSPACES)}
    measures = sorted(dict.fromkeys(r["measure"] for r in levels), key=lambda name: order.get(name, len(order) / 2))
    short = {name: name.partition("@")[0] for name in measures}
    series = {
        role: [replace(r, names={**r.names, "layer": short[r["measure"]]}) for r in select(levels, role=role)]
        for role in (TRAINED, OTHER, UNTRAINED)
    }
    title = f"{s.data[0]}: {documents.layers_read(s)[0]}"
    return by_layer(series, [short[name] for name in measures], title, unit) if levels else None


EXPERIMENT = replace(
    documents.EXPERIMENT,
    name="causation",
    words=Words.of(__doc__),
    options=options,
    headline=headline,
    draw=drawn_by(interchange, steering),
    least_seeds=1,
    recorded=False,
)
