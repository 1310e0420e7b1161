"""Steer, ablate, patch: on networks whose causal structure is known, so that the answer is a formula."""

import doctest
from collections import namedtuple
from contextlib import ExitStack

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sameness import refused

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from percolab.nn import ablate, interventions, kl, patch, steer  # noqa: E402
from percolab.nn.networks import excess  # noqa: E402

torch.set_num_threads(1)  # threads that wait for each other are slow where tests share cores

D = torch.float64


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=D, generator=torch.Generator().manual_seed(seed))


def linear(d_in=3, width=5, d_out=2):
    """Return x → B A x: the layer "0" gives A x."""
    model = nn.Sequential(nn.Linear(d_in, width, bias=False), nn.Linear(width, d_out, bias=False)).double()
    with torch.no_grad():
        model[0].weight.copy_(normal(width, d_in, seed=1))
        model[1].weight.copy_(normal(d_out, width, seed=2))
    return model


def projection(directions):
    """Return the matrix that projects onto the span, by normal equations."""
    M = np.atleast_2d(np.asarray(directions, float))
    return torch.from_numpy(np.linalg.pinv(M) @ M)


def hooks(model):
    return sum(len(module._forward_hooks) for module in model.modules())


# ---------------------------------------------------------------------- a linear network: formulas


@settings(deadline=None, max_examples=40)
@given(
    shape=st.sampled_from([(4,), (1,), (4, 6), (3, 1)]),
    k=st.integers(1, 7),
    rank=st.integers(1, 5),
    scale=st.sampled_from([1e-8, 1.0, 1e8]),
    seed=st.integers(0, 1000),
)
@torch.no_grad()
def test_a_linear_network_answers_by_a_formula(shape, k, rank, scale, seed):
    model = linear()
    A, B = model[0].weight, model[1].weight
    x, other, mean = normal(*shape, 3, seed=seed), normal(*shape, 3, seed=seed + 1), normal(5, seed=seed + 2)
    directions = scale * normal(k, rank, seed=seed + 3) @ normal(rank, 5, seed=seed + 4)  # of rank min(k, rank)
    h, h_other = x @ A.T, other @ A.T
    # The projection is onto a basis that spans the same rows and is well conditioned.
    P = projection(np.linalg.svd(directions.numpy())[2][: min(k, rank)])

    with steer(model, "0", directions[0], dose=-1.5):
        torch.testing.assert_close(model(x), (h - 1.5 * directions[0]) @ B.T)
    with ablate(model, "0", directions):
        torch.testing.assert_close(model(x), (h - h @ P) @ B.T)
    with ablate(model, "0", directions, to=mean):
        torch.testing.assert_close(model(x), (h - h @ P + mean @ P) @ B.T)
    with patch(model, "0", other, subspace=directions):
        torch.testing.assert_close(model(x), (h - h @ P + h_other @ P) @ B.T)
    with patch(model, "0", other):
        assert torch.equal(model(x), model[1](h_other))
    assert torch.equal(model(x), h @ B.T)
    assert hooks(model) == 0


@torch.no_grad()
def test_all_directions_span_everything_and_a_dose_of_0_changes_nothing():
    model, x = linear(), normal(4, 3)
    before = model(x)
    with ablate(model, "0", normal(9, 5)):
        torch.testing.assert_close(model(x), torch.zeros_like(before))
    with steer(model, "0", normal(5), dose=0):
        assert torch.equal(model(x), before)


# ---------------------------------------------------------------------- nesting


@torch.no_grad()
def test_they_nest_the_outer_first_and_under_several_layers_at_once():
    model, x, v = linear(), normal(4, 3), normal(5, seed=5)
    A, B = model[0].weight, model[1].weight
    h, P = x @ A.T, projection(v)
    with steer(model, "0", v), ablate(model, "0", v):
        torch.testing.assert_close(model(x), (h - h @ P) @ B.T)
    with ablate(model, "0", v), steer(model, "0", v):
        torch.testing.assert_close(model(x), (h - h @ P + v) @ B.T)
    w = normal(2, seed=6)
    with steer(model, "0", v), steer(model, "1", w, dose=3):
        torch.testing.assert_close(model(x), (h + v) @ B.T + 3 * w)
        with ablate(model, "1", w):
            torch.testing.assert_close(model(x) @ w, torch.zeros(4, dtype=D))
        torch.testing.assert_close(model(x), (h + v) @ B.T + 3 * w)
    assert torch.equal(model(x), h @ B.T)


