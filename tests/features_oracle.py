"""Scores of features, slowly and obviously: sets of rows, every pair of a feature and a concept, no index arithmetic.

Written from the definitions, not from the code it checks. The one thing it borrows is which rows a permuted feature
fires on, since that is a draw and not a rule.
"""

import math
from functools import cached_property

import numpy as np
from obvious import grow_forest

import percolab as pl
from percolab.features.chance import permuted, set_key
from percolab.rng.philox import CHANCE
from percolab.worlds.samples import shuffle


class Node:
    """A latent, or a point (latent -1), with the rows of the forest below it."""

    def __init__(self, latent, rows, depth, parent):
        self.latent, self.rows, self.depth, self.parent, self.children = latent, rows, depth, parent, ()

    @property
    def sibling(self):
        return next(child for child in self.parent.children if child is not self)


def tree(forest):
    """Return the top nodes of the clusters and all latents by index, following left sizes in preorder."""
    tops, latents, unread = [], {}, iter(enumerate(forest.left_size.tolist()))
    for lo, hi in zip(forest.cluster_start[:-1].tolist(), forest.cluster_start[1:].tolist(), strict=True):
        top = Node(-1, range(lo, hi), 0, None)
        tops.append(top)
        open_nodes = [top]
        while open_nodes:
            node = open_nodes.pop()
            if len(node.rows) == 1:
                continue
            node.latent, left = next(unread)
            latents[node.latent] = node
            parts = node.rows[:left], node.rows[left:]
            node.children = tuple(Node(-1, part, node.depth + 1, node) for part in parts)
            open_nodes += reversed(node.children)
    return tops, latents


def f1(fires, members):
    hits = len(fires & members)
    return 2 * hits / (len(fires) + len(members)) if hits else 0.0


def concepts(forest, rows, min_size, ratio):
    """Return the latents that are concepts, increasing, and the codes' rows that each has."""
    tops, latents = tree(forest)
    members = {i: {at for at, row in enumerate(rows) if row in node.rows} for i, node in latents.items()}

    def count(node):
        return sum(row in node.rows for row in rows)

    found = {top.latent for top in tops if top.latent >= 0 and count(top) >= min_size}
    for node in latents.values():
        if min(count(child) for child in node.children) >= min_size:
            found |= {child.latent for child in node.children if child.latent >= 0}
    kept = []
    for i in sorted(found):
        above = nearest_above(i, kept, latents)
        if above is None or len(members[i]) <= ratio * len(members[above]):
            kept.append(i)
    return kept, {i: members[i] for i in kept}, latents


def nearest_above(latent, among, latents):
    node = latents[latent].parent
    while node is not None and node.latent not in among:
        node = node.parent
    return None if node is None else node.latent


def is_inside(inner, outer, latents):
    node = latents[inner].parent
    while node is not None and node.latent != outer:
        node = node.parent
    return node is not None


