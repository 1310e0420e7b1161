"""NumPy's `SeedSequence` and `PCG64`, inside compiled code, to the bit.

The published datasets draw from one small generator per cluster. Making 666,000 of them in Python would cost more
than the data, so the two algorithms, whose outputs NumPy guarantees, are written here as numba functions:

- `SeedSequence` (M. E. O'Neill's seed_seq design): a pool of four 32-bit words into which entropy words are hashed.
  Spawning a child appends one word, its spawn key, so a child's pool follows from its parent's.
- PCG64 (O'Neill 2014, XSL-RR 128/64): a 128-bit LCG with a xor-and-rotate output.
- NumPy's `random`, `integers` (Lemire 2019), `shuffle` of a list, and `normal` (256-layer ziggurat, Doornik 2005).
  One normal in 4,000 lies in the tail, for which NumPy takes a logarithm from the C library. Its last bit depends on
  library and processor, so here it is written out.

A *pool* is a tuple (w0, w1, w2, w3, hash constant). A *stream* is a uint64 array: state and increment (high, low
words), whether a half of a 64-bit output is waiting, and that half.
"""

from __future__ import annotations

import math
from importlib.resources import as_file, files

import numpy as np

from percolab.ground.compiled import kernel
from percolab.ground.intrinsics import bits_of_double, double_of_bits, multiply_high

Pool = tuple[np.uint64, np.uint64, np.uint64, np.uint64, np.uint64]

STREAM_WORDS = 6

_LOW32 = np.uint64(0xFFFFFFFF)
_INIT_A, _MULT_A = 0x43B0D7E5, 0x931E8875
_INIT_B, _MULT_B = np.uint64(0x8B51F9DD), np.uint64(0x58F38DED)
_MIX_L, _MIX_R = np.uint64(0xCA01F9DD), np.uint64(0x4973F715)
_POOL_WORDS = 4

_LCG_HIGH, _LCG_LOW = np.uint64(0x2360ED051FC65DA4), np.uint64(0x4385DF649FCCF645)
_MANTISSA = np.uint64(2**52 - 1)
_TAIL = 3.6541528853610087963519472518  # where the ziggurat's base layer ends
_ONE = np.uint64(1)


# The layer tables NumPy uses; they carry its rounding, so they are data rather than a formula.
with as_file(files("percolab.rng") / "ziggurat.npz") as _path, np.load(_path) as _tables:
    _THRESHOLD, _WIDTH, _DENSITY = (_tables[name] for name in ("threshold", "width", "density"))


# ---------------------------------------------------------------------- seeding


