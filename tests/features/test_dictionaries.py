"""Autoencoders of others: folders of `dictionary_learning` against its formulas in torch, any object, damaged files."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from percolab.features.dictionaries import CLASSES, Pretrained, Wrapped, read_dictionary  # noqa: E402

D, F, K = 6, 10, 3


def state_of(kind):
    """Random weights under the names that a class of `dictionary_learning` has."""
    draw = torch.Generator().manual_seed(CLASSES.index(kind))

    def some(*shape):
        return torch.randn(*shape, generator=draw)

    if kind in ("JumpReluAutoEncoder", "MatryoshkaBatchTopKSAE"):
        state = {"W_enc": some(D, F), "b_enc": some(F), "W_dec": some(F, D), "b_dec": some(D)}
        state["threshold"] = some(F).abs() if kind == "JumpReluAutoEncoder" else torch.tensor(0.4)
        return state if kind == "JumpReluAutoEncoder" else {**state, "k": torch.tensor(K)}
    state = {"encoder.weight": some(F, D), "decoder.weight": some(D, F)}
    if kind == "AutoEncoder":
        return {**state, "encoder.bias": some(F), "bias": some(D)}
    if kind == "AutoEncoderNew":
        return {**state, "encoder.bias": some(F), "decoder.bias": some(D)}
    if kind == "GatedAutoEncoder":
        return {**state, "decoder_bias": some(D), "r_mag": some(F), "gate_bias": some(F), "mag_bias": some(F)}
    return {**state, "encoder.bias": some(F), "b_dec": some(D), "k": torch.tensor(K), "threshold": torch.tensor(0.4)}


def reconstruct(kind, s, x):
    """What the class gives back for rows, and which features fire: its formulas, written out."""
    if kind == "AutoEncoder":
        f = torch.relu((x - s["bias"]) @ s["encoder.weight"].T + s["encoder.bias"])
        return f @ s["decoder.weight"].T + s["bias"], f > 0
    if kind == "AutoEncoderNew":
        f = torch.relu(x @ s["encoder.weight"].T + s["encoder.bias"])
        return f @ s["decoder.weight"].T + s["decoder.bias"], f > 0
    if kind == "GatedAutoEncoder":
        linear = (x - s["decoder_bias"]) @ s["encoder.weight"].T
        f = (linear + s["gate_bias"] > 0) * torch.relu(s["r_mag"].exp() * linear + s["mag_bias"])
        return f @ s["decoder.weight"].T + s["decoder_bias"], f > 0
    if kind == "JumpReluAutoEncoder":
        before = x @ s["W_enc"] + s["b_enc"]
        f = torch.relu(before * (before > s["threshold"]))
        return f @ s["W_dec"] + s["b_dec"], f > 0
    if kind == "MatryoshkaBatchTopKSAE":
        f = torch.relu((x - s["b_dec"]) @ s["W_enc"] + s["b_enc"])
        f = f * (f > s["threshold"])
        return f @ s["W_dec"] + s["b_dec"], f > 0
    f = torch.relu((x - s["b_dec"]) @ s["encoder.weight"].T + s["encoder.bias"])
    if kind == "BatchTopKSAE":
        f = f * (f > s["threshold"])
    else:
        top = f.topk(K, dim=-1)
        f = torch.zeros_like(f).scatter_(-1, top.indices, top.values)
    return f @ s["decoder.weight"].T + s["b_dec"], f > 0


def save(folder, kind, state):
    folder.mkdir()
    torch.save(state, folder / "ae.pt")
    (folder / "config.json").write_text(json.dumps({"trainer": {"dict_class": kind}}))
    return folder


@pytest.mark.parametrize("kind", CLASSES)
def test_a_folder_encodes_as_its_class_does(kind, tmp_path):
    state = state_of(kind)
    folder = save(tmp_path / kind, kind, state)
    x = torch.randn(40, D, generator=torch.Generator().manual_seed(99))
    method = Pretrained(str(folder)).fit(x.numpy())
    codes = method.encode(x.numpy())
    decoded, fires = reconstruct(kind, state, x)
    np.testing.assert_allclose(codes @ method.directions + method.bias, decoded, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(codes.toarray() > 0, fires)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("b_dec"), "ae.pt must have b_dec"),
        (lambda s: s.update(k=torch.tensor(99)), "ae.pt must have k from 1 to 10, got 99"),
        (lambda s: s.update({"decoder.weight": torch.zeros(3, 3)}), "ae.pt must have a decoder of shape"),
        (lambda s: s.update(b_dec=torch.full((D,), float("nan"))), "ae.pt must have b_dec"),
        (lambda s: s.update({"encoder.bias": torch.zeros(3)}), "ae.pt must have vectors of 6 and 10 numbers"),
    ],
)
def test_a_damaged_folder_is_refused_in_one_line(change, message, tmp_path):
    state = state_of("AutoEncoderTopK")
    change(state)
    with pytest.raises(ValueError, match=message):
        read_dictionary(save(tmp_path / "folder", "AutoEncoderTopK", state))


def test_code_in_a_folder_does_not_run(tmp_path):
    folder = save(tmp_path / "folder", "AutoEncoder", {"bias": print})
    with pytest.raises(ValueError, match=r"ae\.pt must be"):
        read_dictionary(folder)
    (folder / "config.json").write_text(json.dumps({"trainer": {"dict_class": "os.system"}}))
    with pytest.raises(ValueError, match="dict_class must be"):
        read_dictionary(folder)


def test_another_width_and_another_folder_are_refused(tmp_path):
    folder = save(tmp_path / "folder", "AutoEncoderTopK", state_of("AutoEncoderTopK"))
    with pytest.raises(ValueError, match="path must hold an autoencoder of width 4, got 6"):
        Pretrained(str(folder)).fit(np.zeros((3, 4)))
    with pytest.raises(ValueError, match="path must hold cfg"):
        Pretrained(str(tmp_path)).fit(np.zeros((3, 4)))


class Coder:
    """An autoencoder of someone else, whose codes are divided by the norms of its decoder."""

    W_dec = 2 * torch.eye(4)[:3]

    def encode(self, x):
        return torch.relu(x @ self.W_dec.T)

    def decode(self, f):
        return (f / 4) @ self.W_dec + 1.0


def test_any_object_that_encodes_and_decodes_is_a_method():
    method = Wrapped(Coder())
    x = np.random.default_rng(0).random((5, 4)).astype(np.float32)
    codes = method.fit(x).encode(x)
    np.testing.assert_allclose(codes, np.maximum(2 * x[:, :3], 0), rtol=1e-6)
    np.testing.assert_allclose(method.directions, 0.5 * np.eye(4)[:3])
    np.testing.assert_allclose(method.bias, 1.0)
    with pytest.raises(ValueError, match="must have encode, decode and W_dec"):
        Wrapped(object())
