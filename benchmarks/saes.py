"""Seconds per fit of a sparse autoencoder: ours against SAELens' trainer, in the same run.

    python benchmarks/saes.py [--methods topk,batchtopk,matryoshka] [--steps 2000] [--k 24] [--json out.json]

With a CUDA GPU: the sizes of the benchmark's documents, 2,048 features of width 256, steps of 4,096 rows. Without: 24
features of width 16, 200 steps of 64 rows, where nearly all of the time is Python's.

Both take the same steps on the same rows from the same start. On CUDA ours are in TF32, those of SAELens in float32;
the variance that each explains is printed beside the times. Recording the CUDA graphs is part of the time of a fit.
"""

from __future__ import annotations

import argparse
import io
import statistics
from contextlib import redirect_stderr
from functools import partial
from typing import Any

import sae_lens
import torch
from sae_lens.config import LoggingConfig, SAETrainerConfig
from sae_lens.registry import get_sae_training_class
from timing import Row, seconds, show

from percolab.features import saelens
from percolab.features.register import CLASSES
from percolab.features.saes import SparseAutoencoder
from percolab.ground.devices import choose_device, device_name


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--methods", default="topk,batchtopk,matryoshka")
    options.add_argument("--features", type=int)
    options.add_argument("--steps", type=int)
    options.add_argument("--k", type=int)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--device", default="auto")
    options.add_argument("--json")
    chosen = options.parse_args()
    device = choose_device(chosen.device)
    large = device.type == "cuda"
    size = {"n_features": chosen.features or (2048 if large else 24), "batch_size": 4096 if large else 64}
    size |= {"steps": chosen.steps or (2000 if large else 200), "lr": 1e-3}
    values = planted(1 << 17 if large else 1 << 12, 256 if large else 16, device)
    rows = []
    for name in chosen.methods.split(","):
        knob = {} if name == "gated" else {"k": chosen.k or (24 if large else 4)}
        rows.append(compared(name, CLASSES[name](**size, **knob), values, chosen.repeats))
    show(f"A fit of {size['steps']} steps on {device_name(device)}", rows, chosen.json)


def planted(rows: int, width: int, device: torch.device) -> torch.Tensor:
    """Return sums of eight of some directions, with noise."""
    draw = torch.Generator().manual_seed(0)
    directions = torch.nn.functional.normalize(torch.randn(2 * width, width, generator=draw), dim=1)
    chosen = torch.randint(len(directions), (rows, 8), generator=draw)
    values = directions[chosen].sum(1) + 0.1 * torch.randn(rows, width, generator=draw)
    return values.to(device)


def compared(name: str, method: SparseAutoencoder, values: torch.Tensor, repeats: int) -> Row:
    """Time both alternately, after a fit of each."""
    made = [fit(method, values) for fit in (ours, theirs)]
    pairs = [[seconds(partial(fit, method, values)) for fit in (ours, theirs)] for _ in range(repeats)]
    mine, other = (statistics.median(column) for column in zip(*pairs, strict=True))
    explained = [explained_variance(sae, values[:4096]) for sae in made]
    print(f"{name} explains {explained[0]:.4f} of the variance as we train it, {explained[1]:.4f} as SAELens does")
    return Row(name, "SAELens", mine, other, mine / other, detail={"explained": explained})


def ours(method: SparseAutoencoder, values: torch.Tensor) -> Any:
    """Return an autoencoder as percolab trains it."""
    return saelens.train(values, method)


def theirs(method: SparseAutoencoder, values: torch.Tensor) -> Any:
    """Return an autoencoder as SAELens' trainer trains it with the same settings."""
    size, device = min(method.batch_size, len(values)), str(values.device)
    scale = float(values.shape[1] ** 0.5 / values.norm(dim=1).mean())
    torch.manual_seed(method.seed)
    kind, config = get_sae_training_class(method.architecture)
    sae = kind(config(d_in=values.shape[1], d_sae=method.n_features, device=device, **method.options()))
    sae.b_dec.data = (values * scale).mean(0)
    settings = SAETrainerConfig(
        total_training_samples=method.steps * size, train_batch_size_samples=size, lr=method.lr, lr_end=method.lr,
        lr_decay_steps=method.steps // 5, device=device, dead_feature_window=max(1, method.steps // 10),
        logger=LoggingConfig(log_to_wandb=False),
    )  # fmt: skip
    stream = saelens.batches(values * scale, size, method.seed)
    with redirect_stderr(io.StringIO()):  # its bar
        sae_lens.SAETrainer(settings, sae, data_provider=stream).fit()
    trained = saelens.for_use(sae, device)
    trained.fold_activation_norm_scaling_factor(scale)
    return trained


def explained_variance(sae: Any, values: torch.Tensor) -> float:
    """Return 1 - Σ|a - decoded|² / Σ|a - mean a|²."""
    with torch.no_grad():
        left = (values - sae(values)).square().sum()
    return 1 - float(left / (values - values.mean(0)).square().sum())


if __name__ == "__main__":
    main()
