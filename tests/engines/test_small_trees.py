"""Both samplers grow every small tree, with every order of its bonds, equally often; left and right are alike."""

from dataclasses import replace

import numpy as np
import planted
import pytest
from scipy.stats import binomtest, chisquare
from small_trees import names, p_of_pairs, p_of_trees

import percolab as pl
from percolab.figures.samplers import small_forest, tree_counts


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["native", "paper"])
def test_samplers_grow_every_small_tree_alike(engine):
    counts = tree_counts(small_forest(engine, 6, 500_000, 0), 6)
    assert counts.size == 6**4
    assert counts.sum() == 500_000
    assert chisquare(counts).pvalue > 1e-5
    assert p_of_pairs(small_forest(engine, 5, 200_000, 0), 5) > 1e-5


@pytest.mark.parametrize("engine", ["native", "paper"])
def test_trees_and_merger_trees_of_latents(engine):
    forest = pl.generate(pl.Recipe(100_000, 2, "one_cluster", seeds=2, engine=engine)).forest
    assert p_of_trees(forest, 4) > 1e-5
    assert p_of_pairs(forest, 4) > 1e-5


@pytest.mark.parametrize("engine", ["native", "paper"])
def test_small_forests_are_forests(engine):
    forest = small_forest(engine, 5, 1000, 3)
    forest.validate()
    assert forest.n_clusters == 1000
    assert np.array_equal(forest.cluster_size, np.full(1000, 5))
    assert np.array_equal(tree_counts(forest, 5), np.unique(names(forest, 5)[0], return_counts=True)[1])


def test_the_paper_sampler_is_the_cyclic_coalescent():
    forest = small_forest("paper", 6, 3, 11)
    assert forest.cluster(0).equals(pl.engines.cyclic_coalescent(6, 11))


def test_labels_that_follow_the_tree_are_found():
    forest = planted.one_cluster().forest
    ordered = replace(forest, point_id=np.arange(forest.n_points))
    assert p_of_trees(forest, 4) > 1e-5 > p_of_trees(ordered, 4)
    assert p_of_pairs(forest, 4) > 1e-5 > p_of_pairs(ordered, 4)


def p_of_sides(forest):
    """Return the p-value that the larger side is on the left half of the time."""
    twice = 2 * forest.left_size
    heavy, unequal = (twice > forest.latent_size).sum(), (twice != forest.latent_size).sum()
    return binomtest(int(heavy), int(unequal)).pvalue


def test_left_and_right_are_alike():
    assert p_of_sides(pl.generate(pl.Recipe(100_000, 2, "one_cluster", seeds=2)).forest) > 1e-5
    assert p_of_sides(planted.one_cluster().forest) > 1e-5


def test_sides_out_of_order_are_found():
    def larger_left(rng, size):
        left = planted.fair_split(rng, size)
        return max(left, size - left) if rng.random() < 0.1 else left

    assert p_of_sides(planted.one_cluster(choose=larger_left).forest) < 1e-5
