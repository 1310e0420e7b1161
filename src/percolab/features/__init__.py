"""The judge: features of any method scored against the concepts of a forest, and simple methods to compare with."""

from percolab.features.result import Score
from percolab.features.scoring import score

__all__ = ["Score", "score"]