class Oracle:
    """All columns and the summary, as dicts of lists."""

    def __init__(
        self, forest, codes, rows=None, *, min_size=20, ratio=2 / 3, threshold=0.0,
        directions=None, bias=None, activations=None, draws=5, seed=0,
    ):  # fmt: skip
        self.forest, self.codes = forest, np.asarray(codes, np.float64)
        self.rows = list(range(forest.n_points)) if rows is None else [int(row) for row in rows]
        self.n, self.n_features = self.codes.shape
        limit = np.broadcast_to(np.asarray(threshold, np.float64), self.n_features)
        self.fires = [{i for i in range(self.n) if self.codes[i, f] > limit[f]} for f in range(self.n_features)]
        self.latent, self.members, self.latents = self.listed(min_size, ratio)
        self.upper = {i: nearest_above(i, self.latent, self.latents) for i in self.latent}
        self.directions = None if directions is None else np.asarray(directions, np.float64)
        self.activations = None if activations is None else np.asarray(activations, np.float64)
        self.bias = 0.0 if bias is None else np.asarray(bias, np.float64)
        self.draws, self.seed = draws, seed
        self.scores = {i: [f1(fires, self.members[i]) for fires in self.fires] for i in self.latent}
        self.best = {i: self.best_of(self.scores[i]) for i in self.latent}

    def listed(self, min_size, ratio):
        return concepts(self.forest, self.rows, min_size, ratio)

    @staticmethod
    def best_of(scores):
        return scores.index(max(scores)) if max(scores) > 0 else -1

    @cached_property
    def tables(self):
        """Everything, computed once: columns of concepts, columns of features, summary."""
        return self.concepts(), self.features(), self.summary()

    # ------------------------------------------------------------------ concepts

    def concepts(self):
        columns = {name: [getattr(self, name)(i) for i in self.latent] for name in CONCEPT_COLUMNS}
        columns["latent"] = list(self.latent)
        columns["chance"] = self.chance()
        columns["summarised"] = [i in self.counted() for i in self.latent]
        columns["upper"] = [-1 if self.upper[i] is None else self.upper[i] for i in self.latent]
        return columns

    def size(self, i):
        return len(self.members[i])

    def depth(self, i):
        return self.latents[i].depth

    def fom(self, i):
        node = self.latents[i]
        while node.parent is not None:
            node = node.parent
        return len(self.latents[i].rows) / math.sqrt(len(node.rows))

    def best_feature(self, i):
        return self.best[i]

    def f1(self, i):
        return max(self.scores[i])

    def permuted(self, draw, feature):
        in_leaf_order = sorted(range(self.n), key=lambda i: (self.rows[i], i))
        count = len(self.fires[feature])
        return {in_leaf_order[p] for p in permuted(count, self.n, seed=self.seed, draw=draw, feature=feature).tolist()}

    def chance(self):
        means = dict.fromkeys(self.latent, 0.0)
        for draw in range(self.draws):
            shuffled = [self.permuted(draw, f) for f in range(self.n_features)]
            for i in self.latent:
                means[i] += max(f1(fires, self.members[i]) for fires in shuffled) / self.draws
        return list(means.values())

    def union(self, i):
        if self.best[i] < 0:
            return 0, 0.0
        taken, union, reached = 1, set(self.fires[self.best[i]]), self.f1(i)
        while True:
            scores = [f1(union | fires, self.members[i]) for fires in self.fires]
            best = scores.index(max(scores))
            if scores[best] - reached < 0.03:
                return taken, reached
            taken, union, reached = taken + 1, union | self.fires[best], scores[best]

    def k(self, i):
        return self.union(i)[0]

    def f1_union(self, i):
        return self.union(i)[1]

    def absorption_edge(self, i):
        above = self.upper[i]
        if above is None or self.best[above] < 0:
            return math.nan
        fires, inner = self.fires[self.best[above]], self.members[i]
        outer = self.members[above] - inner
        return len(fires & outer) / len(outer) - len(fires & inner) / len(inner)

    def absorbers(self, i):
        smaller = [j for j in self.latent if is_inside(j, i, self.latents) and 2 * self.size(j) <= self.size(i)]
        return [
            f for f in range(self.n_features) if f != self.best[i] and any(self.scores[j][f] >= 0.5 for j in smaller)
        ]

    def silent(self, i):
        return self.members[i] - self.fires[self.best[i]]

    def absorption(self, i):
        if self.f1(i) < 0.5:
            return math.nan
        absorbed = {row for row in self.silent(i) if any(row in self.fires[f] for f in self.absorbers(i))}
        return len(absorbed) / self.size(i)

    def absorption_null(self, i):
        if self.f1(i) < 0.5:
            return math.nan
        absorbing = {row for row in self.members[i] if any(row in self.fires[f] for f in self.absorbers(i))}
        return len(self.silent(i)) / self.size(i) * len(absorbing) / self.size(i)

    def absorption_carried(self, i):
        u = self.direction(i)
        if self.f1(i) < 0.5 or u is None:
            return math.nan
        count = 0
        for row in self.silent(i):
            parts = self.codes[row] * (self.directions @ u)
            absorbing = [f for f in self.absorbers(i) if row in self.fires[f]]
            count += parts.sum() > 0 and any(parts[f] >= 0.4 * parts.sum() for f in absorbing)
        return count / self.size(i)

    def direction(self, i):
        other = self.others(i)
        if self.activations is None or not other:
            return None
        return self.activations[sorted(self.members[i])].mean(0) - self.activations[other].mean(0)

    def others(self, i):
        if self.latents[i].parent is None:
            return []
        return [at for at, row in enumerate(self.rows) if row in self.latents[i].sibling.rows]

    def cosine(self, i):
        u = self.direction(i)
        if u is None or self.best[i] < 0:
            return math.nan
        d = self.directions[self.best[i]]
        return d @ u / (np.linalg.norm(d) * np.linalg.norm(u))

    def recovering(self, i):
        return sum(score > 0.8 for score in self.scores[i])

    def counted(self):
        kept = []
        for i in self.latent:
            above = nearest_above(i, kept, self.latents)
            if above is None or self.size(i) <= 2 / 3 * self.size(above):
                kept.append(i)
        return [i for i in kept if self.size(i) < self.n]

    # ------------------------------------------------------------------ features

    def features(self):
        columns = {name: [] for name in FEATURE_COLUMNS}
        for f, fires in enumerate(self.fires):
            scores = [self.scores[i][f] for i in self.latent]
            at = self.best_of(scores)
            counted = [self.scores[i][f] for i in self.counted()]
            hits = len(fires & self.members[self.latent[at]]) if at >= 0 else math.nan
            line = {
                "feature": f,
                "fired": len(fires),
                "dead": not fires,
                "dense": len(fires) > self.n / 2,
                "latent": self.latent[at] if at >= 0 else -1,
                "f1": max(scores),
                "precision": hits / len(fires) if at >= 0 else math.nan,
                "recall": hits / self.size(self.latent[at]) if at >= 0 else math.nan,
                "purity": max(counted, default=0.0),
                "recovered": sum(score > 0.8 for score in counted),
            }
            for name, value in line.items():
                columns[name].append(value)
        return columns

    # ------------------------------------------------------------------ summary

    def summary(self):
        counted = self.counted()
        live = [f for f in range(self.n_features) if self.fires[f]]
        features = self.features()
        chance = dict(zip(self.latent, self.chance(), strict=True))
        edges = [i for i in counted if self.upper[i] is not None and self.size(self.upper[i]) < self.n]
        found = {
            "concepts": len(counted),
            "recovery": mean(self.f1(i) for i in counted),
            "recovered": mean(self.f1(i) > 0.8 for i in counted),
            "chance": mean(chance[i] for i in counted),
            "splitting": mean(self.k(i) for i in counted if self.k(i) > 0),
            "split": mean(self.k(i) > 1 for i in counted if self.f1_union(i) > 0.8),
            "f1_union": mean(self.f1_union(i) for i in counted),
            "absorption_edge": mean(self.absorption_edge(i) for i in edges),
            "absorption": mean(self.absorption(i) for i in counted),
            "absorption_null": mean(self.absorption_null(i) for i in counted),
            "absorption_carried": mean(self.absorption_carried(i) for i in counted),
            "cosine": mean(self.cosine(i) for i in counted),
            "features_per_concept": mean(self.recovering(i) for i in counted if self.recovering(i) > 0),
            "purity": mean(features["purity"][f] for f in live),
            "pure": mean(features["purity"][f] > 0.8 for f in live),
            "concepts_per_feature": mean(features["recovered"][f] for f in live if features["recovered"][f] > 0),
            "features": self.n_features,
            "dead": self.n_features - len(live),
            "dense": sum(features["dense"]),
            "l0": sum(len(fires) for fires in self.fires) / self.n,
        }
        if self.activations is not None:
            rest = self.activations - self.codes @ self.directions - self.bias
            spread = self.activations - self.activations.mean(0)
            found["explained_variance"] = 1 - (rest**2).sum() / (spread**2).sum()
        return found


