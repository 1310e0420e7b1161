"""Seconds per fit of a sparse autoencoder: ours against SAELens' trainer, in the same run, on whatever device there is.

    python benchmarks/saes.py                             # 2,048 features, width 256, batches of 4,096
    python benchmarks/saes.py --features 24 --width 16 --batch 64   # overhead alone, on a CPU

Both take the same steps on the same batches from the same start; the last column says how much of the variance their
dictionaries explain. On CUDA ours are in TF32, those of SAELens in float32. The first steps of a fit, in which ours
records its CUDA graphs, are timed too: times are those of `--steps` steps.
"""

from __future__ import annotations

import argparse
import io
import statistics
from contextlib import redirect_stderr
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
from percolab.ground.progress import silent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default="topk,batchtopk,matryoshka")
    parser.add_argument("--features", type=int, default=2048)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--k", type=int, default=24)
    parser.add_argument("--rows", type=int, default=1 << 17)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json")
    asked = parser.parse_args()
    values = planted(asked.rows, asked.width, asked.features // 4, choose_device(asked.device))
    rows = [compared(name, values, asked) for name in asked.methods.split(",")]
    show(f"Fits of {asked.steps} steps, {device_name(values.device)}", rows, asked.json)


def planted(rows: int, width: int, count: int, device: torch.device) -> torch.Tensor:
    """Return sums of eight of some directions, with noise."""
    draw = torch.Generator().manual_seed(0)
    directions = torch.nn.functional.normalize(torch.randn(count, width, generator=draw), dim=1)
    chosen = torch.randint(count, (rows, 8), generator=draw)
    values = directions[chosen].sum(1) + 0.1 * torch.randn(rows, width, generator=draw)
    return values.to(device)


def compared(name: str, values: torch.Tensor, asked: argparse.Namespace) -> Row:
    """Time both, alternately, after a fit of a few steps of each."""
    given = {"k": asked.k} if name != "gated" else {}
    method = CLASSES[name](n_features=asked.features, batch_size=asked.batch, lr=1e-3, **given)
    times: dict[Any, list[float]] = {ours: [], theirs: []}
    for fit in times:
        fit(method, values, 20)
    for _ in range(asked.repeats):
        for fit, each in times.items():
            each.append(seconds(lambda fit=fit: fit(method, values, asked.steps)))
    mine, other = (statistics.median(each) for each in times.values())
    explained = [explained_variance(fit(method, values, asked.steps), values[:4096]) for fit in times]
    said = f"explained {explained[0]:.3f}, {explained[1]:.3f}"
    return Row(
        f"{name}, {asked.features} x {asked.width}, {asked.batch} rows", "SAELens", mine, other, mine / other, said
    )


def ours(method: SparseAutoencoder, values: torch.Tensor, steps: int) -> Any:
    """Return an autoencoder as percolab trains it."""
    method.steps = steps
    how = {"n_features": method.n_features, "frozen": None, "steps": steps, "batch_size": method.batch_size}
    how |= {"lr": method.lr, "seed": 0, "progress": silent}
    return saelens.train(values, method.architecture, method.options(), **how)


def theirs(method: SparseAutoencoder, values: torch.Tensor, steps: int) -> Any:
    """Return an autoencoder as SAELens' trainer trains it with the same settings."""
    method.steps = steps
    device, size = str(values.device), min(method.batch_size, len(values))
    scale = float(values.shape[1] ** 0.5 / values.norm(dim=1).mean())
    torch.manual_seed(0)
    kind, config = get_sae_training_class(method.architecture)
    sae = kind(config(d_in=values.shape[1], d_sae=method.n_features, device=device, **method.options()))
    sae.b_dec.data = (values * scale).mean(0)
    settings = SAETrainerConfig(
        total_training_samples=steps * size, train_batch_size_samples=size, lr=method.lr, lr_end=method.lr,
        lr_decay_steps=steps // 5, device=device, dead_feature_window=max(1, steps // 10),
        logger=LoggingConfig(log_to_wandb=False),
    )  # fmt: skip
    stream = saelens.batches(values * scale, size, 0)
    with redirect_stderr(io.StringIO()):  # its bar
        sae_lens.SAETrainer(settings, sae, data_provider=stream).fit()
    sae.fold_activation_norm_scaling_factor(scale)
    if values.is_cuda:
        torch.cuda.synchronize()
    return sae.eval()


def explained_variance(sae: Any, values: torch.Tensor) -> float:
    """Return 1 - Σ|a - decoded|² / Σ|a - mean a|²."""
    with torch.no_grad():
        left = (values - sae(values)).square().sum()
    return 1 - float(left / (values - values.mean(0)).square().sum())


if __name__ == "__main__":
    main()
