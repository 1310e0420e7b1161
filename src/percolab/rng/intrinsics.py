"""Instructions that numba has no name for: wide products, bit casts, and arithmetic that stays in 32 bits."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


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
