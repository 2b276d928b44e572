"""Machine words that numba cannot spell: vectors of a width that is chosen here, unaligned loads, prefetching.

numba leaves LLVM's vectoriser for straight-line code off, so the eight words of a block, written
out, become scalar code. Here a block is one vector (`<8 x i32>`, any processor): inserting is 2.5
times faster, and a product of words stays 32 bits wide by its type, where numba would make
uint32 * uint32 a uint64 and the bits would be wrong.

Built with numba's public `intrinsic` and llvmlite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types, uint64
from numba.core import cgutils
from numba.extending import intrinsic, overload

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
    """Prefetch a cache line that is needed soon; an address past the end is no fault."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        line = _pointer(context, builder, signature.args[0], arguments[0], arguments[1], ir.IntType(8))
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), _WORD, _WORD, _WORD])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch.p0", (), kind)
        builder.call(prefetch, [line, ir.Constant(_WORD, 0), ir.Constant(_WORD, 3), ir.Constant(_WORD, 1)])
        return context.get_dummy_value()

    return types.void(values, types.uint64), build


# --- lanes ----------------------------------------------------------------------------------------
#
# Hashes of many values at once, in vectors whose width is chosen here and not by LLVM's idea of the processor.
#
# LLVM decides by the processor's name whether a loop becomes one of vectors, and how wide they are. It takes some
# processors for others, and the same loop ran at 430 to 1,000 million values a second by name and version of LLVM. So
# the vectors are written out, and what decides is which instructions there are, which LLVM asks the processor itself:
#
#    AVX-512 from Ice Lake or Zen 4 on    32 values in four registers of 512 bits
#    AVX-512 before                       8 times 4 values in 256 bits: wider ones would lower the clock for all else
#    AVX2                                 32 values in eight registers of 256 bits
#    none of these, and not x86           32 values one by one, which LLVM may put together as it likes
#
# A hash is written once, in operators and `rotl`. numba compiles it for one uint64; called with Lanes it writes the
# same instructions for vectors. Built with numba's public `intrinsic` and llvmlite.

LANES = 32  # values that are hashed together: enough that no product waits for the one before
_LONG = ir.IntType(64)


class Lanes:
    """Unsigned integers of 64 bits in a vector, or one of them, while their code is written; operators wrap."""

    __array_ufunc__ = None  # numpy's scalars leave their operators with these to this class

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder = builder
        self.value = value

    def _other(self, other: Any) -> Any:
        if isinstance(other, Lanes):
            return other.value
        kind = self.value.type
        return ir.Constant(kind, int(other) if kind == _LONG else [int(other)] * kind.count)

    def _new(self, value: Any) -> Lanes:
        return Lanes(self.builder, value)

    def __add__(self, other: Any) -> Lanes:
        return self._new(self.builder.add(self.value, self._other(other)))

    def __mul__(self, other: Any) -> Lanes:
        return self._new(self.builder.mul(self.value, self._other(other)))

    def __xor__(self, other: Any) -> Lanes:
        return self._new(self.builder.xor(self.value, self._other(other)))

    def __rshift__(self, other: Any) -> Lanes:
        return self._new(self.builder.lshr(self.value, self._other(other)))

    __radd__, __rmul__, __rxor__ = __add__, __mul__, __xor__

    def rotl(self, r: int) -> Lanes:
        """Rotate each to the left."""
        return self._new(_rotated(self.builder, self.value, self._other(r)))


def _rotated(builder: Any, value: Any, by: Any) -> Any:
    # As two shifts, the one of a product would become a product with another constant, which costs more.
    kind = value.type
    name = "llvm.fshl." + ("i64" if kind == _LONG else f"v{kind.count}i64")
    declared = builder.module.globals.get(name)
    if declared is None:
        declared = ir.Function(builder.module, ir.FunctionType(kind, [kind] * 3), name)
    return builder.call(declared, [value, value, by])


def rotl(x: Any, r: int) -> Any:
    """Rotate 64 bits to the left: of Lanes here; of a uint64 in compiled code."""
    return x.rotl(r)


@intrinsic
def _rotl(typing_context: Any, x: Any, r: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _rotated(builder, *arguments)

    return types.uint64(types.uint64, types.uint64), build


@overload(rotl, inline="always")
def _rotl_of_one(x, r):  # type: ignore[no-untyped-def]  # numba compares the signatures
    return lambda x, r: _rotl(x, r)


def _in_a_vector(context: Any) -> int:
    """How many values one vector of the code that is written holds."""
    features = context.codegen().magic_tuple()[2].split(",")  # what keys numba's cache too
    if "+avx512f" in features and "+avx512vbmi2" not in features:
        return 4
    return LANES if "+avx2" in features else 1


def hash_lanes(hash_of_one: Callable[[Any, Any], Any], bits: int) -> Any:
    """An intrinsic (values, at, seed, out) that hashes values[at : at + LANES] to the same places of out.

    hash_of_one  (value, seed) -> hash, each a uint64; as text it may only have + * ^ >> and rotl
    bits         of a value, 32 or 64; values is an array of such, out one of uint64
    """

    @intrinsic
    def hash_several(typing_context: Any, values: Any, at: Any, seed: Any, out: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            source, first, key, target = arguments
            n = _in_a_vector(context)
            word, long = (width if n == 1 else ir.VectorType(width, n) for width in (ir.IntType(bits), _LONG))
            data, room = (
                context.make_array(kind)(context, builder, array).data
                for kind, array in ((signature.args[0], source), (signature.args[3], target))
            )
            seeds = Lanes(builder, _splat(builder, key, n))
            with cgutils.for_range(builder, ir.Constant(_LONG, LANES // n)) as loop:
                index = builder.add(first, builder.mul(loop.index, ir.Constant(_LONG, n)))
                values_at = builder.bitcast(builder.gep(data, [index]), word.as_pointer())
                value = builder.load(values_at, align=bits // 8)
                hashes = hash_of_one(Lanes(builder, value if bits == 64 else builder.zext(value, long)), seeds)
                builder.store(hashes.value, builder.bitcast(builder.gep(room, [index]), long.as_pointer()), align=8)
            return context.get_dummy_value()

        return types.void(values, types.uint64, types.uint64, out), build

    return hash_several


def _splat(builder: Any, value: Any, n: int) -> Any:
    if n == 1:
        return value
    undefined = ir.Constant(ir.VectorType(_LONG, n), ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(ir.IntType(32), n), [0] * n))