class DocumentOracle(Oracle):
    """The same for positions of documents: a position is in a context if all rows of its context are rows of that."""

    def __init__(
        self, corpus, codes, rows=None, factor=0, *, documents, about="context", truth="believed", **options
    ):  # fmt: skip
        self.corpus, self.factor, self.documents, self.about, self.truth = corpus, factor, documents, about, truth
        n, length = documents.tokens.shape
        self.length = length
        places = range(n * length) if rows is None else rows
        codes = np.asarray(codes).reshape(-1, np.asarray(codes).shape[-1])
        if options.get("activations") is not None:
            options["activations"] = options["activations"].reshape(len(codes), -1)
        super().__init__(corpus.forest(factor), codes, places, **options)

    @cached_property
    def beliefs(self):
        return self.corpus.beliefs(self.documents.tokens)

    def held(self, at, latents):
        """Return what a row of the codes has: the rows of its context in the forest, or of its token; None for none."""
        i, t = divmod(self.rows[at], self.length)
        if self.about == "token":
            [row] = np.flatnonzero(self.corpus.token_ids(self.factor) == self.documents.tokens[i, t])
            return {int(row)}
        lexicon, context = self.documents.lexicon[i], self.documents.context[i, t]
        if self.truth == "believed":
            lexicon, context = self.beliefs.believed_lexicon[i, t], self.beliefs.believed[i, t]
        return set(latents[int(context)].rows) if lexicon == self.factor else None

    def listed(self, min_size, ratio):
        _, latents = tree(self.forest)
        held = [self.held(at, latents) for at in range(self.n)]
        self.every = {
            int(i): {at for at, rows in enumerate(held) if rows is not None and rows <= set(latents[int(i)].rows)}
            for i in self.corpus.contexts(self.factor)
        }
        kept = []
        for i, members in self.every.items():
            above = nearest_above(i, kept, latents)
            room = math.inf if above is None else len(self.every[above])
            if len(members) >= min_size and len(members) <= ratio * room and len(members) < room:
                kept.append(i)
        return kept, {i: self.every[i] for i in kept}, latents

    def permuted(self, draw, feature):
        """Return the rows that a feature fires on when its documents are laid in another order along all rows."""
        by_document = sorted(range(self.n), key=lambda at: (self.rows[at], at))
        documents = sorted({self.rows[at] // self.length for at in range(self.n)})
        order = np.empty(len(documents), np.int64)
        shuffle(order, np.uint64(set_key(np.uint64(self.seed), draw, feature)), CHANCE, np.uint64(self.seed))
        moved = [at for d in order.tolist() for at in by_document if self.rows[at] // self.length == documents[d]]
        return {at for at, source in zip(by_document, moved, strict=True) if source in self.fires[feature]}

    def others(self, i):
        above = nearest_above(i, self.every, self.latents)
        return [] if above is None else sorted(self.every[above] - self.every[i])


CONCEPT_COLUMNS = (
    "size", "depth", "fom", "best_feature", "f1", "k", "f1_union", "absorption", "absorption_null",
    "absorption_edge", "absorption_carried", "cosine", "recovering",
)  # fmt: skip
FEATURE_COLUMNS = (
    "feature", "fired", "dead", "dense", "latent", "f1", "precision", "recall", "purity", "recovered",
)  # fmt: skip


def mean(values):
    known = [float(value) for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def differing(score, oracle):
    """Return the names of the columns and summaries in which a score differs from the oracle.

    Counts and F1 must be equal to the bit; means over draws and what comes from sums of floats, to rounding.
    """
    wrong = []
    of_concepts, of_features, summary = oracle.tables
    for title, table, columns in (("concepts", score.concepts, of_concepts), ("features", score.features, of_features)):
        assert set(table.columns) == set(columns)
        for name, values in columns.items():
            loose = name in ("chance", "cosine", "absorption_null", "fom")
            if len(values) != len(table) or not _equal(table[name].to_numpy(), values, 1e-9 if loose else 0.0):
                wrong.append(f"{title}.{name}")
    assert set(summary) == set(score.summary)
    wrong += [f"summary.{name}" for name in summary if not _equal([score.summary[name]], [summary[name]], 1e-9)]
    return wrong


def _equal(found, wanted, tolerance):
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    return np.allclose(found, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)


# ---------------------------------------------------------------------- what to compare on


def structured_codes(forest, rows, n_features, rng):
    """Features of all kinds: latents with misses and noise, absorbed ones, random rows, copies, dead ones."""
    columns = []
    by_size = np.argsort(-forest.latent_size)

    def rows_of(latent):
        part = forest.points_of(int(latent))
        return (rows >= part.start) & (rows < part.stop)

    def a_latent():
        return by_size[int(by_size.size * rng.random() ** 3)]

    while len(columns) < n_features:
        here, kind = rows_of(a_latent()), rng.integers(8)
        if kind == 0:
            columns.append(rng.random(rows.size) < rng.random())
        elif kind == 1:
            columns.append(here & (rng.random(rows.size) < 0.8))
        elif kind == 2:
            columns.append(here)
        elif kind == 3:
            columns.append(here ^ (rng.random(rows.size) < 0.05))
        elif kind == 4 and columns:
            columns.append(columns[-1].copy())
        elif kind == 5 and rng.random() < 0.5:
            columns.append(np.zeros(rows.size, np.bool_))
        else:  # a latent whose feature is silent where that of one inside fires
            latent = a_latent()
            part = forest.points_of(int(latent))
            inside = np.flatnonzero(
                (forest.latent_start >= part.start)
                & (forest.latent_start + forest.latent_size <= part.stop)
                & (2 * forest.latent_size <= part.stop - part.start)
            )
            if inside.size:
                inner = rows_of(inside[np.argmax(forest.latent_size[inside])])
                columns += [rows_of(latent) & ~(inner & (rng.random(rows.size) < 0.7)), inner]
    fires = np.column_stack(columns[:n_features])
    fires[0, 0] = True
    return (fires * rng.integers(1, 4, fires.shape)).astype(np.float32)


def scenario(seed, n=150):
    """Return a forest, codes, rows and options: clusters, subsets, repeats, thresholds and decoders in turn."""
    rng = np.random.default_rng(seed)
    forest = pl.generate(pl.Recipe(n, 2, ["one_cluster", "distribution"][seed % 2], seeds=seed)).forest
    rows = None if seed % 3 == 0 else rng.integers(0, n, rng.integers(n // 2, n + n // 2))
    places = np.arange(n) if rows is None else rows
    n_features = int(rng.integers(3, 14))
    codes = structured_codes(forest, places, n_features, rng)
    options = {
        "min_size": int(rng.integers(2, 6)),
        "ratio": [1, 2 / 3, 0.5][seed % 3],
        "threshold": rng.integers(0, 3, n_features) if seed % 5 == 4 else 0.0,
        "draws": 2,
        "seed": seed,
    }
    if seed % 4:
        options["directions"] = rng.normal(size=(n_features, 3))
        options["activations"] = rng.normal(size=(places.size, 3)).astype(np.float32) + 5
        options["bias"] = rng.normal(size=3) if seed % 4 > 1 else None
    return forest, codes, rows, options


SHAPES = ["any", "even", "ragged", "left chain"]


def document_scenario(seed):
    """Return a corpus, codes, rows and options: lexicons, truths, tokens, subsets and decoders in turn."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(12, 40))
    sizes = [size] if seed % 3 else [size - 6, 6]
    lexicons = [grow_forest(sizes, seed * 10 + k, SHAPES[(seed + k) % 4]) for k in range(1 + seed % 2)]
    corpus = pl.Corpus(lexicons, length=int(rng.integers(2, 12)), renewal=0.2, min_size=2 + seed % 4, seed=seed)
    documents, factor = corpus.documents(5, 19 if seed % 7 else 8), seed % len(lexicons)
    n_rows = documents.tokens.size
    rows = None if seed % 4 == 0 else rng.integers(0, n_rows, rng.integers(n_rows // 2, n_rows))
    asked = {
        "documents": documents,
        "about": ["context", "token"][seed % 5 == 4],
        "truth": ["believed", "true"][seed // 2 % 2],
    }
    n_features = int(rng.integers(3, 12))
    codes = position_codes(
        DocumentOracle(corpus, np.ones((n_rows, 1)), None, factor, **asked, min_size=2), n_features, rng
    )
    codes = codes.reshape(*documents.tokens.shape, -1) if rows is None else codes[rows]
    options = {
        **asked,
        "min_size": int(rng.integers(2, 6)),
        "ratio": [1, 2 / 3, 0.5][seed % 3],
        "draws": 2,
        "seed": seed,
    }
    if seed % 3:
        options["directions"] = rng.normal(size=(n_features, 3))
        options["activations"] = rng.normal(size=(*codes.shape[:-1], 3)).astype(np.float32) + 5
    return (corpus, codes, rows, factor), options


def position_codes(known, n_features, rng):
    """Features of positions: contexts with misses and noise, absorbed ones, runs, all together."""
    columns, sizes = [], {i: len(rows) for i, rows in known.every.items()}

    def rows_of(latent):
        return np.isin(np.arange(known.n), list(known.every[latent]))

    while len(columns) < n_features:
        outer = int(rng.choice(list(sizes)))
        here, noise = rows_of(outer), rng.random(known.n)
        inside = [i for i in sizes if is_inside(i, outer, known.latents) and 0 < 2 * sizes[i] <= sizes[outer]]
        runs = np.repeat(rng.random(-(-known.n // 5)) < 0.3, 5)[: known.n]
        kinds = [here, here & (noise < 0.8), here ^ (noise < 0.1), runs, here | runs]
        columns.append(kinds[rng.integers(len(kinds))])
        if inside:
            inner = rows_of(max(inside, key=sizes.get))
            columns += [here & ~(inner & (noise < 0.7)), inner]
    fires = np.column_stack(columns[:n_features])
    fires[0, 0] = True
    return (fires * rng.integers(1, 4, fires.shape)).astype(np.float32)