@torch.no_grad()
def test_nothing_is_left_behind_after_an_exception():
    model, x = linear(), normal(4, 3)
    before = model(x)
    calls = [
        lambda: steer(model, "0", normal(5)),
        lambda: ablate(model, "1", normal(2)),
        lambda: patch(model, "0", x + 1),
    ]

    def interrupted():
        with ExitStack() as stack:
            for call in calls:
                stack.enter_context(call())
            assert hooks(model) == 3
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(RuntimeError), patch(model, "0", normal(4, 8)):  # the source itself cannot be run
        raise AssertionError("not reached")
    with refused("direction must have 5 numbers, the width of '0', got 4"), steer(model, "0", normal(4)):
        model(x)
    assert hooks(model) == 0
    assert torch.equal(model(x), before)
    with patch(model, "0", x + 1):  # interventions act again after a source that failed
        assert not torch.equal(model(x), before)


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.Identity(), 0

    def forward(self, x, *, times=1):
        self.calls += 1
        return 2 * times * self.layer(x)


@torch.no_grad()
def test_a_source_runs_once_and_clean():
    model, x, other = Counted(), normal(4, 3), normal(4, 3, seed=1)
    with steer(model, "layer", normal(3)), patch(model, "layer", other):
        assert model.calls == 1
        assert torch.equal(model(x), 2 * other)  # the outer steering acts first and is replaced; the source has none
        assert torch.equal(model(x + 1), 2 * other)
        assert model.calls == 3
    with patch(model, "layer", other), steer(model, "layer", normal(3)):
        assert torch.equal(model(x), 2 * (other + normal(3)))


@torch.no_grad()
def test_layers_are_patched_from_different_sources():
    """A source under the patch of another layer would be that layer's source."""
    model = nn.Sequential(nn.Identity(), nn.Identity(), nn.Identity())
    x, first, second = (normal(2, 3, seed=seed) for seed in range(3))
    e = torch.eye(3, dtype=D)
    with patch(model, "0", first), patch(model, "1", second, subspace=e[0]):
        torch.testing.assert_close(model(x), torch.column_stack([second[:, 0], first[:, 1:]]))


@torch.no_grad()
def test_sources_are_inputs_in_any_form():
    model, other = Counted(), normal(4, 3, seed=1)
    for source in (other, other.numpy(), (other,), {"x": other}, {"x": other, "times": 3}):
        with patch(model, "layer", source):
            assert torch.equal(model(torch.zeros(4, 3, dtype=D)), 2 * other)


# ---------------------------------------------------------------------- kinds of modules


Pair = namedtuple("Pair", "values rest")


class Tupled(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, x):
        return self.make(x)


class First(nn.Module):
    def forward(self, pair):
        assert pair[1] == "rest"
        return pair[0]


@pytest.mark.parametrize(
    "make", [lambda x: (x, "rest"), lambda x: [x, "rest"], lambda x: Pair(x, "rest")], ids=["tuple", "list", "named"]
)
def test_the_first_element_of_a_tuple_is_changed(make):
    model, x = nn.Sequential(Tupled(make), First()), normal(4, 3)
    kinds = []
    model[0].register_forward_hook(lambda module, args, output: kinds.append(type(output)))
    with steer(model, "0", torch.ones(3)):
        torch.testing.assert_close(model(x), x + 1)
        assert model[0](x)[1] == "rest"
        assert type(model[0](x)) is kinds[0]
    with patch(model, "0", x + 2):
        assert torch.equal(model(x), x + 2)


