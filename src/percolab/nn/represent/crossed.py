"""Crossed values: whether activations hold the values that a network was trained on, or only where the latents are.

On one X, K draws of the values z are made, and K networks with the same initial weights and order of rows are trained,
on the y of each. Probes then read every draw of values from every network. A network that holds its values lets its own
be read with a smaller error than those of the others, which only the places of latents give away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab.dataset import targets
from percolab.dataset.dataset import Dataset
from percolab.intervals import Estimate, central, jackknife, kin
from percolab.intervals.binning import log_bins
from percolab.model.target import Target
from percolab.nn.frame.drawing import by_layer, by_number
from percolab.nn.frame.frame import Arrays
from percolab.nn.frame.page import Line, Words
from percolab.nn.frame.table import Row, row, select
from percolab.nn.networks.recording import activations, label
from percolab.nn.probing.latent_values import fresh_values, path_sums
from percolab.nn.probing.places import read_places
from percolab.nn.represent.networks import train_networks
from percolab.nn.represent.settings import Settings
from percolab.nn.represent.work import Work, layer_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TARGETS = ("z", "sum")
ASSIGNMENTS = 400
"""Draws of the null: which values are taken to be each network's own."""
LEAST_ERROR = 1e-8


# ---------------------------------------------------------------------- statistics


def own_log_ratio(errors: Floats) -> float:
    """Return the mean log ratio of the error on own values to that on the others' values.

    Parameters
    ----------
    errors
        (K, K, L) error of network k on draw j, by latent. Every network and every draw is in both means equally often,
        so neither a network that is easy to read nor a draw that is easy to guess shows.
    """
    logs = np.log(np.maximum(errors, LEAST_ERROR))
    K = len(logs)
    own = logs[np.arange(K), np.arange(K)]
    others = (logs.sum((0, 1)) - own.sum(0)) / (K * (K - 1))
    return float((own.mean(0) - others).mean())


def own_interval(errors: Floats, blocks: Ints) -> Estimate:
    """Return `own_log_ratio` with an interval from leaving out networks, each with its draw, and blocks of latents."""

    def statistic(networks: Ints, latents: Ints) -> float:
        return own_log_ratio(errors[np.ix_(networks, networks, latents)])

    return jackknife(statistic, len(errors), blocks)


def null_band(fresh: Floats, seed: int = 0) -> Estimate:
    """Return where the log ratio falls if the values taken to be a network's own are fresh ones.

    Parameters
    ----------
    fresh
        (K, F, L) of network k on values that no network has seen.
    seed
        Of the draws.

    Returns
    -------
    Estimate
        Mean and central 95% of `ASSIGNMENTS` draws. Each takes K of the F fresh columns, one for each network, as if
        they were its own. Own values are left out of it altogether.
    """
    K, F = fresh.shape[:2]
    rng = np.random.default_rng((seed, 3))
    found = []
    for _ in range(ASSIGNMENTS):
        columns = rng.permutation(F)[:K]
        found.append(own_log_ratio(fresh[:, columns]))
    return central(found, K, fresh.shape[2])


# ---------------------------------------------------------------------- training and measuring


def draws_of(dataset: Dataset, count: int) -> list[tuple[Floats, Floats]]:
    """Return `count` draws of the latents' values with their y: the dataset's own, then standard normal ones."""
    forest, made = dataset.forest, [(dataset.latent_z, dataset.y)]
    for k in range(1, count):
        rng = np.random.default_rng((k, 4))
        latent_z, point_z = rng.standard_normal(forest.n_latents), rng.standard_normal(forest.n_points)
        made.append((latent_z, targets.make(Target(), forest, latent_z, point_z)))
    return made


def train(work: Work) -> dict[str, Any]:
    """Train a network on each draw of values, all from the same initial weights, in the same order of rows."""
    s = work.settings
    configs = s.training.with_seeds([0] * s.seeds)
    y = np.stack([y for _, y in draws_of(work.truths[0].dataset, s.seeds)])
    return train_networks(work.dataset, configs, y, work.split, s.keep, work.output, work.device, work.progress)


