"""What runs on a GPU gives what the CPU gives. Skipped where torch sees no CUDA GPU."""

import dataclasses

import numpy as np
import pytest
import torch

import percolab as pl
from percolab.nn import ProbeConfig, ResidualMLP, TrainConfig, activations, nearest_neighbours, probes, train

torch.set_num_threads(1)  # threads that wait for each other are slow where tests share cores

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA GPU")

CONFIG = TrainConfig(d_model=32, n_blocks=2, epochs=5, batch_size=100, lr=1e-3, tf32=False)


@pytest.fixture(scope="module")
def dataset():
    return pl.generate(pl.Recipe(1000, 8, "one_cluster", seeds=3, engine="paper"))


def weights(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()]).cpu()


def test_graph_equals_eager_equals_cpu(dataset):
    graph = train(dataset, CONFIG, device="cuda")
    eager = train(dataset, CONFIG, device="cuda", graph=False)
    cpu = train(dataset, CONFIG, device="cpu")
    assert torch.allclose(weights(graph.model), weights(eager.model), atol=1e-5)
    assert torch.allclose(weights(graph.model), weights(cpu.model), atol=1e-3)
    assert np.allclose(graph.history["train_loss"], cpu.history["train_loss"], rtol=1e-3)
    assert graph.test.r2 == pytest.approx(cpu.test.r2, abs=1e-2)


def test_same_seed_same_weights_and_resume(dataset, tmp_path, monkeypatch):
    from percolab.nn.training import run

    first = weights(train(dataset, CONFIG, device="cuda").model)
    assert torch.equal(first, weights(train(dataset, CONFIG, device="cuda").model))
    monkeypatch.setattr(run, "LOOK_SECONDS", 0.0)

    def stop(epoch, epochs, loss, r2):
        if epoch == 2:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(run.TrainingInterrupted):
        train(dataset, CONFIG, run_dir=tmp_path, device="cuda", progress=stop)
    rest = train(dataset, CONFIG, run_dir=tmp_path, resume=True, device="cuda")
    assert torch.equal(first, weights(rest.model))


def test_tf32_is_close(dataset):
    rough = train(dataset, dataclasses.replace(CONFIG, tf32=True), device="cuda")
    fine = train(dataset, CONFIG, device="cuda")
    assert rough.test.mse == pytest.approx(fine.test.mse, rel=0.05)


def test_an_ensemble_equals_its_members(dataset):
    together = train(dataset, CONFIG, seeds=[1, 2, 3], device="cuda", keep=[0, 2])
    eager = train(dataset, CONFIG, seeds=[1, 2, 3], device="cuda", graph=False)
    for config, one, other in zip(CONFIG.with_seeds([1, 2, 3]), together, eager, strict=True):
        alone = train(dataset, config, device="cuda", keep=[0, 2])
        assert torch.allclose(weights(one.model), weights(alone.model), atol=1e-3)
        assert torch.allclose(weights(one.model), weights(other.model), atol=1e-4)
        assert torch.equal(weights(one.model_at(0)), weights(alone.model_at(0)))
        assert torch.allclose(weights(one.model_at(2)), weights(alone.model_at(2)), atol=1e-3)


def test_bfloat16_is_close(dataset):
    rough = dataclasses.replace(CONFIG, bf16=True)
    fine = np.mean([result.test.mse for result in train(dataset, CONFIG, seeds=range(8), device="cuda")])
    for results in (train(dataset, rough, seeds=range(8), device="cuda"), [train(dataset, rough, device="cuda")]):
        assert np.mean([result.test.mse for result in results]) == pytest.approx(fine, rel=0.1)
        assert all(p.dtype is torch.float32 for p in results[0].model.parameters())


def test_labels_on_the_gpu(dataset):
    labelled = dataset.with_target("classes", max_size=100)
    cuda, cpu = (train(labelled, CONFIG, seeds=[1, 2], device=device)[1] for device in ("cuda", "cpu"))
    assert cuda.test.log_loss == pytest.approx(cpu.test.log_loss, rel=0.02)
    assert np.allclose(cuda.history["train_loss"], cpu.history["train_loss"], rtol=1e-2)


def test_neighbours_and_probes_equal_the_cpu(dataset):
    X = torch.from_numpy(np.asarray(dataset.X)).double()
    X += 1e-3 * torch.randn(X.shape, generator=torch.Generator().manual_seed(0), dtype=X.dtype)  # no ties
    assert np.array_equal(nearest_neighbours(X.cuda()), nearest_neighbours(X))
    model = ResidualMLP(8, 32, 2, seed=0)
    config = ProbeConfig(depths=(0, 5, 10, 20), min_latent_size=20)
    tables = []
    for device in ("cpu", "cuda"):
        recorded = activations(model, dataset.X, device=device)
        tables.append(probes(dataset, {k: v.cpu() for k, v in recorded.items()}, config, device=device).per_latent)
    cpu, cuda = tables
    assert cpu.drop(columns=["MSE", "baseline"]).equals(cuda.drop(columns=["MSE", "baseline"]))
    assert np.allclose(cpu["MSE"], cuda["MSE"], rtol=1e-2, atol=1e-6)
    assert np.allclose(cpu["baseline"], cuda["baseline"], rtol=1e-6, atol=1e-9)
