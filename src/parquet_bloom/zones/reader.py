"""A zone index through pylance, in this process: what it says of itself, its null bitmap, its filters.

`zones.reader` gives the same answers by another process, for files that nobody vouches for.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, Protocol

import pyarrow as pa

from parquet_bloom.errors import DamagedFileError, ParquetBloomError, RequestError, first_line
from parquet_bloom.extras import to_install
from parquet_bloom.format import lance as form

PLACES = form.ZONE_SCHEMA.names[:-1]  # all columns but the filters
FILTERS = form.ZONE_SCHEMA.names[-1]


def pylance() -> Any:
    """The module `lance`. Raises RequestError where the extra is not installed."""
    try:
        import lance
        import lance.file
    except ImportError as error:
        raise RequestError(f"a zone index needs pylance; {to_install('lance')}") from error
    return lance


@contextlib.contextmanager
def lance_errors(path: object) -> Iterator[None]:
    """Turn what pylance raises into our own errors; a panic of its Rust is no Exception."""
    try:
        yield
    except ParquetBloomError:
        raise
    except (
        OSError,
        ValueError,
        RuntimeError,
        KeyError,
        OverflowError,
        pa.ArrowException,
        NotImplementedError,
    ) as error:
        raise DamagedFileError(path, _reason(error)) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise DamagedFileError(path, f"pylance gave up on it: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    return first_line(error).split(", /home/")[0]  # where in pylance's source it was raised


@dataclass(frozen=True, slots=True)
class IndexDescription:
    """What a zone index says of itself.

    metadata  of its schema
    version   of the Lance file format
    buffers   how many global buffers it has
    places    PLACES of all zones, in the file's order
    """

    metadata: dict[str, str]
    version: str
    buffers: int
    places: pa.Table


class ZoneReader(Protocol):
    """How a zone index is read. Every call raises DamagedFileError for what cannot be."""

    def describe(self) -> IndexDescription:
        """Read the file's metadata and all columns but the filters."""

    def buffer(self, number: int) -> bytes:
        """Read a global buffer by its number."""

    def filters(self, rows: Sequence[int]) -> pa.Array:
        """Read the filters of some rows, ascending."""


@dataclass(frozen=True, slots=True)
class LanceReader:
    """Reads a file in this process.

    most_zones  more of them are damage; a few bytes can claim any number
    """

    path: str
    most_zones: int

    def describe(self) -> IndexDescription:
        """Read the file's metadata and all columns but the filters. Raises DamagedFileError."""
        with lance_errors(self.path):
            metadata = self._open().metadata()
            schema = metadata.schema
            for field in form.ZONE_SCHEMA:
                at = schema.get_field_index(field.name)
                if at < 0 or schema.field(at).type != field.type:
                    reason = f"is no zone index: it has no column {field.name} of {field.type}"
                    raise DamagedFileError(self.path, reason)
            key_values = {k.decode(): v.decode() for k, v in (schema.metadata or {}).items()}
            zones = int(metadata.num_rows)
            if zones > self.most_zones:
                raise DamagedFileError(self.path, f"names {zones:,} zones, more than it has bytes for")
            places = self._open(PLACES).read_all(batch_size=1 << 16).to_table().combine_chunks()
            if places.num_rows != zones or any(column.null_count for column in places.columns):
                raise DamagedFileError(
                    self.path, f"has {places.num_rows} zones where it names {zones}, or NULL in them"
                )
            version = f"{metadata.major_version}.{metadata.minor_version}"
            return IndexDescription(key_values, version, len(metadata.global_buffers), places.select(PLACES))

    def buffer(self, number: int) -> bytes:
        """Read a global buffer by its number. Raises DamagedFileError."""
        with lance_errors(self.path):
            data: bytes = self._open().read_global_buffer(number)
            return data

    def filters(self, rows: Sequence[int]) -> pa.Array:
        """The filters of rows of the file, ascending; as many as rows, without nulls."""
        with lance_errors(self.path):
            reader = self._open([FILTERS])
            if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
                results = reader.read_range(rows[0], len(rows), batch_size=len(rows))
            else:
                results = reader.take_rows(list(rows), batch_size=max(1, len(rows)))
            found = results.to_table().column(0).combine_chunks()
            if len(found) != len(rows) or found.null_count:
                reason = f"{len(found)} filters, {found.null_count} of them NULL, where {len(rows)} were asked for"
                raise DamagedFileError(self.path, reason)
            found.validate(full=True)
            return found

    def _open(self, columns: Sequence[str] | None = None) -> Any:
        return pylance().file.LanceFileReader(self.path, columns=None if columns is None else list(columns))


# --- process --------------------------------------------------------------------------------------
#
# Zone indexes that nobody vouches for, read by a process of their own.
#
# pylance ends its process on some damaged files. Here that is one error, and the next file gets a new
# process. One process serves all files of this one, as starting it takes half a second:
#
#    to it      one line of JSON: what to do, path, arguments
#    from it    one line of JSON: an error, or facts and a length; then that many bytes (Arrow IPC or as they are)
#
# Nothing that comes from it is run: no pickles.

