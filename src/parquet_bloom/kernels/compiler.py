"""How a loop becomes machine code: lazily, once, and safe among many processes.

numba keeps what it compiled in a cache on disk (beside this file, or in the user's cache folder
where that is not writable). Spark executors start by the dozen and share it; `check_ours` says
when it may be used. numba takes code for that of a function as long as the function's own file has its size and
time. A kernel is also made of other files of this folder, and installed wheels can all have one time: so the name that
code is kept under has a checksum of all these files.

Beside numba's files lies the code of simple loops once more, as an object file that needs nothing of numba: a process
which has not loaded numba links it (`linked`).
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import stat
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from parquet_bloom.kernels.threads import started_pool

# --- cache ----------------------------------------------------------------------------------------
#
# Whose code numba's cache on disk holds, and how processes take turns in it.
#
# What lies in that folder is loaded and run as machine code, so it must be as hard to change as this package
# is: the folder, what it holds and the folders above, as far as they are not above this package too, belong to
# root, to us or to whom this file belongs, and nobody else may write there. One with the sticky bit (/tmp) may be
# above it.
#
# Many processes that write one cache at once can crash (numba/numba#4807, #10128), so each takes a lock there, and
# waits for it only so long: whoever holds it for longer is not compiling. docs/architecture.md, "Workarounds".

PATIENCE_S = 15.0  # a kernel is compiled in two or three
_LOOK_S = 0.02
_LOCK = "parquet_bloom.lock"
CODE = ".loop"  # how the names of files with code end that `keep` writes
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__pycache__")  # where they are: numba's own cache
_log = logging.getLogger("parquet_bloom")
_given_up: list[str] = []


@functools.cache
def sources() -> int:
    """CRC-32 of the modules that kernels are made of; 0 where there are none to read, as in a zip."""
    found = 0
    for path in sorted(Path(__file__).parent.glob("*.py")):
        found = zlib.crc32(path.read_bytes(), found)
    return found


class CacheRefused(Exception):
    """The cache is not to be used; the text says why."""


def refuse_for_good(reason: CacheRefused) -> None:
    """Say once a process why kernels are compiled without a cache."""
    if not _given_up:
        what = "compiled code is not kept, and compiling takes some seconds each time"
        _log.warning("%s: %s; NUMBA_CACHE_DIR may name a folder that only you can write to", reason, what)
    _given_up.append(str(reason))


def refused() -> bool:
    """Whether this process no longer uses the cache."""
    return bool(_given_up)


def check_ours(folder: str) -> None:
    """Raise CacheRefused where somebody else could have put code into the folder, or could do so now."""
    if not hasattr(os, "geteuid"):
        return  # Windows: a profile's folders are its user's
    path = os.path.realpath(folder)
    _check(path, os.stat(path))
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.name.endswith((".nbi", ".nbc", CODE)):
                _check(entry.path, entry.stat(follow_symlinks=False))
    package = os.path.realpath(__file__)
    while (path := os.path.dirname(path)) != os.path.commonpath([path, package]):
        found = os.stat(path)
        if not (found.st_mode & stat.S_ISVTX and found.st_uid in _trusted()):
            _check(path, found)


def _check(path: str, found: os.stat_result) -> None:
    if found.st_uid not in _trusted():
        raise CacheRefused(f"{path} belongs to user {found.st_uid}")
    if stat.S_ISLNK(found.st_mode):
        raise CacheRefused(f"{path} is a symbolic link")
    if found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _is_our_own_group(found.st_gid)):
        raise CacheRefused(f"{path} can be written by other users")


def _trusted() -> set[int]:
    return {0, os.geteuid(), os.stat(__file__).st_uid}


def _is_our_own_group(gid: int) -> bool:
    """Whether a group is the one that many systems give every user, of the same name and without others."""
    import grp
    import pwd

    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return user.pw_gid == gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


@contextlib.contextmanager
def alone(folder: str) -> Iterator[None]:
    """Let one process at a time compile into, or load from, the folder. Raises CacheRefused."""
    if not hasattr(os, "geteuid"):  # Windows: numba copes
        yield
        return
    handle = None
    with contextlib.suppress(PermissionError):  # a cache that we can only read needs no lock
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            handle = os.open(os.path.join(folder, _LOCK), flags, 0o600)
        except PermissionError:
            raise
        except OSError as error:
            raise CacheRefused(f"{folder}: no lock can be had there: {error.strerror}") from error
    try:
        if handle is not None:
            _take(handle, folder)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _take(handle: int, folder: str) -> None:
    import fcntl

    if os.fstat(handle).st_uid == os.geteuid():
        os.fchmod(handle, 0o600)  # earlier versions let others read it, and so hold the lock
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                reason = f"{os.path.join(folder, _LOCK)} has been locked by another process for {PATIENCE_S:.0f} s"
                raise CacheRefused(reason) from None
        except OSError as error:  # a file system without locks
            raise CacheRefused(f"{folder}: no lock can be had there: {error.strerror}") from error
        time.sleep(_LOOK_S)


# --- code that needs no numba -----------------------------------------------------------------------
#
# numba's function takes an address for its result, one for its exception, and each array as seven words. A loop over
# arrays that neither allocates nor returns anything has no other needs: its object file names no symbol of numba's.


def asks_numba() -> bool:
    """Whether a variable asks for something of numba, which code that is kept does not know."""
    return any(name.startswith("NUMBA_") for name in os.environ)


def processor() -> tuple[str, str]:
    """LLVM's name for this processor, and its features: code is for these alone."""
    from llvmlite import binding

    return binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()


