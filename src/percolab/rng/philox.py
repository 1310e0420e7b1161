"""Counter-based randomness: every number is a pure function of (seed, node, purpose).

The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011; the Random123 library): ten rounds that turn a 128-bit
counter and a 64-bit key into 128 random bits. Here the key is the seed, and the counter is made of a 64-bit node, a
32-bit index and a 32-bit purpose. Nothing is drawn in sequence, so threads and machines share work without sharing
state, and any part can be made again alone.

Nodes are named by their *path*: a hash that starts from the cluster and is mixed with the side at each step down.
It depends on no seed and no size.

Words of 32 bits are held in uint64, which is what numba and vector units multiply best. Logarithm, sine and
cosine are polynomials of this module: plain IEEE operations in a fixed order, the same bits on every machine.
"""

import math

import numpy as np

from percolab.ground import intrinsics as word
from percolab.ground.compiled import inlined, kernel

# The purpose of a number: the last word of the counter. These numbers define the data of engine version 1.
CLUSTER, SPLIT, VECTOR, ORIGIN, DIRECTION, ROOT, VALUE, LABEL, GRAPH = range(9)
# Purposes of data derived from the engines': silent pairs, subsamples, rows and rotations of worlds, chance levels.
SILENT, SUBSAMPLE, WORLD_ROWS, WORLD_ROTATION, CHANCE = range(64, 69)
# Purposes of documents: the draws of a position, its further bits, a new context, the lexicon, the ids of tokens.
POSITION, FURTHER, FRESH, LEXICON, TOKEN_ID = range(69, 74)
# Purpose of the directions in which latents are shifted.
SHIFT = 74

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


# ---------------------------------------------------------------------- Philox4x32-10


@inlined
def _round(c0, c1, c2, c3, k0, k1):
    p0, p1 = _M0 * c0, _M1 * c2
    return (p1 >> _32) ^ c1 ^ k0, p1 & _LOW, (p0 >> _32) ^ c3 ^ k1, p0 & _LOW


@inlined
def philox(c0, c1, c2, c3, k0, k1):
    """Return four random 32-bit words for a counter and a key, all held in uint64.

    Everything is inlined, and the rounds are few enough to unroll: a loop around this call runs in vector registers.
    """
    for _ in range(9):
        c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return _round(c0, c1, c2, c3, k0, k1)


@inlined
def block(node, index, purpose, key):
    """Return two random uint64 for a node, an index, a purpose and a seed."""
    a, b, c, d = philox(node & _LOW, node >> _32, np.uint64(index), np.uint64(purpose), key & _LOW, key >> _32)
    return a | (b << _32), c | (d << _32)


@kernel
def blocks(nodes, count, purpose, key, first, second):
    """Fill two random uint64 for each of the first `count` nodes, as `block` with index 0."""
    k0, k1, use = key & _LOW, key >> _32, np.uint64(purpose)
    for i in range(count):
        a, b, c, d = philox(nodes[i] & _LOW, nodes[i] >> _32, np.uint64(0), use, k0, k1)
        first[i] = a | (b << _32)
        second[i] = c | (d << _32)


@kernel
def uniform(bits):
    """Return 53 of 64 random bits as a uniform in [0, 1)."""
    return (bits >> np.uint64(11)) * (1.0 / 9007199254740992.0)


# ---------------------------------------------------------------------- paths

STEP, _RIGHT = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)
_MIX_A, _MIX_B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@kernel
def mix(path):
    """Return the next path of SplitMix64 (Steele, Lea, Flood 2014): a bijection that changes half the bits."""
    z = path + STEP
    z = (z ^ (z >> np.uint64(30))) * _MIX_A
    z = (z ^ (z >> np.uint64(27))) * _MIX_B
    return z ^ (z >> np.uint64(31))


@kernel
def child_paths(path):
    """Return the paths of the left and the right child."""
    left = mix(path)
    return left, right_of(left)


@kernel
def right_of(left_path):
    """Return the path of the right child, given the path of the left child."""
    return left_path ^ _RIGHT


@kernel
def cluster_path(founder):
    """Return the path of a cluster's top from the number of the point that started it."""
    return mix(np.uint64(founder))


@kernel
def fold(a, b):
    """Return 64 bits that depend on all bits of two random words: the two halves of their product, xored."""
    return word.multiply_high(a, b) ^ (a * b)


@inlined
def fold_in_halves(a, b):
    """Return `fold`, from products of 32-bit halves: a loop around this call runs in vector registers."""
    low, high = a & _LOW, a >> _32
    first = low * (b & _LOW)
    middle = low * (b >> _32) + (first >> _32)
    other = high * (b & _LOW) + (middle & _LOW)
    return (high * (b >> _32) + (middle >> _32) + (other >> _32)) ^ ((other << _32) | (first & _LOW))


# ---------------------------------------------------------------------- Gaussians in double precision


@inlined
def log(x):
    """Return the natural logarithm of a normal positive double, to about one unit in the last place."""
    shifted = word.bits_of_double(x) - np.int64(0x3FE6A09E667F3BCD)
    exponent = np.float64(shifted >> 52)
    f = word.double_of_bits((shifted & np.int64(0xFFFFFFFFFFFFF)) + np.int64(0x3FE6A09E667F3BCD)) - 1.0
    s = f / (2.0 + f)
    z = s * s
    r = 1.531383769920937332e-01 + z * 1.479819860511658591e-01
    r = 2.857142874366239149e-01 + z * (2.222219843214978396e-01 + z * (1.818357216161805012e-01 + z * r))
    r = z * (6.666666666666735130e-01 + z * (3.999999999940941908e-01 + z * r))
    half = 0.5 * f * f
    low = s * (half + r) + exponent * 1.90821492927058770002e-10
    return exponent * 6.93147180369123816490e-01 - ((half - low) - f)