_MEMORY = 8 << 30  # bytes of addresses beyond those that it has when it is ready, and for the threads to come:
_THREAD = 256 << 20  # of each processor
_CODE = """import json, sys
sys.path[:] = json.loads(sys.argv[1])
from parquet_bloom.zones.reader import serve
serve()"""


@dataclass(frozen=True, slots=True)
class DistantReader:
    """As zones.reader.LanceReader, by the other process."""

    path: str
    most_zones: int

    def describe(self) -> IndexDescription:
        """As LanceReader has it."""
        header, data = self._ask("describe")
        return IndexDescription(
            header["metadata"], header["version"], header["buffers"], pa.ipc.open_stream(data).read_all()
        )

    def buffer(self, number: int) -> bytes:
        """As LanceReader has it."""
        return self._ask("buffer", number)[1]

    def filters(self, rows: Sequence[int]) -> pa.Array:
        """As LanceReader has it."""
        found = pa.ipc.open_stream(self._ask("filters", list(rows))[1]).read_all().column(0).combine_chunks()
        return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)

    def _ask(self, what: str, *arguments: Any) -> tuple[dict[str, Any], bytes]:
        question = {"do": what, "path": os.path.abspath(self.path), "most": self.most_zones, "arguments": arguments}
        try:
            header, data = _SERVER.ask(question)
        except (EOFError, OSError) as error:
            raise DamagedFileError(self.path, f"pylance ended its process over it ({error}); build it again") from error
        if "error" in header:
            raise DamagedFileError(self.path, header["error"])
        return header, data


class _Server:
    """The other process, started by the first question; questions wait for each other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def ask(self, question: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Raises EOFError that says how the process ended."""
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(json.dumps(question).encode() + b"\n")
                process.stdin.flush()
                line = process.stdout.readline()
                header: dict[str, Any] = json.loads(line) if line.endswith(b"\n") else {}
                data = process.stdout.read(header["length"]) if header else b""
                if not header or len(data) != header["length"]:
                    raise EOFError
            except (EOFError, BrokenPipeError):
                raise EOFError(self._end()) from None
            except BaseException:  # a signal: what the process says next would be taken for another's answer
                self._end()
                raise
            return header, data

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._owner != os.getpid():  # the parent's, before it forked us
            self._process.returncode = 0
            self.close()
        if self._process is None or self._process.poll() is not None:
            _require_pylance()
            self.close()
            paths = [os.path.abspath(path) for path in sys.path]
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CODE, json.dumps(paths)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._owner = os.getpid()
        return self._process

    def close(self) -> subprocess.Popen[bytes] | None:
        """Let go of the process, which ends it."""
        process, self._process = self._process, None
        for pipe in (process.stdin, process.stdout) if process is not None else ():
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        if process is not None and process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)
        return process

    def _end(self) -> str:
        """How the process ended; it is made to where it has not."""
        process = self.close()
        assert process is not None
        try:
            status = process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        return signal.strsignal(-status) or f"signal {-status}" if status < 0 else f"exit status {status}"


def _require_pylance() -> None:
    """Raise RequestError where pylance is not installed; importing it here would take as long as there."""
    try:
        known = importlib.util.find_spec("lance") is not None
    except ValueError:
        known = False
    if not known:
        pylance()


_SERVER = _Server()
atexit.register(_SERVER.close)


# --- in the other process -------------------------------------------------------------------------


def serve() -> None:
    """Answer until the other end closes, or dies."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # pylance's own lines are no answers
    with contextlib.suppress(RequestError):
        pylance()
    _limit()
    for line in sys.stdin.buffer:
        try:
            header, data = _answer(json.loads(line))
        except ParquetBloomError as error:
            header, data = {"error": getattr(error, "reason", str(error))}, b""
        except Exception as error:
            header, data = {"error": f"pylance gave up on it: {type(error).__name__}"}, b""
        _send(answers, {**header, "length": len(data)}, data)


def _limit() -> None:
    """Keep memory bounded: what a few bytes can claim is an error here, and not everybody's end."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        with open("/proc/self/statm") as status:
            now = int(status.read().split()[0]) * resource.getpagesize()
        wanted, most = now + _MEMORY + (os.cpu_count() or 1) * _THREAD, resource.getrlimit(resource.RLIMIT_AS)[1]
        wanted = wanted if most == resource.RLIM_INFINITY else min(most, wanted)
        resource.setrlimit(resource.RLIMIT_AS, (wanted, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _answer(question: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    reader = LanceReader(question["path"], question["most"])
    if question["do"] == "buffer":
        return {}, reader.buffer(*question["arguments"])
    if question["do"] == "filters":
        return {}, _stream(pa.table({"": reader.filters(*question["arguments"])}))
    found = reader.describe()
    header = {"metadata": found.metadata, "version": found.version, "buffers": found.buffers}
    return header, _stream(found.places)


def _stream(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    data: bytes = out.getvalue().to_pybytes()
    return data


def _send(answers: IO[bytes], header: dict[str, Any], data: bytes) -> None:
    answers.write(json.dumps(header).encode() + b"\n")
    answers.write(data)
    answers.flush()
