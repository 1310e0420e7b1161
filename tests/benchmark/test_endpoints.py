"""Endpoints on planted numbers: settings, interpolation, pairs, tests, health, power, verdicts."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from percolab.benchmark import declaration, endpoints, task
from percolab.benchmark.endpoints import AT_MATCHED, CAUSE, METHOD, QUESTION
from percolab.benchmark.judgement import PLANTED
from percolab.intervals import Estimate, over_seeds
from percolab.study.estimates import combined, row, select
from percolab.study.measured import Measured, Units

N = 12
UNITS, WHOLE = Units(np.arange(N), 10 * np.arange(N)), Units(np.full(1, -1), np.zeros(1, np.int64))


def cell(reader, measure, values, role="trained", on=0, seed=0, factor=0, draw=0):
    values = np.asarray(values, np.float64)
    return Measured(
        draw, role, on, seed, "blocks.1", reader, measure, factor, WHOLE if values.size == 1 else UNITS, values
    )


def method(name, f1, draw, *, role="trained", on=0, factor=0, seed=0, dead=0.0, settings=((1.0, 16), (0.9, 64))):
    """Return the cells of a method at two settings: F1 is scaled by the first number, L0 is the second."""
    rng = np.random.default_rng([draw, factor, seed, len(name), len(role)])
    base = np.clip(f1 + 0.02 * rng.standard_normal(N), 0.01, 0.99)
    found = []
    for i, (scale, l0) in enumerate(settings):
        given = {"role": role, "on": on, "seed": seed, "factor": factor, "draw": draw}
        reader = f"{name} @ k={i}"
        scalars = {"validation": scale, "l0": l0, "dead": dead}
        scalars |= {planted: 0.3 * share for planted, share in PLANTED.items() if role == "trained" and on == factor}
        found.append(cell(reader, "f1", base * scale, **given))
        found += [cell(reader, measure, [value], **given) for measure, value in scalars.items()]
    return found


def world(draw, gains, dead=0.0):
    """Two hierarchies, two networks each: the gain of every method is what it finds more in its own networks."""
    cells = []
    for name, (level, gain) in gains.items():
        for on, factor, seed in itertools.product((0, 1), (0, 1), (0, 1)):
            f1 = level + gain * (on == factor)
            sick = dead if (name, on, factor, seed) == ("topk", 0, 0, 0) else 0.0
            cells += method(name, f1, draw, on=on, factor=factor, seed=seed, dead=sick)
        cells += method(name, level, draw, role="raw", on=None) + method(
            name, level, draw, role="raw", on=None, factor=1
        )
    return cells


GAINS = {"topk": (0.5, 0.2), "batchtopk": (0.5, 0.0), "kmeans": (0.4, 0.1)}


def test_the_setting_is_that_of_validation_rows_and_matched_ones_are_interpolated():
    cells = method("topk", 0.5, 0)
    chosen = list(endpoints.at_chosen(cells))
    (best,) = [c for c in chosen if c.measure == "f1"]
    first, second = (c.values for c in cells if c.measure == "f1")
    assert np.array_equal(best.values, first)
    (matched,) = [c for c in chosen if c.measure == AT_MATCHED]
    np.testing.assert_allclose(matched.values, (first + second) / 2)  # 32 is half way in logarithms


@pytest.mark.parametrize("ends", [(1, 16), (33, 128)])
def test_nothing_is_said_beyond_what_was_measured(ends):
    cells = method("topk", 0.5, 0, settings=((1.0, ends[0]), (0.9, ends[1])))
    (matched,) = [c for c in endpoints.at_chosen(cells) if c.measure == AT_MATCHED]
    assert np.isnan(matched.values).all()
    rows = list(endpoints.estimates([*cells, *(replace(c, reader=c.reader.replace("topk", "kmeans")) for c in cells)]))
    assert not select(rows, measure=AT_MATCHED)


def test_equal_sparsity_compares_every_network_with_itself():
    """The setting of one network of TopK ends below L0 32; where both methods find the same, there is no difference."""
    cells = []
    for seed, f1 in enumerate((0.9, 0.6, 0.3)):
        cells += method("kmeans", f1, 0, seed=seed, settings=((1.0, 4), (1.0, 64)))
        same = method("kmeans", f1, 0, seed=seed, settings=((1.0, 4), (1.0, 16 if seed == 2 else 64)))
        cells += [replace(c, reader=c.reader.replace("kmeans", "topk")) for c in same]
    rows = select(endpoints.estimates(cells), part="endpoint", endpoint=METHOD, measure=AT_MATCHED)
    assert rows[0].estimate.value == pytest.approx(0.0)


def test_causes_are_healthy_where_they_are_measured():
    """At the setting that validation rows choose, most features are dead; at the middle one few are."""
    cells = []
    for name in ("topk", "kmeans"):
        given = {"on": 0, "factor": 0, "seed": 0}
        cells += method(name, 0.5, 0, dead=0.9 if name == "topk" else 0.0)
        cells += [cell(f"{name} @ k=1", measure, [0.2], **given) for measure in ("bridged", "dead_at_middle")]
    rows = select(endpoints.estimates(cells), part="dropped")
    assert {r["endpoint"]: r.estimate.value for r in rows if r["method"] == "topk"} == {METHOD: 1.0, CAUSE: 0.0}


def test_random_directions_stand_beside_the_endpoint():
    cells = [c for name, f1 in (("topk", 0.5), ("random-dictionary", 0.4)) for c in method(name, f1, 0)]
    (beside,) = select(endpoints.estimates(cells), endpoint=endpoints.OVER_RANDOM)
    assert beside.estimate.value == pytest.approx(0.1, abs=0.03)


def test_a_fifth_may_be_dropped_however_it_is_rounded():
    assert not endpoints.too_many(float(np.mean([1 / 3, 1 / 6, 1 / 6, 1 / 6, 1 / 6])))
    assert endpoints.too_many(0.21)


def test_holm_against_its_definition():
    rng = np.random.default_rng(0)
    for p in rng.random((20, 4)) ** 3:
        order = np.argsort(p)
        wanted, largest = np.empty(4), 0.0
        for step, i in enumerate(order):
            largest = max(largest, min(1, (4 - step) * p[i]))
            wanted[i] = largest
        np.testing.assert_allclose(endpoints.holm(p), wanted)
    assert np.isnan(endpoints.holm(np.array([0.01, np.nan]))[1])
    assert endpoints.holm(np.array([0.01, np.nan]))[0] == pytest.approx(0.02)


def test_endpoints_find_what_was_planted():
    rows = combined([endpoints.estimates(world(draw, GAINS)) for draw in range(5)])
    found = {(one.endpoint, one.method): one for one in endpoints.tested(rows)}
    assert (METHOD, "kmeans") not in found
    question = found[QUESTION, "topk"]
    assert question.estimate.estimate.value == pytest.approx(0.2, abs=0.03)
    assert len(question.estimate.by_draw) == 5
    assert question.verdict == "above 0"
    assert question.holm >= question.p
    assert 0 < question.smallest < 0.1
    assert found[QUESTION, "batchtopk"].verdict != "above 0"
    assert min(one.holm / one.p for one in found.values() if one.endpoint == METHOD) == pytest.approx(2)
    smallest = min(found.values(), key=lambda one: one.p)
    assert smallest.holm == pytest.approx(4 * smallest.p)  # Matryoshka, which was not run, counts in the correction
    assert found[METHOD, "topk"].estimate.estimate.value == pytest.approx(0.2, abs=0.03)
    assert found[METHOD, "batchtopk"].estimate.estimate.value == pytest.approx(0.0, abs=0.03)
    raw = select(rows, part="contrast", contrast="trained - raw", method="topk", measure="f1")
    assert raw[0].estimate.value == pytest.approx(0.2, abs=0.03)


def test_causes_are_compared_with_those_of_k_means_in_the_same_networks():
    def bridged(draw, gains):
        cells = world(draw, GAINS)
        own = [c for c in cells if c.measure == "l0" and c.role == "trained" and c.trained_on == c.factor]
        rng = np.random.default_rng(draw)
        for c in own:
            name, _, setting = c.reader.partition(" @ ")
            if setting == "k=1":  # not the one that validation rows choose
                share = 0.4 + gains[name] + 0.02 * rng.standard_normal()
                cells.append(replace(c, measure="bridged", values=np.array([share])))
        return cells

    gains = {"topk": 0.2, "batchtopk": 0.0, "kmeans": 0.0}
    rows = combined([endpoints.estimates(bridged(draw, gains)) for draw in range(5)])
    found = {one.method: one for one in endpoints.tested(rows) if one.endpoint == CAUSE}
    assert list(found) == ["topk", "batchtopk"]
    assert found["topk"].estimate.estimate.value == pytest.approx(0.2, abs=0.03)
    assert found["topk"].verdict == "above 0"
    assert found["batchtopk"].estimate.estimate.value == pytest.approx(0.0, abs=0.03)
    assert found["batchtopk"].verdict != "above 0"
    assert 0 < found["topk"].smallest < 0.1
    assert all(one.endpoint != CAUSE for one in endpoints.tested(combined([endpoints.estimates(world(0, GAINS))])))


def test_an_unhealthy_cell_takes_its_pair_along_and_many_leave_it_undecided():
    rows = combined([endpoints.estimates(world(draw, GAINS, dead=0.9)) for draw in range(5)])
    found = {(one.endpoint, one.method): one for one in endpoints.tested(rows)}
    assert found[QUESTION, "topk"].dropped == pytest.approx(0.25)  # one of two hierarchies times two networks
    assert found[QUESTION, "topk"].verdict == "undecided"
    assert found[QUESTION, "kmeans"].verdict == "above 0"
    cells = world(0, GAINS, dead=0.9)
    pairs = endpoints.pair_cells(endpoints.at_chosen(cells), QUESTION, "topk", "f1")
    kept, _ = endpoints.healthy(pairs, endpoints.pair_cells(endpoints.at_chosen(cells), QUESTION, "topk", "dead"))
    assert {(c.factor, c.seed) for c in kept} == {(0, 1), (1, 0), (1, 1)}


def test_a_network_without_its_partner_is_left_out():
    """Network 1 is hard for both methods; its mean beside network 0 alone would look like a difference."""
    cells = method("topk", 0.9, 0) + method("kmeans", 0.9, 0) + method("topk", 0.2, 0, seed=1)
    (found,) = select(endpoints.estimates(cells), part="endpoint", endpoint=METHOD, method="topk", measure="f1")
    assert found.estimate.value == pytest.approx(0, abs=0.03)
    several = world(0, GAINS)
    apart = [c for c in several if (c.trained_on, c.factor, c.seed) != (1, 0, 1)]  # one network of the other hierarchy
    pairs = endpoints.pair_cells(endpoints.at_chosen(apart), QUESTION, "topk", "f1")
    assert {(c.factor, c.seed) for c in pairs} == {(0, 0), (1, 0), (1, 1)}
    tuned = [c for c in several if (c.trained_on, c.factor) != (1, 0)]  # the tuned network knows both hierarchies
    pairs = endpoints.pair_cells(endpoints.at_chosen(tuned), QUESTION, "topk", "f1")
    assert {(c.factor, c.seed) for c in pairs} == {(1, 0), (1, 1)}
    own = [c for c in several if c.trained_on in (None, c.factor)]
    own += [replace(c, role="untrained", trained_on=None) for c in own if c.role == "trained"]
    assert not select(endpoints.estimates(own), part="endpoint", endpoint=QUESTION)  # not another contrast instead


def test_both_lines_of_an_endpoint_are_corrected_alike():
    """Without correction, the second line would be below 0 and the first not, so that nothing was decided."""
    spread = 0.0136 * np.array([-1.2649, -0.6325, 0, 0.6325, 1.2649])
    values = {"topk": -0.02 + spread, "batchtopk": spread, "matryoshka": spread[::-1]}

    def rows(draw):
        for name, found in values.items():
            names = {"endpoint": METHOD, "method": name, "measure": "f1"}
            yield from (row(over_seeds([found[draw]]), part=part, **names) for part in ("endpoint", "healthy"))
            yield row(over_seeds([0.1]), part="dropped", **names)

    found = {one.method: one for one in endpoints.tested(combined([list(rows(draw)) for draw in range(5)]))}
    assert found["topk"].p < 0.05 < found["topk"].holm
    assert found["topk"].verdict == "not above 0"
    assert found["batchtopk"].verdict == "undecided"


def test_fewer_than_three_draws_decide_nothing():
    rows = combined([endpoints.estimates(world(draw, GAINS)) for draw in range(2)])
    assert {one.verdict for one in endpoints.tested(rows)} == {"undecided"}
    assert all("no test with fewer than three draws" in one.words for one in endpoints.tested(rows))


def test_one_hierarchy_asks_of_untrained_networks():
    cells = [
        c for c in world(0, {"topk": (0.5, 0.0)}) if c.factor == 0 and c.trained_on in (0, None) and c.role != "raw"
    ]
    cells += [replace(c, role="untrained", trained_on=None, values=c.values * 0.5) for c in cells]
    rows = list(endpoints.estimates(cells))
    (found,) = select(rows, part="endpoint", endpoint=QUESTION, measure="f1")
    assert found.estimate.value == pytest.approx(0.25, abs=0.02)


def test_a_tuned_network_is_asked_of_the_second_lexicon_alone():
    cells = [c for c in world(0, {"topk": (0.5, 0.2)}) if c.role != "raw"]
    cells = [replace(c, values=c.values * 0 + 0.7) if c.factor == 0 and c.measure == "f1" else c for c in cells]
    (both,) = select(endpoints.estimates(cells), part="endpoint", endpoint=QUESTION, measure="f1")
    (second,) = select(endpoints.estimates(cells, tuned=True), part="endpoint", endpoint=QUESTION, measure="f1")
    assert second.estimate.value == pytest.approx(0.2, abs=0.03)
    assert both.estimate.value == pytest.approx(second.estimate.value / 2, abs=0.01)
    (shown,) = select(endpoints.estimates(cells, tuned=True), part="contrast", contrast="own - other", measure="f1")
    assert shown.estimate.value == pytest.approx(second.estimate.value)
    names = {"part": "level", "role": "other", "method": "topk", "measure": "f1"}
    (level,) = select(endpoints.estimates(cells, tuned=True), **names)
    assert level.estimate.value == pytest.approx(0.5, abs=0.03)  # of the second lexicon, which the first network lacks


def test_the_smallest_effect_is_one_that_was_planted_in_codes_of_own_networks():
    rows = combined([endpoints.estimates(world(draw, GAINS)) for draw in range(5)])
    planted = select(rows, part="planted", endpoint=QUESTION, method="topk", measure="f1")
    assert [row["share"] for row in planted] == list(PLANTED.values())
    np.testing.assert_allclose([row.estimate.value for row in planted], 0.3 * np.array(list(PLANTED.values())))
    found = {(one.endpoint, one.method): one.smallest for one in endpoints.tested(rows)}
    assert found[QUESTION, "topk"] in [row.estimate.value for row in planted]


def test_nothing_is_found_where_too_many_pairs_are_dropped():
    rows = combined([endpoints.estimates(world(draw, GAINS, dead=0.9)) for draw in range(5)])
    found = {(one.endpoint, one.method): one for one in endpoints.tested(rows)}
    assert np.isnan(found[QUESTION, "topk"].smallest)
    assert found[QUESTION, "kmeans"].smallest > 0


def test_power_falls_with_spread_and_with_the_number_of_methods():
    planted = np.linspace(0.005, 0.3, 60)
    quiet = endpoints.smallest_effect(planted, "a", {"a": 0.01}, 5)
    assert quiet < endpoints.smallest_effect(planted, "a", {"a": 0.03}, 5)
    assert quiet < endpoints.smallest_effect(planted, "a", {"a": 0.01, "b": 0.01, "c": 0.01, "d": 0.01}, 5)
    assert np.isnan(endpoints.smallest_effect(planted, "a", {"a": 9.0}, 5))


def test_a_method_with_one_draw_counts_in_the_correction_and_leaves_power_to_the_others():
    planted, one_draw = np.linspace(0.005, 0.3, 60), float("nan")
    assert np.isnan(endpoints.smallest_effect(planted, "b", {"a": 0.01, "b": one_draw}, 5))
    alone = endpoints.smallest_effect(planted, "a", {"a": 0.01}, 5)
    assert alone < endpoints.smallest_effect(planted, "a", {"a": 0.01, "b": one_draw, "c": one_draw}, 5) < 0.3


def test_the_finding_says_what_every_endpoint_says_of_every_method():
    documents, points = (declaration.settings(task(name), only=["kmeans"]) for name in ("documents", "superposed-2"))
    said = {(METHOD, "topk"): "above 0", (METHOD, "batchtopk"): "below 0", (METHOD, "matryoshka"): "above 0"}
    said |= {(QUESTION, "topk"): "not above 0", (QUESTION, "kmeans"): "undecided"}
    text, look = declaration.finding(said, documents)
    assert text == (
        "Method: recovery minus that of k-means is above 0 for topk, matryoshka; below 0 for batchtopk. "
        "Question: recovery minus that in networks trained on another hierarchy is not above 0 for topk; "
        "undecided for kmeans. "
        "Not measured: question for batchtopk, matryoshka; cause for topk, batchtopk, matryoshka."
    )
    assert look == "mixed"
    assert "cause" not in declaration.finding(said, points)[0]  # only documents have it
    for verdict, colour in (("above 0", "good"), ("below 0", "bad"), ("undecided", "mixed"), ("not above 0", "mixed")):
        everywhere = {(e, m): verdict for e in endpoints.ENDPOINTS for m in endpoints.CONFIRMATORY}
        assert declaration.finding(everywhere, documents)[1] == colour
    del everywhere[QUESTION, "kmeans"]
    assert declaration.finding(dict.fromkeys(everywhere, "above 0"), documents)[1] == "mixed"  # one is missing


def test_absorption_is_drawn_without_one_centre_and_at_the_scale_of_the_means():
    def point(setting, at, value, half, method="kmeans"):
        names = {"role": "trained", "method": method, "setting": setting, "at": at, "measure": "absorption_edge"}
        return row(Estimate(value, value - half, value + half), part="curve", **names)

    rows = [point("k=1", 1.0, -0.9, 0.6), point("k=4", 4.0, 0.02, 0.01), point("k=8", 8.0, 0.05, 3.0)]
    rows += [point("", 4.0, 0.8, 0.1, "neurons"), point("k=8", 8.0, 0.08, 0.01, "topk")]
    drawn = declaration.draw(
        [*rows, row(over_seeds([0.5]), part="level", role="trained", method="topk", measure="f1")],
        declaration.settings(task("documents"), only=["kmeans"]),
    )
    assert set(drawn) == {"recovery", "absorption"}
    (axes,) = drawn["absorption"].figure.axes
    low, high = axes.get_ylim()
    assert -0.11 < low < 0 < 0.08 < high < 0.19  # not the long interval, nor k=1, nor methods that are not confirmatory
    assert {text.get_text() for text in axes.texts} == {"kmeans", "topk"}
    assert "cut off" in drawn["absorption"].caption
    assert "kmeans-1" in drawn["absorption"].caption
