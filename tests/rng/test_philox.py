"""Philox against its known answers and against NumPy's sibling; Gaussians against their law."""

import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

import percolab as pl
from percolab.rng import philox

# From the known-answer file of the Random123 library: counter, key, output.
KNOWN = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter, key, expected):
    words = philox.philox(*(np.uint64(word) for word in counter + key))
    assert [int(word) for word in words] == expected


def python_philox(counter, key, word_bits, multipliers, weyl):
    """Philox4 of any word size, as published, with Python's integers."""
    mask = 2**word_bits - 1
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = multipliers[0] * c[0], multipliers[1] * c[2]
        c = [(p1 >> word_bits) ^ c[1] ^ k[0], p1 & mask, (p0 >> word_bits) ^ c[3] ^ k[1], p0 & mask]
        k = [(k[0] + weyl[0]) & mask, (k[1] + weyl[1]) & mask]
    return c


def test_against_an_independent_form_that_equals_numpy_for_64_bits():
    rng = np.random.default_rng(0)
    # NumPy has Philox4x64-10: it checks the structure of the Python form, which then checks ours for 32 bits.
    for _ in range(5):
        key, counter = rng.integers(2**63, size=2, dtype=np.uint64), rng.integers(2**62, size=4, dtype=np.uint64)
        expected = np.random.Philox(counter=counter, key=key).random_raw(4)  # counts up before its first output
        start = [int(counter[0]) + 1, *map(int, counter[1:])]
        wide = 0xD2E7470EE14C6C93, 0xCA5A826395121157
        step = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
        assert python_philox(start, map(int, key), 64, wide, step) == expected.tolist()
    for _ in range(200):
        words = rng.integers(2**32, size=6, dtype=np.uint64)
        narrow = python_philox(
            map(int, words[:4]), map(int, words[4:]), 32, (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
        )
        assert [int(word) for word in philox.philox(*words)] == narrow


def test_one_draw_alone_equals_many_at_once():
    nodes = np.random.default_rng(1).integers(2**64, size=37, dtype=np.uint64)
    first, second = np.empty(37, np.uint64), np.empty(37, np.uint64)
    philox.blocks(nodes, 37, philox.SPLIT, np.uint64(9), first, second)
    for i in (0, 1, 17, 36):
        alone = np.empty(1, np.uint64), np.empty(1, np.uint64)
        philox.blocks(nodes[i : i + 1], 1, philox.SPLIT, np.uint64(9), *alone)
        assert (alone[0][0], alone[1][0]) == (first[i], second[i])


def test_purposes_and_seeds_give_different_bits():
    nodes = np.arange(1000, dtype=np.uint64)
    seen = set()
    for purpose in range(8):
        for seed in (0, 1, 2**32, 2**63):
            first, second = np.empty(1000, np.uint64), np.empty(1000, np.uint64)
            philox.blocks(nodes, 1000, purpose, np.uint64(seed), first, second)
            seen.update(first.tolist(), second.tolist())
    assert len(seen) == 8 * 4 * 2000


def test_normals_in_double_precision():
    nodes = np.arange(2_000_000, dtype=np.uint64)
    z = np.empty(nodes.size)
    philox.normals(nodes, philox.VALUE, np.uint64(5), np.empty(2 * nodes.size, np.uint64), z)
    assert stats.kstest(z, "norm").pvalue > 1e-3
    assert abs(stats.kurtosis(z)) < 5 * np.sqrt(24 / z.size)
    assert abs(np.corrcoef(z[1:], z[:-1])[0, 1]) < 5 / np.sqrt(z.size)


def test_logarithm_and_cosine_are_accurate():
    rng = np.random.default_rng(2)
    bits = rng.integers(2**64, size=(2, 50_000), dtype=np.uint64)
    bits[0, :3] = 0, 2**64 - 1, 2**11
    z = np.array([philox.normal(a, b) for a, b in bits[:, :2000].T])
    u = (np.floor(bits[0, :2000] / 2.0**11) + 0.5) * 2.0**-53
    quadrant, place = bits[1, :2000] >> np.uint64(62), (bits[1, :2000] >> np.uint64(11)) & np.uint64(2**51 - 1)
    angle = (place * 2.0**-51 - 0.5 + quadrant) * (np.pi / 2)
    np.testing.assert_allclose(z, np.sqrt(-2 * np.log(u)) * np.cos(angle), rtol=1e-12, atol=1e-14)


def test_normals_in_single_precision():
    nodes, words = np.repeat(np.arange(40_000, dtype=np.uint64), 25), np.tile(np.arange(25, dtype=np.uint64), 40_000)
    bits, z = np.empty(4_000_000, np.int32), np.empty(4_000_000, np.float32)
    philox.bits_of_nodes(nodes, words, philox.DIRECTION, np.uint64(6), bits)
    philox.normals_of_bits(bits, z)
    z = z.astype(float)
    assert stats.kstest(z, "norm").pvalue > 1e-3
    assert abs(stats.kurtosis(z)) < 5 * np.sqrt(24 / z.size)
    for lag in (1, 2, 3, 4, 100):
        assert abs(np.corrcoef(z[lag:], z[:-lag])[0, 1]) < 5 / np.sqrt(z.size)
        assert abs(np.corrcoef(z[lag:] ** 2, z[:-lag] ** 2)[0, 1]) < 5 / np.sqrt(z.size)
    assert 4.8 < np.abs(z).max() < 6.8


def test_paths_do_not_collide_or_correlate():
    frontier = np.array([philox.cluster_path(0)], np.uint64)
    for _ in range(16):
        frontier = np.array([child for path in frontier for child in philox.child_paths(path)], np.uint64)
    assert np.unique(frontier).size == 2**16
    ones = ((frontier[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)).mean(axis=0)
    assert np.abs(ones - 0.5).max() < 5 * 0.5 / 2**8


def test_no_gaussian_pair_is_zero():
    """The largest word rounds to a uniform of 1, whose logarithm is 0: a vector of two zeros has no direction."""
    bits, pair = np.array([-1, -64], np.int32), np.empty(2, np.float32)
    for first in bits:
        philox.normals_of_bits(np.array([first, 12345], np.int32), pair)
        assert np.hypot(*pair) > 1e-4
    for seed in (181, 356):  # these met such a pair
        pl.generate(pl.Recipe(100_000, 2, "one_cluster", seeds=seed))


def test_interpreted_kernels_are_refused_in_one_line():
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-c", "from percolab import generate"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    last = run.stderr.strip().splitlines()[-1]
    assert last == "ImportError: NUMBA_DISABLE_JIT must be 0, got 1: percolab's kernels work compiled only"
