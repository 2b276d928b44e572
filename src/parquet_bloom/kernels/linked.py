"""The loops of `native` for a process that has not loaded numba: the code that an earlier process kept.

    loop("xxh64_u64")(values, seed, out)        as native.xxh64_u64(values, seed, out)

To import numba and load a first kernel takes 0.4 s, nearly all of it for what only compiling needs. The machine code
of a simple loop is three kilobytes (`compiler.keep`): llvmlite alone links it, in 0.05 s with its own import. The file
is trusted as numba's cache is (`compiler.check_ours`). Where there is none, or a variable NUMBA_.. asks for something
of numba, or numba is loaded anyway, the loop is `native`'s.
"""

from __future__ import annotations

import ctypes
import functools
import json
import logging
import os
import sys
import threading
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from parquet_bloom.kernels.compiler import (
    CODE,
    FOLDER,
    CacheRefused,
    asks_numba,
    check_ours,
    code_path,
    refused,
    sources,
)

_MODULE = "parquet_bloom.kernels.native"
_LOCK = threading.Lock()
_log = logging.getLogger("parquet_bloom")


def _in_child() -> None:
    global _LOCK
    _LOCK = threading.Lock()  # a thread of the parent may have held it, and is not here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def loop(name: str) -> Callable[..., Any]:
    """A loop of `native`, by its name."""
    if "numba" not in sys.modules and (found := linked(name)) is not None:
        return found
    from parquet_bloom.kernels import native

    found_there: Callable[..., Any] = getattr(native, name)
    return found_there


def linked(name: str) -> Callable[..., Any] | None:
    """A loop of `native` by the code that was kept; None where there is none that fits."""
    with _LOCK:
        return _linked(name) if not refused() and name in _kept() else None


@functools.cache
def _kept() -> set[str]:
    if asks_numba():
        return set()
    start, mark = f"{_MODULE.rpartition('.')[2]}.", f"-{sources():08x}-"
    try:
        names = os.listdir(FOLDER)
    except OSError:
        return set()
    ours = [name for name in names if name.startswith(start) and mark in name and name.endswith(CODE)]
    return {name.removeprefix(start).partition(mark)[0] for name in ours}


@functools.cache
def _linked(name: str) -> Callable[..., Any] | None:
    """The loop in the code that was kept; None where there is none for this processor."""
    try:
        check_ours(FOLDER)
        path = code_path(_MODULE, name)
        with open(path, "rb") as file:
            head, _, code = file.read().partition(b"\n")
        try:
            about = json.loads(head)
            is_sound = bool(code) and zlib.crc32(code) == about["crc"]  # LLVM trusts what it links
        except (ValueError, KeyError, TypeError):
            is_sound = False
        if not is_sound:
            os.unlink(path)  # so that the next one who compiles keeps it
            return None
        return _callable(name, _address(code, about["symbol"]), about["arguments"])
    except (OSError, CacheRefused):  # numba's way says why
        return None
    except Exception:  # another llvmlite
        _log.debug("code that was kept cannot be linked", exc_info=True)
        return None


@functools.cache
def _engine() -> Any:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding.create_mcjit_compiler(
        binding.parse_assembly(""), binding.Target.from_default_triple().create_target_machine(jit=True)
    )


def _address(code: bytes, symbol: str) -> int:
    from llvmlite import binding

    engine = _engine()
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address: int = engine.get_function_address(symbol)
    if not address:
        raise LookupError(symbol)
    return address


def _callable(name: str, address: int, arguments: list[tuple[str, bool | None]]) -> Callable[..., None]:
    """A function that calls the code as numba's wrapper does, without the interpreter's lock."""
    kinds: list[Any] = [ctypes.c_void_p, ctypes.c_void_p]  # where a result and an exception would go
    for kind, writes in arguments:
        if writes is None:
            kinds.append(ctypes.c_uint8 if kind == "bool" else ctypes.c_uint64)
        else:  # owner, parent, length, bytes of a value, address, length, distance of values
            kinds += [ctypes.c_void_p] * 2 + [ctypes.c_ssize_t] * 2 + [ctypes.c_void_p] + [ctypes.c_ssize_t] * 2
    code = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(address)
    expected = [(None if writes is None else np.dtype(kind), writes) for kind, writes in arguments]

    def run(*given: Any) -> None:
        result, exception = ctypes.c_void_p(), ctypes.c_void_p()
        words: list[Any] = [ctypes.addressof(result), ctypes.addressof(exception)]
        for value, (dtype, writes) in zip(given, expected, strict=True):
            if dtype is None:
                words.append(int(value))
                continue
            flags = value.flags
            if value.dtype != dtype or value.ndim != 1 or not flags.c_contiguous or (writes and not flags.writeable):
                raise TypeError(f"{name} takes another array than {value.dtype}[{value.ndim}], {flags}")
            size = value.itemsize
            words += [None, None, len(value), size, value.ctypes.data, len(value), size]
        if code(*words):
            from parquet_bloom.kernels import native  # raises what is wrong

            getattr(native, name)(*given)

    return run
