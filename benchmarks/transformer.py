"""Time of training a transformer on documents, against a plain loop of torch.

    python benchmarks/transformer.py [--ways graph,compiled,both] [--members 1] [--steps 5000] [--json out.json]

With a CUDA GPU: 2,048 tokens, documents of 64, four blocks of width 256, 5,000 steps of 256 documents. Without: 256
tokens, documents of 32, two blocks of width 64, 330 steps of 64 documents.

The ways to take a step: `eager`; `graph`, a CUDA graph; `compiled`, by torch.compile; `both`, a CUDA graph of what was
compiled. Each way trains for some steps first, so that compilation is not in its time; all else is: held-out losses,
scores at the end, waiting for documents. The plain loop makes documents, then takes a step, and is scaled up from
fewer steps.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import torch
from timing import Row, show

import percolab as pl
from percolab.ground.devices import choose_device, device_name
from percolab.nn import CorpusTrainConfig, Transformer, train
from percolab.nn.training.steps import mean_loss

WAYS = {
    "eager": {"graph": False},
    "graph": {"graph": True},
    "compiled": {"graph": False, "compiled": True},
    "both": {"graph": True, "compiled": True},
}
FIRST_STEPS = 20
PLAIN_STEPS = 200
TARGET = "30 s on one H200"


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--ways", default="")
    options.add_argument("--members", type=int, default=1)
    options.add_argument("--steps", type=int)
    options.add_argument("--tokens", type=int)
    options.add_argument("--min-size", type=int, default=8)
    options.add_argument("--device", default="auto")
    options.add_argument("--json")
    chosen = options.parse_args()
    device = choose_device(chosen.device)
    large = device.type == "cuda"
    config = CorpusTrainConfig(steps=chosen.steps or 5000)
    if not large:
        config = replace(config, d_model=64, n_blocks=2, batch_size=64, steps=chosen.steps or 330, warmup=50, every=110)
    tokens = chosen.tokens or (2048 if large else 256)
    lexicon = pl.Recipe(tokens, 2, "one_cluster", seeds=1)
    corpus = pl.Corpus(lexicon, length=64 if large else 32, min_size=chosen.min_size)
    print(f"{len(corpus.contexts()):,} contexts; documents alone {documents_alone(corpus, config):.2f} s on one thread")
    theirs = plain(corpus, config, device) * chosen.members
    ways = chosen.ways.split(",") if chosen.ways else list(WAYS if large else ["eager"])
    rows = [timed(corpus, config, way, chosen.members, device, theirs) for way in ways]
    title = f"{chosen.members} transformer(s), {tokens:,} tokens, {config.steps:,} steps of {config.batch_size}"
    show(f"{title}, {device_name(device)}", rows, chosen.json)


def timed(
    corpus: pl.Corpus, config: CorpusTrainConfig, way: str, members: int, device: torch.device, theirs: float
) -> Row:
    """Train in one way, after some steps that compile."""
    given = {"seeds": range(members), "device": device, **WAYS[way]}
    start = time.perf_counter()
    train(corpus, replace(config, steps=FIRST_STEPS, every=FIRST_STEPS), **given)
    first = time.perf_counter() - start
    start = time.perf_counter()
    result = train(corpus, config, **given)[0]
    ours = time.perf_counter() - start
    waited = result.waited / result.seconds
    print(
        f"{way}: {ours:.1f} s in all, {result.seconds:.1f} s of training, {1e3 * result.seconds / config.steps:.2f} ms "
        f"per step, {waited:.1%} of it waiting for documents; excess {result.test.excess:.4f} nats above a floor of "
        f"{result.test.floor:.3f}; the first {FIRST_STEPS} steps, with compilation, took {first:.1f} s"
    )
    detail = {"excess": result.test.excess, "waited": waited, "first_s": first, "training_s": result.seconds}
    return Row(way, "plain loop", ours, theirs, ours / theirs, TARGET if device.type == "cuda" else "", detail)


def plain(corpus: pl.Corpus, config: CorpusTrainConfig, device: torch.device) -> float:
    """Return the seconds that an obvious loop takes, scaled up from fewer steps."""
    shape = (config.d_model, config.n_blocks, config.n_heads, config.expansion)
    model = Transformer(corpus.n_tokens, corpus.length, *shape, seed=0).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    steps = min(PLAIN_STEPS, config.steps)
    for step in range(steps + 5):
        if step == 5:  # libraries have set themselves up
            if device.type == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
        batch = corpus.documents(step * config.batch_size, (step + 1) * config.batch_size).tokens
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = mean_loss(model, torch.from_numpy(batch).to(device).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
    return (time.perf_counter() - start) * config.steps / steps


def documents_alone(corpus: pl.Corpus, config: CorpusTrainConfig) -> float:
    """Return the seconds that all documents of a training take to make, step by step on one thread."""
    corpus.documents(0, 1)
    start = time.perf_counter()
    for step in range(config.steps):
        corpus.documents(step * config.batch_size, (step + 1) * config.batch_size, threads=1)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
