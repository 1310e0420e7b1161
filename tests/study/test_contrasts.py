"""Contrasts and the verdict, on cells whose differences are known."""

import numpy as np
import pytest
from scipy import stats

from percolab.study import experiment
from percolab.study.contrasts import OF_THIS_DATA, OVER_DRAWS, contrasts, reading, sentence
from percolab.study.measured import Columns, Measured, Units, tidy

N_UNITS = 40


def cell(role, values, *, draw=0, trained_on=None, seed=0, layer="blocks.1", measure="f1", factor=0):
    values = np.broadcast_to(np.asarray(values, np.float64), (N_UNITS,)).copy()
    units = Units(np.arange(N_UNITS), np.arange(N_UNITS) * 10)
    layer = role if role in ("raw", "permuted") else layer
    return Measured(draw, role, trained_on, seed, layer, "kmeans", measure, factor, units, values)


def by_name(cells):
    return {c.contrast: c for c in contrasts(cells)}


def test_own_less_other_takes_the_mean_over_the_other_factors_of_the_same_seed():
    level = {(f, g, s): 0.5 + 0.1 * f + 0.01 * g + 0.001 * s for f in range(3) for g in range(3) for s in range(2)}
    cells = [
        cell("trained", level[f, g, s], trained_on=g, seed=s, factor=f)
        for f in range(3) for g in range(3) for s in range(2)
    ]  # fmt: skip
    found = by_name(cells)["own - other"]
    expected = np.mean([level[f, f, 0] - np.mean([level[f, g, 0] for g in range(3) if g != f]) for f in range(3)])
    assert found.estimate.value == pytest.approx(expected)
    assert found.estimate.units == 3 * N_UNITS
    assert found.networks == 6


def test_lists_of_equal_length_pair_by_place_and_others_by_their_mean():
    rng = np.random.default_rng(0)
    start = rng.normal(size=(2, N_UNITS))
    trained = [cell("trained", start[s] + 0.3, seed=s) for s in range(2)]
    paired = [cell("untrained", start[s], seed=s) for s in range(2)]
    found = by_name([*trained, *paired])["trained - untrained"]
    assert found.estimate.value == pytest.approx(0.3)
    assert found.estimate.high - found.estimate.low < 1e-9  # every unit of every network has the same difference
    single = by_name([*trained, paired[0]])["trained - untrained"]
    assert single.estimate.value == pytest.approx(0.3 + (start.mean(0) - start[0]).mean())
    assert single.estimate.high - single.estimate.low > 0.05


def test_separations_are_compared_by_logarithms():
    cells = [cell("trained", 8.0, measure="separation"), cell("raw", 2.0, measure="separation")]
    found = by_name(cells)["trained - raw"]
    assert found.estimate.value == pytest.approx(np.log(4))
    assert found.is_logarithmic


def test_with_three_draws_the_interval_is_student_t_over_the_draws():
    effects = np.array([0.1, 0.25, 0.16])
    rng = np.random.default_rng(1)
    cells = []
    for draw, effect in enumerate(effects):
        for seed in range(2):
            base = rng.normal(size=N_UNITS)
            cells += [cell("trained", base + effect, draw=draw, seed=seed)]
            cells += [cell("untrained", base, draw=draw, seed=seed)]
    found = by_name(cells)["trained - untrained"]
    half = stats.t.ppf(0.975, 2) * effects.std(ddof=1) / 3**0.5
    assert (found.estimate.low, found.estimate.high) == pytest.approx((effects.mean() - half, effects.mean() + half))
    assert found.by_draw == pytest.approx(effects)
    assert found.interval_over == OVER_DRAWS
    few = by_name([c for c in cells if c.draw < 2])["trained - untrained"]
    assert few.interval_over == OF_THIS_DATA
    assert few.estimate.value == pytest.approx(effects[:2].mean())


def test_draws_weigh_the_same_whatever_units_they_have():
    small = [cell("trained", 1.0, draw=0), cell("untrained", 0.0, draw=0)]
    large = [cell("trained", 0.0, draw=d) for d in (1, 2)] + [cell("untrained", 0.0, draw=d) for d in (1, 2)]
    holes = np.where(np.arange(N_UNITS) < 5, 1.0, np.nan)
    small[0] = cell("trained", holes, draw=0)
    assert by_name(small + large)["trained - untrained"].estimate.value == pytest.approx(1 / 3)