@torch.no_grad()
def test_modules_of_torch_whose_output_is_a_tuple():
    model = nn.ModuleDict({"lstm": nn.LSTM(3, 5, batch_first=True)})
    model.forward = lambda x: model["lstm"](x)[0]
    x = torch.randn(2, 7, 3)
    before = model(x)
    with steer(model, "lstm", torch.ones(5)):
        torch.testing.assert_close(model(x), before + 1)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_outputs_keep_their_type(dtype):
    model, x = nn.Sequential(nn.Identity()), normal(4, 6, 3).to(dtype)
    calls = [
        steer(model, "0", normal(3)),
        ablate(model, "0", normal(2, 3), to=normal(3)),
        patch(model, "0", x + 1, normal(3)),
        patch(model, "0", x + 1, positions=2),
    ]
    for call in calls:
        with call:
            assert model(x).dtype == dtype


# ---------------------------------------------------------------------- positions


@torch.no_grad()
@pytest.mark.parametrize(
    ("positions", "where"),
    [
        (2, [2]),
        (-1, [5]),
        ([0, 3], [0, 3]),
        (np.array([4, 4]), [4]),
        (slice(2, None), [2, 3, 4, 5]),
        (np.arange(6) > 3, [4, 5]),
        (torch.tensor([True] + [False] * 5), [0]),
    ],
)
def test_a_patch_at_positions_leaves_the_others_to_the_bit(positions, where):
    model, x, other = nn.Sequential(nn.Identity()), torch.randn(4, 6, 3), torch.randn(4, 6, 3)
    expected = x.clone()
    expected[:, where] = other[:, where]
    with patch(model, "0", other, positions=positions):
        assert torch.equal(model(x), expected)
    for intervention in (
        patch(model, "0", other, normal(2, 3), positions),
        steer(model, "0", normal(3), positions=positions),
        ablate(model, "0", normal(3), positions=positions),
    ):
        with intervention:
            changed = (model(x) != x).any(-1)
        assert changed[:, where].all()
        assert changed.sum() == 4 * len(where)


@torch.no_grad()
def test_every_row_may_have_positions_of_its_own():
    model, x, other = nn.Sequential(nn.Identity()), torch.randn(4, 6, 3), torch.randn(4, 6, 3)
    from_on = np.arange(6) >= np.array([[0], [2], [5], [6]])
    with patch(model, "0", other, positions=from_on):
        assert torch.equal(model(x), torch.where(torch.from_numpy(from_on)[..., None], other, x))


# ---------------------------------------------------------------------- planted subspaces, found or not


class Bypass(nn.Module):
    """A layer that holds all of x, and an output that comes from x by another way."""

    def __init__(self):
        super().__init__()
        self.layer, self.readout = nn.Identity(), normal(3, 6, seed=8)

    def forward(self, x):
        return x @ self.readout.T + 0 * self.layer(x).sum()


