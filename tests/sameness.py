"""What many tests say in one line: that two datasets are the same, and that a call is refused with these very words."""

import re

import numpy as np
import pytest


def assert_same(a, b):
    """Assert that two datasets have the same recipe, hierarchy and arrays, to the bit, and the same modification."""
    assert a.recipe == b.recipe
    assert a.forest.equals(b.forest)
    for name in ("X", "y", "latent_z", "point_z"):
        left, right = np.asarray(getattr(a, name)), np.asarray(getattr(b, name))
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
    assert a.modification == b.modification


def refused(message):
    """Return what expects a ValueError with this message and no other words."""
    return pytest.raises(ValueError, match=f"^{re.escape(message)}$")
