"""Trained over untrained, by epoch and layer: whether training makes latents easier to read.

The same networks are looked at before the first step and at some epochs after it, so each is compared with its own
untrained self, layer by layer. Two things are read: the values of latents, by linear probes, and which of two siblings
a sample belongs to, by the separation of their activations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab.intervals import Estimate, jackknife, kin, mean_interval
from percolab.intervals.binning import log_bins
from percolab.nn.frame.drawing import by_layer, by_number
from percolab.nn.frame.frame import Arrays
from percolab.nn.frame.page import Line, Words
from percolab.nn.frame.table import Row, row, select
from percolab.nn.networks.recording import RAW, activations, label
from percolab.nn.probing import siblings
from percolab.nn.probing.errors import LEAST_BASELINE
from percolab.nn.probing.latent_values import fresh_values, path_sums
from percolab.nn.probing.places import read_places
from percolab.nn.probing.siblings import find_siblings
from percolab.nn.represent.networks import train_networks
from percolab.nn.represent.settings import Settings
from percolab.nn.represent.work import Work, layer_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TARGETS = ("z", "sum", "fresh z")


# ---------------------------------------------------------------------- statistics


def log_change(values: Floats, before: int = 0) -> Floats:
    """Return the logarithm of (S, E, …) positive measures, less that of the same seed at epoch index `before`."""
    logs = np.log(np.maximum(values.astype(np.float64), 1e-300))
    change: Floats = logs - logs[:, [before]]
    return change


# ---------------------------------------------------------------------- training and measuring


def train(work: Work) -> dict[str, Any]:
    """Train a network for each seed, all on the dataset's y."""
    s = work.settings
    configs = s.training.with_seeds(range(s.seeds))
    return train_networks(work.dataset, configs, None, work.split, s.keep, work.output, work.device, work.progress)


def measure(work: Work) -> Arrays:
    """Probe latents and separate siblings in every layer, at every epoch kept, of every network, and in the input."""
    s, [one] = work.settings, work.truths
    pairs = find_siblings(one.forest, one.rows, s.min_size, s.most_pairs)
    whole = siblings.ready(pairs, work.device)
    [probed] = work.probed()
    z = np.column_stack([one.latent_z, fresh_values(one.forest, 1, seed=0)])
    values = np.column_stack([z[:, 0], path_sums(one.forest, z[:, :1])[:, 0], z[:, 1]])[probed.latent]
    names = layer_names(work.networks.model(0, 0, work.device))
    shape = (s.seeds, len(s.keep), len(names))
    found: Arrays = {
        "separation": np.empty((*shape, len(pairs)), np.float32),
        "mse": np.empty((*shape, len(probed), len(TARGETS)), np.float32),
    }
    raw: tuple[Floats, Floats] | None = None
    for i, j, model in work.looks(range(s.seeds), s.keep):
        recorded = activations(model, work.inputs, names[1:], device=work.device)
        for k, name in enumerate(names):
            if name == RAW and raw is not None:
                found["separation"][i, j, k], found["mse"][i, j, k] = raw
                continue
            A = work.inputs if name == RAW else recorded[name]
            read = read_places(A, probed, values)
            found["separation"][i, j, k] = siblings.separation(siblings.sums(A, whole))
            found["mse"][i, j, k] = read.mse
            found["baseline"] = read.baseline
            if name == RAW:
                raw = found["separation"][i, j, k].copy(), found["mse"][i, j, k].copy()
    forest = one.forest
    return {
        **found,
        "layers": np.array(names),
        "pair_place": pairs.place,
        "pair_size": pairs.size,
        "latent_place": probed.start,
        "fom": forest.figure_of_merit[probed.latent],
        "latent_depth": forest.latent_depth[probed.latent],
    }


# ---------------------------------------------------------------------- estimates


def analyse(found: Arrays, work: Work) -> list[Row]:
    """Return log ratios, trained over untrained, and the measures themselves, by layer and epoch."""
    s, names = work.settings, [str(name) for name in found["layers"]]
    usable = (found["baseline"] >= LEAST_BASELINE).all(1) & np.isfinite(found["mse"]).all((0, 1, 2, 4))
    baseline, mse = found["baseline"][usable], found["mse"][:, :, :, usable].astype(np.float64)
    place = work.latent_places()[usable]
    blocks, pair_blocks = kin(place), kin(found["pair_place"])
    rows: list[Row] = []
    for k, layer in enumerate(names):
        separation = log_change(found["separation"][:, :, k])
        change = log_change(mse[:, :, k])
        for j, epoch in enumerate(s.keep):
            told = {"layer": layer, "epoch": epoch}
            rows.append(row(mean_interval(separation[:, j], pair_blocks), measure="log ratio, separation", **told))
            level = found["separation"][:, j, k].astype(np.float64)
            rows.append(row(mean_interval(level, pair_blocks), measure="separation", **told))
            apart = change[:, j, :, TARGETS.index("z")] - change[:, j, :, TARGETS.index("fresh z")]
            rows.append(row(mean_interval(apart, blocks), measure="log ratio, z less fresh z", **told))
            for t, target in enumerate(TARGETS):
                ratio = mean_interval(change[:, j, :, t], blocks)
                rows.append(row(ratio, measure=f"log ratio, error on {target}", **told))
                rows.append(
                    row(_relative(mse[:, j, k, :, t], baseline[:, t], blocks), measure=f"error on {target}", **told)
                )
        rows += _by_fom(change[:, -1, :, 0], found["fom"][usable], place, layer, s.keep[-1])
    return rows


