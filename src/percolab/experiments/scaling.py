"""Scaling.

How does the test error fall with the number of training rows, and with the width of the network?

Test rows are the same throughout. Training rows are nested: a chain is a random order of all others, and n rows are its
first n. Each seed has a chain and a network of its own, and all networks take the same number of steps. 1NN predicts a
test row by the nearest training row; where several tie within a relative 1e-6, its error is the mean over them. An
exponent is the slope of the logarithm of the mean error on that of the number, by least squares; its interval comes
from leaving out chains and blocks of kin among the test rows.

1NN is the control: it learns nothing. arXiv 2412.07942 derives power laws for two kinds of percolation data. Where one
cluster holds the data, it is a manifold of intrinsic dimension 4, and errors fall with the exponent -c/4, where c
depends on how smooth target and fit are: for squared errors of nearest neighbours and a target that changes in
proportion to distance, c is 2. Where there are many clusters with sizes of exponent 5/2, they are subtasks that are
learned in turn, and the theory of such quanta (arXiv 2303.13506, with its exponent 1) gives -1/2 in rows and -1 in
parameters. Targets there are continuous functions on each cluster; here they are sums over a hierarchy, and clusters
below the least size are left out. So the predictions are something to compare with, not laws of these data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
from torch import nn

from percolab.ground.arrays import Floats, Ints
from percolab.intervals import Estimate, jackknife, kin, mean_interval
from percolab.nn.config import TrainConfig
from percolab.nn.networks.model import predict
from percolab.study.cells import Cell
from percolab.study.estimates import Line, Row, row, select
from percolab.study.experiment import Results, declared
from percolab.study.material import Array, Material, cell_of, trained
from percolab.study.pictures import by_number, drawn_by
from percolab.study.settings import HIERARCHY, Settings
from percolab.worlds.splits import Split, split_rows

TIED = 1e-6  #: Distances with at most this relative difference tie.
BLOCK_BYTES = {"cpu": 1 << 27, "cuda": 1 << 31}
#: Exponents of arXiv 2412.07942, as above, by data and axis.
PREDICTED = {
    ("one-cluster", "n"): "-c/4; c = 2 gives -0.5",
    ("one-cluster", "parameters"): "-c/4",
    ("multi-cluster", "n"): "-0.5",
    ("multi-cluster", "parameters"): "-1",
}
AXES = {"n": "training rows", "parameters": "parameters"}


@dataclass(frozen=True)
class Options:
    """Options of this experiment besides data and networks."""

    least_rows: int = 1000  #: fewest training rows; then twice as many, and so on up to all
    widths: tuple[int, ...] = (8, 16, 32, 64, 128, 256)  #: d_model of the networks trained on all rows
    steps: int = 30_000  #: optimiser steps, the same for every number of rows
    validation_rows: int = 500  #: rows that are scored after every epoch; nothing depends on them


def options(scale: str, seeds: int, training: TrainConfig) -> Options:
    """Return the options of a scale."""
    return Options() if scale == "paper" else Options(250, (4, 16, 64), 400, 100)


def training(data: str, scale: str) -> TrainConfig:
    """Return the training configuration, apart from seeds, widths and epochs."""
    usual = TrainConfig(batch_size=512, lr=5e-4)
    return usual if scale == "paper" else replace(usual, d_model=64, batch_size=128, lr=1e-3)


def epochs(s: Settings[Options], n_rows: int) -> int:
    """Return the number of epochs with the number of steps, for this many training rows."""
    batches = -(-n_rows // int(s.training.batch_size))
    return max(1, round(s.options.steps / batches))


# ---------------------------------------------------------------------- statistics


def exponent(x: Floats, errors: Floats, blocks: Ints) -> Estimate:
    """Return the slope of log mean error on log x by least squares, leaving out seeds and blocks of kin in turn.

    Parameters
    ----------
    x
        (N,) numbers of rows or of parameters.
    errors
        (S, N, T) squared errors by seed and test row.
    blocks
        (T,) blocks of kin among the test rows.
    """
    return _of_means(lambda mean: _slope(x, mean), errors, blocks)


def bend(x: Floats, errors: Floats, blocks: Ints) -> Estimate:
    """Return the exponent over the upper half of the numbers less that over the lower half: 0 if one law holds."""
    half = _half(x)
    return _of_means(lambda mean: _slope(x[-half:], mean[-half:]) - _slope(x[:half], mean[:half]), errors, blocks)


def log_ratio(errors: Floats, others: Floats, blocks: Ints) -> Estimate:
    """Return the log ratio of two mean errors (S, T) on the same test rows, leaving out seeds and blocks in turn."""

    def statistic(seeds: Ints, rows: Ints) -> float:
        return float(np.log(errors[seeds][:, rows].mean() / others[seeds][:, rows].mean()))

    return jackknife(statistic, len(errors), blocks)


def _of_means(statistic: Callable[[Floats], float], errors: Floats, blocks: Ints) -> Estimate:
    """Return a statistic of the mean errors (N,), of (S, N, T) by seed and row, leaving out seeds and blocks."""
    return jackknife(lambda seeds, rows: statistic(errors[seeds][:, :, rows].mean((0, 2))), len(errors), blocks)


def _slope(x: Floats, y: Floats) -> float:
    """Return the slope of log y on log x by least squares."""
    logs = np.log(x) - np.log(x).mean()
    return float(logs @ np.log(np.maximum(y, 1e-300)) / (logs @ logs))


def _half(x: Floats) -> int:
    """Return the number of entries in a half; for an odd number, the middle entry is in both."""
    return max(2, -(-len(x) // 2))


def nearest_errors(X: torch.Tensor, y: Floats, train: Ints, test: Ints, block_bytes: int | None = None) -> Floats:
    """Return the squared error of every test row predicted by the nearest training row; the mean over ties.

    All bonds have one length, so nearest rows tie: those within a relative 1e-6 of the least distance all count.
    """
    X = X.double()
    X = X - X.mean(0)
    others, square = X[torch.from_numpy(train).to(X.device)], (X * X).sum(1)
    target = torch.tensor(y, device=X.device, dtype=torch.float64)
    known = target[torch.from_numpy(train).to(X.device)]
    step = max(1, (block_bytes or BLOCK_BYTES[X.device.type]) // (8 * max(1, train.size)))
    parts = []
    for rows in torch.from_numpy(test).to(X.device).split(step):
        squared = square[rows, None] + (others * others).sum(1) - 2 * X[rows] @ others.T
        squared.clamp_(min=0)
        least = squared.min(1, keepdim=True).values
        tied = (squared <= least * (1 + TIED) ** 2).double()
        count = tied.sum(1)
        first, second = tied @ known / count, tied @ known**2 / count
        wanted = target[rows]
        parts.append(second - 2 * wanted * first + wanted**2)  # the mean of (y - known)² over ties
    return np.asarray(torch.cat(parts).clamp(min=0).cpu(), np.float64)


def sizes(least: int, most: int) -> Ints:
    """Return least, twice that, and so on below `most`, and `most` itself."""
    doubling = least * 2 ** np.arange(max(0, int(np.log2(max(1.0, (most - 1) / least)))) + 1)
    return np.append(doubling[doubling < most], most)


# ---------------------------------------------------------------------- cells


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of all data."""

    n: dict[str, Ints]  #: numbers of training rows, by data
    test: dict[str, Ints]  #: test rows, by data
    variance: dict[str, float]  #: of y over the test rows, by data
    dim: dict[str, int]