@inlined
def _cos_turn(bits):
    """Return the cosine of a uniform angle: two bits choose a quadrant, 51 the place in it."""
    quadrant = np.int64(bits >> np.uint64(62))
    t = (np.float64(np.int64((bits >> np.uint64(11)) & np.uint64(0x7FFFFFFFFFFFF))) * (2.0**-51) - 0.5) * (math.pi / 2)
    z = t * t
    s = 2.75573137070700676789e-06 + z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)
    s = t + t * z * (
        -1.66666666666666324348e-01 + z * (8.33333333332248946124e-03 + z * (-1.98412698298579493134e-04 + z * s))
    )
    c = -2.75573143513906633035e-07 + z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11)
    c = -1.38888888888741095749e-03 + z * (2.48015872894767294178e-05 + z * c)
    c = 1.0 - (0.5 * z - z * z * (4.16666666666666019037e-02 + z * c))
    size = s if quadrant & 1 else c
    return -size if (quadrant + 1) & 2 else size


@inlined
def normal(a, b):
    """Return a standard normal double from two random uint64 (Box and Muller 1958)."""
    u = (np.float64(np.int64(a >> np.uint64(11))) + 0.5) * (2.0**-53)
    return np.sqrt(-2.0 * log(u)) * _cos_turn(b)


@kernel
def normals(nodes, purpose, key, bits, out):
    """Fill one standard normal double for each node; `bits` is scratch for two words per node."""
    first, second = bits[: nodes.size], bits[nodes.size : 2 * nodes.size]
    blocks(nodes, nodes.size, purpose, key, first, second)
    for i in range(nodes.size):
        out[i] = normal(first[i], second[i])


# ---------------------------------------------------------------------- Gaussians in single precision

_ONE, _TWO = np.float32(1.0), np.float32(2.0)
_QUARTER_TURN = np.float32(math.pi / 2)
_BELOW_ONE = np.float32(1 - 2.0**-24)


@kernel
def _log_single(x):
    """Return the natural logarithm of a normal positive float32, to about one unit in the last place."""
    shifted = word.add(word.bits_of_float(x), np.int32(-0x3F3504F3))
    exponent = np.float32(word.sar(shifted, np.int32(23)))
    f = word.float_of_bits(word.add(word.and_(shifted, np.int32(0x7FFFFF)), np.int32(0x3F3504F3))) - _ONE
    z = f * f
    y = np.float32(7.0376836292e-2) * f + np.float32(-1.1514610310e-1)
    y = y * f + np.float32(1.1676998740e-1)
    y = y * f + np.float32(-1.2420140846e-1)
    y = y * f + np.float32(1.4249322787e-1)
    y = y * f + np.float32(-1.6668057665e-1)
    y = y * f + np.float32(2.0000714765e-1)
    y = y * f + np.float32(-2.4999993993e-1)
    y = y * f + np.float32(3.3333331174e-1)
    y = y * f * z + exponent * np.float32(-2.12194440e-4) - np.float32(0.5) * z
    return f + y + exponent * np.float32(0.693359375)


@kernel
def _normal_pair(a, b):
    """Return two standard normal float32 from two random 32-bit words: branch-free, so that loops vectorise."""
    u = np.float32(word.add(word.and_(word.shr(a, np.int32(1)), np.int32(0x7FFFFFFE)), np.int32(1))) * np.float32(
        2.0**-31
    )
    u = min(u, _BELOW_ONE)  # else a pair in 2^25 would be zero, which has no direction
    r = np.sqrt(-_TWO * _log_single(u))
    t = (np.float32(word.and_(b, np.int32(0x3FFFFFFF))) * np.float32(2.0**-30) - np.float32(0.5)) * _QUARTER_TURN
    z = t * t
    s = (np.float32(-1.9515295891e-4) * z + np.float32(8.3321608736e-3)) * z + np.float32(-1.6666654611e-1)
    s = s * z * t + t
    c = (np.float32(2.443315711809948e-5) * z + np.float32(-1.388731625493765e-3)) * z + np.float32(
        4.166664568298827e-2
    )
    c = c * z * z - np.float32(0.5) * z + _ONE
    quadrant = word.shr(b, np.int32(30))
    odd = word.and_(quadrant, np.int32(1)) != 0
    x, y = (s, c) if odd else (c, s)
    x_sign = word.shl(word.and_(word.add(quadrant, np.int32(1)), np.int32(2)), np.int32(30))
    y_sign = word.shl(word.and_(quadrant, np.int32(2)), np.int32(30))
    first, second = word.xor(word.bits_of_float(r * x), x_sign), word.xor(word.bits_of_float(r * y), y_sign)
    return word.float_of_bits(first), word.float_of_bits(second)


@kernel
def bits_of_nodes(nodes, indices, purpose, key, bits):
    """Fill four random 32-bit words, as int32, for each (node, index)."""
    k0, k1, use = key & _LOW, key >> _32, np.uint64(purpose)
    for i in range(nodes.size):
        a, b, c, d = philox(nodes[i] & _LOW, nodes[i] >> _32, indices[i], use, k0, k1)
        bits[4 * i] = word.low_word(a)
        bits[4 * i + 1] = word.low_word(b)
        bits[4 * i + 2] = word.low_word(c)
        bits[4 * i + 3] = word.low_word(d)


@kernel
def normals_of_bits(bits, out):
    """Turn random 32-bit words into as many standard normal float32."""
    for i in range(bits.size // 2):
        out[2 * i], out[2 * i + 1] = _normal_pair(bits[2 * i], bits[2 * i + 1])