def measure(work: Work) -> Arrays:
    """Read every draw of values, and fresh ones, from every layer of every network."""
    s, [one] = work.settings, work.truths
    drawn = [z for z, _ in draws_of(one.dataset, s.seeds)]
    [probed] = work.probed()
    z = np.column_stack([*drawn, fresh_values(one.forest, s.fresh, seed=0)])
    values = np.concatenate([z, path_sums(one.forest, z)], axis=1)[probed.latent]
    names = layer_names(work.networks.model(0, 0, work.device))[1:]
    mse = np.empty((s.seeds, len(names), len(TARGETS), s.seeds + s.fresh, len(probed)), np.float32)
    for i, _, model in work.looks(range(s.seeds), (work.networks.last,)):
        recorded = activations(model, work.inputs, names, device=work.device)
        for k, name in enumerate(names):
            found = read_places(recorded[name], probed, values).mse
            mse[i, k] = found.T.reshape(len(TARGETS), -1, len(probed))
    return {
        "mse": mse,
        "layers": np.array(names),
        "place": probed.start,
        "fom": one.forest.figure_of_merit[probed.latent],
    }


# ---------------------------------------------------------------------- estimates


def analyse(found: Arrays, work: Work) -> list[Row]:
    """Return log ratios of errors, own over others, by layer and figure of merit, and where they fall for nothing."""
    K, names = work.settings.seeds, [str(name) for name in found["layers"]]
    usable = np.isfinite(found["mse"]).all((0, 1, 2, 3))
    place, fom = work.latent_places()[usable], found["fom"][usable]
    bins, edges = log_bins(fom, 4)
    rows: list[Row] = []
    for k, layer in enumerate(names):
        for t, target in enumerate(TARGETS):
            table = found["mse"][:, k, t][:, :, usable].astype(np.float64)
            own, fresh = table[:, :K], table[:, K:]
            told = {"layer": layer, "target": target}
            rows.append(row(own_interval(own, kin(place)), part="all", **told))
            rows.append(row(null_band(fresh), part="null", **told))
            for b in np.unique(bins):
                here = bins == b
                if np.count_nonzero(here) < 2:
                    continue
                where = {
                    "bin": f"FOM {edges[b]:.2g} to {edges[b + 1]:.2g}",
                    "at": float(np.sqrt(edges[b] * edges[b + 1])),
                }
                rows.append(row(own_interval(own[:, :, here], kin(place[here])), part="fom", **where, **told))
                rows.append(row(null_band(fresh[:, :, here]), part="fom null", **where, **told))
    return rows


# ---------------------------------------------------------------------- report

WORDS = Words(
    title="Crossed values",
    question="Do activations hold the values that a network was trained on, or only where the latents are?",
    method="Networks with the same initial weights and the same order of rows are trained on one X, each on the y of "
    "another draw of values. Ridge probes read every draw from every network, with samples held out at random. The "
    "log ratio is the mean logarithm of the error on a network's own values, less that on the other networks' values: "
    "below 0 a network holds its own values. Every network and every draw is in both means equally often. It is taken "
    "for the values z and for their sums down to the latent.",
    control="The other networks' values are the control. The null takes values that no network has seen in place of "
    "each network's own, many times: its interval is where 95% of such draws fall, and an effect is said to be found "
    "only outside of it. Before training all networks are one, so the log ratio is 0 by construction.",
    captions={
        "layers": "Log ratio of the error on own values to that on the others', by layer; grey: 95% of draws of fresh "
        "values.",
        "fom": "The same for z, by figure of merit.",
        "fom_sum": "The same for sums of z, by figure of merit.",
    },
)


def headline(rows: Sequence[Row], s: Settings) -> list[Line]:
    """Return the log ratios in all layers but the input layer, each with its null."""
    lines = []
    for target in TARGETS:
        for own in select(rows, part="all", target=target):
            if own["layer"] != "input":
                null = select(rows, part="null", target=target, layer=own["layer"])[0]
                what = f"error on own {target} over others', log ratio, {label(own['layer'])}"
                lines.append(Line(what, own, -1, 0.0, null, "95% of fresh draws", band=True))
    return lines


def draw(rows: Sequence[Row], s: Settings) -> dict[str, Figure]:
    """Draw log ratios by layer and by figure of merit, with the null."""
    names = list(dict.fromkeys(r["layer"] for r in rows))
    ratio = "log ratio of errors,\nown over others"
    layers = {}
    for target in TARGETS:
        layers[target] = select(rows, part="all", target=target)
        layers[f"{target}, null"] = select(rows, part="null", target=target)
    drawn = {"layers": by_layer(layers, names, f"{s.data}: crossed values", ratio)}
    shown = [name for name in names if name.endswith("hidden")]
    for target, name in zip(TARGETS, ("fom", "fom_sum"), strict=True):
        series = {label(n): select(rows, part="fom", target=target, layer=n) for n in shown}
        series["null, " + label(shown[-1])] = select(rows, part="fom null", target=target, layer=shown[-1])
        drawn[name] = by_number(series, "at", f"{s.data}: {target} by FOM", "FOM", ratio)
    return drawn
