"""Estimates with intervals: one law for every number that this package reports.

**What varies.** A statistic is of a table: networks, or seeds, by units, such as latents, concepts or test rows. Both
are samples. Units are nested, so neighbours in a hierarchy are not independent: units count in blocks of kin (`kin`),
runs of neighbours in leaf order.

**Law.** The interval is value ± t·√V. With V_s the variance along seeds, V_b that along blocks, and V_sb that of what
varies with both at once, which is in each of the two,

    V = max(V_s, V_b, V_s + V_b - V_sb),

as for the mean of a two-way table of random effects. t is Student's quantile with the degrees of freedom of
Satterthwaite, V² / (V_s²/f_s + V_b²/f_b + V_sb²/(f_s f_b)), where f_s and f_b are one less than the number of seeds and
of blocks. Blocks of unequal sizes m count by their effective number, (Σm)²/Σm². An axis with fewer than two parts adds
nothing: the interval is then about the other one alone. So it is for the largest latents of a cluster, which are all
nested in one another.

**Variances** along the axes come from leaving parts out (`jackknife`, `mean_interval`) where the statistic is smooth.
Where it is a median or a rank correlation, for which leaving parts out is no guide, they come from redrawing blocks
(`bootstrap`), with the factor n/(n-1) that a bootstrap lacks. Positive statistics have their interval on the scale of
logarithms, shares one that stays within 0 and 1 (`share_interval`). So all intervals mean the same: 95% of them hold
what the statistic is over all networks and all units of the kind. They hold it more often, up to 99%, where cells vary
independently and neither networks nor blocks do; and less often, 82%, for a share near 1 where networks alone differ:
five of them cannot show that a few are unlike the rest. ``python tests/interval_coverage.py`` measures how often.

Where a single draw falls, rather than a mean, is told by `central` and `prediction`. Beside the law are
bins of units (`binning`) and straight lines (`lines`), which intervals are often about.
"""

from percolab.intervals.estimate import (
    LEVEL,
    Estimate,
    central,
    prediction,
    verdict,
)
from percolab.intervals.kin import BLOCKS, kin, places
from percolab.intervals.leaving_out import jackknife, mean_interval, over_seeds, share_interval
from percolab.intervals.redrawing import REDRAWS, bootstrap, quantiles, rank_correlation, redrawn

__all__ = [
    "BLOCKS",
    "LEVEL",
    "REDRAWS",
    "Estimate",
    "bootstrap",
    "central",
    "jackknife",
    "kin",
    "mean_interval",
    "over_seeds",
    "places",
    "prediction",
    "quantiles",
    "rank_correlation",
    "redrawn",
    "share_interval",
    "verdict",
]
