"""Instructions on whole vector registers, for loops that the compiler does not see through."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

TILE_BYTES = 64
"""Bytes of a row that are worked on at a time: the widest registers there are; elsewhere it takes several."""
TILE_ROWS = 2
"""Rows that share the coefficients they are multiplied by."""
WAYS = 4
"""Numbers that are turned together."""

_WORD = ir.IntType(32)


@intrinsic
def turn_tile(typing_context, source, row, stride, table, part, column, out, to):
    """Turn each WAYS numbers of two rows that lie `stride` apart, and put them side by side.

    For both rows r from `row` on, every column c of a tile from `column` on, and every b < WAYS:
    ``out[r, to + WAYS c + b] = Σ_a table[part, WAYS b + a, c] · source[r, a stride + c]``, terms in this order, each
    product and each sum rounded. Arrays are contiguous and of one type; a tile may reach past what is meant to be read.
    """

    def emit(context, builder, signature, args):
        _emit_turn(context, builder, signature, args)
        return context.get_dummy_value()

    at = types.intp
    return types.none(source, at, at, table, at, at, out, at), emit


def _emit_turn(context, builder, signature, args):
    _, row, stride, _, part, column, _, to = args
    number = signature.args[0].dtype
    lanes = TILE_BYTES * 8 // number.bitwidth
    vector = ir.VectorType(context.get_value_type(number), lanes)
    source, table, out = (context.make_array(signature.args[k])(context, builder, args[k]) for k in (0, 3, 6))
    width = builder.extract_value(table.shape, 2)

    def times(value, count):
        return builder.mul(value, ir.Constant(value.type, count))

    def start_of(array, r, place):
        at_row = builder.add(row, ir.Constant(row.type, r))
        start = builder.mul(at_row, builder.extract_value(array.shape, 1))
        return builder.gep(array.data, [builder.add(start, place)])

    def load(start, offset):
        pointer = builder.bitcast(builder.gep(start, [offset]), vector.as_pointer())
        return builder.load(pointer, align=number.bitwidth // 8)

    first = builder.mul(times(part, WAYS * WAYS), width)
    coefficients = builder.gep(table.data, [builder.add(first, column)])
    starts = [start_of(source, r, column) for r in range(TILE_ROWS)]
    read = [[load(start, times(stride, a)) for a in range(WAYS)] for start in starts]
    turned = [[None] * WAYS for _ in range(TILE_ROWS)]
    for b in range(WAYS):
        for a in range(WAYS):
            coefficient = load(coefficients, times(width, WAYS * b + a))
            for sums, x in zip(turned, read, strict=True):
                term = builder.fmul(coefficient, x[a])
                sums[b] = term if a == 0 else builder.fadd(sums[b], term)
    for r, sums in enumerate(turned):
        start = start_of(out, r, builder.add(to, times(column, WAYS)))
        for i, numbers in enumerate(_interleave(builder, sums, lanes)):
            pointer = builder.gep(start, [ir.Constant(row.type, i * lanes)])
            builder.store(numbers, builder.bitcast(pointer, vector.as_pointer()), align=number.bitwidth // 8)


def _interleave(builder, vectors, lanes):
    """Return, as four vectors again, the first numbers of four vectors, then the second ones, and so on."""

    def zipped(a, b):
        places = [half + c + side * lanes for half in (0, lanes // 2) for c in range(lanes // 2) for side in (0, 1)]
        masks = (
            ir.Constant(ir.VectorType(_WORD, lanes), [ir.Constant(_WORD, at) for at in side])
            for side in (places[:lanes], places[lanes:])
        )
        return [builder.shuffle_vector(a, b, mask) for mask in masks]

    even, odd = zipped(vectors[0], vectors[2]), zipped(vectors[1], vectors[3])
    return [part for a, b in zip(even, odd, strict=True) for part in zipped(a, b)]


@intrinsic
def prefetch(typing_context, array, row, column):
    """Ask for the part of memory that holds a number of a contiguous array, for it is used soon."""

    def emit(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        place = builder.add(builder.mul(args[1], builder.extract_value(array.shape, 1)), args[2])
        byte = ir.IntType(8).as_pointer()
        of_type = ir.FunctionType(ir.VoidType(), [byte, _WORD, _WORD, _WORD])
        ask = builder.module.declare_intrinsic("llvm.prefetch", [byte], of_type)
        read, keep, data = (ir.Constant(_WORD, flag) for flag in (0, 3, 1))
        builder.call(ask, [builder.bitcast(builder.gep(array.data, [place]), byte), read, keep, data])
        return context.get_dummy_value()

    return types.none(array, types.intp, types.intp), emit
