"""Sparse autoencoders of SAELens as methods: what they encode, decode, learn and leave, and their files."""

import subprocess
import sys

import numpy as np
import pytest

from percolab.features import score
from percolab.features.dictionaries import Pretrained
from percolab.features.saes import BatchTopK, Gated, JumpReLU, Matryoshka, SparseAutoencoder, TopK
from percolab.ground.arrays import as_array

SMALL = {"n_features": 24, "steps": 40, "batch_size": 64, "lr": 3e-3, "device": "cpu"}
KINDS = {
    "topk": TopK(k=4, **SMALL),
    "batchtopk": BatchTopK(k=4, **SMALL),
    "jumprelu": JumpReLU(k=4, **SMALL),
    "gated": Gated(**SMALL),
    "matryoshka": Matryoshka(k=4, **SMALL),
}


def planted(n=3000, d=16, count=24, seed=0):
    """Sums of two of 24 directions, and these directions."""
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(count, d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    codes = np.zeros((n, count))
    for row in codes:
        row[rng.choice(count, 2, replace=False)] = rng.uniform(1, 2, 2)
    return (codes @ directions).astype(np.float32), directions


@pytest.fixture(scope="module")
def activations():
    return planted(600)[0]


# ---------------------------------------------------------------------- without SAELens


def test_nothing_is_imported_before_the_fit():
    program = (
        "import sys; from percolab.features import register; register.find_method('topk')(k=3); "
        "assert not {'torch', 'sae_lens'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (TopK(0), "n_features must be at least 1, got 0"),
        (TopK(8, k=9), "k must be at most n_features, 8, got 9"),
        (BatchTopK(8, k=0), "k must be at least 1, got 0"),
        (TopK(steps=0), "steps must be at least 1, got 0"),
        (TopK(lr=0), "lr must be above 0, got 0"),
        (TopK(frozen="both"), "frozen must be one of decoder, encoder, soft, got 'both'"),
        (Gated(l1_coefficient=-1), "l1_coefficient must be a number of at least 0, got -1"),
        (JumpReLU(l0_coefficient=-1), "l0_coefficient must be a number of at least 0, got -1"),
        (Matryoshka(8, k=2, widths=(9,)), "widths must be below n_features, 8, got 9"),
        (TopK(seed=-1), "seed must be at least 0, got -1"),
    ],
    ids=str,
)
def test_bad_parameters_are_one_line(method, message, activations):
    with pytest.raises(ValueError) as error:
        method.fit(activations)
    assert str(error.value) == message


def test_it_must_be_fitted(activations, tmp_path):
    with pytest.raises(ValueError, match=r"^TopK must be fitted before it encodes$"):
        TopK().encode(activations)
    with pytest.raises(ValueError, match=r"^Gated must be fitted before it is saved$"):
        Gated().save(tmp_path)


# ---------------------------------------------------------------------- with it


@pytest.fixture(scope="module")
def fitted(activations):
    return {name: method.fit(activations) for name, method in KINDS.items()}


@pytest.mark.sae
@pytest.mark.parametrize("name", KINDS)
def test_codes_and_decoder_are_those_of_saelens(name, fitted, activations):
    import torch

    method = fitted[name]
    codes = method.encode(activations)
    assert codes.shape == (600, 24)
    assert codes.data.min() > 0
    X = torch.from_numpy(activations)
    np.testing.assert_array_equal(codes.toarray(), method.sae.encode(X).numpy())
    np.testing.assert_allclose(codes @ method.directions + method.bias, method.sae(X).numpy(), atol=1e-5)


@pytest.mark.sae
@pytest.mark.parametrize("name", KINDS)
def test_files_are_those_of_saelens(name, fitted, activations, tmp_path):
    import sae_lens
    import torch

    method = fitted[name]
    method.save(tmp_path)
    theirs = sae_lens.SAE.load_from_disk(tmp_path)
    codes = method.encode(activations)
    np.testing.assert_array_equal(theirs.encode(torch.from_numpy(activations)).detach().numpy(), codes.toarray())
    for kind in (type(method), SparseAutoencoder):
        again = kind.load(tmp_path, "cpu")
        assert abs(again.encode(activations) - codes).nnz == 0
        assert np.array_equal(again.directions, method.directions)
    assert abs(Pretrained(str(tmp_path), "cpu").fit(activations).encode(activations) - codes).nnz == 0
    other = Gated if name != "gated" else TopK
    with pytest.raises(ValueError, match=rf"^path must hold an SAE of kind {other.architecture}, got "):
        other.load(tmp_path, "cpu")
    with pytest.raises(FileNotFoundError, match=r"cfg\.json must exist, got "):
        TopK.load(tmp_path / "nothing", "cpu")


