"""Ridge regressions of many targets at every depth, in one pass over the activations.

The rows of a depth contain those of every greater depth (see `probe_rows`), so going up from the deepest depth the
normal equations only grow: one pass over the activations serves all depths, and one Cholesky factorisation serves all
targets of a depth. Sums are in float64: the Gram matrix of some hundred thousand rows, regularised by 1, has condition
numbers that float32 cannot hold.
"""

from __future__ import annotations

import torch

STD_FLOOR = 1e-6
CHUNK_ROWS = {"cpu": 1 << 12, "cuda": 1 << 15}
"""Rows of activations that are in float64 at a time, by kind of device."""


def ridge_by_level(
    A: torch.Tensor, targets: torch.Tensor, rows_by_level: list[torch.Tensor], alpha: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Fit ridge regressions with an intercept at every level j, on the rows of levels j, j + 1, … together.

    Activations are standardised by those rows: (a - mean) / (std + 1e-6). The penalty is alpha |w|² for the
    standardised weights; the intercept is not penalised. Equal to scikit-learn's ``Ridge(alpha)`` at each level.

    Parameters
    ----------
    A
        (n, p) activations, float32.
    targets
        (n, J·K): columns j·K … (j+1)·K - 1 are the targets of level j.
    rows_by_level
        For each of J levels, the rows it has and the next does not.
    alpha
        Penalty.

    Returns
    -------
    weight, bias, mean
        (p, J·K) and (J·K,) for activations as they are, float64; (J·K,) mean of each target over its rows.
    """
    J, p, columns = len(rows_by_level), A.shape[1], targets.shape[1]
    k = columns // J

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.float64, device=A.device)

    # Moments about a point of the data do not lose digits to a large mean. The point is one that every level has, so a
    # unit that is constant on the rows of a level, as a ReLU that is never active, is exactly 0 there.
    centre = A[next(rows[0] for rows in reversed(rows_by_level) if len(rows))].double()
    gram, total = zeros(p, p), zeros(p)
    cross, target_total = zeros(p, columns), zeros(columns)
    weight, bias, mean = zeros(p, columns), zeros(columns), zeros(columns)
    n = 0
    for j in range(J - 1, -1, -1):
        used, here = slice(0, (j + 1) * k), slice(j * k, (j + 1) * k)
        for part in rows_by_level[j].split(CHUNK_ROWS[A.device.type]):
            a, t = A[part].double() - centre, targets[part, used].double()
            gram.addmm_(a.T, a)
            cross[:, used] += a.T @ t
            total += a.sum(0)
            target_total[used] += t.sum(0)
            n += len(part)
        if n == 0:
            continue
        a_mean, t_mean = total / n, target_total[here] / n
        covariance = gram / n - torch.outer(a_mean, a_mean)
        scale = covariance.diagonal().clamp(min=0).sqrt() + STD_FLOOR
        normal = covariance * n / torch.outer(scale, scale)
        normal.diagonal().add_(alpha)
        right = (cross[:, here] - torch.outer(total, t_mean)) / scale[:, None]
        w = torch.cholesky_solve(right, torch.linalg.cholesky(normal)) / scale[:, None]
        weight[:, here], mean[here] = w, t_mean
        bias[here] = t_mean - (centre + a_mean) @ w
    return weight, bias, mean
