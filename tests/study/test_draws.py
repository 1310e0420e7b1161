"""Draws: recipes that differ in nothing but seeds; estimates of several draws in one table."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import percolab as pl
from percolab.intervals import Estimate
from percolab.study.estimates import Row, band, combined, row
from percolab.study.settings import HIERARCHY, STEP, WORLDS, network_seeds, recipe_of, redrawn


@pytest.mark.parametrize("data", [*HIERARCHY, *WORLDS])
@pytest.mark.parametrize("scale", ["paper", "small"])
def test_draws_differ_in_nothing_but_seeds(data, scale):
    known = recipe_of(data, scale)
    assert redrawn(known, 0) is known
    other = redrawn(known, 2)
    for own, drawn in zip(getattr(known, "factors", [known]), getattr(other, "factors", [other]), strict=True):
        assert replace(drawn, seeds=own.seeds) == own
        assert [b - a for a, b in zip(asdict(own.seeds).values(), asdict(drawn.seeds).values(), strict=True)] == [
            2 * STEP
        ] * 3
    if data.startswith("superposed"):
        assert other.seed == known.seed + 2 * STEP
        assert (other.weights, other.scales, other.dim, other.rotate) == (
            known.weights, known.scales, known.dim, known.rotate,
        )  # fmt: skip


def test_a_target_that_draws_from_the_seed_of_values_is_drawn_again():
    known = pl.Recipe(100, 3, seeds=1, target="silent")
    assert redrawn(known, 1).target.seed == known.target.seed + STEP
    own = pl.Recipe(100, 3, seeds=1, target=pl.Target("silent", seed=5))
    assert redrawn(own, 1).target.seed == 5


@given(st.integers(1, 9), st.integers(0, 20))
def test_no_two_draws_share_a_network(count, draw):
    assert not set(network_seeds(count, draw)) & set(network_seeds(count, draw + 1))
    assert network_seeds(count, 0, 42) == list(range(42, 42 + count))


def test_one_draw_is_as_it_is():
    rows = [row(Estimate(1.0, 0.5, 1.5, 5, 100), layer="a")]
    assert combined([rows]) == rows
    assert rows[0].over == "5 networks, 100 units of this dataset"


def test_three_draws_have_students_interval_over_their_values():
    drawn = [[row(Estimate(value, value - 9, value + 9, 5, 100), layer="a")] for value in (1.0, 2.0, 4.0)]
    [found] = combined(drawn)
    assert found.by_draw == (1.0, 2.0, 4.0)
    half = 4.302652729749464 * np.std([1, 2, 4], ddof=1) / 3**0.5
    assert found.estimate.value == pytest.approx(7 / 3)
    assert found.estimate.high - found.estimate.value == pytest.approx(half)
    assert found.over == "3 draws of the data"
    assert found.estimate.seeds == 5


def test_two_draws_have_the_interval_of_their_mean():
    drawn = [[row(Estimate(1.0, 0.7, 1.3, 5, 9))], [row(Estimate(3.0, 2.6, 3.4, 5, 11))]]
    [found] = combined(drawn)
    assert found.estimate == Estimate(2.0, pytest.approx(1.75), pytest.approx(2.25), 5, 10)
    assert found.over.endswith("units of these 2 datasets")


def test_bins_are_matched_by_their_place_and_bands_stay_bands():
    def table(shift):
        ends = [row(Estimate(shift + k, 0, 9), part="size", bin=f"{k} {shift}", at=10 * k + shift) for k in range(3)]
        return [*ends, band(Estimate(0.0, -shift, shift), part="null")]

    *bins, null = combined([table(shift) for shift in (1, 2, 3)])
    assert [one.by_draw for one in bins] == [(1, 2, 3), (2, 3, 4), (3, 4, 5)]
    assert [one["at"] for one in bins] == [2, 12, 22]
    assert null == Row(Estimate(0.0, -2.0, 2.0), {"part": "null"}, band=True, by_draw=(0.0, 0.0, 0.0))