def root_pool(seed: int) -> Pool:
    """Return the pool of ``SeedSequence(seed)``, ready to spawn from."""
    extra_words = max(0, -(-seed.bit_length() // 32) - _POOL_WORDS)
    hashed = _POOL_WORDS**2 + _POOL_WORDS * extra_words
    constant = _INIT_A * pow(_MULT_A, hashed, 2**32) % 2**32
    w0, w1, w2, w3 = (np.uint64(word) for word in np.random.SeedSequence(seed).pool)
    return w0, w1, w2, w3, np.uint64(constant)


@kernel
def _absorb(word, key, constant):
    """Hash one key into one word of a pool."""
    hashed = (key ^ constant) & _LOW32
    constant = (constant * np.uint64(_MULT_A)) & _LOW32
    hashed = (hashed * constant) & _LOW32
    hashed ^= hashed >> np.uint64(16)
    mixed = (_MIX_L * word - _MIX_R * hashed) & _LOW32
    return mixed ^ (mixed >> np.uint64(16)), constant


@kernel
def spawn(pool, key):
    """Return the pool of the child with this spawn key, which must be below 2^32."""
    w0, w1, w2, w3, constant = pool
    word = np.uint64(key)
    w0, constant = _absorb(w0, word, constant)
    w1, constant = _absorb(w1, word, constant)
    w2, constant = _absorb(w2, word, constant)
    w3, constant = _absorb(w3, word, constant)
    return w0, w1, w2, w3, constant


@kernel
def _squeeze(word, constant):
    """Hash one word of a pool into one 32-bit word of output."""
    value = (word ^ constant) & _LOW32
    constant = (constant * _MULT_B) & _LOW32
    value = (value * constant) & _LOW32
    return value ^ (value >> np.uint64(16)), constant


@kernel
def seed_stream(pool, stream):
    """Set `stream` to the state of ``PCG64`` seeded from this pool."""
    constant = _INIT_B
    parts = (pool[0], pool[1], pool[2], pool[3])
    for i in range(4):
        low, constant = _squeeze(parts[(2 * i) % 4], constant)
        high, constant = _squeeze(parts[(2 * i + 1) % 4], constant)
        stream[i] = low | (high << np.uint64(32))
    start_high, start_low, inc_high, inc_low = stream[0], stream[1], stream[2], stream[3]
    inc_high = (inc_high << _ONE) | (inc_low >> np.uint64(63))
    inc_low = (inc_low << _ONE) | _ONE
    low = inc_low + start_low
    high = inc_high + start_high + np.uint64(low < inc_low)
    stream[0], stream[1] = _step(high, low, inc_high, inc_low)
    stream[2], stream[3] = inc_high, inc_low
    stream[4], stream[5] = np.uint64(0), np.uint64(0)


@kernel
def make_stream(pool):
    """Return a new stream seeded from this pool."""
    stream = np.empty(STREAM_WORDS, np.uint64)
    seed_stream(pool, stream)
    return stream


# ---------------------------------------------------------------------- raw output


@kernel
def _step(high, low, inc_high, inc_low):
    """Advance the 128-bit LCG."""
    product = low * _LCG_LOW
    new_low = product + inc_low
    new_high = multiply_high(low, _LCG_LOW) + high * _LCG_LOW + low * _LCG_HIGH + inc_high
    return new_high + np.uint64(new_low < product), new_low


@kernel
def _output(high, low):
    """XSL-RR: fold the state and rotate it by its top six bits."""
    folded = high ^ low
    turn = high >> np.uint64(58)
    return (folded >> turn) | (folded << ((np.uint64(64) - turn) & np.uint64(63)))


@kernel
def next_uint64(stream):
    """Return the next 64 bits."""
    stream[0], stream[1] = _step(stream[0], stream[1], stream[2], stream[3])
    return _output(stream[0], stream[1])


@kernel
def _next_uint32(stream):
    """Return the next 32 bits: the low half of an output, then its high half."""
    if stream[4] != 0:
        stream[4] = np.uint64(0)
        return stream[5]
    bits = next_uint64(stream)
    stream[4] = _ONE
    stream[5] = bits >> np.uint64(32)
    return bits & _LOW32


# ---------------------------------------------------------------------- distributions


@kernel
def random(stream):
    """Return a uniform of 53 bits in [0, 1), as ``Generator.random()``."""
    return (next_uint64(stream) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@kernel
def integer_below(stream, bound):
    """Return a uniform integer in [0, bound), as ``Generator.integers(bound)``, for 2 ≤ bound < 2^32."""
    span = np.uint64(bound)
    scaled = _next_uint32(stream) * span
    if (scaled & _LOW32) < span:
        threshold = (np.uint64(0x100000000) - span) % span
        while (scaled & _LOW32) < threshold:
            scaled = _next_uint32(stream) * span
    return np.int64(scaled >> np.uint64(32))


@kernel
def shuffle(stream, items):
    """Shuffle in place, as ``Generator.shuffle`` shuffles a list: Fisher-Yates, with indices by masked rejection."""
    mask = np.uint64(1)
    while mask < items.size:
        mask = (mask << _ONE) | _ONE
    for i in range(items.size - 1, 0, -1):
        while (mask >> _ONE) >= np.uint64(i):
            mask >>= _ONE
        j = np.int64(_next_uint32(stream) & mask)
        while j > i:
            j = np.int64(_next_uint32(stream) & mask)
        items[i], items[j] = items[j], items[i]


@kernel
def _uniform_of(high, low):
    return (_output(high, low) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@kernel
def _log_of_rest(u):
    """Return ln(1 - u) for a uniform u, to about one unit in the last place; 1 - u is exact."""
    shifted = bits_of_double(1.0 - u) - np.int64(0x3FE6A09E00000000)
    exponent = np.float64(shifted >> 52)
    f = double_of_bits((shifted & np.int64(0xFFFFFFFFFFFFF)) + np.int64(0x3FE6A09E00000000)) - 1.0
    half = 0.5 * f * f
    s = f / (2.0 + f)
    z = s * s
    z2 = z * z
    z4 = z2 * z2
    r = z * 6.666666666666735130e-01 + z2 * (3.999999999940941908e-01 + z * 2.857142874366239149e-01)
    r += z4 * (2.222219843214978396e-01 + z * 1.818357216161805012e-01)
    r += (z4 * z2) * (1.531383769920937332e-01 + z * 1.479819860511658591e-01)
    low = s * (half + r) + exponent * 1.90821492927058770002e-10
    return exponent * 6.93147180369123816490e-01 - ((half - low) - f)


@kernel
def _ziggurat_edge(layer, magnitude, x, high, low, inc_high, inc_low):
    """Finish a draw that left the layer's inner rectangle (1% do); return its acceptance, its value, and the state."""
    if layer != 0:
        high, low = _step(high, low, inc_high, inc_low)
        height = (_DENSITY[layer - 1] - _DENSITY[layer]) * _uniform_of(high, low) + _DENSITY[layer]
        return height < math.exp(-0.5 * x * x), x, high, low
    while True:
        high, low = _step(high, low, inc_high, inc_low)
        beyond = -(1.0 / _TAIL) * _log_of_rest(_uniform_of(high, low))
        high, low = _step(high, low, inc_high, inc_low)
        height = -_log_of_rest(_uniform_of(high, low))
        if height + height > beyond * beyond:
            negative = (magnitude >> np.uint64(8)) & _ONE
            return True, -(_TAIL + beyond) if negative else _TAIL + beyond, high, low


@kernel
def normals(stream, out):
    """Fill `out` with standard normals, as ``Generator.normal(size=out.size)``."""
    high, low, inc_high, inc_low = stream[0], stream[1], stream[2], stream[3]
    for i in range(out.size):
        while True:
            high, low = _step(high, low, inc_high, inc_low)
            bits = _output(high, low)
            layer = bits & np.uint64(0xFF)
            magnitude = (bits >> np.uint64(9)) & _MANTISSA
            sign = 1.0 - 2.0 * np.int64((bits >> np.uint64(8)) & _ONE)
            x = np.int64(magnitude) * _WIDTH[layer] * sign
            if magnitude < _THRESHOLD[layer]:
                break
            accepted, x, high, low = _ziggurat_edge(layer, magnitude, x, high, low, inc_high, inc_low)
            if accepted:
                break
        out[i] = x
    stream[0], stream[1] = high, low


@kernel
def skip_normals(stream, count):
    """Advance `stream` past `count` standard normals without keeping them."""
    scratch = np.empty(min(count, 4096))
    while count > 0:
        block = min(count, scratch.size)
        normals(stream, scratch[:block])
        count -= block