class Planted(nn.Module):
    """An output that depends on the layer through a subspace of rank 2 alone, and not linearly."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6).double()
        with torch.no_grad():
            self.layer.weight.copy_(normal(6, 6, seed=7))
        self.subspace = normal(2, 6, seed=8)

    def forward(self, x):
        read = self.layer(x) @ self.subspace.T
        return torch.stack([read[..., 0] * read[..., 1], read[..., 1].tanh()], -1)


@torch.no_grad()
def test_a_planted_subspace_carries_the_counterfactual_and_its_complement_none():
    model, x, other = Planted(), normal(50, 6), normal(50, 6, seed=1)
    before, after = model(x), model(other)
    complement = torch.linalg.svd(model.subspace)[2][2:]
    mixed = normal(2, 2, seed=3) @ model.subspace
    for subspace in (model.subspace, mixed, torch.cat([model.subspace, mixed]), torch.eye(6)):
        with patch(model, "layer", other, subspace):
            torch.testing.assert_close(model(x), after)
    with patch(model, "layer", other, complement):
        torch.testing.assert_close(model(x), before)
    with patch(model, "layer", other, model.subspace[0]):
        assert ((model(x) - after).abs().amax(1) > 1e-3).all()


def learned(model, steps):
    """Return a plane that is learned to carry an interchange, and the share of the difference that it leaves."""
    subspace = normal(2, 6, seed=11).requires_grad_()
    optimizer = torch.optim.Adam([subspace], lr=0.1)
    x, other = normal(100, 6), normal(100, 6, seed=1)
    with torch.no_grad():
        before, after = model(x), model(other)
    with patch(model, "layer", other, subspace):  # one block for all steps: the basis is read in every pass
        for _ in range(steps):
            optimizer.zero_grad()
            loss = (model(x) - after).square().mean() / (before - after).square().mean()
            loss.backward()
            optimizer.step()
    return subspace.detach(), float(loss.detach())


def test_a_planted_subspace_is_found_by_gradients():
    model = Planted()
    subspace, left = learned(model, 150)
    assert left < 1e-3
    torch.testing.assert_close(projection(subspace), projection(model.subspace), atol=0.05, rtol=0)


def test_where_there_is_none_no_subspace_is_found():
    model, x, other = Bypass(), normal(50, 6), normal(50, 6, seed=1)
    subspace, left = learned(model, 10)
    assert left == pytest.approx(1, abs=1e-12)
    for span in (subspace, torch.eye(6)):
        with torch.no_grad(), patch(model, "layer", other, span):
            assert torch.equal(model(x), x @ model.readout.T)


def test_gradients_reach_all_that_is_given_and_the_network_but_not_the_source():
    model, x, other = linear(), normal(4, 3).requires_grad_(), normal(4, 3, seed=1).requires_grad_()
    direction, dose = normal(5).requires_grad_(), torch.tensor(2.0, dtype=D, requires_grad=True)
    with steer(model, "0", direction, dose):
        model(x).sum().backward()
    torch.testing.assert_close(direction.grad, 8 * model[1].weight.sum(0))  # 4 rows, dose 2
    torch.testing.assert_close(dose.grad, 4 * model[1].weight.sum(0) @ direction)
    mean = normal(5).requires_grad_()
    with ablate(model, "0", normal(5), to=mean):
        model(x).sum().backward()
    torch.testing.assert_close(mean.grad, 4 * projection(normal(5)) @ model[1].weight.sum(0))
    with patch(model, "0", other, normal(2, 5)):
        x.grad = None
        model(x).sum().backward()
    assert x.grad.abs().sum() > 0
    assert other.grad is None


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: steer(m, "2", [1.0]), "layer must be a module of the model (0, 1), got '2'"),
        (lambda m: steer(m, "", [1.0]), "layer must be a module of the model (0, 1), got ''"),
        (lambda m: patch(m, "2", [1.0]), "layer must be a module of the model (0, 1), got '2'"),
        (lambda m: steer(m, "0", [[1.0]]), "direction must have shape (width,), got (1, 1)"),
        (lambda m: steer(m, "0", []), "direction must have shape (width,), got (0,)"),
        (lambda m: steer(m, "0", [np.nan] * 5), "direction must be finite, got NaN or infinity"),
        (lambda m: steer(m, "0", [1.0] * 4), "direction must have 5 numbers, the width of '0', got 4"),
        (lambda m: steer(m, "0", [1.0] * 5, "much"), "dose must be a number, got 'much'"),
        (
            lambda m: ablate(m, "0", np.ones((1, 2, 3))),
            "directions must have shape (width,) or (k, width), got (1, 2, 3)",
        ),
        (lambda m: ablate(m, "0", [[1.0] * 4]), "directions must have 5 numbers, the width of '0', got 4"),
        (lambda m: ablate(m, "0", [[1.0] * 5, [0.0] * 5]), "directions must be nonzero, got zeros in row 1"),
        (lambda m: ablate(m, "0", [[1.0] * 5], "mean"), "to must be 'zero' or a mean activation, got 'mean'"),
        (lambda m: ablate(m, "0", [[1.0] * 5], [0.0]), "to must have 5 numbers, as directions have, got 1"),
        (lambda m: patch(m, "0", normal(3, 3)), "source must have the rows of the input, (4, 5) at '0', got (3, 5)"),
        (
            lambda m: patch(m, "0", normal(4, 2, 3)),
            "source must have the outputs of the input, (4, 5) at '0', got (4, 2, 5)",
        ),
        (lambda m: patch(m, "0", normal(4, 3), [1.0]), "subspace must have 5 numbers, the width of '0', got 1"),
        (
            lambda m: patch(m, "0", normal(4, 3), normal(6, 5).requires_grad_()),
            "subspace must be at most 5 directions to be learned, got 6",
        ),
        (
            lambda m: patch(m, "0", normal(4, 3), positions=0),
            "positions must be None where a layer has none, got an output of shape (4, 5)",
        ),
    ],
)
def test_bad_input_is_told_in_one_line(call, message):
    model = linear()
    with refused(message), call(model):
        model(normal(4, 3))
    assert hooks(model) == 0


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        (6, "positions must be among the 6 of the input, got 6"),
        ([0, -7], "positions must be among the 6 of the input, got [0, -7]"),
        ([0.5], "positions must be among the 6 of the input, got [0.5]"),
        (np.ones((4, 5), bool), "positions must be a mask of the input's rows and positions, (4, 6), got torch.bool"),
        (np.ones((4, 6)), "positions must be a mask of the input's rows and positions, (4, 6), got torch.float64"),
    ],
)
def test_bad_positions_are_told_in_one_line(positions, message):
    model, x = nn.Sequential(nn.Identity()), torch.randn(4, 6, 3)
    with pytest.raises(ValueError) as error, patch(model, "0", x, positions=positions):
        model(x)
    assert str(error.value).startswith(message)


def test_a_source_of_floats_is_refused_by_a_network_of_tokens():
    model = torch.nn.Sequential(torch.nn.Embedding(5, 3))
    message = "source must be integers, the tokens that the model embeds, got torch.float32"
    with refused(message), patch(model, "0", torch.ones(2, 4)):
        pass
    assert hooks(model) == 0


def test_layers_without_such_an_output_are_refused():
    rule = "layer must give (rows, width) or (rows, positions, width) of floats, or a tuple that begins with it"
    for make, kind in ((lambda x: x.long(), "torch.int64 of shape (4, 3)"), (lambda x: {"x": x}, "dict")):
        model = nn.Sequential(Tupled(make))
        with refused(f"{rule}, got {kind} from '0'"), steer(model, "0", torch.ones(3)):
            model(torch.randn(4, 3))
    shared = nn.Identity()
    with refused("layer must run once in a forward pass to be patched, got 2 runs of '0'"):
        patch(nn.Sequential(shared, nn.Tanh(), shared), "0", torch.randn(4, 3)).__enter__()
    with refused("layer must be a module of the model (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, …), got 'x'"):
        steer(nn.Sequential(*(nn.Identity() for _ in range(20))), "x", [1.0]).__enter__()


# ---------------------------------------------------------------------- KL


def test_kl_is_the_sum_over_tokens():
    p, logits = torch.softmax(normal(3, 4, 7), -1), normal(3, 4, 7, seed=1).float()
    q = torch.softmax(logits.double(), -1)
    expected = [
        [sum(a * np.log(a / b) for a, b in zip(r, s, strict=True)) for r, s in zip(*pq, strict=True)]
        for pq in zip(p.tolist(), q.tolist(), strict=True)
    ]
    found = kl(p.numpy(), logits)
    assert found.dtype == D
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(kl(q, logits), 0, atol=1e-15)
    assert float(kl([0.0, 1.0], torch.tensor([0.0, 0.0]))) == pytest.approx(np.log(2))
    with refused("exact must have the shape of logits, (3, 4, 7), got (3, 4)"):
        kl(p[..., 0], logits)


def test_examples_are_as_they_say():
    for module, examples in ((interventions, 12), (excess, 3)):
        results = doctest.testmod(module)
        assert results.attempted >= examples
        assert not results.failed
