"""The transformer: against an obvious one, causal, seeded. Activations: positions, any module, true reasons."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from percolab.nn import ResidualMLP, Transformer, activations
from percolab.nn.networks.activations import label, representations

torch.set_num_threads(1)  # threads that wait for each other are slow where tests share cores


def tokens(n, length, n_tokens, seed=0):
    return torch.randint(0, n_tokens, (n, length), generator=torch.Generator().manual_seed(seed))


def shaken(model, seed=0):
    """Return the model with weights far from the initial ones, where every term counts."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p += 0.3 * torch.randn(p.shape, generator=generator)
    return model


def norm(x, layer):
    centred = x - x.mean()
    return centred / (centred.square().mean() + 1e-5).sqrt() * layer.weight + layer.bias


def obvious(model, document, n_heads):
    """Return the logits of one document, head by head and position by position, in float64."""
    stream = [model.input.tokens.weight[t] + model.input.positions.weight[i] for i, t in enumerate(document)]
    for block in model.blocks:
        normed = [norm(x, block.attention_norm) for x in stream]
        projected = [block.attention.read.weight @ x + block.attention.read.bias for x in normed]
        queries, keys, values = ([p.chunk(3)[i].chunk(n_heads) for p in projected] for i in range(3))
        width = len(queries[0][0])
        after = []
        for t, x in enumerate(stream):
            heads = []
            for h in range(n_heads):
                logits = torch.stack([queries[t][h] @ keys[s][h] / math.sqrt(width) for s in range(t + 1)])
                heads.append(sum(a * values[s][h] for s, a in enumerate(logits.softmax(0))))
            x = x + block.attention.write.weight @ torch.cat(heads) + block.attention.write.bias
            wide = block.widen.weight @ norm(x, block.hidden_norm) + block.widen.bias
            gelu = wide * (1 + torch.erf(wide / math.sqrt(2))) / 2
            after.append(x + block.narrow.weight @ gelu + block.narrow.bias)
        stream = after
    return torch.stack([model.output.weight @ norm(x, model.norm) for x in stream])


def test_logits_are_those_of_an_obvious_transformer():
    model = shaken(Transformer(11, 6, d_model=12, n_blocks=2, n_heads=3, expansion=2, seed=1)).double()
    documents = tokens(2, 5, 11)
    for document, logits in zip(documents, model(documents), strict=True):
        assert torch.allclose(logits, obvious(model, document, 3), atol=1e-10)


def test_no_position_sees_a_later_token():
    model = shaken(Transformer(11, 8, d_model=8, n_blocks=2, n_heads=2, seed=1))
    one = tokens(1, 8, 11)
    mixed = torch.cat([one[:, :5], (one[:, 5:] + 1) % 11], 1)
    same = (model(one) - model(mixed)).abs().amax(-1)[0] < 1e-5
    assert same.tolist() == [True] * 5 + [False] * 3


def test_initial_weights_are_gpt2s_and_the_seeds():
    model = Transformer(300, 20, d_model=64, n_blocks=2, n_heads=2, seed=1)
    assert sum(p.numel() for p in model.parameters()) == (320 * 64 + 2 * (12 * 64**2 + 13 * 64) + 2 * 64 + 64 * 300)
    assert model.blocks[0].widen.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert model.blocks[1].narrow.weight.std().item() == pytest.approx(0.02 / 2, rel=0.05)
    assert model.blocks[1].attention.write.weight.std().item() == pytest.approx(0.02 / 2, rel=0.05)
    assert not model.blocks[0].widen.bias.any()
    loss = nn.functional.cross_entropy(model(tokens(8, 20, 300)).flatten(0, 1), tokens(8, 20, 300).flatten())
    assert loss.item() == pytest.approx(math.log(300), abs=0.1)
    before = torch.get_rng_state()
    with torch.device("meta"):  # a default device changes nothing
        again = Transformer(300, 20, d_model=64, n_blocks=2, n_heads=2, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(map(torch.equal, model.state_dict().values(), again.state_dict().values()))
    assert not torch.equal(model.output.weight, Transformer(300, 20, 64, 2, 2, seed=2).output.weight)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_tokens": 0}, "n_tokens must be at least 1, got 0"),
        ({"length": 1.5}, "length must be an integer, got 1.5"),
        ({"n_heads": 3}, "n_heads must divide d_model, 8, got 3"),
    ],
)
def test_bad_shapes_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        Transformer(**{"n_tokens": 5, "length": 4, "d_model": 8, "n_heads": 2} | given)