def test_what_has_no_layers_is_compared_with_every_layer():
    cells = [cell("trained", v, layer=layer) for v, layer in ((0.6, "a"), (0.8, "b"))] + [cell("raw", 0.5)]
    assert [(c.layer, round(c.estimate.value, 9)) for c in contrasts(cells)] == [("a", 0.1), ("b", 0.3)]


def test_the_tidy_table_calls_networks_of_another_factor_other():
    cells = [cell("trained", 1.0, trained_on=g, factor=f) for f in range(2) for g in range(2)]
    table = tidy(cells)
    assert len(table) == 4 * N_UNITS
    assert set(table[table["factor"] != table["trained_on"]]["role"]) == {"other"}
    assert set(table[table["factor"] == table["trained_on"]]["role"]) == {"trained"}


def effect(trained_untrained, own_other, raw_permuted=0.4):
    """Return cells with two factors whose three contrasts have these values, up to a small noise over units."""
    rng = np.random.default_rng(2)
    cells = []
    for f in range(2):
        noise = rng.normal(scale=1e-3, size=(4, 3, N_UNITS))
        for seed in range(3):
            base = 0.5 + noise[0, seed]
            cells.append(cell("untrained", base, seed=seed, factor=f))
            cells.append(cell("trained", base + trained_untrained + noise[1, seed], trained_on=f, seed=seed, factor=f))
            other = base + trained_untrained - own_other + noise[2, seed]
            cells.append(cell("trained", other, trained_on=1 - f, seed=seed, factor=f))
        cells.append(cell("raw", 0.3 + raw_permuted + noise[3, 0], factor=f))
        cells.append(cell("permuted", 0.3, factor=f))
    return contrasts(cells)


@pytest.mark.parametrize(
    ("trained", "own", "raw", "expected"),
    [
        (0.2, 0.2, 0.4, "learned, and because it matters"),
        (-0.2, 0.2, 0.4, "kept while the rest was discarded"),
        (0.2, 0.0, 0.4, "training helps whatever the target"),
        (0.0, -0.1, 0.4, "given by the data"),
        (0.0, 0.0, 0.0, "not found at all"),
    ],
)
def test_readings_follow_the_table(trained, own, raw, expected):
    assert reading(effect(trained, own, raw)) == expected


def test_a_smaller_error_is_more():
    worse, better = 0.5, 0.1
    for trained, untrained, expected in ((better, worse, "found more in trained"), (worse, better, "not learned")):
        cells = [cell("trained", trained, measure="error"), cell("untrained", untrained, measure="error")]
        assert expected in sentence(contrasts(cells))
    assert "below 0 is better" in sentence(contrasts(cells))


def test_without_untrained_networks_the_raw_input_is_what_is_compared_with():
    raw = cell("raw", 0.3)
    for level, expected in ((0.6, "more than in the raw input; untrained"), (0.3, "no more than in the raw input")):
        found = contrasts([cell("trained", level), raw])
        assert expected in sentence(found)
    assert "Nothing to compare: networks of the role 'trained' and" in sentence(contrasts([raw, cell("permuted", 0.0)]))


def test_what_has_no_value_is_said():
    found = contrasts([cell("trained", np.nan), cell("raw", 0.3)])
    assert "trained - raw has no value" in sentence(found)


def test_what_the_interval_does_not_decide_is_undecided():
    rng = np.random.default_rng(3)
    noisy = [cell("trained", rng.normal(0.02, 0.5, N_UNITS)), cell("untrained", np.zeros(N_UNITS))]
    assert reading(contrasts(noisy)) == "undecided"
    assert reading(contrasts(noisy), delta=2.0) != "undecided"


def test_the_sentence_has_the_numbers_and_what_is_behind_them():
    told = sentence(effect(0.2, 0.2))
    assert told.startswith("F1 of kmeans at blocks.1: learned, and because it matters.")
    assert "own - other 0.20" in told
    assert "6 networks, 1 draw of the data, so the interval is for this dataset only" in told


def test_the_table_of_a_study_has_the_measures_of_its_readers():
    kept = {"reader-kmeans": Columns.of([cell("trained", 0.5, trained_on=1), cell("raw", 0.25)])}
    table = experiment.tidy([kept, kept])
    wanted = {"draw", "role", "factor", "seed", "layer", "reader", "measure", "unit", "value", "cell"}
    assert wanted <= set(table.columns)
    assert table["value"].tolist() == ([0.5] * N_UNITS + [0.25] * N_UNITS) * 2
    assert table["draw"].tolist() == [0] * 2 * N_UNITS + [1] * 2 * N_UNITS
    assert table["role"].unique().tolist() == ["other", "raw"]
    assert set(table["cell"]) == {"reader-kmeans"}
