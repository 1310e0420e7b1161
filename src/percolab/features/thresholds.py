"""The thresholds of the judge: from which numbers on a concept is recovered, split or absorbed, and a feature dense."""

from __future__ import annotations

from percolab.model.latent_groups import MIN_SIZE as MIN_SIZE  # fewest rows of a concept, by default
from percolab.model.latent_groups import RATIO

#: Of the concepts listed, a summary keeps those with at most this share of the rows of the nearest kept one above.
SUMMARY_RATIO = RATIO
RECOVERED = 0.8  #: A concept is recovered by a feature whose F1 is above this.
GOOD = 0.5  #: F1 from which a feature counts as a concept's own where absorption is asked for.
#: Splitting: a union takes another feature if that raises its F1 by at least this (the rule of SAEBench).
LEAST_RAISE = 0.03
CARRIED = 0.4  #: Absorption: share of the codes' part along a concept's direction that an absorber must carry.
DENSE = 0.5  #: A feature is dense if it fires on more than this share of the rows, and dead if it fires on none.
