"""The thresholds of the judge: when a concept is recovered, split or absorbed, and when a feature is dense."""

from __future__ import annotations

from percolab.model.latent_groups import MIN_SIZE as MIN_SIZE  # fewest rows of a concept, by default
from percolab.model.latent_groups import RATIO

#: A summary keeps the listed concepts with at most this share of the rows of the nearest kept concept above.
SUMMARY_RATIO = RATIO
RECOVERED = 0.8  #: A concept is recovered by a feature whose F1 is above this.
GOOD = 0.5  #: F1 from which a feature counts as a concept's own in measures of absorption.
#: Splitting: a union takes another feature if that raises its F1 by at least this (the rule of SAEBench).
LEAST_RAISE = 0.03
CARRIED = 0.4  #: Absorption: least share of the codes' component along a concept's direction that an absorber carries.
DENSE = 0.5  #: A feature is dense if it fires on more than this share of the rows, and dead if it fires on none.
