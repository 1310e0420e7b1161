"""Studies on a Ray cluster: the same numbers as in this process, though a node dies."""

from dataclasses import replace

import pytest
import torch

import percolab as pl
from percolab.experiments.running import find, represent
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
