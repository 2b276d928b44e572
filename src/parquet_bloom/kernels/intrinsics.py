"""Machine words that numba cannot spell: one block as a vector, unaligned loads, prefetching.

numba leaves LLVM's vectoriser for straight-line code off, so the eight words of a block, written
out, become scalar code. Here a block is one vector (`<8 x i32>`, any processor): inserting is 2.5
times faster, and a product of words stays 32 bits wide by its type, where numba would make
uint32 * uint32 a uint64 and the bits would be wrong.

Built with numba's public `intrinsic` and llvmlite.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types, uint64
from numba.extending import intrinsic

from parquet_bloom.kernels.block import SALT

_WORD = ir.IntType(32)
_BLOCK = ir.VectorType(_WORD, 8)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any, to: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), to.as_pointer())


def _block_mask(builder: Any, key: Any) -> Any:
    """One bit in each of eight words: 1 << (key * SALT[i] mod 2^32 >> 27)."""
    undefined = ir.Constant(_BLOCK, ir.Undefined)
    first = builder.insert_element(undefined, key, ir.Constant(_WORD, 0))
    keys = builder.shuffle_vector(first, undefined, ir.Constant(_BLOCK, [0] * 8))
    product = builder.mul(keys, ir.Constant(_BLOCK, list(SALT)))
    return builder.shl(ir.Constant(_BLOCK, [1] * 8), builder.lshr(product, ir.Constant(_BLOCK, [27] * 8)))


@njit(inline="always")
def block_of(h, n_blocks):  # type: ignore[no-untyped-def]
    """The block of a hash by multiply-shift (kernels.block); both are uint64."""
    return ((h >> uint64(32)) * n_blocks) >> uint64(32)


@njit(inline="always")
def masked_block_of(h, n_blocks):  # type: ignore[no-untyped-def]
    """The block of a hash by mask; n_blocks is a power of two."""
    return (h >> uint64(32)) & (n_blocks - uint64(1))


@intrinsic
def insert_at(typing_context: Any, words: Any, index: Any, key: Any) -> Any:
    """Set the bits of a hash in the block that begins at a word of uint32[:]."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, at, low = arguments
        block = _pointer(context, builder, signature.args[0], array, at, _BLOCK)
        changed = builder.or_(builder.load(block, align=4), _block_mask(builder, low))
        builder.store(changed, block, align=4)
        return context.get_dummy_value()

    return types.void(words, types.uint64, types.uint32), build


def _probe(align: int) -> Any:
    """Whether the block that begins at an element of an array has all bits of a hash."""

    @intrinsic
    def contains(typing_context: Any, array: Any, index: Any, key: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data, at, low = arguments
            block = _pointer(context, builder, signature.args[0], data, at, _BLOCK)
            missing = builder.and_(builder.not_(builder.load(block, align=align)), _block_mask(builder, low))
            whole = ir.IntType(256)
            return builder.icmp_unsigned("==", builder.bitcast(missing, whole), ir.Constant(whole, 0))

        return types.boolean(array, types.uint64, types.uint32), build

    return contains


contains_at, contains_at_byte = _probe(4), _probe(1)  # of words, uint32[:], and of bytes, uint8[:]


def _loader(bits: int) -> Any:
    """An unaligned little-endian load of `bits` bits from uint8[:], widened to uint64."""

    @intrinsic
    def load(typing_context: Any, data: Any, index: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            width = ir.IntType(bits)
            at = _pointer(context, builder, signature.args[0], arguments[0], arguments[1], width)
            value = builder.load(at, align=1)
            return value if bits == 64 else builder.zext(value, ir.IntType(64))

        return types.uint64(data, types.uint64), build

    return load


load8, load32, load64 = _loader(8), _loader(32), _loader(64)


@intrinsic
def fetch(typing_context: Any, values: Any, index: Any) -> Any:
    """Ask for a cache line that is needed soon; an address past the end is no fault."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        line = _pointer(context, builder, signature.args[0], arguments[0], arguments[1], ir.IntType(8))
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), _WORD, _WORD, _WORD])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch.p0", (), kind)
        builder.call(prefetch, [line, ir.Constant(_WORD, 0), ir.Constant(_WORD, 3), ir.Constant(_WORD, 1)])
        return context.get_dummy_value()

    return types.void(values, types.uint64), build
