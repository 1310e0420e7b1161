"""Instructions that numba has no name for: wide products, bit casts, 32-bit and 106-bit arithmetic, prefetches."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from percolab.ground.compiled import kernel

_KEEP, _DATA = 3, 1


def _bitcast(source, target):
    """Return an intrinsic that reads the bits of one scalar type as another."""

    @intrinsic
    def cast(typing_context, value):
        def emit(context, builder, signature, args):
            return builder.bitcast(args[0], context.get_value_type(target))

        return target(source), emit

    return cast


def _int32_operation(name):
    """Return an intrinsic for one operation on int32: numba itself would widen it to 64 bits, and halve the lanes."""

    @intrinsic
    def operation(typing_context, a, b):
        def emit(context, builder, signature, args):
            return getattr(builder, name)(*args)

        return types.int32(types.int32, types.int32), emit

    return operation


float_of_bits = _bitcast(types.int32, types.float32)
bits_of_float = _bitcast(types.float32, types.int32)
double_of_bits = _bitcast(types.int64, types.float64)
bits_of_double = _bitcast(types.float64, types.int64)
add, and_, xor = _int32_operation("add"), _int32_operation("and_"), _int32_operation("xor")
shl, shr, sar = _int32_operation("shl"), _int32_operation("lshr"), _int32_operation("ashr")


@intrinsic
def low_word(typing_context, value):
    """Return the low 32 bits of a uint64, as int32."""

    def emit(context, builder, signature, args):
        return builder.trunc(args[0], ir.IntType(32))

    return types.int32(types.uint64), emit


@intrinsic
def multiply_high(typing_context, a, b):
    """Return the high 64 bits of the product of two uint64."""

    def emit(context, builder, signature, args):
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), emit


# ---------------------------------------------------------------------- numbers of 106 bits
#
# Numbers of 106 bits as unevaluated sums of two doubles (Dekker 1971): the few operations that are needed.


@kernel
def two_sum(a, b):
    """Return a + b rounded, and what rounding lost."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@kernel
def _halves(a):
    """Return two doubles of at most 26 bits each whose sum is a."""
    scaled = 134217729.0 * a
    high = scaled - (scaled - a)
    return high, a - high


@kernel
def two_product(a, b):
    """Return a · b rounded, and what rounding lost."""
    product = a * b
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


@kernel
def multiply(a, b):
    """Return the product of two pairs."""
    high, low = two_product(a[0], b[0])
    return two_sum(high, low + (a[0] * b[1] + a[1] * b[0]))


@kernel
def divide(a, b):
    """Return the quotient of two pairs."""
    high = a[0] / b[0]
    back = multiply((high, 0.0), b)
    return two_sum(high, ((a[0] - back[0]) + (a[1] - back[1])) / b[0])


@kernel
def root(a):
    """Return the square root of a positive pair."""
    high = np.sqrt(a[0])
    square = two_product(high, high)
    return two_sum(high, ((a[0] - square[0]) + (a[1] - square[1])) / (2.0 * high))


# ---------------------------------------------------------------------- prefetch
#
# Asking for memory before it is needed, where a kernel goes through an array in random order.


def _prefetch(for_writing):
    """Return an intrinsic that makes the processor fetch array[index] in the background, for writing or for reading."""

    @intrinsic
    def fetch(typing_context, array, index):
        def emit(context, builder, signature, args):
            kind = signature.args[0]
            held = context.make_array(kind)(context, builder, args[0])
            place = cgutils.get_item_pointer(context, builder, kind, held, [args[1]], wraparound=False)
            address, word = ir.IntType(8).as_pointer(), ir.IntType(32)
            called = ir.FunctionType(ir.VoidType(), [address, word, word, word])
            function = cgutils.get_or_insert_function(builder.module, called, "llvm.prefetch.p0i8")
            builder.call(function, [builder.bitcast(place, address), word(for_writing), word(_KEEP), word(_DATA)])
            return context.get_dummy_value()

        return types.void(array, index), emit

    return fetch


#: Both take an array of one dimension and an index from its start; they have no other effect.
prefetch, prefetch_to_read = _prefetch(1), _prefetch(0)
