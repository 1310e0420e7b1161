"""The network, its split and its training: shapes, learning, resuming, stopping, bad input."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from importlib.metadata import version

import numpy as np
import pandas
import pytest
import torch

import percolab as pl
from percolab.nn import ResidualMLP, TrainConfig, load_model, split_rows, train
from percolab.nn.training import run

torch.set_num_threads(1)  # threads that wait for each other are slow where tests share cores

RECIPE = pl.Recipe(600, 8, "one_cluster", seeds=3, engine="paper")
TINY = TrainConfig(d_model=16, n_blocks=2, epochs=6, batch_size=64, lr=3e-3)


@pytest.fixture(scope="module")
def dataset():
    return pl.generate(RECIPE)


def weights(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def test_importing_imports_no_torch():
    code = (
        "import sys, percolab, percolab.cli.main; from percolab.nn import ProbeConfig, TrainConfig;"
        "from percolab.study import settings; settings.training_of('multi-cluster', 'small');"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_model_has_the_papers_shape():
    model = ResidualMLP(100, 256, 3, seed=0)
    d, m, h = 100, 256, 1024
    expected = (d * m + m) + 3 * ((m * h + h) + (h * m + m)) + (m + 1)
    assert sum(p.numel() for p in model.parameters()) == expected == 1_602_817
    assert model(torch.zeros(5, d)).shape == (5,)


def test_model_computes_what_the_paper_writes():
    model = ResidualMLP(4, 6, 2, seed=1)
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    h = x @ model.input.weight.T + model.input.bias
    for b in model.blocks:
        hidden = (h @ b.widen.weight.T + b.widen.bias).clamp(min=0)
        h = h + hidden @ b.narrow.weight.T + b.narrow.bias
    assert torch.allclose(model(x), (h @ model.output.weight.T + model.output.bias)[:, 0], atol=1e-6)


def test_arrays_are_no_dataset():
    with pytest.raises(ValueError, match=r"^data must be a dataset, a world or a corpus, got ndarray$"):
        train(np.zeros((9, 2)), np.zeros(9))


def test_another_activation():
    smooth, plain = ResidualMLP(4, 6, 2, seed=1, activation=torch.nn.GELU), ResidualMLP(4, 6, 2, seed=1)
    assert torch.equal(weights(smooth), weights(plain))
    for block in plain.blocks:
        block.hidden = torch.nn.GELU()
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    assert torch.equal(smooth(x), plain(x))
    for wrong in ("gelu", torch.tanh, torch.nn.GELU(), lambda: 3):
        with pytest.raises(ValueError, match=r"activation must be a class of modules, such as torch.nn.GELU, got"):
            ResidualMLP(4, activation=wrong)


def test_seeded_model_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    first, again = ResidualMLP(4, 6, seed=1), ResidualMLP(4, 6, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(weights(first), weights(again))


def test_split_is_the_papers(dataset):
    split = split_rows(dataset)
    order = torch.randperm(600, generator=torch.Generator().manual_seed(42)).numpy()
    assert np.array_equal(split.train, dataset.release_order[order[:480]])
    assert np.array_equal(split.test, dataset.release_order[order[540:]])
    assert np.array_equal(np.sort(np.concatenate([split.train, split.validation, split.test])), np.arange(600))


def test_learning_rate_is_torchs_cosine():
    config = TrainConfig(epochs=7)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=config.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=7, eta_min=config.min_lr)
    for epoch in range(7):
        assert config.lr_at(epoch) == pytest.approx(schedule.get_last_lr()[0], rel=1e-9)
        optimizer.step()
        schedule.step()


def test_an_epoch_is_the_obvious_loop(dataset):
    config = dataclasses.replace(TINY, epochs=2, batch_size=100)  # 480 rows: the last batch has 80
    found = train(dataset, config, device="cpu").model
    model = ResidualMLP(8, 16, 2, seed=config.seed)
    rows = split_rows(dataset).train
    X, y = torch.from_numpy(np.float32(dataset.X[rows])), torch.from_numpy(np.float32(dataset.y[rows]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
    generator = torch.Generator().manual_seed(config.seed)
    for epoch in range(2):
        optimizer.param_groups[0]["lr"] = config.lr_at(epoch)
        for batch in torch.randperm(480, generator=generator).split(100):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(X[batch]), y[batch]).backward()
            optimizer.step()
    assert torch.allclose(weights(found), weights(model), atol=1e-5)


def test_a_tiny_run_learns(dataset, tmp_path):
    result = train(dataset, dataclasses.replace(TINY, epochs=40), run_dir=tmp_path / "run", device="cpu")
    assert result.history["train_loss"].iloc[-1] < 0.3 * result.history["train_loss"].iloc[0]
    assert result.test.r2 > 0.5
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert pl.Recipe.from_dict(config["recipe"]) == RECIPE
    assert config["provenance"]["torch"] == version("torch")  # of the package; torch may add what it was built for
    assert TrainConfig(**config["config"]) == result.config
    assert len(pandas.read_csv(tmp_path / "run" / "metrics.csv")) == 40
    again = load_model(tmp_path / "run", dataset, device="cpu")
    assert torch.equal(weights(again), weights(result.model))


def test_same_seed_same_weights(dataset):
    first, again = (weights(train(dataset, TINY, device="cpu").model) for _ in range(2))
    other = weights(train(dataset, dataclasses.replace(TINY, seed=1), device="cpu").model)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_ctrl_c_then_resume_equals_uninterrupted(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "LOOK_SECONDS", 0.0)
    whole, before = train(dataset, TINY, device="cpu"), signal.getsignal(signal.SIGINT)

    def press(epoch, epochs, loss, r2):
        if epoch == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(run.TrainingInterrupted, match=r"stopped after epoch 3 of 6; resume to continue"):
        train(dataset, TINY, run_dir=tmp_path, device="cpu", progress=press)
    assert signal.getsignal(signal.SIGINT) is before
    load_model(tmp_path, dataset)
    rest = train(dataset, TINY, run_dir=tmp_path, resume=True, device="cpu")
    assert torch.equal(weights(whole.model), weights(rest.model))
    assert whole.history.equals(rest.history)
    done = train(dataset, TINY, run_dir=tmp_path, resume=True, device="cpu")  # nothing is left to do
    assert torch.equal(weights(whole.model), weights(done.model))


def test_a_failed_write_leaves_the_checkpoint(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "LOOK_SECONDS", 0.0)

    def press(epoch, epochs, loss, r2):
        if epoch == 2:
            os.kill(os.getpid(), signal.SIGINT)

    def fail(*args):
        raise OSError("disk full")

    with pytest.raises(run.TrainingInterrupted):
        train(dataset, TINY, run_dir=tmp_path, device="cpu", progress=press)
    before = (tmp_path / "checkpoint.pt").read_bytes()
    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        train(dataset, TINY, run_dir=tmp_path, resume=True, device="cpu")
    assert (tmp_path / "checkpoint.pt").read_bytes() == before
    assert not list(tmp_path.glob(".*partial*"))


def test_a_run_that_is_overwritten_cannot_be_resumed(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "LOOK_SECONDS", 0.0)
    train(dataset, TINY, keep=(0, 1), run_dir=tmp_path, device="cpu")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    other = dataclasses.replace(TINY, seed=1)
    with pytest.raises(ValueError, match="model must take points of dimension 8"):
        train(dataset, other, model=ResidualMLP(9, 4, 1), run_dir=tmp_path, overwrite=True, device="cpu")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before  # it was refused

    def kill(*_):
        raise RuntimeError("killed before its first checkpoint")

    with pytest.raises(RuntimeError, match="killed"):
        train(dataset, other, keep=(0,), run_dir=tmp_path, overwrite=True, device="cpu", progress=kill)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "epoch-0.pt"}
    assert json.loads((tmp_path / "config.json").read_text())["config"]["seed"] == 1
    assert (tmp_path / "epoch-0.pt").read_bytes() != before["epoch-0.pt"]
    for config in (TINY, other):
        with pytest.raises(FileNotFoundError, match="checkpoint must exist"):
            train(dataset, config, run_dir=tmp_path, resume=True, device="cpu")


def test_any_module_trains(dataset):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    result = train(dataset, TINY, model=model, device="cpu")
    assert result.model is model
    assert result.history["train_loss"].iloc[-1] < result.history["train_loss"].iloc[0]


# ---------------------------------------------------------------------- bad input


def test_model_of_another_dimension(dataset):
    with pytest.raises(ValueError, match=r"model must take points of dimension 8, got one of 9"):
        train(dataset, TINY, model=ResidualMLP(9, 4, 1), device="cpu")
    with pytest.raises(ValueError, match=r"model must give one number per point, got 3"):
        train(dataset, TINY, model=torch.nn.Linear(8, 3), device="cpu")
    with pytest.raises(ValueError, match=r"model must take points of dimension 8, got .*Float and Double$"):
        train(dataset, TINY, model=torch.nn.Linear(8, 1).double(), device="cpu")
    with pytest.raises(ValueError, match=r"model must take points of dimension 8, got mat1 .*2x16 and 4x1"):
        train(dataset, TINY, model=torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(4, 1)), device="cpu")
    with pytest.raises(ValueError, match=r"model must give a tensor, got a tuple"):
        train(dataset, TINY, model=torch.nn.LSTM(8, 1), device="cpu")


def test_nan_in_x(dataset, tmp_path):
    X = np.array(dataset.X)
    X[17, 3] = np.nan
    with pytest.raises(ValueError, match=r"X must be finite, got nan in row 17"):
        train(dataclasses.replace(dataset, X=X), TINY, run_dir=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_checkpoint_of_another_recipe_or_configuration(dataset, tmp_path):
    train(dataset, TINY, run_dir=tmp_path, device="cpu")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    other = pl.generate(dataclasses.replace(RECIPE, n_points=500))
    with pytest.raises(ValueError, match=r"checkpoint must have recipe n_points 500, got 600"):
        train(other, TINY, run_dir=tmp_path, resume=True, device="cpu")
    with pytest.raises(ValueError, match=r"checkpoint must have recipe n_points 500, got 600"):
        load_model(tmp_path, other)
    with pytest.raises(ValueError, match=r"checkpoint must have config lr 0.5, got 0.003"):
        train(dataset, dataclasses.replace(TINY, lr=0.5), run_dir=tmp_path, resume=True, device="cpu")
    with pytest.raises(FileExistsError, match=r"run_dir must not hold a run unless resume or overwrite is given, got"):
        train(dataset, TINY, run_dir=tmp_path, device="cpu")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_damaged_or_missing_checkpoint(dataset, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"checkpoint must exist, got"):
        train(dataset, TINY, run_dir=tmp_path, resume=True, device="cpu")
    (tmp_path / "checkpoint.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match=r"checkpoint must be as percolab writes it, got"):
        train(dataset, TINY, run_dir=tmp_path, resume=True, device="cpu")


def test_no_flipped_bit_of_a_checkpoint_changes_weights(dataset, tmp_path):
    right = weights(train(dataset, dataclasses.replace(TINY, epochs=1), run_dir=tmp_path, device="cpu").model)
    file, refused, said = tmp_path / "checkpoint.pt", 0, set()
    whole = file.read_bytes()
    for place in np.linspace(0, len(whole) - 1, 60, dtype=int):
        damaged = bytearray(whole)
        damaged[place] ^= 16
        file.write_bytes(damaged)
        try:
            assert torch.equal(weights(load_model(tmp_path, dataset, device="cpu")), right)  # a byte between the parts
        except ValueError as fault:
            said.add(str(fault))
            refused += 1
    assert refused > 30
    assert all(line.startswith(f"checkpoint must be as percolab writes it, got {str(file)!r}: ") for line in said)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without CUDA")
def test_no_cuda_when_asked_for(dataset, tmp_path):
    with pytest.raises(ValueError, match=r"device must be there, got 'cuda' and torch sees no CUDA GPU"):
        train(dataset, TINY, run_dir=tmp_path / "run", device="cuda")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"d_model": 2.5}, "d_model must be an integer, got 2.5"),
        ({"lr": -1}, "lr must be a number of at least 0, got -1"),
        ({"weight_decay": float("nan")}, "weight_decay must be a number of at least 0, got nan"),
    ],
)
def test_bad_configuration(change, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**change)


def test_other_bad_input(dataset):
    with pytest.raises(ValueError, match=r"device must be auto, cpu, cuda or cuda:N, got 'tpu'"):
        train(dataset, TINY, device="tpu")
    with pytest.raises(ValueError, match=r"run_dir must be given to resume, got None"):
        train(dataset, TINY, resume=True, device="cpu")
    with pytest.raises(ValueError, match=r"dataset must have at least 10 points to be split, got 5"):
        train(pl.generate(pl.Recipe(5, 8, "one_cluster", seeds=0, engine="paper")), TINY, device="cpu")
    with pytest.raises(ValueError, match=r"loss must stay finite, got .* lower lr"):
        train(dataset, dataclasses.replace(TINY, lr=1e30, min_lr=1e30, epochs=3), device="cpu")


def test_numbers_of_numpy_are_numbers(dataset, tmp_path):
    """A sweep over np.logspace would otherwise end in a checkpoint that is refused."""
    config = dataclasses.replace(TINY, epochs=np.int64(2), lr=np.float64(1e-3), min_lr=np.float32(0), seed=np.int64(3))
    result = train(dataset, config, run_dir=tmp_path / "run", device="cpu")
    assert torch.equal(weights(load_model(tmp_path / "run", dataset, device="cpu")), weights(result.model))
    alone = train(dataset, TINY, seeds=np.arange(2), run_dir=tmp_path / "several", device="cpu")
    assert torch.equal(
        weights(load_model(tmp_path / "several", dataset, member=1, device="cpu")), weights(alone[1].model)
    )
    one, same = (ResidualMLP(8, 4, 1, seed=seed) for seed in (np.int64(3), 3))
    assert torch.equal(weights(one), weights(same))
    with pytest.raises(ValueError, match=r"seed must be an integer, got '3'"):
        ResidualMLP(8, 4, 1, seed="3")


def test_targets_may_be_what_a_network_gives(dataset):
    made = ResidualMLP(8, 4, 1, seed=0)(torch.tensor(dataset.X).float())
    assert made.requires_grad
    given = dataset.with_target(made)
    np.testing.assert_array_equal(given.y, made.detach().numpy())
    one, same = train(dataset, TINY, targets=made[None], device="cpu"), train(given, TINY, device="cpu")
    assert torch.equal(weights(one.model), weights(same.model))
