"""Attachment and the table of clusters, against the definition, for any number of threads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import percolab as pl
from percolab.engines import cluster_growth, clusters
from percolab.engines.clusters import Clusters
from percolab.rng import philox


def attached(n, p, key):
    """Follow the definition, one point after another."""
    labels, born = [], 0
    for i in range(n):
        create, follow = map(np.uint64, philox.block(np.uint64(i), 0, philox.CLUSTER, key))
        if i == 0 or philox.uniform(create) < p:
            labels.append(born)
            born += 1
        else:
            labels.append(labels[int(philox.uniform(follow) * i)])
    return labels, born


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("p", [0.0, 0.02, 1 / 3, 1.0])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_attachment_is_as_defined(threads, p, dtype, monkeypatch):
    monkeypatch.setattr(cluster_growth, "CHUNK", 700)
    for n in (1, 2, 3, 700, 701, 3000):
        key = np.uint64(n)
        labels = np.full(n, -7, dtype)
        born = cluster_growth.attach_keyed(p, key, labels, threads)
        assert (labels.tolist(), born) == attached(n, p, key)


def sorted_clusters(labels, least):
    """Return start, birth and points of clusters, by the definition."""
    points = [np.flatnonzero(labels == c).tolist() for c in range(labels.max() + 1)]
    order = sorted((c for c in range(len(points)) if len(points[c]) >= least), key=lambda c: (-len(points[c]), c))
    start = np.cumsum([0, *(len(points[c]) for c in order)])
    return start.tolist(), order, [point for c in order for point in points[c]]


@settings(deadline=None, max_examples=150)
@given(
    draws=st.lists(st.integers(0, 30), min_size=1, max_size=120),
    least=st.sampled_from([1, 2, 3, 7, 200]),
    large=st.sampled_from([2, 4, 1 << 16]),
    threads=st.integers(1, 4),
    dtype=st.sampled_from([np.int32, np.int64]),
)
def test_the_table_is_sorted_by_size_and_birth(draws, least, large, threads, dtype):
    _, births, labels = np.unique(draws, return_index=True, return_inverse=True)
    labels = np.argsort(np.argsort(births))[labels].astype(dtype)  # numbered as they first appear
    held = [labels.copy()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clusters, "LARGE_CLUSTER", large)
        found = Clusters.from_labels(held, least, dtype, threads=threads, with_born_size=True)
    start, birth, points = sorted_clusters(labels, least)
    assert held == []
    assert (found.start.tolist(), found.birth.tolist(), found.point_id.tolist()) == (start, birth, points)
    assert found.born_size.tolist() == np.bincount(labels).tolist()
    assert (found.start.dtype, found.birth.dtype, found.point_id.dtype) == (np.int64, dtype, dtype)


@pytest.mark.parametrize("least", [1, 50, 5000])
def test_any_number_of_threads_gives_the_same_table(least, monkeypatch):
    monkeypatch.setattr(cluster_growth, "CHUNK", 1 << 14)
    monkeypatch.setattr("percolab.engines.native.ALONE", 1)
    recipe = pl.Recipe(100_000, 2, "custom", create_prob=0.01, seeds=3, min_cluster_size=least)
    one, *others = (pl.engines.cluster_table(recipe, threads=threads).clusters for threads in (1, 2, 3, 20))
    for other in others:
        for name in ("start", "birth", "point_id"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