@pytest.mark.sae
def test_numbers_of_numpy_are_numbers(activations):
    plain = TopK(8, k=2, steps=5, seed=3, lr=1e-3).fit(activations)
    same = TopK(np.int64(8), k=np.int64(2), steps=np.int64(5), seed=np.int64(3), lr=np.float64(1e-3)).fit(activations)
    assert np.array_equal(same.directions, plain.directions)


@pytest.mark.sae
@pytest.mark.parametrize("name", KINDS)
def test_seeds_decide_and_nothing_else(name, fitted, activations):
    import torch

    before, other = torch.random.get_rng_state(), SMALL | ({} if name == "gated" else {"k": 4})
    torch.rand(3)
    again = type(fitted[name])(**other).fit(activations)
    assert np.array_equal(again.directions, fitted[name].directions)
    assert not np.array_equal(type(again)(**other, seed=1).fit(activations).directions, again.directions)
    torch.random.set_rng_state(before)
    type(again)(**other).fit(activations)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.sae
@pytest.mark.parametrize("name", KINDS)
def test_the_unit_of_activations_does_not_matter(name, fitted, activations):
    """What is folded into the weights after training is the scale it was trained at; a power of 2 is exact."""
    method = fitted[name]
    options = SMALL | ({} if name == "gated" else {"k": 4})
    large = type(method)(**options).fit(activations * 1024)
    a, b = method.encode(activations), large.encode(activations * 1024)
    assert ((a > 0) != (b > 0)).nnz <= 0.01 * a.nnz
    np.testing.assert_allclose(
        b @ large.directions + large.bias, 1024 * (a @ method.directions + method.bias), rtol=1e-2, atol=3
    )


@pytest.mark.sae
def test_k_is_how_many_fire(fitted, activations):
    assert set(np.diff(fitted["topk"].encode(activations).indptr)) == {4}
    assert fitted["topk"].l0(activations) == 4
    for name in ("batchtopk", "matryoshka"):
        assert 3 < fitted[name].l0(activations) < 5
    sparse = [JumpReLU(k=k, **SMALL | {"steps": 600}).fit(activations).l0(activations) for k in (2, 8)]
    assert 1.5 < sparse[0] < 4 < sparse[1] < 10
    few = Gated(l1_coefficient=30, **SMALL).fit(activations)
    assert few.l0(activations) < fitted["gated"].l0(activations)


@pytest.mark.sae
def test_planted_directions_are_found():
    X, directions = planted()
    method = TopK(48, k=2, steps=600, batch_size=256, lr=5e-3, device="cpu").fit(X)
    cosine = (method.directions / np.linalg.norm(method.directions, axis=1, keepdims=True)) @ directions.T
    assert (cosine.max(0) > 0.95).mean() > 0.8
    assert method.explained_variance(X) > 0.85
    frozen = TopK(48, k=2, steps=600, batch_size=256, lr=5e-3, device="cpu", frozen="decoder").fit(X)
    assert frozen.explained_variance(X) < 0.7


@pytest.mark.sae
@pytest.mark.parametrize("kind", [TopK, BatchTopK, JumpReLU, Gated, Matryoshka])
@pytest.mark.parametrize("frozen", ["decoder", "encoder"])
def test_frozen_weights_stay_and_the_others_move(kind, frozen, activations):
    """SAELens draws the two as transposes of each other; folding changes lengths, not directions."""
    options = SMALL | ({} if kind is Gated else {"k": 4})
    found = kind(**options, frozen=frozen, seed=3).fit(activations).sae
    start = kind(**options | {"lr": 1e-12}, seed=3).fit(activations).sae

    def moved(name):
        a, b = (as_array(getattr(sae, name)) for sae in (found, start))
        a, b = (a.T, b.T) if name == "W_enc" else (a, b)
        return 1 - (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)

    own, other = ("W_dec", "W_enc") if frozen == "decoder" else ("W_enc", "W_dec")
    np.testing.assert_allclose(moved(own), 0, atol=1e-5)
    assert moved(other).max() > 1e-3


@pytest.mark.sae
def test_its_variance_and_l0_are_those_of_a_score(fitted, activations):
    import percolab as pl

    method = fitted["batchtopk"]
    forest = pl.engines.split_forest(600, 1)
    given = {"directions": method.directions, "bias": method.bias, "activations": activations}
    found = score(forest, method.encode(activations), **given).summary
    assert method.explained_variance(activations) == pytest.approx(found["explained_variance"])
    assert method.l0(activations) == pytest.approx(found["l0"])
    assert found["explained_variance"] > 0.3