# ---------------------------------------------------------------------- activations


def test_positions_are_kept_and_what_a_block_adds_can_be_read():
    model = shaken(Transformer(11, 6, d_model=8, n_blocks=2, n_heads=2, seed=1))
    documents = tokens(7, 6, 11).numpy().astype(np.int32)
    names = ["input", "blocks.0", "blocks.0.delta", "blocks.1", "blocks.1.delta", "blocks.1.hidden"]
    found = activations(model, documents, names, device="cpu")
    assert [found[name].shape for name in names] == [(7, 6, 8)] * 5 + [(7, 6, 32)]
    assert torch.allclose(found["input"] + found["blocks.0.delta"], found["blocks.0"], atol=1e-6)
    assert torch.allclose(found["blocks.0"] + found["blocks.1.delta"], found["blocks.1"], atol=1e-6)
    logits = model.output(model.norm(found["blocks.1"]))
    assert torch.allclose(logits, model(torch.from_numpy(documents)), atol=1e-5)
    by_parts = activations(model, documents, names, batch_size=2, device="cpu")
    assert all(torch.allclose(found[name], by_parts[name], atol=1e-6) for name in names)
    assert list(activations(model, documents, device="cpu")) == representations(model)
    assert [label(name) for name in names[1:3]] == ["block 0, residual stream", "block 0, update"]


def test_what_a_block_of_the_papers_network_adds_can_be_read():
    model = ResidualMLP(5, 8, 2, seed=0)
    X = np.random.default_rng(0).normal(size=(9, 5))
    found = activations(model, X, ["input", "blocks.0.delta", "blocks.0"], device="cpu")
    assert torch.equal(found["input"] + found["blocks.0.delta"], found["blocks.0"])
    whole = activations(model, np.ones((3, 5), int), ["input"], device="cpu")  # it takes points, also whole ones
    assert torch.equal(whole["input"], model.input(torch.ones(3, 5)))


class Recurrent(nn.Module):
    """Someone's own network, whose middle layer returns a tuple, and which has modules that cannot be read."""

    def __init__(self, batch_first=True):
        super().__init__()
        self.tokens, self.layer = nn.Embedding(11, 4), nn.GRU(4, 3, batch_first=batch_first)
        self.act, self.unused, self.scalar = nn.ReLU(), nn.Linear(2, 2), nn.Flatten(0)

    def forward(self, x):
        embedded = self.tokens(x)
        out, _ = self.layer(self.act(self.act(embedded)))
        self.scalar(out)
        return out


def test_any_module_is_read_a_tuple_by_its_first_element():
    model, documents = Recurrent(), tokens(5, 6, 11)
    found = activations(model, documents, ["tokens", "layer"], device="cpu")
    assert found["tokens"].shape == (5, 6, 4)
    assert torch.equal(found["layer"], model(documents))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["act"], "names must be modules that run once in a pass, got 'act', which runs more than once"),
        (["unused"], "names must be modules that run in a pass, got 'unused', which does not"),
        (["scalar"], r"names must be modules that give one row for each row of X, got 'scalar', .* \(90,\) for 5 rows"),
        (["none"], r"names must be modules of the model \(tokens, .*\), got 'none'"),
        (None, "names must be given for a model other than ResidualMLP or Transformer, got a Recurrent"),
    ],
)
def test_modules_that_cannot_be_read_are_refused_with_the_reason(names, message):
    with pytest.raises(ValueError, match=message):
        activations(Recurrent(), tokens(5, 6, 11), names, device="cpu")


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.array([[0, 11]]), "X must be tokens from 0 to 10, got 11"),
        (np.array([[-1, 1]]), "X must be tokens from 0 to 10, got -1"),
        (np.zeros((2, 7), int), "tokens must have at most 6 positions, got 7"),
        (np.zeros(3, int), r"tokens must be integers \(n, T\), got torch.int64 of shape \(3,\)"),
        (np.zeros((2, 3)), r"tokens must be integers \(n, T\), got torch.float32 of shape \(2, 3\)"),
    ],
)
def test_a_wrong_input_gets_the_true_reason(X, message):
    with pytest.raises(ValueError, match=message):
        activations(Transformer(11, 6, 8, 1, 2), X, ["input"], device="cpu")


