"""Sparse autoencoders of SAELens as methods: TopK, BatchTopK, JumpReLU, Gated, Matryoshka.

Each is SAELens' own module (extra ``sae``), imported at the first fit, and takes the steps of SAELens' trainer
(`percolab.features.saelens`). With ``frozen="decoder"`` or ``"encoder"`` the weights of that part stay at their random
start, and all else learns: recovery then does not need a learned dictionary. With ``"soft"`` every
decoder vector keeps a cosine of at least 0.8 with its start.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from percolab.features.directions import explained_variance
from percolab.features.inputs import as_codes
from percolab.features.methods import Decodes, check_fitted
from percolab.ground import foreign_files
from percolab.ground.arrays import as_array
from percolab.ground.extras import needing
from percolab.ground.progress import Progress, silent
from percolab.ground.text import shown
from percolab.ground.validation import check_choice, check_integer, check_number, check_seed

READ = ("standard", "gated", "jumprelu", "topk")  #: Architectures that are read from folders, as SAELens names them.


@dataclass
class SparseAutoencoder(Decodes):
    """A sparse autoencoder of SAELens."""

    n_features: int = 4096
    #: "decoder" or "encoder": these weights stay at their random start; "soft": decoder vectors stay near it
    frozen: str | None = None
    steps: int = 5000
    batch_size: int = 4096
    lr: float = 3e-4
    seed: int = 0  #: seed of the initial weights and the order of the rows
    device: str = "auto"
    #: the autoencoder, a ``sae_lens.SAE``, after the fit
    sae: Any = field(default=None, init=False, repr=False, compare=False)
    #: called with (stage, steps done, steps in all) during the fit
    progress: Progress = field(default_factory=lambda: silent, init=False, repr=False, compare=False)

    architecture: ClassVar[str] = ""  #: SAELens' name of the architecture

    def options(self) -> dict[str, Any]:
        """Return the options of SAELens' configuration for this architecture, without sizes."""
        return {}

    def fit(self, activations: Any) -> Self:
        """Train the autoencoder on activations (rows, d)."""
        for name in ("n_features", "steps", "batch_size"):
            setattr(self, name, check_integer(name, getattr(self, name), 1))  # SAELens writes no numbers of NumPy
        self.lr, self.seed = check_number("lr", self.lr, 0), check_seed("seed", self.seed)
        if not self.lr:
            raise ValueError("lr must be above 0, got 0")
        if self.frozen is not None:
            check_choice("frozen", self.frozen, ("decoder", "encoder", "soft"))
        self.options()  # raises for options that are wrong
        with needing("this method needs", "sae", "SAELens"):  # which brings torch
            from percolab.features import on_torch, saelens
        from percolab.ground.devices import choose_device

        return self._take(saelens.train(on_torch.as_rows(activations, choose_device(self.device)), self))

    def _take(self, sae: Any) -> Self:
        from percolab.features import saelens

        self.sae, (self.directions, self.bias) = sae, saelens.decoder(sae)
        return self

    def encode(self, activations: Any) -> Any:
        """Return the codes: a dense tensor on a GPU, otherwise a SciPy sparse array."""
        check_fitted(self)
        from percolab.features import on_torch, saelens

        return saelens.encode(self.sae, on_torch.as_rows(activations, self.sae.device))

    def l0(self, activations: Any) -> float:
        """Return the mean number of features that fire on a row."""
        return float((self.encode(activations) > 0).sum()) / len(activations)

    def explained_variance(self, activations: Any) -> float:
        """Return 1 - Σ|a - decoded|² / Σ|a - mean a|²."""
        codes = as_codes(self.encode(activations))
        directions, bias = (np.asarray(part, np.float64) for part in (self.directions, self.bias))
        return explained_variance(codes, directions, bias, as_array(activations))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the autoencoder to a directory in SAELens' format, which ``sae_lens.SAE.load_from_disk`` reads."""
        if self.sae is None:
            raise ValueError(f"{type(self).__name__} must be fitted before it is saved")
        self.sae.save_model(os.fspath(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str = "auto") -> Self:
        """Read an autoencoder in SAELens' format; `SparseAutoencoder` reads any kind, a subclass only its own."""
        from percolab.features import saelens
        from percolab.ground.devices import choose_device

        config = foreign_files.read_json("cfg.json", Path(path) / "cfg.json")
        check_choice("architecture", config.get("architecture", READ[0]), READ)
        with foreign_files.reading("path", Path(path) / "sae_weights.safetensors", "an SAE as SAELens saves it"):
            sae = saelens.load(path, str(choose_device(device)))
            loaded = cls(n_features=sae.cfg.d_sae, device=device)._take(sae)
            loaded.encode(np.zeros((1, sae.cfg.d_in), np.float32))
            if not all(np.isfinite(as_array(part)).all() for part in (loaded.directions, loaded.bias)):
                raise ValueError("its decoder must be finite")
        kind = sae.cfg.metadata.training_architecture or sae.cfg.architecture()
        if cls.architecture not in ("", kind):
            raise ValueError(f"path must hold an SAE of kind {cls.architecture}, got {shown(kind)}")
        return loaded


@dataclass
class TopK(SparseAutoencoder):
    """The k largest features of a row fire (Gao et al. 2024)."""

    k: int = 32

    architecture: ClassVar[str] = "topk"

    def options(self) -> dict[str, Any]:
        """Return k."""
        if check_integer("k", self.k, 1) > self.n_features:
            raise ValueError(f"k must be at most n_features, {self.n_features}, got {self.k}")
        return {"k": int(self.k)}


@dataclass
class BatchTopK(TopK):
    """The largest of a batch fire, k per row on average; trained, those above a threshold (Bussmann et al. 2024)."""

    architecture: ClassVar[str] = "batchtopk"

    def options(self) -> dict[str, Any]:
        """Return k and the rate at which the threshold follows, which must also converge in a short run."""
        return {**super().options(), "topk_threshold_lr": max(0.01, 10 / (self.steps + 10))}


@dataclass
class Matryoshka(BatchTopK):
    """A BatchTopK whose first features must also reconstruct without the rest (Bussmann et al. 2025)."""

    #: numbers of first features that must reconstruct alone; None: 1/16, 1/8, 1/4 and 1/2 of all
    widths: tuple[int, ...] | None = None

    architecture: ClassVar[str] = "matryoshka_batchtopk"

    def options(self) -> dict[str, Any]:
        """Return k and the widths, the last of which is all features."""
        widths = self.widths or tuple(self.n_features // part for part in (16, 8, 4, 2))
        inner = sorted({check_integer("widths", width, 0) for width in widths} - {0, self.n_features})
        if inner and inner[-1] > self.n_features:
            raise ValueError(f"widths must be below n_features, {self.n_features}, got {inner[-1]}")
        return {**super().options(), "matryoshka_widths": [*inner, self.n_features]}


@dataclass
class JumpReLU(TopK):
    """Features above learned thresholds fire (Rajamanoharan et al. 2024); a loss pulls L0 towards k."""

    l0_coefficient: float = 1.0  #: weight of the loss 2 (L0 - k)² / k

    architecture: ClassVar[str] = "jumprelu"

    def options(self) -> dict[str, Any]:
        """Return the target and its weight."""
        return {
            "jumprelu_sparsity_loss_mode": "quadratic",
            "target_l0": super().options()["k"],
            "l0_coefficient": check_number("l0_coefficient", self.l0_coefficient, 0),
            "l0_warm_up_steps": self.steps // 5,
        }


@dataclass
class Gated(SparseAutoencoder):
    """One linear map decides which features fire, another how strongly (Rajamanoharan et al. 2024)."""

    l1_coefficient: float = 3.0  #: weight of the sum of gates: the larger, the fewer features fire

    architecture: ClassVar[str] = "gated"

    def options(self) -> dict[str, Any]:
        """Return the weight of the sum of gates."""
        weight = check_number("l1_coefficient", self.l1_coefficient, 0)
        return {"l1_coefficient": weight, "l1_warm_up_steps": self.steps // 5}