def _relative(mse: Floats, baseline: Floats, blocks: Ints) -> Estimate:
    """Return the error of probes over that of the mean, all latents together, with its interval."""

    def statistic(seeds: Ints, latents: Ints) -> float:
        return float(mse[np.ix_(seeds, latents)].mean(0).sum() / baseline[latents].sum())

    return jackknife(statistic, len(mse), blocks)


def _by_fom(change: Floats, fom: Floats, place: Ints, layer: str, epoch: int) -> list[Row]:
    bins, edges = log_bins(fom, 4)
    return [
        row(
            mean_interval(change[:, bins == b], kin(place[bins == b])),
            measure="log ratio by FOM, error on z",
            layer=layer,
            epoch=epoch,
            bin=f"FOM {edges[b]:.2g} to {edges[b + 1]:.2g}",
            at=float(np.sqrt(edges[b] * edges[b + 1])),
        )
        for b in np.unique(bins)
        if np.count_nonzero(bins == b) > 1
    ]


# ---------------------------------------------------------------------- report

WORDS = Words(
    title="Trained over untrained",
    question="Does training make the latents easier to read from a network's activations, and in which layers?",
    method="Networks are looked at before the first step and at some epochs after it. The error of ridge probes of z, "
    "of the sum of z down to the latent, and of fresh values that no network has seen, is taken on held-out samples, "
    "for each latent. The separation of siblings is the squared distance of their mean activations over their summed "
    "variances. Each is compared with the same of the same network before training: a log ratio below 0 for errors, "
    "above 0 for separation, is what training improves.",
    control="The control is the untrained network: the same initial weights, the same probes, the same split. Fresh "
    "values ask whether what training changes has to do with the values at all: a probe of a fresh value can only "
    "know where a latent is. The raw input is the same at every epoch.",
    captions={
        "change": "Log ratio, trained over untrained, by layer after the last epoch. Errors: below 0 is better. "
        "Separation: above 0 is better.",
        "epochs": "Error of probes of z over that of the mean, by epoch; epoch 0 is the untrained network.",
        "separation": "Mean separation of siblings by epoch.",
        "error": "Error of probes of z over that of the mean, by layer: before training, after it, and on fresh "
        "values.",
        "fom": "Log ratio of the error on z, trained over untrained, by figure of merit.",
    },
)


def headline(rows: Sequence[Row], s: Settings) -> list[Line]:
    """Return the log ratios after training in every hidden layer and the last residual stream."""
    end, n = s.keep[-1], s.training.n_blocks
    lines = []
    for layer in (*(f"blocks.{i}.hidden" for i in range(n)), f"blocks.{n - 1}"):
        told = {"layer": layer, "epoch": end}
        fresh = select(rows, measure="log ratio, error on fresh z", **told)[0]
        own = select(rows, measure="log ratio, error on z", **told)[0]
        lines.append(Line(f"error on z, log ratio to untrained, {label(layer)}", own, -1, 0.0, fresh, "fresh z"))
        apart = select(rows, measure="log ratio, separation", **told)[0]
        lines.append(Line(f"separation, log ratio to untrained, {label(layer)}", apart, note="0 before training"))
    return lines


def draw(rows: Sequence[Row], s: Settings) -> dict[str, Figure]:
    """Draw log ratios by layer, errors and separation by epoch, and log ratios by figure of merit."""
    names = list(dict.fromkeys(r["layer"] for r in rows))
    own, end = [name for name in names if name != RAW], s.keep[-1]
    measures = ["error on z", "error on sum", "error on fresh z", "separation"]
    change = {m: [r for r in select(rows, measure=f"log ratio, {m}", epoch=end) if r["layer"] in own] for m in measures}
    shown = [name for name in names if not name.endswith("hidden")][:1] + [n for n in names if n.endswith("hidden")]
    first = float(s.keep[1])
    errors = {label(n): select(rows, measure="error on z", layer=n) for n in shown}
    apart = {label(n): select(rows, measure="separation", layer=n) for n in shown}
    levels = {
        "untrained": select(rows, measure="error on z", epoch=0),
        "trained": select(rows, measure="error on z", epoch=end),
        "trained, fresh z": select(rows, measure="error on fresh z", epoch=end),
    }
    fom = {label(n): select(rows, measure="log ratio by FOM, error on z", layer=n) for n in shown[1:]}
    relative, title = "error over that of the mean", f"{s.data}: "
    return {
        "change": by_layer(change, own, title + "trained over untrained", "log ratio,\ntrained over untrained"),
        "error": by_layer(levels, names, title + "error on z", relative, zero=1.0, log_y=True),
        "epochs": by_number(
            errors, "epoch", title + "error on z", "epoch", relative, zero=None, symmetric_from=first, ticks=True
        ),
        "separation": by_number(
            apart,
            "epoch",
            title + "separation",
            "epoch",
            "mean separation",
            zero=None,
            symmetric_from=first,
            ticks=True,
        ),
        "fom": by_number(fom, "at", title + "error on z by FOM", "FOM", "log ratio,\ntrained over untrained"),
    }
