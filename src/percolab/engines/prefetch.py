"""Asking for memory before it is needed, where a kernel goes through an array in random order."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_FOR_WRITING, _KEEP, _DATA = 1, 3, 1


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Have the processor fetch array[index] meanwhile, to be written; nothing else. The index counts from the start."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        held = context.make_array(kind)(context, builder, arguments[0])
        place = cgutils.get_item_pointer(context, builder, kind, held, [arguments[1]], wraparound=False)
        address, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        called = ir.FunctionType(ir.VoidType(), [address, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, called, "llvm.prefetch.p0i8")
        builder.call(function, [builder.bitcast(place, address), word(_FOR_WRITING), word(_KEEP), word(_DATA)])
        return context.get_dummy_value()

    return types.void(array, index), generate
