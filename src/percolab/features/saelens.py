"""Sparse autoencoders by SAELens: its classes, losses and files. This module is imported when one is first fitted.

`Training` takes the steps of SAELens' trainer, with its forward passes and losses. In the same precision it gives the
same weights; on CUDA `train` multiplies matrices in TF32. SAELens' trainer waits for the device several times per step;
here Python never waits within a step, so that on a GPU a step is one CUDA graph. Importing SAELens takes 5 to 10
seconds.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from percolab.features.codes import BLOCK_CELLS
from percolab.features.methods import in_blocks
from percolab.ground.devices import recorded, tf32, warmed_up
from percolab.ground.extras import needing

if TYPE_CHECKING:
    from percolab.features.saes import SparseAutoencoder

with needing("this method needs", "sae", "SAELens"), warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the many packages that it imports
    import sae_lens
    from sae_lens.registry import get_sae_training_class
    from sae_lens.saes.batchtopk_sae import BatchTopKTrainingSAE
    from sae_lens.saes.sae import TrainStepInput
    from sae_lens.saes.topk_sae import TopKTrainingSAE

SOFT = 0.8  #: Least cosine of a decoder vector with its start, where the decoder is softly frozen.
COUNTED_STEPS = 2000  #: Steps after which SAELens restarts its count of features that fire on a row.
WARM_UP = 3  #: Plain steps of each kind before it is recorded as a CUDA graph.


def batches(values: torch.Tensor, batch_size: int, seed: int) -> Iterator[torch.Tensor]:
    """Yield batches of rows without end, in a new order each epoch; the incomplete last batch is left out."""
    generator = torch.Generator(values.device).manual_seed(seed)
    while True:
        order = torch.randperm(len(values), generator=generator, device=values.device)
        for rows in order[: len(order) // batch_size * batch_size].split(batch_size):
            yield values[rows]


def train(values: torch.Tensor, method: SparseAutoencoder) -> Any:
    """Train the autoencoder of a method on rows (n, d) and return it in the form that SAELens uses after training.

    Activations are multiplied by sqrt(d) over their mean norm; the factor is then folded into the weights. The
    decoder bias starts at the mean. The learning rate falls to 0 over the last fifth of the steps. On CUDA, matrix
    products are in TF32.
    """
    scale = float(values.shape[1] ** 0.5 / values.norm(dim=1).mean().clamp(min=1e-12))
    scaled, size, steps = values * scale, min(method.batch_size, len(values)), method.steps
    how: dict[str, Any] = {"n_features": method.n_features, "frozen": method.frozen, "seed": method.seed}
    sae = begin(scaled, method.architecture, method.options(), **how)
    training = Training(sae, size, steps, method.lr, soft=method.frozen == "soft")
    with tf32(values.is_cuda):
        for step, batch in zip(range(steps), batches(scaled, size, method.seed), strict=False):
            if step % max(1, steps // 100) == 0:
                method.progress("autoencoder", step, steps)
            training.take(step, batch)
    method.progress("autoencoder", steps, steps)
    training.finish()
    trained = for_use(sae, str(values.device))
    trained.fold_activation_norm_scaling_factor(scale)
    return trained


def begin(
    values: torch.Tensor, architecture: str, options: dict[str, Any], *, n_features: int, frozen: str | None, seed: int
) -> Any:
    """Return an autoencoder of SAELens with its initial weights for rows (n, d)."""
    with torch.random.fork_rng(devices=[values.device] if values.is_cuda else []):
        torch.manual_seed(seed)
        kind, config = get_sae_training_class(architecture)
        faster = (FastTopK,) if issubclass(kind, TopKTrainingSAE) else ()
        sae = type(kind.__name__, (*faster, kind), {})(
            config(d_in=values.shape[1], d_sae=n_features, device=str(values.device), **options)
        )
    sae.b_dec.data = values.mean(0)
    if frozen in ("decoder", "encoder"):
        getattr(sae, "W_dec" if frozen == "decoder" else "W_enc").requires_grad_(False)
    return sae


class Training:
    """The training steps of an autoencoder of SAELens: Adam on SAELens' losses, with gradients of norm 1 at most.

    A feature is dead if it has been silent for more than a tenth of all steps. The loss that revives dead features is
    computed only while there may be dead features. Python waits for the device only to check for them, every fortieth
    of the steps.

    Parameters
    ----------
    sae
        Returned by `begin`.
    size
        Rows of a batch.
    steps, lr
        Number of steps, and the learning rate before it falls.
    soft
        Whether decoder vectors are held near their start.
    """

    def __init__(self, sae: Any, size: int, steps: int, lr: float, *, soft: bool) -> None:
        device, dtype = sae.W_dec.device, sae.W_dec.dtype
        self.sae, self.steps, self.lr = sae.train(), steps, lr
        rate = torch.tensor(lr, device=device)
        self.optimizer = torch.optim.Adam(sae.parameters(), rate, fused=True, capturable=device.type == "cuda")
        self.batch = torch.zeros(size, sae.cfg.d_in, device=device, dtype=dtype)
        self.loss = torch.zeros((), device=device, dtype=dtype)
        #: (features,) steps since each one fired, and rows that it fired on
        self.silent, self.fired = torch.zeros(2, sae.cfg.d_sae, device=device)
        self.start = sae.W_dec.detach().clone() if soft else None
        self.coefficients = {name: torch.zeros((), device=device) for name in sae.get_coefficients()}
        self.window = max(1, steps // 10)
        self._look, self._reviving = max(1, self.window // 4), False
        self._times: Counter[bool] = Counter()
        self._graphs: dict[bool, torch.cuda.CUDAGraph] = {}

    def take(self, step: int, batch: torch.Tensor) -> None:
        """Take a step on a batch (size, d); afterwards `loss` is its loss."""
        self.batch.copy_(batch)
        falling = max(1, self.steps // 5)
        self.optimizer.param_groups[0]["lr"].fill_(self.lr * min(1.0, (self.steps - step) / falling))
        for name, given in self.sae.get_coefficients().items():
            value, rising = (given, 0) if isinstance(given, (int, float)) else (given.value, given.warm_up_steps)
            self.coefficients[name].fill_(value * min(1.0, step / rising if rising else 1.0))
        if step % COUNTED_STEPS == 0:
            self.fired.zero_()
        if step % self._look == 0:
            self._reviving = float(self.silent.max()) + self._look > self.window
        self._advance(partial(self._step, self._reviving), self._reviving)

    def _advance(self, work: Callable[[], None], kind: bool) -> None:
        """Do work of one kind; on CUDA, after a few times, by replaying its CUDA graph."""
        self._times[kind] += 1
        if not self.batch.is_cuda:
            work()
        elif self._times[kind] <= WARM_UP:
            warmed_up(work)
        else:
            if kind not in self._graphs:
                self._graphs[kind] = recorded(work)
            self._graphs[kind].replay()

    def _step(self, reviving: bool) -> None:
        if self.start is not None:
            hold(self.sae.W_dec, self.start)
        dead = self.silent > self.window if reviving else None
        out = self.sae.training_forward_pass(TrainStepInput(self.batch, self.coefficients, dead, 0, False))
        with torch.no_grad():
            rows = (out.feature_acts != 0).sum(0)
            self.fired += rows
            self.silent.add_(1).masked_fill_(rows > 0, 0)
            self.loss.copy_(out.loss)
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(self.sae.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def finish(self) -> None:
        """Let the autoencoder count the features that fire on a row, and the dead ones, as SAELens does."""
        if self.start is not None:
            hold(self.sae.W_dec, self.start)
        rows = len(self.batch) * ((self.steps - 1) % COUNTED_STEPS + 1)
        self.sae.cfg.metadata.l0 = float(self.fired.sum()) / rows
        self.sae.cfg.metadata.num_dead_features = int((self.silent > self.window).sum())


class FastTopK(TopKTrainingSAE):  # type: ignore[misc]
    """SAELens' TopK, BatchTopK and Matryoshka: the same losses and gradients, up to rounding, in less time.

    Nothing makes Python wait for the device. Decoder norms scale the weights; SAELens scales codes by them, of which a
    batch has 16 times as many. The largest codes are not sorted, and Matryoshka's parts are split, not sliced: the
    gradient of each slice is as large as all codes.
    """

    @property
    def unit(self) -> torch.Tensor:
        """The decoder's vectors, scaled to length 1."""
        return self.W_dec / self.W_dec.norm(dim=1, keepdim=True)

    def encode_with_hidden_pre(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the codes of rows, and the codes before the largest are chosen."""
        norm = self.W_dec.norm(dim=1)
        every = torch.addmm(self.b_enc * norm, self.process_sae_in(x), self.W_enc * norm)
        return self.activation_fn(every), every

    def get_activation_fn(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return the function that keeps the largest codes, k of each row or k per row on average."""
        each_row = not isinstance(self, BatchTopKTrainingSAE)
        return super().get_activation_fn() if each_row else partial(_largest, self.cfg.k)

    def decode(self, feature_acts: torch.Tensor) -> torch.Tensor:
        """Return the rows that codes stand for."""
        return torch.addmm(self.b_dec, feature_acts, self.unit)

    def _iterable_decode(
        self, feature_acts: torch.Tensor, include_outer_loss: bool = False
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield the widths of Matryoshka, and the rows that this many features stand for; the last if asked."""
        widths = self.cfg.matryoshka_widths
        sizes = [stop - start for start, stop in pairwise([0, *widths])]
        parts = zip(widths, feature_acts.split(sizes, 1), self.unit.split(sizes), strict=True)
        decoded = self.b_dec
        for width, codes, vectors in islice(parts, len(widths) - (not include_outer_loss)):
            decoded = torch.addmm(decoded, codes, vectors)
            yield width, decoded

    def calculate_topk_aux_loss(
        self,
        sae_in: torch.Tensor,
        sae_out: torch.Tensor,
        hidden_pre: torch.Tensor,
        dead_neuron_mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """Return the loss that revives dead features: the error of the largest dead ones in predicting the residual.

        At most d / 2 dead features are used. SAELens first asks how many are dead; here live features have codes of 0.
        """
        if dead_neuron_mask is None:
            return sae_out.new_zeros(())
        most = sae_in.shape[-1] // 2
        share = (dead_neuron_mask.sum() / max(1, most)).clamp(max=1.0)
        dead = hidden_pre.masked_fill(~dead_neuron_mask, -torch.inf)
        values, places = dead.topk(min(most, dead.shape[-1]), sorted=False)
        codes = torch.zeros_like(dead).scatter(-1, places, values.masked_fill(values.isneginf(), 0.0))
        missed = (sae_in - sae_out).detach()
        return self.cfg.aux_loss_coefficient * share * (codes @ self.unit - missed).pow(2).sum(-1).mean()

    @torch.no_grad()
    def update_topk_threshold(self, acts_topk: torch.Tensor) -> None:
        """Move the threshold of a BatchTopK autoencoder towards the least code that fires, if any does."""
        least = acts_topk.masked_fill(acts_topk <= 0, torch.inf).min().to(self.topk_threshold.dtype)
        towards = torch.where(least.isfinite(), least, self.topk_threshold)
        self.topk_threshold.lerp_(towards, self.cfg.topk_threshold_lr)


def _largest(k: float, codes: torch.Tensor) -> torch.Tensor:
    """Return the codes above 0 among the largest of a batch, k per row on average, and 0 elsewhere."""
    values, places = codes.flatten().topk(int(k * len(codes)), sorted=False)
    return torch.zeros_like(codes).flatten().scatter(-1, places, values.relu()).reshape(codes.shape)


def hold(vectors: torch.Tensor, start: torch.Tensor) -> None:
    """Rotate each vector, keeping its length, until its cosine with its start is `SOFT` or more."""
    with torch.no_grad():
        axis = torch.nn.functional.normalize(start, dim=1)
        length = vectors.norm(dim=1, keepdim=True)
        along = (vectors * axis).sum(1, keepdim=True)
        across = torch.nn.functional.normalize(vectors - along * axis, dim=1)
        held = length * (SOFT * axis + (1 - SOFT**2) ** 0.5 * across)
        vectors.copy_(torch.where(along < SOFT * length, held, vectors))


def for_use(sae: Any, device: str) -> Any:
    """Return a trained autoencoder as SAELens exports it, which is only possible through a file."""
    with tempfile.TemporaryDirectory() as folder:
        sae.save_inference_model(folder)
        return load(folder, device)


def encode(sae: Any, values: torch.Tensor) -> Any:
    """Return the codes of rows: a dense tensor on a GPU, a SciPy sparse array elsewhere."""
    with torch.no_grad():
        return in_blocks(values, sae.cfg.d_sae, sae.encode)


def decoder(sae: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return directions (features, d) and bias (d,): SAELens' decoding of a code of 1, and of no code."""
    with torch.no_grad():
        bias = sae.decode(torch.zeros(1, sae.cfg.d_sae, device=sae.device))[0]
        # Some architectures divide codes by the decoder's norms, so decode rather than read W_dec; in blocks, as the
        # identity is too large for many features.
        blocks = torch.arange(sae.cfg.d_sae, device=sae.device).split(max(1, BLOCK_CELLS // sae.cfg.d_sae))
        parts = [sae.decode(torch.nn.functional.one_hot(at, sae.cfg.d_sae).float()) - bias for at in blocks]
    return torch.cat(parts).cpu().numpy(), bias.cpu().numpy()


def load(path: str | os.PathLike[str], device: str) -> Any:
    """Read an autoencoder in SAELens' format."""
    return sae_lens.SAE.load_from_disk(os.fspath(path), device=device).eval().requires_grad_(False)