def test_what_torch_says_of_a_wrong_input_is_one_line():
    wrong = r"X must be what the model takes, got int64 of shape \(n, 4\): index out of range in self"
    with pytest.raises(ValueError, match=wrong):
        activations(Recurrent(), np.full((2, 4), 20), ["tokens"], device="cpu")
    with pytest.raises(ValueError, match=r"X must be what the model takes, got float32 of shape \(n, 4\): .*indices"):
        activations(Recurrent(), np.ones((2, 4)), ["tokens"], device="cpu")


# ---------------------------------------------------------------------- other libraries


@pytest.mark.sae
def test_transformer_lens_has_equal_logits_and_streams():
    pytest.importorskip("transformer_lens")
    model = shaken(Transformer(23, 10, d_model=16, n_blocks=2, n_heads=4, seed=1))
    documents = tokens(3, 10, 23)
    before = torch.get_rng_state()
    bridge = model.to_transformer_lens()
    assert torch.equal(torch.get_rng_state(), before)
    logits, cache = bridge.run_with_cache(documents)
    assert torch.allclose(logits, model(documents), atol=1e-4)
    found = activations(model, documents, ["blocks.0", "blocks.1", "blocks.1.hidden"], device="cpu")
    assert torch.allclose(cache["blocks.0.hook_resid_post"], found["blocks.0"], atol=1e-4)
    assert torch.allclose(cache["blocks.1.hook_resid_post"], found["blocks.1"], atol=1e-4)
    assert torch.allclose(cache["blocks.1.mlp.hook_post"], found["blocks.1.hidden"], atol=1e-4)

    def ablate(stream, hook):
        return torch.zeros_like(stream)

    ablated = bridge.run_with_hooks(documents, fwd_hooks=[("blocks.1.hook_resid_post", ablate)])
    flat = model.output(model.norm(torch.zeros(3, 10, 16)))
    assert torch.allclose(ablated, flat, atol=1e-4)


@pytest.mark.sae
@pytest.mark.filterwarnings("ignore")
def test_saelens_trains_on_the_bridge():
    sae_lens, datasets = pytest.importorskip("sae_lens"), pytest.importorskip("datasets")
    documents = datasets.Dataset.from_dict({"input_ids": tokens(600, 10, 23).tolist()})
    config = sae_lens.LanguageModelSAERunnerConfig(
        sae=sae_lens.TopKTrainingSAEConfig(d_in=16, d_sae=32, k=4), model_name="percolab", dataset_path="none",
        hook_name="blocks.1.hook_resid_post", is_dataset_tokenized=True, streaming=False, context_size=10,
        training_tokens=1280, train_batch_size_tokens=64, n_batches_in_buffer=64, store_batch_size_prompts=8,
        prepend_bos=False, device="cpu", logger=sae_lens.LoggingConfig(log_to_wandb=False), output_path=None,
        checkpoint_path=None,
    )  # fmt: skip
    model = Transformer(23, 10, d_model=16, n_blocks=2, n_heads=4, seed=1)
    given = {"override_model": model.to_transformer_lens(), "override_dataset": documents}
    sae = sae_lens.LanguageModelSAETrainingRunner(config, **given).run()
    stream = activations(model, tokens(5, 10, 23), ["blocks.1"], device="cpu")["blocks.1"]
    assert (sae.encode(stream) != 0).sum(-1).float().mean().item() == pytest.approx(4, abs=0.5)
