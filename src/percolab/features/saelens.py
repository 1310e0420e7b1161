"""Sparse autoencoders by SAELens: its classes, its trainer, its files. Nothing imports this module until one is fitted.

SAELens trains from any iterator of tensors, so activations need no store. What is added here is that stream, a scale
for it, seeds, and gradients that are off. Importing SAELens takes 5 to 10 seconds.
"""

from __future__ import annotations

import io
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from percolab.ground.devices import on_device
from percolab.ground.progress import Progress

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the many packages that it imports
        import sae_lens
        from sae_lens.config import LoggingConfig, SAETrainerConfig
        from sae_lens.registry import get_sae_training_class
except ImportError as error:
    raise ImportError(f"this method needs SAELens: pip install 'percolab[sae]' ({error})") from error

ENCODED_CELLS = {"cpu": 1 << 24, "cuda": 1 << 28}
"""Codes that are made at once."""
SOFT = 0.8
"""Least cosine of a decoder vector with its start, where the decoder is softly frozen."""


def as_tensor(activations: Any, device: torch.device) -> torch.Tensor:
    """Return activations (rows, d) on the device, float32."""
    values = activations.detach() if isinstance(activations, torch.Tensor) else np.asarray(activations)
    if values.ndim != 2:
        raise ValueError(f"activations must have shape (rows, d), got {tuple(values.shape)}")
    return on_device("activations", values, device, torch.float32)


def batches(values: torch.Tensor, batch_size: int, seed: int) -> Iterator[torch.Tensor]:
    """Yield batches of rows for ever, in a new order each time round; a last part that is no batch is left out."""
    generator = torch.Generator(values.device).manual_seed(seed)
    while True:
        order = torch.randperm(len(values), generator=generator, device=values.device)
        for rows in order[: len(order) // batch_size * batch_size].split(batch_size):
            yield values[rows]


def train(
    values: torch.Tensor,
    architecture: str,
    options: dict[str, Any],
    *,
    n_features: int,
    frozen: str | None,
    steps: int,
    batch_size: int,
    lr: float,
    seed: int,
    progress: Progress,
) -> Any:
    """Train an autoencoder on rows (n, d) and return it as SAELens uses it after training.

    It trains on activations times sqrt(d) over their mean norm, and this factor is then folded into its weights. Its
    decoder bias starts at their mean. The learning rate falls to 0 over the last fifth of the steps.
    """
    scale = float(values.shape[1] ** 0.5 / values.norm(dim=1).mean().clamp(min=1e-12))
    scaled, device, size = values * scale, str(values.device), min(batch_size, len(values))
    with _seeded(seed, values.device):
        kind, config = get_sae_training_class(architecture)
        sae = kind(config(d_in=values.shape[1], d_sae=n_features, device=device, **options))
    sae.b_dec.data = scaled.mean(0)
    if frozen in ("decoder", "encoder"):
        getattr(sae, "W_dec" if frozen == "decoder" else "W_enc").requires_grad_(False)
    stream = _counted(batches(scaled, size, seed), steps, progress)
    settings = SAETrainerConfig(
        total_training_samples=steps * size,
        train_batch_size_samples=size,
        lr=lr,
        lr_end=lr,
        lr_decay_steps=steps // 5,
        device=device,
        dead_feature_window=max(1, steps // 10),
        logger=LoggingConfig(log_to_wandb=False, eval_every_n_wandb_logs=2**31 - 1),
    )
    start = sae.W_dec.detach().clone()
    if frozen == "soft":
        stream = _held(stream, sae.W_dec, start)
    trainer = sae_lens.SAETrainer(settings, sae, data_provider=stream)
    with redirect_stderr(io.StringIO()):  # its bar
        trainer.fit()
    if frozen == "soft":
        hold(sae.W_dec, start)
    trained = _for_use(sae, device)
    trained.fold_activation_norm_scaling_factor(scale)
    return trained


def _counted(stream: Iterator[torch.Tensor], steps: int, progress: Progress) -> Iterator[torch.Tensor]:
    """Yield the batches of a stream, and report how many of the steps are done, about a hundred times."""
    for step, batch in enumerate(stream):
        if step % max(1, steps // 100) == 0:
            progress("autoencoder", min(step, steps), steps)
        yield batch


def _held(stream: Iterator[torch.Tensor], vectors: torch.Tensor, start: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the batches of a stream, and before each bring vectors back to where their cosines are large enough."""
    for batch in stream:
        hold(vectors, start)
        yield batch


def hold(vectors: torch.Tensor, start: torch.Tensor) -> None:
    """Turn each vector, at its length, until its cosine with its start is `SOFT` or more."""
    with torch.no_grad():
        axis = torch.nn.functional.normalize(start, dim=1)
        length = vectors.norm(dim=1, keepdim=True)
        along = (vectors * axis).sum(1, keepdim=True)
        across = torch.nn.functional.normalize(vectors - along * axis, dim=1)
        held = length * (SOFT * axis + (1 - SOFT**2) ** 0.5 * across)
        vectors.copy_(torch.where(along < SOFT * length, held, vectors))


def _for_use(sae: Any, device: str) -> Any:
    """Return a trained autoencoder as SAELens gives it away: a file is the only way there."""
    with tempfile.TemporaryDirectory() as folder:
        sae.save_inference_model(folder)
        return load(folder, device)


def encode(sae: Any, values: torch.Tensor) -> Any:
    """Return the codes of rows: a dense tensor on a GPU, a SciPy sparse array elsewhere."""
    step = max(1, ENCODED_CELLS.get(values.device.type, 1 << 24) // sae.cfg.d_sae)
    with torch.no_grad():
        if values.device.type != "cpu":
            codes = torch.empty(len(values), sae.cfg.d_sae, device=values.device)
            for lo in range(0, len(values), step):
                codes[lo : lo + step] = sae.encode(values[lo : lo + step])
            return codes
        import scipy.sparse

        parts = [scipy.sparse.csr_array(sae.encode(part).numpy()) for part in values.split(step)]
        return scipy.sparse.vstack(parts, format="csr")


def decoder(sae: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return directions (features, d) and bias (d,): what SAELens decodes a code of 1 to, and no code."""
    with torch.no_grad():
        bias = sae.decode(torch.zeros(1, sae.cfg.d_sae, device=sae.device))[0]
        # Some divide codes by the decoder's norms, so ask it rather than read W_dec.
        step = max(1, ENCODED_CELLS["cpu"] // sae.cfg.d_sae)
        parts = [sae.decode(one_hot) - bias for one_hot in _one_hot(sae.cfg.d_sae, step, sae.device)]
    return torch.cat(parts).cpu().numpy(), bias.cpu().numpy()


def _one_hot(count: int, step: int, device: Any) -> Iterator[torch.Tensor]:
    """Yield the rows of the identity, some at a time: the whole is too large for many features."""
    for lo in range(0, count, step):
        at = torch.arange(lo, min(lo + step, count), device=device)
        yield torch.nn.functional.one_hot(at, count).float()


def save(sae: Any, path: str | os.PathLike[str]) -> None:
    """Write an autoencoder in SAELens' format: cfg.json and sae_weights.safetensors."""
    sae.save_model(os.fspath(path))


def load(path: str | os.PathLike[str], device: str) -> Any:
    """Read an autoencoder in SAELens' format."""
    return sae_lens.SAE.load_from_disk(os.fspath(path), device=device).eval().requires_grad_(False)


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Let what draws from torch's global generators be determined by the seed, and put them back."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