def code_path(module: str, name: str) -> str:
    """The file of a loop's code for this processor, these sources and this LLVM."""
    import llvmlite

    key = zlib.crc32(" ".join((llvmlite.__version__, *processor())).encode())
    return os.path.join(FOLDER, f"{module.rpartition('.')[2]}.{name}-{sources():08x}-{key:08x}{CODE}")


def keep(path: str, dispatcher: Any, signature: Any) -> None:
    """Write the code of a loop that numba has just compiled, unless it has other needs than arrays and numbers."""
    import tempfile

    from llvmlite import binding
    from numba import types

    arguments = []
    for kind in signature.args:
        is_array = isinstance(kind, types.Array) and (kind.ndim, kind.layout) == (1, "C")
        if not is_array and kind not in (types.uint64, types.int64, types.boolean):
            return
        arguments.append([str(kind.dtype), kind.mutable] if is_array else [str(kind), None])
    if signature.return_type != types.void or os.path.exists(path):
        return
    ((arguments_of, compiled),) = dispatcher.overloads.items()
    symbol = compiled.fndesc.mangled_name
    module = binding.parse_assembly(dispatcher.inspect_llvm(arguments_of))
    words = sum(1 if writes is None else 7 for _, writes in arguments)
    if len(list(module.get_function(symbol).arguments)) != 2 + words:  # another numba passes something else
        return
    for function in module.functions:
        if not function.is_declaration and function.name != symbol:
            function.linkage = "internal"  # wrappers for Python, which nothing needs then
    name, features = processor()
    machine = binding.Target.from_triple(module.triple).create_target_machine(
        cpu=name, features=features, opt=3, codemodel="jitdefault", jit=True
    )
    passes = binding.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, binding.create_pass_builder(machine, binding.create_pipeline_tuning_options()))
    needs = [f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")]
    needs += [g.name for g in module.global_variables if g.is_declaration]
    if needs:
        return
    code = machine.emit_object(module)
    head = json.dumps({"symbol": symbol, "arguments": arguments, "crc": zlib.crc32(code)}).encode()
    handle, new = tempfile.mkstemp(
        dir=os.path.dirname(path), prefix=".", suffix=".tmp"
    )  # no name that check_ours looks at
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(head + b"\n" + code)
        os.chmod(new, 0o644)  # as numba's files; the folder says who may come in
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise


# --- compiler -------------------------------------------------------------------------------------

_THREAD_LOCK = threading.RLock()


def _in_child() -> None:
    global _THREAD_LOCK
    _THREAD_LOCK = threading.RLock()  # a thread of the parent may have held it, and is not here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


class Kernel:
    """A loop that is compiled, for its one signature, when it is first called."""

    def __init__(self, signature: Any, function: Callable[..., Any]) -> None:
        self.signature = signature
        self.python = function
        self.__doc__ = function.__doc__
        self._entry: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Run the loop; compile it if this is the first call."""
        return (self._entry or self._compile())(*arguments)

    @property
    def at_hand(self) -> bool:
        """Whether a call compiles nothing, as the code is loaded or was in the cache."""
        return self._entry is not None or self._is_kept

    @functools.cached_property
    def _is_kept(self) -> bool:
        if refused():
            return False
        version = f".py{sys.version_info.major}{sys.version_info.minor}"
        try:
            names = os.listdir(self._with_cache().stats.cache_path)
        except (RuntimeError, OSError):  # as _cached has them
            return False
        return any(f".{self.python.__qualname__}-" in name and f"{version}.nbi" in name for name in names)

    def _with_cache(self) -> Any:
        """numba's dispatcher. Raises RuntimeError where it finds no folder, in a read-only or zipped installation."""
        from numba import njit

        self.python.__qualname__ = f"{self.python.__name__}-{sources():08x}"  # of which numba makes the files' names
        return njit(nogil=True, cache=True)(self.python)

    def _compile(self) -> Callable[..., Any]:
        if threading.current_thread() is not threading.main_thread():
            return self._load()
        # Python runs signal handlers in the main thread only. LLVM calls back into Python while it loads a kernel;
        # an exception there, as Control-C raises it, is lost at best and ends in a crash at worst.
        with started_pool(1, "parquet-bloom-compiler") as other:
            return other.submit(self._load).result()

    def _load(self) -> Callable[..., Any]:
        with _THREAD_LOCK:
            if self._entry is None:
                self._entry = self._cached() or self._uncached()
            return self._entry

    def _cached(self) -> Callable[..., Any] | None:
        if refused():
            return None
        try:
            dispatcher = self._with_cache()
        except RuntimeError:
            return None
        try:
            check_ours(dispatcher.stats.cache_path)
            with alone(dispatcher.stats.cache_path):
                dispatcher.compile(self.signature)
                self._keep(dispatcher)
        except CacheRefused as reason:
            refuse_for_good(reason)
            return None
        except OSError:
            return None  # the cache's disk is full, or its folder went away
        dispatcher.disable_compile()
        return cast("Callable[..., Any]", dispatcher)

    def _keep(self, dispatcher: Any) -> None:
        if not sum(dispatcher.stats.cache_misses.values()):
            return  # it is numba's cached code, which says nothing of how it was made
        if asks_numba() or os.path.realpath(dispatcher.stats.cache_path) != os.path.realpath(FOLDER):
            return  # nobody looks there
        try:
            keep(code_path(self.python.__module__, self.python.__name__), dispatcher, self.signature)
        except Exception:  # another numba or llvmlite, or a full disk: numba's own way to load code remains
            _log.debug("no code is kept for processes without numba", exc_info=True)

    def _uncached(self) -> Callable[..., Any]:
        from numba import njit

        dispatcher = njit(nogil=True)(self.python)
        dispatcher.compile(self.signature)
        return cast("Callable[..., Any]", dispatcher)


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a function a Kernel; `signature` is a numba type, void(argument types)."""
    return lambda function: Kernel(signature, function)
