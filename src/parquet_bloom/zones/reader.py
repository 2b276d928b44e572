"""A zone index through pylance, in this process: what it says of itself, its null bitmap, its filters.

`DistantReader` gives the same answers through another process, for files that nobody vouches for.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from parquet_bloom.errors import DamagedFileError, ParquetBloomError, RequestError, first_line
from parquet_bloom.extras import to_install
from parquet_bloom.format import lance as form
from parquet_bloom.storage.operating_system import Answer, ChildProcess

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
    """The description in a zone index.

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


# --- pylance in a process of its own --------------------------------------------------------------
#
# Zone indexes that nobody vouches for, read by a process of their own.
#
# pylance ends its process on some damaged files. Here that is one error, and the next file gets a new
# process. One process serves all files of this one, as starting it takes half a second (storage.operating_system). A
# question is what to do, path and arguments; an answer an error, or facts and bytes (Arrow IPC or as they are).

_MEMORY = 8 << 30  # bytes of addresses beyond those that it has when it is ready, and for the threads to come:
_THREAD = 256 << 20  # of each processor


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
        _require_pylance()
        try:
            header, data = _SERVER.ask(question)
        except (EOFError, OSError) as error:
            raise DamagedFileError(self.path, f"pylance ended its process over it ({error}); build it again") from error
        if "error" in header:
            raise DamagedFileError(self.path, header["error"])
        return header, data


def _require_pylance() -> None:
    """Raise RequestError where pylance is not installed; importing it here would take as long as there."""
    try:
        known = importlib.util.find_spec("lance") is not None
    except ValueError:
        known = False
    if not known:
        pylance()


_SERVER = ChildProcess("parquet_bloom.zones.reader")
atexit.register(_SERVER.close)


# --- in the other process -------------------------------------------------------------------------


def answering() -> Callable[[dict[str, Any]], Answer]:
    """Answer a question in bounded memory; {"error": why} where pylance cannot."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with contextlib.suppress(RequestError):
        pylance()
    _limit()

    def answer(question: dict[str, Any]) -> Answer:
        try:
            return _answer(question)
        except ParquetBloomError as error:
            return {"error": getattr(error, "reason", str(error))}, b""
        except Exception as error:
            return {"error": f"pylance gave up on it: {type(error).__name__}"}, b""

    return answer


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


def _answer(question: dict[str, Any]) -> Answer:
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
