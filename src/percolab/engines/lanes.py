"""Sums over coordinates, to the bit on every processor.

A sum of floating-point numbers depends on its order, and a compiler that may choose the order takes the one that suits
the vector registers at hand. Here it is fixed: coordinate j is added to lane j mod 16, the lanes are folded in halves
(8, 4, 2, 1), and the coordinates left over, fewer than 16, are added to that one by one. Products are rounded before
they are added; LLVM fuses the two only where it is told that it may. Sixteen lanes fill the widest registers there are,
and are as many narrower ones elsewhere: numba has no vectors, so the loop is written in LLVM's terms.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
"""Part of the definition of the data."""


@intrinsic
def product(typing_context, u, v):
    """Return u·v in the precision of v; both are contiguous, and u is at least as long as v."""
    if not _are_vectors(u, v):
        return None

    def emit(context, builder, signature, arguments):
        return _Sums(context, builder, signature, arguments).of_products([(0, 1)])[0]

    return v.dtype(u, v), emit


@intrinsic
def products(typing_context, u, v):
    """Return u·v, u·u and v·v, in one pass, each as `product` does."""
    if not _are_vectors(u, v):
        return None

    def emit(context, builder, signature, arguments):
        sums = _Sums(context, builder, signature, arguments).of_products([(0, 1), (0, 0), (1, 1)])
        return context.make_tuple(builder, signature.return_type, sums)

    return types.UniTuple(v.dtype, 3)(u, v), emit


def _are_vectors(*arrays):
    return all(isinstance(array, types.Array) and array.ndim == 1 and array.layout == "C" for array in arrays)


class _Sums:
    """Writes the sums of products of vectors; the last vector sets their length and precision."""

    def __init__(self, context, builder, signature, arguments):
        self.builder, self.types = builder, signature.args
        self.arrays = [context.make_array(t)(context, builder, a) for t, a in zip(self.types, arguments, strict=True)]
        self.elements = [context.get_value_type(t.dtype) for t in self.types]
        self.size = builder.extract_value(self.arrays[-1].shape, 0)

    def of_products(self, pairs):
        """Return Σ x_a x_b for each pair (a, b) of vectors."""
        builder, index = self.builder, self.size.type
        whole = builder.and_(self.size, ir.Constant(index, -LANES))
        lanes = self._add_up(pairs, LANES, ir.Constant(index, 0), whole)
        folded = [self._fold(lane) for lane in lanes]
        return self._add_up(pairs, 1, whole, self.size, folded)

    def _add_up(self, pairs, width, start, stop, begin=None):
        """Add products to sums of this many lanes, from coordinate `start` on."""
        builder = self.builder
        zero = ir.Constant(self._number(-1, width), None)
        totals = [cgutils.alloca_once_value(builder, zero if begin is None else begin[p]) for p in range(len(pairs))]
        step = ir.Constant(self.size.type, width)
        with cgutils.for_range_slice(builder, start, stop, step, self.size.type) as (at, _):
            x = [self._load(k, at, width) for k in range(len(self.arrays))]
            for total, (a, b) in zip(totals, pairs, strict=True):
                builder.store(builder.fadd(builder.load(total), builder.fmul(x[a], x[b])), total)
        return [builder.load(total) for total in totals]

    def _number(self, k, width):
        """Return the type of one coordinate of a vector, or of several side by side."""
        return ir.VectorType(self.elements[k], width) if width > 1 else self.elements[k]

    def _load(self, k, at, width):
        """Load coordinates of a vector, in the precision of the sums."""
        kind = self._number(k, width)
        pointer = self.builder.bitcast(self.builder.gep(self.arrays[k].data, [at]), kind.as_pointer())
        value = self.builder.load(pointer, align=self.types[k].dtype.bitwidth // 8)
        wanted = self._number(-1, width)
        return value if kind == wanted else self.builder.fpext(value, wanted)

    def _fold(self, lanes):
        """Add the upper half of the lanes to the lower one until one is left."""
        builder, word, width = self.builder, ir.IntType(32), LANES
        while width > 1:
            width //= 2
            halves = []
            for first in (0, width):
                mask = ir.Constant(ir.VectorType(word, width), list(range(first, first + width)))
                halves.append(builder.shuffle_vector(lanes, ir.Constant(lanes.type, ir.Undefined), mask))
            lanes = builder.fadd(*halves)
        return builder.extract_element(lanes, ir.Constant(word, 0))
