"""Ridge regressions from normal equations that grow line by line, so that many fits share one pass.

Sums are in float64: the Gram matrix of some hundred thousand rows, regularised by 1, has condition numbers that float32
cannot hold.
"""

from __future__ import annotations

import torch

STD_FLOOR = 1e-6
CONSTANT = 1e-9
"""Variance, as a share of the mean square about the centre, up to which a unit is constant: rounding makes up to
about 1e-15 of the mean square, times a hundred thousand lines, which must stay below the penalty."""
JITTER = 1e-6
"""Penalty for each line that is added where rounding has left a matrix that is not positive definite."""
CHUNK_ROWS = {"cpu": 1 << 12, "cuda": 1 << 15}
"""Rows of activations that are in float64 at a time, by kind of device."""


class NormalEquations:
    """What ridge regressions on some lines are made of: their number, sums and products.

    Moments about a line of the data do not lose digits to a large mean.

    Parameters
    ----------
    centre
        (p,) a line of activations, float64, on the device that is to do the work.
    columns
        Number of targets.
    """

    def __init__(self, centre: torch.Tensor, columns: int) -> None:
        p = len(centre)
        self.centre, self.n = centre, 0

        def zeros(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=centre.device)

        self.gram, self.total = zeros(p, p), zeros(p)
        self.cross, self.target_total = zeros(p, columns), zeros(columns)

    def add(self, a: torch.Tensor, t: torch.Tensor, columns: slice = slice(None)) -> None:
        """Add lines: their activations, and their targets in some of the columns."""
        a, t = a.double() - self.centre, t.double()
        self.gram.addmm_(a.T, a)
        self.cross[:, columns] += a.T @ t
        self.total += a.sum(0)
        self.target_total[columns] += t.sum(0)
        self.n += len(a)

    def combine(self, *others: NormalEquations, sign: int = 1) -> NormalEquations:
        """Return the equations of the lines of this and of others; with sign -1, of those that are not theirs."""
        both = NormalEquations.__new__(NormalEquations)
        both.centre = self.centre
        for name in ("gram", "cross", "total", "target_total", "n"):
            setattr(both, name, getattr(self, name) + sign * sum(getattr(other, name) for other in others))
        return both

    def solve(
        self, alphas: list[float], columns: slice = slice(None)
    ) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Return weights (p, k), intercepts (k,) and target means (k,) of some columns for each penalty.

        Activations are standardised by the lines: (a - mean) / (std + 1e-6). The penalty is alpha |w|² for the
        standardised weights; the intercept is not penalised. Weights are for activations as they are. Equal to
        scikit-learn's ``Ridge(alpha)``.
        """
        a_mean, t_mean = self.total / self.n, self.target_total[columns] / self.n
        covariance = self.gram / self.n - torch.outer(a_mean, a_mean)
        # What is left of a unit that is constant on these lines is rounding, and of either sign.
        constant = covariance.diagonal() <= CONSTANT * self.gram.diagonal() / self.n
        covariance.masked_fill_(constant[:, None] | constant, 0)
        scale = covariance.diagonal().clamp(min=0).sqrt() + STD_FLOOR
        normal = covariance * self.n / torch.outer(scale, scale)
        right = (self.cross[:, columns] - torch.outer(self.total, t_mean)) / scale[:, None]
        right.masked_fill_(constant[:, None], 0)
        fits = []
        penalty = 0.0
        for alpha in alphas:
            normal.diagonal().add_(alpha - penalty)
            penalty = alpha
            factor, failed = torch.linalg.cholesky_ex(normal)
            if failed:
                factor = torch.linalg.cholesky(normal + JITTER * self.n * torch.eye(len(normal)).to(normal))
            weight = torch.cholesky_solve(right, factor) / scale[:, None]
            fits.append((weight, t_mean - (self.centre + a_mean) @ weight, t_mean))
        return fits