@dataclass(frozen=True, eq=False)
class Errors:
    """Squared errors on the test rows, and the mean on the training rows."""

    test: Annotated[Array, ("seed", "row")]
    training: Annotated[Array, ("seed",)]  #: mean on the training rows; 0 for the nearest row, which learns nothing


class Data(Material):
    """One of the data, with its rows."""

    @property
    def rows(self) -> Split:
        """All rows to train on, in order; some to score during training; and the rows to test on, in order."""
        usual = split_rows(self.dataset, self.settings.training.seeds.split)
        some = usual.validation[: self.settings.options.validation_rows]
        return Split(np.sort(usual.train), some, np.sort(usual.test))

    @property
    def chains(self) -> list[Ints]:
        """By seed, the rows to train on in a random order."""
        rows = self.rows.train
        return [np.random.default_rng((seed, 5)).permutation(rows) for seed in self.settings.network_seeds]


def first(s: Settings[Options]) -> Cell[Rows]:
    """Return the cell that the others depend on: the numbers of rows of the data."""
    return cell_of(s, "rows", Rows, _rows)


def _rows(first: Material) -> Rows:
    result = Rows({}, {}, {}, {})
    for number, name in enumerate(first.settings.data):
        data = Data(first.settings, first.here, number)
        rows = data.rows
        result.n[name] = sizes(data.settings.options.least_rows, rows.train.size)
        result.test[name] = rows.test
        result.variance[name] = float(data.dataset.y[rows.test].var())
        result.dim[name] = int(data.dataset.X.shape[1])
    return result


