"""Questions about a forest answered slowly and obviously: sets of rows, lists of neighbours, exact fractions."""

from __future__ import annotations

from collections import deque
from fractions import Fraction

import numpy as np

import percolab as pl


def grow_forest(sizes, seed, shape="any"):
    """Return a valid forest with clusters of these sizes: `shape` says how latents split, bonds are anywhere."""
    rng = np.random.default_rng(seed)
    sizes = sorted(sizes, reverse=True)
    left_size, bond, start = [], [], 0
    for size in sizes:
        todo = [(start, size)]
        while todo:  # the left child is handled before the right one, so latents come in preorder
            first, count = todo.pop()
            if count == 1:
                continue
            left = {"left chain": count - 1, "right chain": 1, "even": count // 2}.get(shape, rng.integers(1, count))
            if shape == "ragged":
                left = int(rng.choice([1, count - 1, rng.integers(1, count)]))
            left_size.append(int(left))
            bond.append((first + rng.integers(left), first + left + rng.integers(count - left)))
            todo += [(first + left, count - left), (first, left)]
        start += size
    edges = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
    forest = pl.Forest(edges, np.arange(len(sizes)), np.arange(start), left_size, np.array(bond, int).reshape(-1, 2))
    forest.validate()
    return forest


def rows_of(forest):
    """Return the rows of every latent, as sets, by latent."""
    found = []
    for c, (lo, hi) in enumerate(zip(forest.cluster_start[:-1], forest.cluster_start[1:], strict=True)):
        assert len(found) == lo - c
        todo = [(int(lo), int(hi - lo))]
        while todo:
            first, count = todo.pop()
            if count > 1:
                left = int(forest.left_size[len(found)])
                found.append(set(range(first, first + count)))
                todo += [(first + left, count - left), (first, left)]
    return found


def node_rows(forest):
    """Return the rows of every node, as sets, by node."""
    return [{row} for row in range(forest.n_points)] + rows_of(forest)


def parents(forest):
    """Return, for every node, the smallest latent that has all its rows and more, or -1."""
    latents = rows_of(forest)
    return [
        min((i for i, rows in enumerate(latents) if rows > mine), key=lambda i: len(latents[i]), default=-1)
        for mine in node_rows(forest)
    ]


def common_latent(latents, a, b):
    """Return the smallest of the sets of rows that has both, as its place in the list, or -1."""
    return min((i for i, rows in enumerate(latents) if {a, b} <= rows), key=lambda i: len(latents[i]), default=-1)


def bonds_from(forest, row):
    """Return the number of bonds from a row to every row it reaches."""
    neighbours = {r: [] for r in range(forest.n_points)}
    for a, b in forest.bond.tolist():
        neighbours[a].append(b)
        neighbours[b].append(a)
    found, queue = {row: 0}, deque([row])
    while queue:
        at = queue.popleft()
        for to in neighbours[at]:
            if to not in found:
                found[to] = found[at] + 1
                queue.append(to)
    return found


def cut_by_size(forest, max_size):
    """Return the nodes of at most this many rows that are in no larger one."""
    nodes = {node: rows for node, rows in enumerate(node_rows(forest)) if len(rows) <= max_size}
    whole = [node for node, rows in nodes.items() if not any(rows < other for other in nodes.values())]
    return sorted(whole, key=lambda node: min(nodes[node]))


def cut_by_number(forest, n_groups):
    """Return the nodes that are left after splitting the largest, of equal ones the first, often enough."""
    sets, above = node_rows(forest), parents(forest)
    groups = [node for node, parent in enumerate(above) if parent < 0]
    while len(groups) < n_groups:
        largest = min(groups, key=lambda node: (-len(sets[node]), min(sets[node])))
        groups.remove(largest)
        groups += [node for node, parent in enumerate(above) if forest.n_points + parent == largest]
    return sorted(groups, key=lambda node: min(sets[node]))


def concepts(forest, min_size, ratio=1, rows=None):
    """Return the concepts by their definition, counting the rows in the list."""
    rows = range(forest.n_points) if rows is None else rows
    latents = rows_of(forest)
    count = [sum(row in members for row in rows) for members in latents]
    points = [sum(row == r for row in rows) for r in range(forest.n_points)]
    chosen, above = set(), parents(forest)[forest.n_points :]
    for i in range(forest.n_latents):
        if above[i] == -1 and count[i] >= min_size:
            chosen.add(i)
        pair = forest.latent_children[i].tolist()
        sizes = [points[node] if node < forest.n_points else count[node - forest.n_points] for node in pair]
        if min(sizes) >= min_size:
            chosen |= {node - forest.n_points for node in pair if node >= forest.n_points}
    kept = []
    for i in sorted(chosen, key=lambda i: -len(latents[i])):
        above = [k for k in kept if latents[k] > latents[i]]
        nearest = min(above, key=lambda k: len(latents[k]), default=None)
        if nearest is None or count[i] <= ratio * count[nearest]:
            kept.append(i)
    return sorted(kept)


def moments(column, rows):
    """Return sum, mean and variance of some values, exactly."""
    values = [Fraction(float(column[row])) for row in rows]
    mean = sum(values) / len(values)
    return sum(values), mean, sum((value - mean) ** 2 for value in values) / len(values)
