"""Compiled SeedSequence and PCG64 against NumPy's."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from percolab.rng import pcg64

SEEDS = [0, 1, 20_000, 2**32 - 1, 2**32, 2**64 - 1, 2**127 + 5, 2**200 + 7]
KEYS = [(0,), (7,), (2**32 - 1,), (3, 9), (2, 0, 1)]


def pair(seed, key):
    """Return NumPy's generator and our stream for the same seed and spawn key."""
    pool = pcg64.root_pool(seed)
    for word in key:
        pool = pcg64.spawn(pool, word)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key)), pcg64.make_stream(pool)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("key", KEYS)
def test_seeding(seed, key):
    numpy_rng, stream = pair(seed, key)
    state = numpy_rng.bit_generator.state["state"]
    assert (int(stream[0]) << 64 | int(stream[1]), int(stream[2]) << 64 | int(stream[3])) == (
        state["state"],
        state["inc"],
    )
    assert [int(pcg64.next_uint64(stream)) for _ in range(5)] == numpy_rng.bit_generator.random_raw(5).tolist()


@given(st.integers(0, 2**64 - 1), st.lists(st.integers(2, 2**32 - 1), min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_integers_interleaved_with_uniforms(seed, bounds):
    numpy_rng, stream = pair(seed, (4,))
    for bound in bounds:
        assert pcg64.integer_below(stream, bound) == numpy_rng.integers(bound)
        assert [pcg64.integer_below(stream, bound) for _ in range(3)] == numpy_rng.integers(bound, size=3).tolist()
        assert pcg64.random(stream) == numpy_rng.random()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 64, 65, 1000, 70_000])
def test_shuffle_is_that_of_a_list(size):
    numpy_rng, stream = pair(3, (1,))
    items, expected = np.arange(size), list(range(size))
    pcg64.shuffle(stream, items)
    numpy_rng.shuffle(expected)
    assert items.tolist() == expected
    assert pcg64.random(stream) == numpy_rng.random()


def test_normals_to_the_bit():
    # Ten million draws pass every layer of the ziggurat, its edges (1%) and its tail (0.03%) thousands of times.
    numpy_rng, stream = pair(12, ())
    drawn = np.empty(10_000_000)
    pcg64.normals(stream, drawn)
    expected = numpy_rng.normal(size=drawn.size)
    tail = np.abs(expected) > pcg64._TAIL
    assert tail.sum() > 2000
    np.testing.assert_array_equal(drawn[~tail], expected[~tail])
    # NumPy takes a logarithm from the C library there, which may be off by one in the last place.
    np.testing.assert_array_max_ulp(drawn[tail], expected[tail], maxulp=1)


def test_the_tail_depends_on_no_library():
    u = np.random.default_rng(0).random(10_000)
    ours = np.array([pcg64._log_of_rest(x) for x in u])
    np.testing.assert_array_max_ulp(ours, np.log1p(-u), maxulp=1)
    assert pcg64._log_of_rest(0.0) == 0
    drawn = np.empty(1_000_000)
    pcg64.normals(pair(1, ())[1], drawn)
    assert hashlib.sha256(drawn.tobytes()).hexdigest()[:16] == "b4ea4820157f3173"


@pytest.mark.parametrize("count", [0, 1, 4095, 4096, 4097, 100_000])
def test_skipping(count):
    numpy_rng, stream = pair(5, (2,))
    pcg64.skip_normals(stream, count)
    numpy_rng.normal(size=count)
    assert pcg64.random(stream) == numpy_rng.random()
