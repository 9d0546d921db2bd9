"""What intrinsics are built from: vector types, and the addresses of array elements."""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba.extending import intrinsic as untyped_intrinsic

intrinsic: Any = untyped_intrinsic

LANES = 64
"""The number of codes that are compared at once, and of bits of a word."""
GROUP = 8
"""The number of words of a bitmap that are intersected at once."""
LOOKED_UP = 16
"""The number of rows that are looked up in the prefilter at once."""
WORD, LONG = ir.IntType(32), ir.IntType(64)
BYTES, WORDS = ir.VectorType(ir.IntType(8), LANES), ir.VectorType(LONG, GROUP)
PART = ir.VectorType(LONG, GROUP // 2)
U64, U32, U8 = numba.types.uint64, numba.types.uint32, numba.types.uint8


def prefetch_line(builder: Any, pointer: Any) -> None:
    """Prefetches the cache line of an address."""
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, WORD, WORD, WORD])
    touch = numba.core.cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(touch, [pointer, *(ir.Constant(WORD, flag) for flag in (0, 2, 1))])


def pointer_to(context: Any, builder: Any, signature: Any, arguments: Any, array: int, at: Any, kind: Any) -> Any:
    """The address of element `at` of the flattened array that is argument number `array`."""
    data = context.make_array(signature.args[array])(context, builder, arguments[array]).data
    return builder.bitcast(builder.gep(data, [at]), kind.as_pointer())


def load_words(context: Any, builder: Any, signature: Any, arguments: Any, array: int, at: Any) -> Any:
    """Loads `GROUP` words, from `at` on, of the uint64 array that is argument number `array`."""
    return builder.load(pointer_to(context, builder, signature, arguments, array, at, WORDS), align=8)


def spread(builder: Any, value: Any, lanes: int) -> Any:
    """A vector with `value` in all lanes (a splat)."""
    kind = ir.VectorType(value.type, lanes)
    undefined = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(WORD, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(WORD, lanes), [0] * lanes))


def apart(builder: Any, part: Any) -> Any:
    """The same `PART`, behind a fence, so that the compiler does not merge its computation with that of another
    part."""
    floats = ir.VectorType(ir.DoubleType(), PART.count)
    kind = ir.FunctionType(floats, [floats])
    fence = numba.core.cgutils.get_or_insert_function(builder.module, kind, f"llvm.arithmetic.fence.v{PART.count}f64")
    return builder.bitcast(builder.call(fence, [builder.bitcast(part, floats)]), PART)
