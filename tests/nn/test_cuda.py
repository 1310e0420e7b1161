"""What runs on a GPU gives what the CPU gives. Skipped where torch sees no CUDA GPU."""

import dataclasses

import numpy as np
import pytest
import torch

import percolab as pl
from percolab.nn import (
    CorpusTrainConfig,
    ProbeConfig,
    ResidualMLP,
    TrainConfig,
    Transformer,
    activations,
    nearest_neighbours,
    probes,
    train,
)

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
    X = torch.tensor(dataset.X).double()
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


# ---------------------------------------------------------------------- documents


STEPS = CorpusTrainConfig(d_model=32, n_blocks=2, n_heads=2, batch_size=16, steps=12, warmup=3, every=5, tf32=False)


@pytest.fixture(scope="module")
def corpus():
    return pl.Corpus(pl.Recipe(60, 2, "one_cluster", seeds=1), length=16, min_size=8)


def test_initial_weights_of_a_transformer_are_the_same_with_a_default_device():
    with torch.device("cuda"):
        there = Transformer(11, 6, 8, 1, 2, seed=1)
    assert torch.equal(weights(there), weights(Transformer(11, 6, 8, 1, 2, seed=1)))
    assert not there.output.weight.is_cuda


def test_steps_on_documents_are_those_of_the_cpu(corpus):
    exact = dataclasses.replace(STEPS, bf16=False)
    cpu = train(corpus, exact, device="cpu")
    for options in ({}, {"graph": False}):
        found = train(corpus, exact, device="cuda", **options)
        assert torch.allclose(weights(found.model), weights(cpu.model), atol=1e-3)
        assert np.allclose(found.history, cpu.history, rtol=1e-3, atol=1e-3)
        assert found.test.excess == pytest.approx(cpu.test.excess, abs=1e-3)


def test_bfloat16_is_close_and_several_are_their_single_runs(corpus):
    cpu = train(corpus, STEPS, device="cpu")
    half = train(corpus, STEPS, device="cuda")
    assert half.test.loss == pytest.approx(cpu.test.loss, abs=0.02)
    both = train(corpus, STEPS, seeds=[STEPS.seed, 1], device="cuda")
    assert torch.allclose(weights(both[0].model), weights(half.model), atol=1e-3)
    assert not torch.allclose(weights(both[1].model), weights(half.model), atol=1e-3)


def test_documents_resume_on_cuda(corpus, tmp_path, monkeypatch):
    from percolab.nn.training import run

    whole = train(corpus, STEPS, keep=[4], device="cuda")
    real = run.Run._advance

    def stop(self):
        real(self)
        if self.done == 7:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(run.Run, "_advance", stop)
        with pytest.raises(run.TrainingInterrupted, match="stopped after step 7 of 12"):
            train(corpus, STEPS, keep=[4], run_dir=tmp_path, device="cuda")
    rest = train(corpus, STEPS, keep=[4], run_dir=tmp_path, resume=True, device="cuda")
    assert torch.allclose(weights(rest.model), weights(whole.model), atol=1e-4)
    assert np.allclose(rest.history, whole.history, rtol=1e-4)


@pytest.mark.slow
def test_a_compiled_step_is_close(corpus):
    plain = train(corpus, STEPS, device="cuda")
    for graph in (False, True):
        compiled = train(corpus, STEPS, compiled=True, graph=graph, device="cuda")
        assert compiled.test.loss == pytest.approx(plain.test.loss, abs=0.02)


def test_activations_of_documents_are_those_of_the_cpu(corpus):
    model = Transformer(60, 16, 32, 2, 2, seed=1)
    tokens = corpus.documents(0, 40).tokens
    cpu = {name: values.clone() for name, values in activations(model, tokens, device="cpu").items()}
    cuda = activations(model, tokens, device="cuda")
    assert all(torch.allclose(cpu[name], cuda[name].cpu(), atol=1e-3) for name in cpu)
