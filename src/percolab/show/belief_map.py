"""Picture of a document over the tree of its lexicon: the exact belief in every context at each position."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from percolab.corpora.corpus import Corpus
from percolab.ground.arrays import Floats, Ints
from percolab.show import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_document(corpus: Corpus, number: int = 1 << 40) -> Figure:
    """Draw one document: the belief in every context along it, its tokens, and the floor of the loss.

    Rows of the lexicon run upwards, so a context is a band of rows, and nested contexts are nested bands. Left: the
    tree of contexts. Right: at each position, the probability, given the tokens so far, that the present context holds
    a row; dots are the tokens, brackets the true context of each segment. Below: the floor, -log P(token | tokens
    before it), which rises where a new context begins.

    Parameters
    ----------
    corpus
        Any corpus.
    number
        Number of the document.
    """
    document = corpus.documents(number, number + 1)
    tokens, k = document.tokens, int(document.lexicon[0])
    beliefs = corpus.beliefs(tokens)
    row_of = np.argsort(corpus.token_ids(k))
    with style.sheet():
        figure = style.new_figure(9.0, 5.0)
        grid = figure.add_gridspec(2, 2, width_ratios=(1, 6), height_ratios=(4, 1))
        tree, field, floor = (figure.add_subplot(grid[at]) for at in ((0, 0), (0, 1), (1, 1)))
        _draw_tree(tree, corpus, k)
        _draw_field(field, row_probability(corpus, tokens, k)[0], row_of[tokens[0]])
        _draw_segments(field, corpus, k, document.context[0], document.renewed[0])
        floor.plot(beliefs.floor[0], color=style.BLUE, drawstyle="steps-mid")
        guess = np.log(corpus.n_tokens)
        floor.axhline(guess, color=style.GREY, linewidth=0.9, linestyle=":")
        floor.set_title("Dotted: guessing uniformly", loc="right", fontsize=8)
        floor.set_ylabel("floor,\nnats")
        floor.set_xlabel("position in the document")
        for axes in (field, floor):
            axes.set_xlim(-0.5, tokens.shape[1] - 0.5)
        field.tick_params(labelbottom=False)
        field.set_title("Blue: belief in the context so far. Dots: tokens. Purple: the true context", loc="left")
    return figure


def row_probability(corpus: Corpus, tokens: NDArray[np.int32], k: int) -> Floats:
    """Return (n, T, V) the probability that the present context belongs to lexicon k and holds each of its rows."""
    contexts, forest = corpus.contexts(k), corpus.forest(k)
    inside = corpus.beliefs(tokens).inside(contexts, k)
    upper, _ = nested(corpus, k)
    alone = inside.copy()
    for c in np.flatnonzero(upper >= 0).tolist():
        alone[..., upper[c]] -= inside[..., c]
    ends = np.zeros((*inside.shape[:-1], forest.n_points + 1))
    for c, latent in enumerate(contexts.tolist()):
        start = forest.latent_start[latent]
        ends[..., start] += alone[..., c]
        ends[..., start + forest.latent_size[latent]] -= alone[..., c]
    return np.clip(np.cumsum(ends, axis=-1)[..., :-1], 0, 1)


def nested(corpus: Corpus, k: int) -> tuple[Ints, Ints]:
    """Return for each context the place of the nearest context above, -1 for none, and the number of contexts above."""
    contexts = corpus.contexts(k)
    above = corpus.forest(k).nearest_above(contexts)
    upper, level = np.where(above >= 0, np.searchsorted(contexts, above), -1), np.zeros(contexts.size, np.int64)
    for c in np.flatnonzero(upper >= 0).tolist():  # in preorder, so the context above comes first
        level[c] = level[upper[c]] + 1
    return upper, level


def _draw_tree(axes: Axes, corpus: Corpus, k: int) -> None:
    """Draw contexts as nested bars, the largest at the left."""
    forest, contexts, (_, level) = corpus.forest(k), corpus.contexts(k), nested(corpus, k)
    for c, latent in enumerate(contexts.tolist()):
        start, size = forest.latent_start[latent], forest.latent_size[latent]
        axes.bar(
            level[c], size, 0.92, bottom=start, color=style.PALETTE[level[c] % len(style.PALETTE)], alpha=0.75,
            edgecolor="white", linewidth=0.6,
        )  # fmt: skip
    axes.set_ylim(0, forest.n_points)
    axes.set_xticks(range(int(level.max()) + 1))
    axes.set_xlabel("level")
    axes.set_ylabel(f"tokens of lexicon {k}, in the order of its tree")
    axes.set_title("Contexts", loc="left")


def _draw_field(axes: Axes, probability: Floats, rows: Ints) -> None:
    """Draw the probability of every row at every position, and the row of each token."""
    length, count = probability.shape
    axes.imshow(
        probability.T, origin="lower", aspect="auto", cmap="Blues", vmin=0, vmax=1.7, interpolation="nearest",
        extent=(-0.5, length - 0.5, 0, count),
    )  # fmt: skip
    axes.plot(np.arange(length), rows + 0.5, "o", color=style.INK, markersize=2.8)
    axes.tick_params(labelleft=False)


def _draw_segments(axes: Axes, corpus: Corpus, k: int, context: NDArray[np.int32], renewed: NDArray[np.bool_]) -> None:
    """Draw a bracket around the rows of the true context of each segment."""
    from matplotlib.patches import Rectangle

    forest, first = corpus.forest(k), np.flatnonzero(renewed)
    for start, stop in zip(first, [*first[1:], context.size], strict=True):
        latent = context[start]
        corner = (start - 0.5, forest.latent_start[latent])
        size = (stop - start, forest.latent_size[latent])
        axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor=style.TRUTH, linewidth=2))
