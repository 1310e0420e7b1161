"""Datasets made slowly and plainly, each rule of which can be broken: what the checks are tried on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import percolab as pl
from percolab.engines.native.splitting import split


def fair_split(rng, size):
    return split(size, rng.random())


def fair_end(rng, start, size):
    return start + int(rng.integers(size))


def fair_directions(rng, v):
    """Return the directions of both sides: v turned by 45 degrees, to either side of a random plane."""
    u = rng.normal(size=v.size)
    w = u - (u @ v) * v
    w /= np.linalg.norm(w)
    return (v + w) / np.sqrt(2), (v - w) / np.sqrt(2)


def one_tree(n, rng, choose=fair_split, end=fair_end):
    """Return a forest of one cluster, split from the top down."""
    left_size, bond = np.empty(n - 1, np.int64), np.empty((n - 1, 2), np.int64)
    stack = [(0, 0, n)]
    while stack:
        latent, start, size = stack.pop()
        left = choose(rng, size)
        left_size[latent] = left
        bond[latent] = end(rng, start, left), end(rng, start + left, size - left)
        if size - left > 1:
            stack.append((latent + left, start + left, size - left))
        if left > 1:
            stack.append((latent + 1, start, left))
    return pl.Forest(np.array([0, n]), np.zeros(1, np.int64), rng.permutation(n), left_size, bond)


def directions(forest, d, rng, turn=fair_directions):
    """Return a unit vector for every point, handed down the latents."""
    children, n = forest.latent_children, forest.n_points
    below = np.empty((n + forest.n_latents, d))
    v = rng.normal(size=d)
    below[n] = v / np.linalg.norm(v)
    for latent, (left, right) in enumerate(children):
        below[left], below[right] = turn(rng, below[n + latent])
    return below[:n]


def walk(forest, vectors, step):
    """Return positions by steps along bonds from row 0."""
    n, d = vectors.shape
    neighbours = [[] for _ in range(n)]
    for a, b in forest.bond.tolist():
        neighbours[a].append(b)
        neighbours[b].append(a)
    X, seen, queue = np.zeros((n, d)), {0}, [0]
    X[0] = step * vectors[0]
    for at in queue:
        for to in neighbours[at]:
            if to not in seen:
                seen.add(to)
                X[to] = X[at] + step * vectors[to]
                queue.append(to)
    return X * np.sqrt(d)


def one_cluster(n=20_000, d=16, seed=1, *, choose=fair_split, end=fair_end, turn=fair_directions, vectors=None):
    """Return a dataset of one cluster, each rule of which may be another."""
    rng = np.random.default_rng(seed)
    recipe = pl.Recipe(n, d, "one_cluster", seeds=seed)
    forest = one_tree(n, rng, choose, end)
    vectors = directions(forest, d, rng, turn) if vectors is None else vectors(rng, n, d)
    latent_z, point_z = rng.normal(size=n - 1), rng.normal(size=n)
    y = pl.engines.targets(forest, latent_z, point_z)
    return pl.Dataset(recipe, forest, walk(forest, vectors, recipe.step), y, latent_z, point_z, {})


def chain(sizes, birth):
    """Return a forest of clusters of these sizes, the largest first, in which every latent cuts off one point."""
    start = np.concatenate([[0], np.cumsum(sizes)])
    n, C = start[-1], len(sizes)
    first = np.repeat(start[:-1], sizes)
    row = np.flatnonzero(np.arange(n) < np.repeat(start[1:], sizes) - 1)
    bond = np.column_stack([row, row + 1])
    order = np.empty(n, np.int64)
    order[np.lexsort((np.arange(n), first))] = np.arange(n)
    return pl.Forest(start, birth, order, np.ones(n - C, np.int64), bond)


def clusters(labels, create_prob=None):
    """Return a dataset with this history of attachment; only its cluster sizes mean anything."""
    n = labels.size
    size = np.bincount(labels)
    birth = np.lexsort((np.arange(size.size), -size))
    forest = chain(size[birth], birth)
    forest = replace(forest, point_id=np.argsort(np.argsort(birth)[labels], kind="stable"))
    zeros = np.zeros(n)
    recipe = pl.Recipe(n, 2, "custom" if create_prob else "distribution", create_prob, seeds=0)
    return pl.Dataset(recipe, forest, np.zeros((n, 2)), zeros, np.zeros(n - size.size), zeros, {})


def balanced(n):
    """Return the forest of one cluster in which every latent splits in two halves and joins their first points."""

    def sides(size):
        return [] if size == 1 else [size // 2, *sides(size // 2), *sides(size // 2)]

    left = np.array(sides(n))
    bare = pl.Forest(np.array([0, n]), [0], np.arange(n), left, np.zeros((n - 1, 2), np.int64))
    return replace(bare, bond=np.column_stack([bare.latent_start, bare.latent_start + left]))


def rooted(forest):
    """Return parent (-1 at the first row of each cluster) and height above it of every point, along bonds."""
    walk = forest._walk
    row_at = np.argsort(walk.place)
    return np.where(walk.above < 0, -1, row_at[walk.above])[walk.place], walk.depth[walk.place]
