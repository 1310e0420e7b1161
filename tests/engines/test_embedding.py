"""Directions and walks to the last bit: kernels against the same operations written out, one after another.

NumPy rounds after every operation. A kernel that summed in another order, or fused a product with a sum, would differ.
"""

import numpy as np
import pytest

import percolab as pl
from percolab.engines import embedding
from percolab.ground.compiled import kernel

TYPES = [("float32", "float32"), ("float64", "float64"), ("float32", "float64")]
DIMS = [2, 7, 16, 33, 100]


@kernel
def product(u, v):
    return embedding.product(u, v)


@kernel
def products(u, v):
    return embedding.products(u, v)


def written_out(u, v):
    """Return u·v: 16 lanes, folded in halves, then what is left over."""
    u, whole = u.astype(v.dtype), v.size // 16 * 16
    lane = np.zeros(16, v.dtype)
    for j in range(0, whole, 16):
        lane = lane + u[j : j + 16] * v[j : j + 16]
    for width in (8, 4, 2, 1):
        lane = lane[:width] + lane[width:]
    total = lane[0]
    for j in range(whole, v.size):
        total = total + u[j] * v[j]
    return total


def draw(dim, *types, seed=0):
    rng = np.random.default_rng([dim, seed])
    return [rng.standard_normal(dim).astype(dtype) for dtype in types]


def unit(vector):
    return vector * (vector.dtype.type(1) / np.sqrt(written_out(vector, vector)))


@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_sums_are_the_lanes_written_out(types):
    for dim in range(150):
        u, v = draw(dim, *types)
        wide = u.astype(v.dtype)
        assert product(u, v) == written_out(u, v)
        assert products(u, v) == (written_out(u, v), written_out(wide, wide), written_out(v, v))


def test_the_order_of_a_sum_shows():
    """The test above could not fail if these sums were exact."""
    u, v = draw(100, "float32", "float32")
    assert written_out(u, v) != sum(u * v)
    assert written_out(u, v) != np.float32(u.astype(float) @ v)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normalise(dim, dtype):
    (vector,) = draw(dim, dtype)
    expected = unit(vector)
    embedding.normalise(vector)
    assert vector.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("closeness", [0, 3, 1000])
def test_split_direction(dim, dtype, closeness):
    left, gauss = draw(dim, dtype, dtype)
    left = unit(left)
    gauss += left.dtype.type(closeness) * left
    spent, half_root = gauss.copy(), left.dtype.type(np.sqrt(0.5))
    rounds, along, square = 0, left.dtype.type(1), left.dtype.type(0)
    while square < left.dtype.type(0.1) * along * along:
        rounds += 1
        along = written_out(left, spent)
        spent = spent - along * left
        square = written_out(spent, spent)
    assert rounds > 1 or closeness < 1000
    v, w = half_root * left, (half_root / np.sqrt(square)) * spent
    right = np.empty_like(left)
    embedding.split_direction(gauss, left, right)
    assert left.tobytes() == (v + w).tobytes()
    assert right.tobytes() == (v - w).tobytes()


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_split_far(dim, types):
    gauss, left = draw(dim, *types, seed=1)
    left, number = unit(left), left.dtype.type
    along = written_out(gauss, left) / written_out(left, left)
    wide = gauss.astype(left.dtype)
    off = written_out(wide, wide) - along * written_out(gauss, left)
    half_root = number(np.sqrt(0.5))
    scale, keep = half_root / np.sqrt(off), half_root / np.sqrt(written_out(left, left))
    on_left = (keep - scale * along) * left + scale * wide
    on_right = (keep + scale * along) * left - scale * wide
    right = np.empty_like(left)
    assert embedding.split_far(gauss, left, right)
    assert left.tobytes() == on_left.tobytes()
    assert right.tobytes() == on_right.tobytes()


def test_split_far_leaves_close_draws_alone():
    left, right = draw(30, "float32", "float32")
    before = left.copy()
    assert not embedding.split_far(np.float32(3) * left, left, right)
    assert left.tobytes() == before.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 2, 3, 50, 700])
def test_walk_along_bonds(n, dtype):
    """The obvious walk: from the entry, step to every neighbour that has no position yet."""
    forest, rng = pl.engines.split_forest(n, 3), np.random.default_rng(n)
    entry, first_row, stride = int(rng.integers(n)), 1000, 0.3
    vectors, origin = rng.standard_normal((n, 3)).astype(dtype), rng.standard_normal(3).astype(dtype)
    neighbours = [[] for _ in range(n)]
    for a, b in forest.bond.tolist():
        neighbours[a].append(b)
        neighbours[b].append(a)
    expected, came = {entry: origin + np.dtype(dtype).type(stride) * vectors[entry]}, [entry]
    for at in came:
        for to in neighbours[at]:
            if to not in expected:
                expected[to] = expected[at] + np.dtype(dtype).type(stride) * vectors[to]
                came.append(to)
    work = embedding.walk_work(n + 5)
    order, parent = embedding.plan_walk(first_row, forest.left_size, forest.bond + first_row, entry, work)
    embedding.walk(vectors, order, parent, origin, stride)
    assert vectors.tobytes() == b"".join(expected[row].tobytes() for row in range(n))
