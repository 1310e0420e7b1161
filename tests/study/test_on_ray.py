"""Studies on a Ray cluster: the same numbers as in this process, though a node dies."""

import json
from dataclasses import replace

import pytest
import torch

import percolab as pl
from percolab.benchmark import Budget, Options, Task, benchmark
from percolab.experiments.runs import find, represent
from percolab.nn import TrainConfig

torch.set_num_threads(1)

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def cluster():
    """Three nodes: a head that does no tasks, and two with a processor each."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    made.workers = [made.add_node(num_cpus=1) for _ in range(2)]
    made.wait_for_nodes()
    yield made
    made.shutdown()


def test_a_node_dies_and_the_numbers_are_the_same(tmp_path, cluster):
    usual = find("edit").settings("small", seeds=2, draws=2)
    chosen = replace(
        usual,
        recipes=(pl.Recipe(500, 4, "one_cluster", seeds=0),),
        training=TrainConfig(d_model=8, n_blocks=2, epochs=3, batch_size=64, lr=1e-3),
        options=replace(usual.options, latents=4, retraining=2),
    )
    killed = []

    def kill_a_node(stage, done, total):
        if stage == "cells" and not killed:
            killed.append(done)
            cluster.remove_node(cluster.workers[0], allow_graceful=False)

    here = represent(chosen, tmp_path / "here", device="cpu")
    there = represent(chosen, tmp_path / "there", device="cpu", ray=cluster.address, progress=kill_a_node)
    assert killed
    assert there["estimates"] == here["estimates"]
    assert there["training"]["test"] == here["training"]["test"]
    assert there["missing"] == []
    assert not (tmp_path / "there" / "training").exists()


def test_a_benchmark_has_the_same_numbers_on_a_cluster(tmp_path, cluster):
    budget = Budget(n_features=24, k=3, steps=5, batch_size=64, lr=1e-3, n_components=3)
    recipe = pl.Superposition([pl.Recipe(500, 4, "one_cluster", seeds=seed) for seed in (1, 2)], seed=0)
    training = TrainConfig(d_model=8, n_blocks=1, epochs=1, batch_size=64, lr=1e-2)
    task = Task("superposed-2", "small", recipe, training, Options("blocks.0", 5, budget))
    here, there = (
        benchmark([task], output=tmp_path / name, only=["kmeans", "neurons"], device="cpu", ray=ray)["superposed-2"]
        for name, ray in (("here", None), ("there", cluster.address))
    )
    assert there["missing"] == []
    assert there["failed"] == {}
    assert there["table"] == here["table"]
    estimates = [[r for r in found["estimates"] if r["measure"] != "seconds"] for found in (here, there)]
    assert json.dumps(estimates[0]) == json.dumps(estimates[1])  # NaN is not equal to itself
    assert len(estimates[0]) > 100