@pytest.mark.sae
def test_every_row_is_seen_once_a_round():
    import torch

    from percolab.features.saelens import batches

    stream = batches(torch.arange(10.0)[:, None], 5, seed=1)
    rounds = [torch.cat([next(stream), next(stream)])[:, 0] for _ in range(2)]
    assert all(sorted(found.tolist()) == list(range(10)) for found in rounds)
    assert not torch.equal(*rounds)
    short = batches(torch.arange(7.0)[:, None], 5, seed=1)
    assert len({tuple(next(short)[:, 0].tolist()) for _ in range(5)}) == 5


@pytest.mark.sae
@pytest.mark.parametrize(
    ("activations", "message"),
    [
        (np.ones(5, np.float32), r"^activations must have shape \(rows, d\), got \(5,\)$"),
        (np.full((5, 2), np.nan, np.float32), r"^activations must be finite, got nan in row 0$"),
    ],
)
def test_bad_activations_are_one_line(activations, message):
    with pytest.raises(ValueError, match=message):
        TopK(4, k=1, device="cpu").fit(activations)
    with pytest.raises(ValueError, match=r"^device must be auto, cpu, cuda or cuda:N, got 'tpu9'$"):
        TopK(4, k=1, device="tpu9").fit(np.ones((4, 2), np.float32))


@pytest.mark.sae
def test_on_a_gpu_codes_stay_there(activations):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    method = BatchTopK(k=4, **SMALL | {"device": "cuda"}).fit(torch.from_numpy(activations).cuda())
    codes = method.encode(activations)
    assert codes.is_cuda
    np.testing.assert_allclose(
        as_array(codes) @ method.directions + method.bias, as_array(method.sae(torch.from_numpy(activations).cuda())),
        atol=1e-4,
    )  # fmt: skip