def jobs(s: Settings[Options], counts: Ints) -> list[tuple[int, int]]:
    """Return numbers of rows and widths of the networks; the widest one may be among the first networks already."""
    usual = [(int(n), s.training.d_model) for n in counts]
    widths = () if s.network else s.options.widths  # the user's networks have one width
    return list(dict.fromkeys([*usual, *((int(counts[-1]), width) for width in widths)]))


def cells(s: Settings[Options], rows: Rows) -> Iterator[Cell[Any]]:
    """Return a cell for each number of rows and each width, and for the nearest rows of each number."""
    made_from = s.to_dict()
    for number, name in enumerate(s.data):
        cell = partial(cell_of, s, kind=Errors, on=partial(Data, number=number), made_from=made_from, stage=name)
        for n, width in jobs(s, rows.n[name]):
            yield cell(f"{name}/{n}x{width}", make=partial(_train, n=n, width=width))
        for n in rows.n[name].tolist():
            yield cell(f"{name}/{n}-nearest", make=partial(_nearest, n=n))


def _train(data: Data, *, n: int, width: int) -> Errors:
    """Train networks of a width on the first n rows of each chain."""
    s, rows = data.settings, data.rows
    config = replace(s.training, d_model=width, epochs=epochs(s, n))
    splits = [Split(chain[:n], rows.validation, rows.test) for chain in data.chains]
    results = trained(data.here, data.dataset, config.with_seeds(s.network_seeds), data.make, split=splits)
    errors = np.stack([_errors(result.model, data.inputs, data.dataset.y, rows.test) for result in results])
    losses = np.array([float(result.history["train_loss"].iloc[-1]) for result in results])
    return Errors(errors.astype(np.float32), losses)


def _nearest(data: Data, *, n: int) -> Errors:
    """Predict test rows by the nearest of the first n rows of each chain."""
    X, y, test = data.inputs, data.dataset.y, data.rows.test
    errors = [nearest_errors(X, y, np.sort(chain[:n]), test) for chain in data.chains]
    return Errors(np.array(errors, np.float32), np.zeros(len(errors)))


def _errors(model: nn.Module, X: torch.Tensor, y: Floats, test: Ints) -> Floats:
    """Return the squared errors of a network on the test rows."""
    predicted = predict(model, X[torch.from_numpy(test).to(X.device)]).double().cpu().numpy()
    return np.asarray((predicted - y[test]) ** 2, np.float64)


def _parameters(dim: int, config: TrainConfig) -> int:
    """Return the number of parameters of the network of a configuration."""
    d, hidden = config.d_model, config.expansion * config.d_model
    return (dim + 1) * d + config.n_blocks * ((d + 1) * hidden + (hidden + 1) * d) + d + 1


# ---------------------------------------------------------------------- estimates


def networks(s: Settings[Options], results: Results) -> dict[str, Any]:
    """Return the number of networks."""
    return {"networks": sum(s.seeds * len(jobs(s, results["rows"].n[name])) for name in s.data)}


def analyse(s: Settings[Options], results: Results) -> Iterator[Row]:
    """Return errors with intervals, and exponents: over all numbers, over the upper half, and upper less lower half."""
    for name in s.data:
        yield from _analyse(s, results, name)


