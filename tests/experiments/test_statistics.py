"""Experiments on what a network represents: statistics on planted activations, at stated error rates."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

import percolab as pl
from percolab import intervals
from percolab.experiments import crossed, edit, relevance, responses, steering, trained
from percolab.nn import ResidualMLP, activations
from percolab.nn.probing import siblings
from percolab.nn.probing.probed_latents import find_places, held_out, read_places
from percolab.nn.probing.ridge import take
from percolab.study.estimates import select

CPU = torch.device("cpu")
torch.set_num_threads(1)  # threads that wait for each other are slow where tests share cores

REPEATS = 400
LARGEST_RATE = 0.08
"""Of 400 intervals at 95% that miss the truth with probability 0.05 each, more than 8% do with probability 0.005."""


@pytest.fixture(scope="module")
def forest():
    return pl.generate(pl.Recipe(1200, 3, "one_cluster", seeds=3)).forest


@pytest.fixture(scope="module")
def rows():
    """Samples in another order than rows, as in a superposed world."""
    return np.random.default_rng(5).permutation(1200)


@pytest.fixture(scope="module")
def pairs(forest, rows):
    return siblings.find_siblings(forest, rows, 20)


def rate(find, repeats=REPEATS, seed=0):
    """Return how often something is found."""
    rng = np.random.default_rng(seed)
    return np.mean([find(rng) for _ in range(repeats)])


# ---------------------------------------------------------------------- siblings


def samples_of(forest, rows, latent):
    below = forest.points_of(int(latent))
    return np.flatnonzero((rows >= below.start) & (rows < below.stop))


def test_pairs_are_both_children_of_a_latent(forest, rows, pairs):
    n = forest.n_points
    assert len(pairs) > 5
    for i in range(len(pairs)):
        children = forest.latent_children[pairs.parent[i]] - n
        for child, lo, hi in zip(
            children, (pairs.start[i], pairs.middle[i]), (pairs.middle[i], pairs.stop[i]), strict=True
        ):
            assert np.array_equal(np.sort(pairs.order[lo:hi]), samples_of(forest, rows, child))
        assert pairs.size[i] == forest.latent_size[children].min()
        assert pairs.depth[i] == forest.latent_depth[children[0]]
    sizes = forest.latent_size
    both = np.minimum(forest.left_size, sizes - forest.left_size) >= 20
    assert np.array_equal(pairs.parent, np.flatnonzero(both))


def test_of_many_pairs_some_of_every_size_are_taken(forest, rows, pairs):
    some = siblings.find_siblings(forest, rows, 20, most=5)
    assert len(some) == 5
    assert set(some.parent) <= set(pairs.parent)
    assert (some.size.min(), some.size.max()) == (pairs.size.min(), pairs.size.max())


@pytest.mark.parametrize("used", [None, np.arange(0, 1200, 3)])
def test_separation_is_as_defined(pairs, used):
    A = np.random.default_rng(0).standard_normal((1200, 4)) * [1, 2, 3, 100] + 1000
    mask = None if used is None else np.isin(np.arange(1200), used)
    found = siblings.separation(siblings.sums(torch.from_numpy(A), siblings.ready(pairs, CPU, mask)))
    kept = np.arange(1200) if used is None else used
    for i in range(len(pairs)):
        left, right = (
            A[np.intersect1d(pairs.order[lo:hi], kept)]
            for lo, hi in ((pairs.start[i], pairs.middle[i]), (pairs.middle[i], pairs.stop[i]))
        )
        distance = ((left.mean(0) - right.mean(0)) ** 2).sum()
        assert found[i] == pytest.approx(distance / (left.var(0).sum() + right.var(0).sum()), rel=1e-8)


def test_a_linear_reading_is_scored_on_samples_it_has_not_seen(pairs):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((1200, 5)).astype(np.float32)
    for i in range(len(pairs)):
        A[pairs.order[pairs.start[i] : pairs.middle[i]], i % 5] += 1.0
    held = rng.random(1200) < 0.4
    tensor, fit, scored = torch.from_numpy(A), siblings.ready(pairs, CPU, ~held), siblings.ready(pairs, CPU, held)
    factor = siblings.solver(tensor, fit)
    found = siblings.reading_accuracy(tensor, factor, fit, scored)
    covariance = np.cov(A[~held].T, bias=True)
    covariance += siblings.SHRINKAGE * np.trace(covariance) / 5 * np.eye(5)
    for i in range(len(pairs)):
        sides = [pairs.order[pairs.start[i] : pairs.middle[i]], pairs.order[pairs.middle[i] : pairs.stop[i]]]
        left, right = (A[side[~held[side]]].mean(0) for side in sides)
        w = np.linalg.solve(covariance, left - right)
        right_way = [(A[side[held[side]]] - (left + right) / 2) @ w > 0 for side in sides]
        expected = (right_way[0].mean() + 1 - right_way[1].mean()) / 2
        assert found[i] == pytest.approx(expected, abs=2.1 / min(map(len, right_way)))


def test_the_same_from_tensor_array_and_memory_map_a_few_rows_at_a_time(pairs, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    A, held = rng.standard_normal((1200, 5)).astype(np.float32), rng.random(1200) < 0.4
    np.save(tmp_path / "a.npy", A)
    fit, scored = siblings.ready(pairs, CPU, ~held), siblings.ready(pairs, CPU, held)

    def measured(A):
        found = siblings.reading_accuracy(A, siblings.solver(A, fit), fit, scored)
        return siblings.separation(siblings.sums(A, fit)), found

    whole, most = measured(torch.from_numpy(A)), []
    monkeypatch.setitem(siblings.CHUNK_ROWS, "cpu", 100)
    monkeypatch.setattr(siblings, "take", lambda *asked: most.append(asked[2].size) or take(*asked))
    for values in (torch.from_numpy(A), A, np.load(tmp_path / "a.npy", mmap_mode="r")):
        assert np.allclose(measured(values), whole, rtol=1e-9)
    assert max(most) <= 100


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 60), labels=st.integers(1, 8), step=st.integers(1, 9))
def test_pairs_of_any_groups_of_labels(seed, n, labels, step):
    """Groups are intervals of labels, nested or apart, some without a sample: against obvious loops."""
    rng = np.random.default_rng(seed)
    A, label = rng.standard_normal((n, 3)), rng.integers(-1, labels, n)
    first = rng.integers(0, labels, (2, 6))
    bounds = np.stack([first, first + rng.integers(1, 4, (2, 6))], 1)
    used = rng.random(n) < 0.8
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(siblings.CHUNK_ROWS, "cpu", step)
        ready = siblings.group_pairs(label, bounds, CPU, used)
        if not used.any():
            return
        found = siblings.separation(siblings.sums(A, ready))
        accuracy = siblings.reading_accuracy(A, siblings.solver(A, ready), ready, ready)
    covariance = np.cov(A[used].T, bias=True).reshape(3, 3)
    covariance += (siblings.SHRINKAGE * np.trace(covariance) / 3 + 1e-12) * np.eye(3)
    for i in range(6):
        sides = [A[used & (label >= bounds[side, 0, i]) & (label < bounds[side, 1, i])] for side in range(2)]
        if not len(sides[0]) or not len(sides[1]):
            assert np.isnan(found[i])
            assert np.isnan(accuracy[i])
            continue
        left, right = (side.mean(0) for side in sides)
        spread = sum(side.var(0).sum() for side in sides)
        if spread > 1e-9:
            assert found[i] == pytest.approx(((left - right) ** 2).sum() / spread, rel=1e-6)
        read = [(side - (left + right) / 2) @ np.linalg.solve(covariance, left - right) for side in sides]
        if min(np.abs(values).min() for values in read) > 1e-3:
            assert accuracy[i] == pytest.approx(((read[0] > 0).mean() + (read[1] <= 0).mean()) / 2)


# ---------------------------------------------------------------------- bins


def test_bins_have_as_many_values_each_and_keep_equal_ones_together():
    values = np.repeat([1, 2, 3, 10, 50], [25, 25, 25, 20, 5])
    bins, edges = intervals.equal_bins(np.random.default_rng(0).permutation(values))
    assert np.bincount(bins).tolist() == [25, 25, 25, 25]
    assert edges[0] == 1
    assert edges[-1] == 50
    bins, _ = intervals.equal_bins(values)
    for value in np.unique(values):
        assert np.unique(bins[values == value]).size == 1
    logs, _ = intervals.log_bins([1, 20, 200, 2000, 10_000], 4)
    assert logs.tolist() == [0, 1, 2, 3, 3]


# ---------------------------------------------------------------------- relevance


def planted_world(rng, pairs_of, members, effect, seeds=3, width=4):
    """Return separations (S, K, P) in activations where a pair is set apart more in the network of its own factor."""
    K, found = len(pairs_of), []
    ready = [siblings.ready(own, CPU) for own in pairs_of]
    for _ in range(seeds):
        for trained_on in range(K):
            A = rng.standard_normal((600, width))
            for k, member in enumerate(members):
                shift = 0.5 * np.exp(effect / 2 * (k == trained_on))
                A += member @ (shift * rng.standard_normal((member.shape[1], width)))
            tensor = torch.from_numpy(A)
            found.append(np.concatenate([siblings.separation(siblings.sums(tensor, own)) for own in ready]))
    return np.stack(found).reshape(seeds, K, -1)


@pytest.fixture(scope="module")
def factors():
    forests = [pl.generate(pl.Recipe(600, 2, "one_cluster", seeds=seed)).forest for seed in range(3)]
    places = [np.random.default_rng(k).permutation(600) for k in range(3)]
    found = [siblings.find_siblings(f, p, 12) for f, p in zip(forests, places, strict=True)]
    members = []
    for own in found:
        member = np.zeros((600, len(own)))
        for i in range(len(own)):
            member[own.order[own.start[i] : own.middle[i]], i] = 1
        members.append(member)
    return found, members


def relevant(rng, factors, effect):
    own, members = factors
    values = planted_world(rng, own, members, effect)
    factor = np.repeat(np.arange(3), [len(part) for part in own])
    blocks = intervals.kin(np.concatenate([part.place for part in own]), factor)
    swap = intervals.mean_interval(relevance.swap_log_ratio(values, factor), blocks)
    idle = intervals.mean_interval(relevance.idle_log_ratio(values, factor, 1), blocks)
    return swap, idle


@pytest.mark.slow
def test_relevance_is_found_where_it_is_planted_and_not_elsewhere(factors):
    swap, idle = zip(*(relevant(np.random.default_rng((1, i)), factors, 1.5) for i in range(60)), strict=True)
    nothing = rate(lambda rng: relevant(rng, factors, 0.0)[0].found, 60)
    assert all(estimate.low > 0 for estimate in swap)
    assert np.mean([estimate.found for estimate in idle]) <= 0.15  # more than 9 of 60 with probability 0.001
    assert nothing <= 0.15


def test_a_log_ratio_is_of_a_unit_with_itself():
    values = np.exp(np.random.default_rng(0).standard_normal((2, 3, 5)))
    factor = np.array([0, 0, 1, 2, 2])
    found, idle = relevance.swap_log_ratio(values, factor), relevance.idle_log_ratio(values, factor, 1)
    for s, p in np.ndindex(2, 5):
        own, others = factor[p], [k for k in range(3) if k != factor[p]]
        logs = np.log(values[s, :, p])
        assert found[s, p] == pytest.approx(logs[own] - logs[others].mean())
        assert idle[s, p] == pytest.approx(logs[(own + 1) % 3] - logs[(own + 2) % 3])


def test_the_null_sees_networks_that_differ_though_none_is_relevant():
    rng = np.random.default_rng(5)
    factor = np.repeat(np.arange(4), 50)
    blocks = intervals.kin(np.tile(np.arange(50), 4), factor)
    values = rng.normal(0, 0.1, (5, 4, 200))
    for name, offset in (("alike", 0.0), ("not alike", 0.3)):
        # For units of each factor, the network of the next factor has an offset.
        shifted = values.copy()
        shifted[:, (factor + 1) % 4, np.arange(200)] += offset
        rows = relevance.nulls(np.exp(shifted), factor, blocks, 1e-12, {"measure": name})
        (null,) = select(rows, part="null")
        by_shift = [r.estimate.value for r in select(rows, part="null, by shift")]
        assert len(by_shift) == 3
        assert null.estimate.value == max(by_shift, key=abs)
        assert null.estimate.value == pytest.approx(offset, abs=0.03)
        assert null.estimate.found == bool(offset)
    assert relevance.nulls(np.exp(values[:, :2]), factor % 2, blocks, 1e-12, {}) == []


# ---------------------------------------------------------------------- probes


@pytest.fixture(scope="module")
def places(forest, rows):
    return find_places(forest, rows, range(0, 40, 4), 25)


def test_probes_are_ridge_regressions(forest, rows, places):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((1200, 6)).astype(np.float32) * 3 + 1
    values = rng.standard_normal((forest.n_latents, 2))[places.latent]
    found = read_places(torch.from_numpy(A), places, values)
    for j, depth in enumerate(places.depths):
        latent = forest.latent_at_depth(int(depth))[rows]
        inside = np.isin(latent, places.latent)
        own = np.searchsorted(places.latent[places.depth_index == j], latent[inside])
        own = own + np.flatnonzero(places.depth_index == j)[0]
        fit = ~held_out(1200)[inside]
        scaled = (A - A[inside][fit].mean(0)) / (A[inside][fit].std(0) + 1e-6)
        for t in range(2):
            target = values[own, t]
            probe = Ridge(alpha=1).fit(scaled[inside][fit], target[fit])
            squared = (probe.predict(scaled[inside][~fit]) - target[~fit]) ** 2
            for number in np.unique(own):
                assert found.mse[number, t] == pytest.approx(squared[own[~fit] == number].mean(), rel=1e-4)
                assert found.baseline[number, t] == pytest.approx(
                    (target[fit].mean() - values[number, t]) ** 2, rel=1e-4
                )


def test_a_perfect_reading_has_gain_one_and_none_has_gain_zero(places):
    rng = np.random.default_rng(0)
    values = rng.standard_normal((len(places), 1))
    noise = rng.standard_normal((1200, 3))
    # A column a depth holds the value of the sample's latent there.
    held = np.where(places.where >= 0, values[places.where, 0], 0)
    perfect = read_places(torch.from_numpy(np.column_stack([held, noise])).float(), places, values, alpha=1e-3)
    assert np.allclose(perfect.gain, 1, atol=0.02)
    assert perfect.mse.sum() < 0.01 * perfect.baseline.sum()
    blind = read_places(torch.from_numpy(noise).float(), places, values)
    assert abs(np.median(blind.gain)) < 0.1


# ---------------------------------------------------------------------- crossed values


def crossed_errors(rng, K, L, F, effect):
    """Return errors (K, K + F, L): some networks, draws and latents are easier; own values by a factor exp(-effect)."""
    logs = rng.normal(0, 0.3, (K, K + F, L)) + rng.normal(0, 0.5, (K, 1, 1)) + rng.normal(0, 0.5, (1, K + F, 1))
    logs += rng.normal(0, 0.5, (1, 1, L))
    logs[np.arange(K), np.arange(K)] -= effect
    return np.exp(logs)


def crossed_found(rng, effect):
    errors = crossed_errors(rng, 5, 60, 12, effect)
    own, fresh = errors[:, :5], errors[:, 5:]
    interval = crossed.own_interval(own, intervals.kin(np.arange(60)))
    null = crossed.null_band(fresh)
    return interval, null


def test_own_values_are_found_where_they_are_held_and_not_elsewhere(monkeypatch):
    monkeypatch.setattr(crossed, "ASSIGNMENTS", 60)

    def found(effect):
        def once(rng):
            interval, null = crossed_found(rng, effect)
            return interval.found and not null.low <= interval.value <= null.high

        return once

    assert rate(found(0.3), 30) == 1
    assert rate(found(0.0), 100, seed=1) <= 0.12


def test_the_log_ratio_of_own_values_does_not_see_easy_networks_or_draws():
    rng = np.random.default_rng(0)
    errors = np.exp(rng.normal(0, 1, (4, 1, 1)) + rng.normal(0, 1, (1, 4, 1)) + rng.normal(0, 1, (1, 1, 7)))
    assert crossed.own_log_ratio(errors) == pytest.approx(0, abs=1e-12)
    errors[np.arange(4), np.arange(4)] *= np.exp(-0.4)
    assert crossed.own_log_ratio(errors) == pytest.approx(-0.4)


def test_draws_of_values_follow_the_law():
    dataset = pl.generate(pl.Recipe(300, 3, "one_cluster", seeds=2))
    [(z, y), (other, other_y)] = crossed.draws_of(dataset, 2)
    assert z is dataset.latent_z
    assert y is dataset.y
    assert abs(np.corrcoef(z, other)[0, 1]) < 0.2
    assert other_y.std() == pytest.approx(y.std(), rel=0.6)


# ---------------------------------------------------------------------- trained over untrained


def test_a_change_by_training_is_found_where_it_is_planted_and_not_elsewhere():
    blocks = intervals.kin(np.arange(80))

    def found(effect):
        def once(rng):
            measure = np.exp(rng.normal(0, 0.4, (5, 2, 80)) + rng.normal(0, 1, 80) + rng.normal(0, 0.1, (5, 1, 1)))
            measure[:, 1] *= np.exp(-effect)
            return intervals.mean_interval(trained.log_change(measure)[:, 1], blocks).found

        return once

    assert rate(found(0.3), 100) == 1
    assert rate(found(0.0), REPEATS, seed=1) < LARGEST_RATE


# ---------------------------------------------------------------------- dose and response


@pytest.fixture(scope="module")
def stretched(pairs):
    """Activations in which pairs are set apart, and y."""
    rng = np.random.default_rng(2)
    A = 0.3 * rng.standard_normal((1200, 12))
    for i in range(len(pairs)):
        A[pairs.order[pairs.start[i] : pairs.middle[i]]] += rng.standard_normal(12)
    return torch.from_numpy(A)


def slopes(pairs, A, rests, y, doses=(0.5, 1.0, 2.0)):
    """Return slopes and r² by dose, where each seed has one of the rests of a network."""
    samples = responses.sibling_samples(pairs, 8).reshape(-1, 8)
    vectors = responses.own_directions(A, siblings.ready(pairs, CPU)).flatten(0, 1)
    pushed = [responses.steer(A, rest, samples, vectors, doses)[0] for rest in rests]
    response = np.stack(pushed).reshape(len(rests), 2, len(pairs), -1)
    blocks = intervals.kin(pairs.place)
    true = responses.true_differences(pairs, y)
    found = [responses.response_line(d * true, response[..., i], blocks) for i, d in enumerate(doses)]
    return [slope for slope, _ in found], [r2 for _, r2 in found]


def test_a_linear_readout_of_y_responds_as_the_truth_says(pairs, stretched):
    w = torch.from_numpy(np.random.default_rng(0).standard_normal(12))
    y = (stretched @ w).numpy()
    slope, r2 = slopes(pairs, stretched, [lambda h: h @ w], y)
    assert [s.value for s in slope] == pytest.approx([1, 1, 1])
    assert [r.value for r in r2] == pytest.approx([1, 1, 1])
    half, _ = slopes(pairs, stretched, [lambda h: 0.5 * (h @ w) + 3], y)
    assert [s.value for s in half] == pytest.approx([0.5, 0.5, 0.5])


@pytest.mark.parametrize(("seeds", "largest"), [(5, 0.08), (2, 0.14)])
def test_readouts_of_something_else_do_not_respond(pairs, stretched, seeds, largest):
    """Of 1,000 draws a slope was found in 3.6% with five seeds, in 8.6% with two and in 32.5% with one."""

    def found(rng):
        w, *others = torch.from_numpy(rng.standard_normal((1 + seeds, 12)))
        rests = [lambda h, other=other: h @ other for other in others]
        slope, _ = slopes(pairs, stretched, rests, (stretched @ w).numpy(), (1.0,))
        return slope[0].found

    assert rate(found, 200) <= largest  # at these rates, more of 200 with probability 0.001 and 0.004


def test_what_is_constant_does_not_respond(pairs, stretched):
    w = torch.from_numpy(np.random.default_rng(0).standard_normal(12))
    constant, _ = slopes(pairs, stretched, [lambda h: torch.zeros(len(h), dtype=h.dtype)], (stretched @ w).numpy())
    assert constant[0].value == 0


def test_what_saturates_responds_less_to_twice_the_dose(pairs, stretched):
    w = torch.from_numpy(np.random.default_rng(0).standard_normal(12))
    slope, _ = slopes(pairs, stretched, [lambda h: torch.tanh(h @ w / 4)], torch.tanh(stretched @ w / 4).numpy())
    assert slope[0].value > slope[2].value > 0


def test_samples_are_of_their_concept_and_of_no_other(pairs):
    samples = responses.sibling_samples(pairs, 5)
    for i in range(len(pairs)):
        assert set(samples[0, i]) <= set(pairs.order[pairs.start[i] : pairs.middle[i]])
        assert set(samples[1, i]) <= set(pairs.order[pairs.middle[i] : pairs.stop[i]])
    some = pairs.stop - pairs.start < 1200
    start, stop = pairs.start[some], pairs.stop[some]
    beyond = responses.beyond_rows(start, stop, 1200, 7)
    assert not ((beyond >= start[:, None]) & (beyond < stop[:, None])).any()
    assert ((beyond >= 0) & (beyond < 1200)).all()


def test_random_directions_are_as_long(stretched, pairs):
    vectors = responses.own_directions(stretched, siblings.ready(pairs, CPU))
    drawn = responses.random_like(vectors, seed=0)
    assert torch.allclose(drawn.norm(dim=-1), vectors.norm(dim=-1))
    assert not torch.equal(drawn, responses.random_like(vectors, seed=1))


def test_a_probes_direction_raises_its_reading_by_its_gain(places):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((1200, 5)) @ rng.standard_normal((5, 5))
    probed = read_places(torch.from_numpy(A).float(), places, rng.standard_normal((len(places), 2)))
    along = responses.probe_directions(torch.from_numpy(A), probed)
    assert np.allclose((along * probed.weight).sum(-1), probed.gain, rtol=1e-4)
    expected = np.cov(A.T, bias=True) @ probed.weight[1, 0].numpy()
    cosine = expected @ along[1, 0].numpy() / np.linalg.norm(expected) / np.linalg.norm(along[1, 0].numpy())
    assert abs(cosine) == pytest.approx(1)


def test_along_probes_directions_a_network_that_follows_the_law_responds_by_it():
    """Of many clusters, activations hold z of some depths, and the prediction is their sum over √(1 + depth)."""
    forest = pl.generate(pl.Recipe(6000, 2, "distribution", seeds=1, min_cluster_size=8)).forest
    places = find_places(forest, np.arange(forest.n_points), (0, 1, 2), 6)
    rng = np.random.default_rng(0)
    values = rng.standard_normal((len(places), 9))  # the first is held, the others are fresh
    held = np.where(places.where >= 0, values[places.where, 0], 0)
    A = torch.from_numpy(np.column_stack([held, rng.standard_normal((forest.n_points, 4))])).float()
    weight = torch.from_numpy(1 / np.sqrt(1 + places.depths)).float()
    along = responses.probe_directions(A, read_places(A, places, values))
    inside, _ = responses.place_samples(places, 4)
    for latent in range(len(places)):
        assert (places.where[inside[latent], places.depth_index[latent]] == latent).all()
    law = 1 / np.sqrt(1 + places.depths[places.depth_index])
    found = []
    for t in range(9):
        vectors = along[torch.from_numpy(places.depth_index), t]
        response, _ = responses.steer(A, lambda h: h[:, :3] @ weight, inside, vectors, (1.0,))
        found.append(intervals.line_through_origin(law, response[:, 0]).slope)
    assert found[0] == pytest.approx(1, abs=0.3)  # by chance values of two depths go together in the largest clusters
    null = intervals.prediction(found[1:])
    assert null.low < 0 < null.high < found[0]


def test_responses_are_sorted_by_relevance():
    values = np.random.default_rng(0).standard_normal((2, 3, 4, 5))
    factor = np.array([0, 1, 2, 1, 0])
    found = responses.by_relevance(values, factor)
    for u in range(5):
        others = [k for k in range(3) if k != factor[u]]
        assert np.allclose(found["relevant"][..., u], values[:, factor[u], :, u])
        assert np.allclose(found["irrelevant"][..., u], values[:, others][..., u].mean(1))


def test_leakage_is_what_happens_elsewhere_over_what_happens_here():
    inside = np.full((3, 40), 2.0)
    outside = np.where(np.arange(40) % 4, 0.5, np.nan)[None].repeat(3, 0)
    found = responses.leakage(inside, outside, intervals.kin(np.arange(40)))
    assert found.value == pytest.approx(0.25)


# ---------------------------------------------------------------------- edit and retrain


def test_a_shared_direction_is_found_where_it_is_planted_and_not_elsewhere():
    def found(share):
        def once(rng):
            vectors = rng.standard_normal((3, 12, 40)) + share * rng.standard_normal((3, 1, 40))
            return edit.shared_interval(vectors).found

        return once

    assert rate(found(1.0), 40) == 1
    assert rate(found(0.0), 100, seed=1) <= 0.12


def test_the_shared_cosine_is_that_of_all_pairs():
    vectors = np.random.default_rng(0).standard_normal((5, 7))
    cosines = [
        a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        for i, a in enumerate(vectors)
        for j, b in enumerate(vectors)
        if i != j
    ]
    assert edit.shared_cosine(vectors) == pytest.approx(np.mean(cosines))
    along = vectors.sum(0)
    assert np.allclose(edit.without(vectors, along) @ along, 0)
    planted = vectors + 100 * along
    assert edit.shared_cosine(planted) > 0.99
    assert edit.shared_cosine(edit.without(planted, along)) < 0.5


def test_edited_latents_are_separate(forest):
    latents = edit.edited_latents(forest, 6)
    assert 2 <= latents.size <= 6
    used = np.zeros(1200, int)
    for latent in latents:
        used[forest.points_of(int(latent))] += 1
    assert used.max() == 1


# ---------------------------------------------------------------------- the rest of a network


def test_the_rest_of_a_network_goes_on_where_it_was_left():
    model = ResidualMLP(4, 6, 3, seed=0)
    X = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))
    names = ["input", *(f"blocks.{i}" for i in range(3))]
    recorded = activations(model, X, names, device="cpu")
    for name, h in {"raw": X, **recorded}.items():
        assert torch.allclose(responses.forward_from(model, name, h), model(X))
    assert responses.streams(model) == names[:-1]


def test_the_mean_slope_is_the_readout_after_the_last_block():
    model = ResidualMLP(4, 6, 2, seed=0)
    X = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    assert np.allclose(edit.mean_slope(model, "blocks.1", X), model.output.weight.detach().numpy()[0], atol=1e-6)


def test_an_unrelated_concept_shares_no_point_and_no_feature():
    start, stop = np.array([0, 0, 4, 8, 20, 21]), np.array([20, 4, 8, 12, 30, 22])
    feature = np.array([1, 2, 2, 3, 3, 4])
    drawn = np.stack([steering.unrelated(start, stop, feature, np.random.default_rng(i)) for i in range(200)])
    able = {0: {4, 5}, 1: {3, 4, 5}, 2: {3, 4, 5}, 3: {1, 2, 5}, 4: {0, 1, 2}, 5: {0, 1, 2, 3}}
    assert {i: set(column) for i, column in enumerate(drawn.T)} == able
    alone = steering.unrelated(start[:2], stop[:2], feature[:2], np.random.default_rng(0))
    assert alone.tolist() == [-1, -1]