def by_saelens(scaled, sae, steps, lr):
    """Train by SAELens' own trainer; return the loss of every step."""
    import sae_lens
    from sae_lens.config import LoggingConfig, SAETrainerConfig

    from percolab.features.saelens import batches

    settings = SAETrainerConfig(
        total_training_samples=steps * 64, train_batch_size_samples=64, lr=lr, lr_end=lr, lr_decay_steps=steps // 5,
        device="cpu", dead_feature_window=max(1, steps // 10), logger=LoggingConfig(log_to_wandb=False),
    )  # fmt: skip
    trainer, losses = sae_lens.SAETrainer(settings, sae, data_provider=batches(scaled, 64, 3)), []
    step = trainer._train_step
    trainer._train_step = lambda **given: (out := step(**given), losses.append(float(out.loss.detach())))[0]
    trainer.fit()
    return losses


@pytest.mark.sae
@pytest.mark.parametrize("name", KINDS)
def test_steps_are_those_of_saelens_trainer(name, activations):
    """Losses of all steps, weights, threshold and counts: features die and are revived in this run.

    In float64, with rates that float32 holds exactly, since rounding grows from step to step.
    """
    import torch

    from percolab.features import saelens

    steps, lr, width = 160, 2**-6, 96
    method = type(KINDS[name])(**SMALL | {"n_features": width, "steps": steps} | ({} if name == "gated" else {"k": 2}))
    scaled, options = torch.from_numpy(activations).double(), {**method.options(), "dtype": "float64"}
    how = {"n_features": width, "frozen": None, "seed": 3}
    ours, theirs = (saelens.begin(scaled, method.architecture, options, **how) for _ in range(2))
    theirs.__class__ = next(kind for kind in type(theirs).__mro__ if kind.__module__.startswith("sae_lens"))
    theirs.activation_fn = theirs.get_activation_fn()  # SAELens' own too, like all that is slower
    training, losses, dead = saelens.Training(ours, 64, steps, lr, soft=False), [], []
    for step, batch in zip(range(steps), saelens.batches(scaled, 64, 3), strict=False):
        training.take(step, batch)
        losses.append(float(training.loss))
        dead.append(int((training.silent > training.window).sum()))
    training.finish()
    np.testing.assert_allclose(losses, by_saelens(scaled, theirs, steps, lr), rtol=1e-7)
    for key, value in theirs.state_dict().items():
        np.testing.assert_allclose(as_array(ours.state_dict()[key]), as_array(value), rtol=1e-6, atol=1e-8, err_msg=key)
    assert ours.cfg.metadata.num_dead_features == theirs.cfg.metadata.num_dead_features
    assert ours.cfg.metadata.l0 == pytest.approx(theirs.cfg.metadata.l0, rel=1e-4)
    if name not in ("gated", "jumprelu"):  # SAELens revives no others
        assert max(dead) > 5
        assert np.diff(dead).min() < 0


@pytest.mark.sae
@pytest.mark.parametrize("name", KINDS)
def test_what_learns_stays_where_it_is(name, activations):
    """A CUDA graph knows tensors by their addresses; gradients are of one step alone."""
    import torch

    from percolab.features import saelens

    method, values = KINDS[name], torch.from_numpy(activations)
    sae = saelens.begin(values, method.architecture, method.options(), n_features=24, frozen=None, seed=0)
    training = saelens.Training(sae, 64, 40, 1e-3, soft=True)

    def addresses():
        kept = [*sae.state_dict().values(), training.optimizer.param_groups[0]["lr"], *training.coefficients.values()]
        kept += [value for state in training.optimizer.state.values() for value in state.values()]
        return [one.data_ptr() for one in (*kept, training.batch, training.silent, training.fired, training.loss)]

    training.take(0, values[:64])
    before = addresses()
    for step, reviving in enumerate([False, True, False]):
        training.silent[step] = 1000 * reviving
        training.take(step + 1, values[:64])
        assert addresses() == before
        assert all(parameter.grad is None for parameter in sae.parameters())


@pytest.mark.sae
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("reviving", [False, True])
def test_python_waits_for_nothing_within_a_step(name, reviving, activations):
    """A step asks for no number and no count of rows, so that a CUDA graph can hold it; steps of SAELens do."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from percolab.features import saelens

    class Waits(TorchDispatchMode):
        """Notes what waits for a GPU: numbers that Python reads or sends, shapes that depend on values."""

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            name = function.__name__.partition(".")[0]
            masks = any(one.dtype == torch.bool for one in args[1] if one is not None) if name == "index" else False
            if name in ("_local_scalar_dense", "nonzero", "masked_select", "lift_fresh") or masks:
                waits.append(name)
            return function(*args, **kwargs or {})

    method, values, waits = KINDS[name], torch.from_numpy(activations), []
    begun = {"n_features": 24, "frozen": None, "seed": 0}
    sae = saelens.begin(values, method.architecture, method.options(), **begun)
    training = saelens.Training(sae, 64, 40, 1e-3, soft=True)
    training.take(0, values[:64])
    training.silent[:5] = 1000
    with Waits():
        training._step(reviving)
    assert not waits
    if name in ("topk", "batchtopk", "matryoshka"):
        sae.__class__ = type(sae).__mro__[2]
        with Waits():
            training._step(reviving=True)
        assert waits


@pytest.mark.sae
@pytest.mark.parametrize("name", KINDS)
def test_on_a_gpu_graphs_take_the_same_steps(name, activations, monkeypatch):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    from percolab.features import saelens

    given = SMALL | {"n_features": 96, "steps": 160, "device": "cuda"} | ({} if name == "gated" else {"k": 2})
    graphs = type(KINDS[name])(**given).fit(activations)
    monkeypatch.setattr(saelens, "WARM_UP", 1000)  # so that nothing is recorded
    steps = type(KINDS[name])(**given).fit(activations)
    np.testing.assert_allclose(graphs.directions, steps.directions, rtol=1e-3, atol=1e-4)
    again = type(KINDS[name])(**given).fit(activations)
    assert np.array_equal(again.directions, steps.directions)


@pytest.mark.sae
def test_a_softly_frozen_decoder_stays_near_its_start():
    """Every decoder vector keeps a cosine of 0.8 with its start, and some would have gone further."""
    torch = pytest.importorskip("torch")
    from percolab.features import saelens

    draw = torch.Generator().manual_seed(0)
    start, moved = torch.randn(50, 8, generator=draw), torch.randn(50, 8, generator=draw)
    held = moved.clone()
    saelens.hold(held, start)
    cosine = torch.nn.functional.cosine_similarity(held, start)
    assert float(cosine.min()) >= saelens.SOFT - 1e-5
    torch.testing.assert_close(held.norm(dim=1), moved.norm(dim=1))
    near = torch.nn.functional.cosine_similarity(moved, start) >= saelens.SOFT
    assert torch.equal(held[near], moved[near])
    assert not near.all()


@pytest.mark.sae
def test_training_reports_its_steps():
    method, told = TopK(n_features=8, k=2, steps=10, batch_size=16, device="cpu"), []
    method.progress = lambda *step: told.append(step)
    method.fit(np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32))
    assert told == [("autoencoder", done, 10) for done in range(11)]
