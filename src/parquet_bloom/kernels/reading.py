"""Many small reads of one file without going through Python for each: a loop over pread(2)."""

from __future__ import annotations

from numba import int64, types

from parquet_bloom.kernels.compiler import kernel

_I64 = types.Array(types.int64, 1, "C", readonly=True)
_OUT = types.Array(types.uint8, 1, "C")
# Of the C library that this process has loaded; off_t has 64 bits on every system with 64-bit pointers.
_pread = types.ExternalFunction("pread", types.intp(types.intc, types.voidptr, types.uintp, types.int64))


@kernel(types.int64(types.int64, _I64, _I64, _OUT))
def read_ranges(fd, offsets, lengths, out):  # type: ignore[no-untyped-def]
    """Read each range of a file behind the one before it into `out`; returns how many were read whole.

    fd       descriptor of an open file
    offsets  int64[n], bytes from the start of the file
    lengths  int64[n]
    out      uint8[sum of lengths]
    """
    at = int64(0)
    for i in range(len(offsets)):
        if at + lengths[i] > len(out):
            return int64(i)
        n = _pread(types.intc(fd), out[at:].ctypes, types.uintp(lengths[i]), offsets[i])
        if n != lengths[i]:
            return int64(i)
        at += lengths[i]
    return int64(len(offsets))
