"""A zone index through pylance, in this process: what it says of itself, its null bitmap, its filters.

`zones.process` gives the same answers by another process, for files that nobody vouches for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from parquet_bloom.errors import DamagedFileError, ParquetBloomError, RequestError, first_line
from parquet_bloom.extras import to_install
from parquet_bloom.formats import lance as form

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
