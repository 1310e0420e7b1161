"""Time and memory of documents and beliefs: tokens against as many integers of NumPy, beliefs against a dense filter.

    python benchmarks/documents.py [--repeats 7] [--quick] [--json out.json]

NumPy's integers are drawn on one core, in sequence; documents on all cores, each position alone, with their contexts.
Below the table, the processor time of either: on a machine that is busy with other things it says more.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import timing
from numpy.typing import NDArray

import percolab as pl
from percolab.ground import parallel
from percolab.ground.memory import readable

DENSE = 2000
"""Documents that the dense filter reads; its time is stretched to all of them."""


def corpora() -> dict[str, pl.Corpus]:
    return {
        "2,048 tokens": corpus(2048, 1, 64),
        "8,192 tokens": corpus(8192, 1, 64),
        "8,192 tokens, 2 lexicons": corpus(8192, 2, 64),
        "2,048 tokens, documents of 1,024": corpus(2048, 1, 1024),
    }


def corpus(n_tokens: int, n_lexicons: int, length: int) -> pl.Corpus:
    lexicons = [pl.Recipe(n_tokens, 2, "one_cluster", seeds=k) for k in range(n_lexicons)]
    return pl.Corpus(lexicons, length=length)


def integers(n_tokens: int, shape: tuple[int, int]) -> NDArray[np.int32]:
    return np.random.default_rng(0).integers(0, n_tokens, shape, dtype=np.int32)


def dense_filter(made: pl.Corpus, tokens: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return the floors of one lexicon: the forward recursion over all contexts, vectorised over documents."""
    forest, contexts, prior = made.forest(), made.contexts(), made.prior()
    emission = np.zeros((made.n_tokens, contexts.size))
    for c, latent in enumerate(contexts):
        rows = forest.points_of(latent)
        emission[made.token_ids()[rows], c] = 1 / (rows.stop - rows.start)
    floor, state = np.empty(tokens.shape), np.broadcast_to(prior, (len(tokens), contexts.size))
    for t in range(tokens.shape[1]):
        joint = state * emission[tokens[:, t]]
        chance = joint.sum(axis=1, keepdims=True)
        floor[:, t] = -np.log(chance[:, 0])
        state = (1 - made.renewal) * joint / chance + made.renewal * prior
    return floor


def drawn(name: str, made: pl.Corpus, n_tokens: int, repeats: int) -> timing.Row:
    shape = (n_tokens // made.length, made.length)
    peer = partial(integers, made.n_tokens, shape)
    ours = partial(made.documents, 0, shape[0])
    row = timing.compare(f"documents, {name}", ours, "Generator.integers, int32", peer, "at most 2", repeats, warm=True)
    row.detail = {"tokens": shape[0] * shape[1]}
    row.detail["cpu_ns"] = [processor_ns(call, row.detail["tokens"], repeats) for call in (ours, peer)]
    return row


def processor_ns(call: Callable[[], Any], n_tokens: int, repeats: int) -> float:
    """Return the least processor time of a call, over all threads, in nanoseconds per token."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times) / n_tokens * 1e9


def believed(name: str, made: pl.Corpus, n_tokens: int, repeats: int) -> timing.Row:
    tokens = made.documents(0, n_tokens // made.length).tokens
    few = tokens[:DENSE]
    row = timing.compare(
        f"beliefs, {name}",
        partial(made.beliefs, tokens),
        "dense filter, NumPy, one lexicon",
        partial(dense_filter, made, few),
        "3 s for 10^7",
        repeats,
        warm=True,
    )
    row.peer_s *= tokens.size / few.size
    row.ratio = row.ours_s / row.peer_s
    row.detail = {"tokens": tokens.size, "cpu_ns": [processor_ns(partial(made.beliefs, tokens), tokens.size, repeats)]}
    return row


def memory(made: pl.Corpus, n: int) -> tuple[int, int, int]:
    """Return the peak memory of making n documents, and of their beliefs too, beyond that of a few; and their bytes."""
    begin = f"import percolab as pl\nmade = pl.Corpus.from_json({made.to_json()!r})\n"
    make, read = "few = made.documents(0, {})\n".format, "beliefs = made.beliefs(few.tokens)\n"
    before = timing.peak_bytes(begin + make(9) + read)
    documents = timing.peak_bytes(begin + make(9) + read + make(n)) - before
    beliefs = timing.peak_bytes(begin + make(9) + read + make(n) + read) - before
    return documents, beliefs, sum(int(column.nbytes) for column in vars(made.documents(0, n)).values())


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--repeats", type=int, default=7)
    options.add_argument("--quick", action="store_true", help="a tenth of the sizes")
    options.add_argument("--json")
    chosen = options.parse_args()
    n_tokens = 10**6 if chosen.quick else 10**7
    rows = [drawn(name, made, n_tokens, chosen.repeats) for name, made in corpora().items()]
    rows += [believed(name, made, n_tokens, chosen.repeats) for name, made in corpora().items()]
    timing.show(f"{n_tokens:,} tokens on {parallel.thread_count(None)} cores", rows, chosen.json)
    for row in rows:
        rate, cpu = row.detail["tokens"] / row.ours_s / 1e6, row.detail["cpu_ns"]
        peers = f"; {row.peer} {cpu[1]:.2f}" if len(cpu) > 1 else ""
        print(f"{row.what}: {rate:,.0f} million tokens per second, {cpu[0]:.2f} ns of processor time each{peers}")
    made = corpora()["2,048 tokens"]
    documents, beliefs, returned = memory(made, n_tokens // 64)
    print(f"documents: {returned / (n_tokens // 64 * 64):.3g} bytes per token, {readable(returned)} in all")
    print(f"peak memory: {readable(documents)} for documents, {readable(beliefs)} with beliefs")


if __name__ == "__main__":
    main()
