"""What the report of the scaling experiment says and shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from percolab.nn.frame.drawing import by_number
from percolab.nn.frame.page import Line, Words
from percolab.nn.frame.table import Row, select

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PREDICTED = {
    ("one-cluster", "n"): "-c/4; c = 2 gives -0.5",
    ("one-cluster", "parameters"): "-c/4",
    ("multi-cluster", "n"): "-0.5",
    ("multi-cluster", "parameters"): "-1",
}
"""Exponents of arXiv 2412.07942, as `WORDS` says, by data and axis."""
AXES = {"n": "training rows", "parameters": "parameters"}

WORDS = Words(
    title="Scaling",
    question="How does the test error fall with the number of training rows, and with the width of the network?",
    method="Test rows are the same throughout. Training rows are nested: a chain is a random order of all others, and "
    "n rows are its first n. Each seed has a chain and a network of its own, and all networks take the same number of "
    "steps. 1NN predicts a test row by the nearest training row; where several tie within a relative 1e-6, its error "
    "is the mean over them. An exponent is the slope of the logarithm of the mean error on that of the number, by "
    "least squares; its interval comes from leaving out chains and blocks of kin among the test rows.",
    control="1NN is the control: it learns nothing. arXiv 2412.07942 derives power laws for two kinds of percolation "
    "data. Where one cluster holds the data, it is a manifold of intrinsic dimension 4, and errors fall with the "
    "exponent -c/4, where c depends on how smooth target and fit are: for squared errors of nearest neighbours and a "
    "target that changes in proportion to distance, c is 2. Where there are many clusters with sizes of exponent 5/2, "
    "they are subtasks that are learned in turn, and the theory of such quanta (arXiv 2303.13506, with its exponent "
    "1) gives -1/2 in rows and -1 in parameters. Targets there are continuous functions on each cluster; here they "
    "are sums over a hierarchy, and clusters below the least size are left out. So the predictions are something to "
    "compare with, not laws of these data.",
    captions={
        "rows": "Test error against the number of training rows. Below: the networks' errors on the rows that they "
        "were trained on, where these are above a hundredth of the least test error. Where they meet the test "
        "errors, more steps or a larger network might help rather than more rows. All test errors are of the same "
        "rows, so they go up and down together: the interval of an exponent is narrower than those of errors suggest. "
        "Series are moved apart sideways a little.",
        "parameters": "Test error of networks trained on all rows, against the number of parameters. Series are moved "
        "apart sideways a little.",
    },
    measured="the .npz files of each kind of data, in a directory of its name",
)


def headline(rows: Sequence[Row]) -> list[Line]:
    """Return all exponents, with what is predicted."""
    lines = []
    for own in select(rows, part="exponent"):
        told = {name: own[name] for name in ("data", "model", "axis")}
        upper = select(rows, part="upper half", **told)[0]
        note = f"theory, for smooth targets: {PREDICTED[own['data'], own['axis']]}"
        what = f"{own['data']}, {own['model']}, exponent in {AXES[own['axis']]}"
        for words, line in ((what, own), (f"{what}, upper half", upper)):
            lines.append(Line(words, line, -1, note=note, answers=("falls", "no fall found", "rises")))
    return lines


def draw(rows: Sequence[Row]) -> dict[str, Figure]:
    """Draw errors against rows and against parameters, both logarithmic."""
    errors = select(rows, part="error")
    data = list(dict.fromkeys(r["data"] for r in errors))
    by_rows = {f"{d}, {m}": select(errors, data=d, model=m, axis="n") for m in ("network", "1NN") for d in data}
    by_width = {f"{d}, network": select(errors, data=d, axis="parameters") for d in data}
    least = min(r["value"] for r in errors) / 100
    fitted = [r for r in select(rows, part="training error") if r["value"] >= least]
    for axis, series in (("n", by_rows), ("parameters", by_width)):
        on_training = {f"{d}, network on its training rows": select(fitted, data=d, axis=axis) for d in data}
        series |= {name: own for name, own in on_training.items() if own}
    label = "mean squared error"
    return {
        "rows": by_number(by_rows, "at", "Test error by training rows", AXES["n"], label, zero=None, log_y=True),
        "parameters": by_number(
            by_width, "at", "Test error by parameters", AXES["parameters"], label, zero=None, log_y=True
        ),
    }
