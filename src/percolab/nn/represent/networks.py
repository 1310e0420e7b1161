"""The networks of an experiment: trained together, and kept as they were at some epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from percolab.ground.files import replacing
from percolab.ground.progress import Progress, silent
from percolab.nn.config import TrainConfig
from percolab.nn.frame.resuming import TRAINING, train_resumed
from percolab.nn.networks.model import ResidualMLP
from percolab.nn.training.progress import by_epoch
from percolab.nn.training.training import train
from percolab.worlds.splits import Split
from percolab.worlds.truth import AnyDataset

FILE = "networks.pt"
Weights = dict[str, torch.Tensor]


@dataclass(frozen=True, eq=False)
class Networks:
    """Networks of one shape, each at some epochs."""

    dim: int
    config: TrainConfig
    weights: list[dict[int, Weights]]
    """by network, then by epoch"""

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def last(self) -> int:
        """The last epoch."""
        return max(self.weights[0])

    def model(self, number: int, epoch: int, device: torch.device) -> ResidualMLP:
        """Return a network as it was at an epoch."""
        c = self.config
        model = ResidualMLP(self.dim, c.d_model, c.n_blocks, c.expansion)
        model.load_state_dict(self.weights[number][epoch])
        return model.to(device)


def train_networks(
    dataset: AnyDataset,
    configs: Sequence[TrainConfig],
    targets: Any,
    split: Split,
    keep: Sequence[int],
    output: Path,
    device: torch.device,
    progress: Progress = silent,
    *,
    models: Sequence[ResidualMLP] | None = None,
    file: str = FILE,
) -> dict[str, Any]:
    """Train networks together, write them to a file in `output`, and return their scores on the test rows.

    They start from `models`, or from the initial weights of their seeds; then an interrupted training is resumed.
    """
    given: dict[str, Any] = {"targets": targets, "split": split, "keep": tuple(keep)}
    given |= {"device": device, "progress": by_epoch(progress)}
    if models is None:
        results = train_resumed(output / TRAINING / Path(file).stem, dataset, configs, **given)
    else:  # so many that checkpoints would take longer than the training
        results = train(dataset, configs, model=models, **given)
    kept = [{int(epoch): weights for epoch, weights in result.kept.items()} for result in results]
    for own, result in zip(kept, results, strict=True):
        last = {name: value.detach().cpu().float() for name, value in result.model.state_dict().items()}
        own[configs[0].epochs] = last
    with replacing(output / file) as partial:
        torch.save({"dim": int(dataset.X.shape[1]), "config": asdict(configs[0]), "weights": kept}, partial)
    return {
        "test": [asdict(result.test) for result in results],
        "training_seconds": results[0].seconds,
        "networks": len(results),
    }


def load_networks(output: Path, file: str = FILE) -> Networks:
    """Return what `train_networks` wrote; nothing in the file is executed."""
    values = torch.load(output / file, map_location="cpu", weights_only=True)
    return Networks(values["dim"], TrainConfig(**values["config"]), values["weights"])


def forward_from(model: ResidualMLP, layer: str, h: torch.Tensor) -> torch.Tensor:
    """Return what a network predicts (n,) from the residual stream as it is after a layer.

    Parameters
    ----------
    model
        A residual MLP.
    layer
        ``"raw"``: h is the input; ``"input"``: what the input layer gives; ``"blocks.i"``: what block i gives.
    h
        (n, w).
    """
    if layer == "raw":
        h, layer = model.input(h), "input"
    first = 0 if layer == "input" else int(layer.removeprefix("blocks.")) + 1
    for block in list(model.blocks)[first:]:
        h = block(h)
    prediction: torch.Tensor = model.output(h)
    return prediction.squeeze(-1)


def streams(model: ResidualMLP) -> list[str]:
    """Return the layers that `forward_from` knows beside the input itself, the last block left out.

    After the last block the readout is linear, so the mean response to the difference of two means is the difference
    of the mean predictions, whatever the network has learned.
    """
    return ["input", *(f"blocks.{i}" for i in range(len(model.blocks) - 1))]