def _analyse(s: Settings[Options], results: Results, data: str) -> Iterator[Row]:
    used: Rows = results["rows"]
    counts, blocks = used.n[data], kin(used.test[data])
    shapes = [replace(s.training, d_model=width) for width in s.options.widths]
    parameters = np.array([_parameters(used.dim[data], shape) for shape in shapes])
    usual = [f"{n}x{s.training.d_model}" for n in counts]
    wide = [f"{counts[-1]}x{width}" for width in s.options.widths]
    nearest = [f"{n}-nearest" for n in counts]
    tables: dict[str, Floats] = {}
    for model, axis, x, names in (
        ("1NN", "n", counts, nearest),
        ("network", "n", counts, usual),
        *([] if s.network else [("network", "parameters", parameters, wide)]),
    ):
        cells: list[Errors] = [results[f"{data}/{name}"] for name in names]
        errors = np.stack([cell.test for cell in cells], 1).astype(np.float64)
        tables.setdefault(model, errors)
        labels = {"data": data, "model": model, "axis": axis}
        for i, at in enumerate(x):
            yield row(mean_interval(errors[:, i], blocks), part="error", at=int(at), **labels)
            if model == "network":
                fitted = mean_interval(cells[i].training[:, None])
                yield row(fitted, part="training error", at=int(at), **labels)
        numbers, half = x.astype(np.float64), _half(x.astype(np.float64))
        yield row(exponent(numbers, errors, blocks), part="exponent", **labels)
        yield row(exponent(numbers[-half:], errors[:, -half:], blocks), part="upper half", **labels)
        yield row(bend(numbers, errors, blocks), part="upper less lower half", **labels)
    for i, at in enumerate(counts):
        ratio = log_ratio(tables["network"][:, i], tables["1NN"][:, i], blocks)
        yield row(ratio, part="network over 1NN", data=data, axis="n", at=int(at))
    yield row(mean_interval([[used.variance[data]]]), data=data, part="variance")


# ---------------------------------------------------------------------- page


def headline(rows: Sequence[Row], s: Settings[Options]) -> Iterator[Line]:
    """Return all exponents, with the predicted ones."""
    for whole in select(rows, part="exponent"):
        names = {name: whole[name] for name in ("data", "model", "axis")}
        upper = select(rows, part="upper half", **names)[0]
        predicted = PREDICTED.get((whole["data"], whole["axis"]))
        note = f"theory, for smooth targets: {predicted}" if predicted else ""
        what = f"{whole['data']}, {whole['model']}, exponent in {AXES[whole['axis']]}"
        for text, line in ((what, whole), (f"{what}, upper half", upper)):
            yield Line(text, line, -1, note=note, answers=("falls", "no fall found", "rises"))


def rows(estimates: Sequence[Row], s: Settings[Options]) -> Any:
    """Test error against the number of training rows.

    Below: the networks' errors on the rows that they were trained on, where these are above a hundredth of the least
    test error. Where they meet the test errors, more steps or a larger network might help rather than more rows. All
    test errors are of the same rows, so they go up and down together: the interval of an exponent is narrower than
    those of errors suggest. Series are moved apart sideways a little.
    """
    errors = select(estimates, part="error", axis="n")
    series = {f"{d}, {m}": select(errors, data=d, model=m) for m in ("network", "1NN") for d in s.data}
    return _by_axis(estimates, s, "n", series)


def parameters(estimates: Sequence[Row], s: Settings[Options]) -> Any:
    """Test error of networks trained on all rows, against the number of parameters.

    Series are moved apart sideways a little.
    """
    errors = select(estimates, part="error", axis="parameters")
    return _by_axis(estimates, s, "parameters", {f"{d}, network": select(errors, data=d) for d in s.data})


def _by_axis(estimates: Sequence[Row], s: Settings[Options], axis: str, series: dict[str, list[Row]]) -> Any:
    """Draw errors against rows or parameters, both logarithmic."""
    least = min(r.estimate.value for r in select(estimates, part="error")) / 100
    fitted = [r for r in select(estimates, part="training error", axis=axis) if r.estimate.value >= least]
    series |= {f"{d}, network on its training rows": select(fitted, data=d) for d in s.data}
    if not any(series.values()):
        return None
    how: dict[str, Any] = {"zero": None, "log_y": True}
    return by_number(series, "at", f"Test error by {AXES[axis]}", AXES[axis], "mean squared error", **how)


draw = drawn_by(rows, parameters)
EXPERIMENT = declared(__name__, data=HIERARCHY, own_networks=True, several=True, call="scaling")
