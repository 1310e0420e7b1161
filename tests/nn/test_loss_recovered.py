"""The share of a network's loss that reconstructions of a layer keep."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from percolab.nn import ResidualMLP, activations, loss_recovered  # noqa: E402

LAYERS = ["raw", "input", "blocks.0.hidden", "blocks.0", "blocks.1"]


@pytest.fixture(scope="module")
def network():
    """A network, points, and a target that it predicts up to noise."""
    rng = np.random.default_rng(0)
    model, X = ResidualMLP(5, 8, 2, seed=1), rng.normal(size=(200, 5)).astype(np.float32)
    with torch.no_grad():
        y = model(torch.from_numpy(X)).numpy() + 0.01 * rng.normal(size=200)
    return model, X, y


def at(model, X, name):
    return X if name == "raw" else activations(model, X, [name], device="cpu")[name].numpy()


def by_hand(model, X, name, values):
    """Predictions with the residual stream taken up again after a layer."""
    h = torch.from_numpy(values)
    with torch.no_grad():
        if name == "raw":
            return model(h).numpy()
        if name == "blocks.0.hidden":
            h, name = model.input(torch.from_numpy(X)) + model.blocks[0].narrow(h), "blocks.0"
        for block in list(model.blocks)[0 if name == "input" else int(name[-1]) + 1 :]:
            h = block(h)
        return model.output(h).squeeze(-1).numpy()


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("batch_size", [7, 1000])
def test_losses_are_those_of_the_replaced_layer(name, batch_size, network):
    model, X, y = network
    own = at(model, X, name)
    other = own + np.random.default_rng(1).normal(size=own.shape).astype(np.float32)
    found = loss_recovered(model, X, y, name, other, batch_size=batch_size, device="cpu")
    mean = np.repeat(own.mean(0, keepdims=True), 200, axis=0)
    for value, values in ((found.loss, own), (found.replaced, other), (found.ablated, mean)):
        assert value == pytest.approx(((by_hand(model, X, name, values) - y) ** 2).mean(), rel=1e-3)
    assert found.share == pytest.approx((found.ablated - found.replaced) / (found.ablated - found.loss))


@pytest.mark.parametrize("name", LAYERS)
def test_the_activations_keep_all_and_their_mean_nothing(name, network):
    model, X, y = network
    own = at(model, X, name)
    assert loss_recovered(model, X, y, name, own, device="cpu").share == pytest.approx(1, abs=1e-5)
    mean = np.repeat(own.mean(0, keepdims=True), 200, axis=0)
    assert loss_recovered(model, X, y, name, mean, device="cpu").share == pytest.approx(0, abs=1e-3)
    with torch.no_grad():
        assert np.allclose(model(torch.from_numpy(X)).numpy(), y, atol=0.1)  # no hook is left


def test_nothing_can_be_kept_of_a_layer_that_does_harm(network):
    model, X, y = network
    found = loss_recovered(model, X, -y + 2 * y.mean(), "blocks.1", at(model, X, "blocks.1"), device="cpu")
    assert np.isnan(found.share)


def test_labels_lose_cross_entropy(network):
    _, X, _ = network
    model = ResidualMLP(5, 8, 1, seed=1, outputs=3)
    with torch.no_grad():
        logits = model(torch.from_numpy(X)).double()
    y = logits.argmax(1).numpy()
    found = loss_recovered(model, X, y, "blocks.0", at(model, X, "blocks.0"), device="cpu")
    wanted = -logits.log_softmax(1)[torch.arange(200), torch.from_numpy(y)].mean()
    assert found.loss == found.replaced == pytest.approx(float(wanted), rel=1e-5)
    assert found.ablated > found.loss


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("nothing", (200, 8), r"^names must be modules of the model \(.*\), got 'nothing'$"),
        ("blocks.0", (199, 8), r"^reconstructions must have shape \(200, 8\), got \(199, 8\)$"),
        ("raw", (200, 8), r"^reconstructions must have shape \(200, 5\), got \(200, 8\)$"),
    ],
)
def test_bad_input_is_one_line(name, shape, message, network):
    model, X, y = network
    with pytest.raises(ValueError, match=message):
        loss_recovered(model, X, y, name, np.zeros(shape, np.float32), device="cpu")
