"""A method for percolab's judge in a package of its own; the entry point in pyproject.toml makes it known."""

import numpy as np


class FarOut:
    """A feature a dimension: it fires where the activation is more than two deviations above the mean."""

    def fit(self, activations):
        self.mean, self.deviation = activations.mean(0), activations.std(0)
        return self

    def encode(self, activations):
        return np.maximum((activations - self.mean) / self.deviation - 2, 0)
