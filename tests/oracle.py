"""The paper engine again, slow and obvious: NumPy generators, Python lists, one object per node.

Written from the description of the streams, not from the package, and used to check it on any recipe.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.random import SeedSequence, default_rng


@dataclass(eq=False)
class Node:
    number: int  # birth of a point, merge number of a latent
    children: list[Node] = field(default_factory=list)
    bond: tuple[int, int] | None = None  # birth numbers of the two points, on the sides of the children
    depth: int = 0
    z: float = 0.0
    total: float = 0.0
    vector: np.ndarray | None = None


def child(seed, *key):
    return default_rng(SeedSequence(seed, spawn_key=key))


def labels(n, p, seed):
    new, u = child(seed, 0).random(n) < p, child(seed, 1).random(n)
    found, born = [], 0
    for i in range(n):
        if new[i] or i == 0:
            found.append(born)
            born += 1
        else:
            found.append(found[int(u[i] * i)])
    return found


def sort_key(node):
    return (1, -node.number) if node.children else (0, node.number)


def grow(points, seed, c):
    """Return the latents of a cluster in the order of merging, and its leaves by birth number."""
    s = len(points)
    leaves = {p: Node(p) for p in points}
    cycle = list(points)
    child(seed, c + 2, 0).shuffle(cycle)
    us, fs = child(seed, c + 2, 1).integers(s, size=s - 1), child(seed, c + 2, 2).random(s - 1)
    blocks = [[[position], leaves[cycle[position]]] for position in range(s)]
    latents = []
    for m in range(s - 1):
        a = next(i for i, (positions, _) in enumerate(blocks) if us[m] in positions)
        b = (a + 1) % len(blocks)
        (at_a, top_a), (at_b, top_b) = blocks[a], blocks[b]
        v = (at_b[0] + int(fs[m] * len(at_b))) % s
        ends = [(top_a, cycle[us[m]]), (top_b, cycle[v])]
        ends.sort(key=lambda end: sort_key(end[0]))
        latents.append(Node(m, [end[0] for end in ends], (ends[0][1], ends[1][1])))
        blocks[a] = [at_a + at_b, latents[-1]]
        del blocks[b]
    return latents, leaves


def generate(n, d, p, seeds, one_cluster):
    """Return a dict of release-order arrays, and the bonds and latents as sets."""
    graph, embed, value = seeds
    found = labels(n, p, graph)
    members = [[i for i in range(n) if found[i] == c] for c in range(max(found) + 1)]
    C = len(members)
    vectors = child(embed, 0).normal(size=(C, d))
    origins = np.zeros((C, d)) if one_cluster else child(embed, 1).normal(size=(C, d + 2))
    if not one_cluster:
        origins = (origins / np.linalg.norm(origins, axis=1, keepdims=True))[:, :d]
    directions = child(embed, 3)
    step = n ** (-1 / 4 if one_cluster else -1 / 6)
    X, leaves, bonds, latent_rows = np.empty((n, d)), {}, set(), set()
    for c, points in enumerate(members):
        latents, mine = grow(points, graph, c) if len(points) > 1 else ([], {points[0]: Node(points[0])})
        leaves.update(mine)
        top = latents[-1] if latents else mine[points[0]]
        top.vector = vectors[c] / np.linalg.norm(vectors[c])
        zs = child(value, 0, c)
        for latent in reversed(latents):
            latent.z = zs.normal()
            latent.total += latent.z
            u = directions.normal(size=d)
            w = u - (u @ latent.vector) * latent.vector
            w /= np.linalg.norm(w)
            for node, sign in zip(latent.children, (1, -1), strict=True):
                node.vector = np.sqrt(0.5) * (latent.vector + sign * w)
                node.depth = latent.depth + 1
                node.total = latent.total
            bonds.add(frozenset(latent.bond))
            latent_rows.add((latent.bond, latent.depth, latent.z))
        place(X, points, latents, mine, top, origins[c], step, embed, c)
    order = sorted(range(n), key=lambda i: (-len(members[found[i]]), found[i], i))
    zs = child(value, 1).normal(size=n)
    y = np.empty(n)
    for row, i in enumerate(order):
        y[row] = (zs[row] + leaves[i].total) / np.sqrt(leaves[i].depth + 1)
    return {
        "X": X[order] * np.sqrt(d),
        "y": y,
        "point_id": np.array(order),
        "cluster_id": np.array([found[i] for i in order]),
        "depth": np.array([leaves[i].depth for i in order]),
        "point_z": zs,
        "bonds": bonds,
        "latents": latent_rows,
    }


def place(X, points, latents, leaves, top, origin, step, embed, c):
    """Walk along the bonds from the chosen root."""
    node, coin = top, child(embed, 2, c)
    while node.children:
        node = node.children[coin.integers(2)]
    neighbours = {p: [] for p in points}
    for latent in latents:
        a, b = latent.bond
        neighbours[a].append(b)
        neighbours[b].append(a)
    X[node.number] = origin + step * node.vector
    queue, seen = [node.number], {node.number}
    for at in queue:
        for to in neighbours[at]:
            if to not in seen:
                seen.add(to)
                X[to] = X[at] + step * leaves[to].vector
                queue.append(to)
