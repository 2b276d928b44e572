"""Calls of the operating system: copies and clones, free space, the umask, a process beside this one.

That process answers questions; what crashes or hangs there is an error here, and no end.

    to it      one line of JSON: the question
    from it    one line of JSON: the answer, whose "length" says how many bytes follow

Nothing that comes from it is run: no pickles.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from parquet_bloom.errors import StorageError

_COPY_STEP = 64 << 20  # so that a signal is noticed
_CROSS_DEVICE = {errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM}
_CANNOT_CLONE = _CROSS_DEVICE | {errno.ENOTTY, errno.ETXTBSY}
_FICLONE = 0x40049409  # ioctl of Linux, linux/fs.h
_ASKING = threading.Lock()
_FILE_SYSTEMS: dict[tuple[int, int], str] = {}  # (mount, device) -> its type

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def clone(source: int, target: int) -> bool:
    """Make an empty file share all blocks of another one; False where the file system cannot."""
    if fcntl is None or not sys.platform.startswith("linux"):
        return False
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno not in _CANNOT_CLONE:
            raise
        return False
    return True


def copy_range(source: int, target: int, source_at: int, target_at: int, length: int) -> None:
    """Copy bytes between files inside the operating system, or through a buffer where it cannot."""
    while length:
        step = min(length, _COPY_STEP)
        try:
            n = os.copy_file_range(source, target, step, source_at, target_at)
        except AttributeError:
            n = _copy_step(source, target, source_at, target_at, step)
        except OSError as error:
            if error.errno not in _CROSS_DEVICE:
                raise
            n = _copy_step(source, target, source_at, target_at, step)
        if n == 0:
            raise OSError(errno.EIO, "the file became shorter while it was read")
        source_at, target_at, length = source_at + n, target_at + n, length - n


def _copy_step(source: int, target: int, source_at: int, target_at: int, length: int) -> int:
    data = memoryview(os.pread(source, min(length, 1 << 20), source_at))
    n = len(data)
    while data:
        written = os.pwrite(target, data, target_at)
        data, target_at = data[written:], target_at + written
    return n


def free_space(target: str) -> int:
    """Bytes free for us where target will lie, or in the nearest folder above it that exists."""
    folder = os.path.dirname(os.path.realpath(target)) or "."
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return _free(folder)


def _free(at: str | int) -> int:
    import shutil  # for those alone who write: it loads three compressions

    return shutil.disk_usage(at).free


def require_space(target: object, needed: int, fd: int | None = None) -> None:
    """Raise StorageError if the disk of the target, or of an open file, has less than `needed` bytes free."""
    free = free_space(str(target)) if fd is None else _free(fd)
    if needed > free:
        raise StorageError(target, f"the disk has {free:,} bytes free, {needed:,} are needed")


def mount_of(fd: int) -> int | None:
    """The number of the mount through which a file is open; None where the system has none."""
    with contextlib.suppress(OSError), open(f"/proc/self/fdinfo/{fd}", "rb") as about:  # since Linux 3.15
        for line in about:
            if line.startswith(b"mnt_id:"):
                return int(line.split()[1])
    return None


def file_system_of(fd: int) -> str | None:
    """The type of the file system through which a file is open, as mount(8) names it; None where it is unknown."""
    mount = mount_of(fd)
    if mount is None:
        return None
    key = mount, os.fstat(fd).st_dev
    if key not in _FILE_SYSTEMS:
        with contextlib.suppress(OSError), open("/proc/self/mountinfo", "rb") as mounts:
            for line in mounts:
                fields = line.split()
                if int(fields[0]) == mount:
                    _FILE_SYSTEMS[key] = fields[fields.index(b"-") + 1].decode("ascii", "replace")
    return _FILE_SYSTEMS.get(key)


def umask() -> int:
    """The umask of the process, from /proc where there is one.

    Reading it with os.umask() sets another for a moment, in which a file that another thread opens gets that one.
    """
    with contextlib.suppress(OSError), open("/proc/self/status", "rb") as status:  # since Linux 4.7
        for line in status:
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    with _ASKING:
        mask = os.umask(0o077)
        os.umask(mask)
        return mask


# --- a process beside this one --------------------------------------------------------------------


Answer = tuple[Mapping[str, Any], bytes]  # for JSON, and the bytes that follow
# sys is in the interpreter. Anything else that is imported before the path is set may be a file of the working folder.
_CODE = """import sys
sys.path[:] = sys.argv[2:]
from parquet_bloom.storage.operating_system import serve
serve(sys.argv[1])"""
_PATIENCE = 5  # seconds for a process to end by itself, once nobody asks it any more


class ChildProcess:
    """Started by the first question, and anew by one after it ended. Questions of several threads wait for each other.

    module  has `answering`, which is called there and gives a function: question -> Answer
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._rest = b""

    def ask(self, question: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
        """The answer. Raises EOFError that says how the process ended."""
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps(question).encode() + b"\n")
                process.stdin.flush()
                while b"\n" not in self._rest:
                    self._rest += self._read(process)
                line, _, start = self._rest.partition(b"\n")
                header: dict[str, Any] = json.loads(line)
                data = bytearray(start)
                while len(data) < header["length"]:
                    data += self._read(process)
                self._rest = b""
                return header, bytes(data)
            except (EOFError, OSError, ValueError):
                raise EOFError(self.close()) from None
            except BaseException:  # a signal: what the process says next would be taken for another's answer
                self.close()
                raise

    def close(self) -> str:
        """End the process, which nobody may be asking; says how it ended. May be called twice."""
        process, self._process = self._process, None
        if process is None:
            return ""
        ours = self._owner == os.getpid()  # else it is the parent's, before it forked us
        if not ours:
            process.returncode = 0
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE)
        if ours:
            process.kill()
        status = process.wait()
        return (signal.strsignal(-status) or f"signal {-status}") if status < 0 else f"exit status {status}"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and (self._owner != os.getpid() or self._process.poll() is not None):
            self.close()
        if self._process is None:
            self._rest = b""
            paths = [os.path.abspath(path) for path in sys.path]
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CODE, self._module, *paths],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._owner = os.getpid()
        return self._process

    @staticmethod
    def _read(process: subprocess.Popen[bytes]) -> bytes:
        """Read a line of the process. Raises EOFError."""
        assert process.stdout is not None
        data = os.read(process.stdout.fileno(), 1 << 20)
        if not data:
            raise EOFError
        return data


def serve(module: str) -> None:
    """In the process: answer until the other end closes, or dies."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what others print is no answer
    answer: Callable[[dict[str, Any]], Answer] = importlib.import_module(module).answering()
    for line in sys.stdin.buffer:
        header, data = answer(json.loads(line))
        answers.write(json.dumps({**header, "length": len(data)}).encode() + b"\n" + data)
        answers.flush()
