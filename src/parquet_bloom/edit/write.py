"""New files with filters of any form: pyarrow writes the data, then `add` writes the filters.

The file is written beside its target and takes its place when both are done, so a reader never
sees it without its filters, and an error leaves what was there before.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Protocol, TypedDict, Unpack

import pyarrow as pa
import pyarrow.parquet as pq

from parquet_bloom.edit.add_to_source import add_to_source
from parquet_bloom.edit.changeable import ChangeableFiles
from parquet_bloom.edit.plan import Request, plan_columns, with_properties
from parquet_bloom.edit.reports import AddedFile
from parquet_bloom.errors import FileError, FooterError, RequestError
from parquet_bloom.format.footer import TAIL_BYTES, decode_footer, footer_length
from parquet_bloom.format.forms import Rate, requested_form
from parquet_bloom.options import BuildOptions, EngineOption, Form, PathLike, SyncOption, part, refuse_unknown
from parquet_bloom.output.atomic_file import AtomicFile, followed, local_target, new_target
from parquet_bloom.source.source import CallSource
from parquet_bloom.storage.display import brief, line
from parquet_bloom.storage.operating_system import umask
from parquet_bloom.storage.remote import storage_error

# --- writer options -------------------------------------------------------------------------------
#
# What pyarrow's Parquet writer takes, as types: the keywords that FilterWriter and write_table pass on.
#
# A test holds the names against the signatures of the pyarrow that is installed.


class WriterOptions(TypedDict, total=False):
    """Keywords of pyarrow.parquet.ParquetWriter, with its defaults; its documentation says what each means.

    filesystem        files with filters are written locally only: anything but None is a RequestError
    column_encoding, compression, compression_level   for all columns, or by column
    use_dictionary, use_byte_stream_split, write_statistics   whether, or the columns for which
    metadata_collector   has an `append`, which gets the file's metadata as pyarrow wrote it, without filters
    """

    allow_truncated_timestamps: bool
    bloom_filter_options: Mapping[str, Any] | None
    coerce_timestamps: str | None
    column_encoding: str | Mapping[str, str] | None
    compression: str | Mapping[str, str] | None
    compression_level: int | Mapping[str, int] | None
    data_page_size: int | None
    data_page_version: str
    dictionary_pagesize_limit: int | None
    encryption_properties: Any
    filesystem: None
    flavor: str | None
    max_rows_per_page: int | None
    memory_pool: pa.MemoryPool | None
    metadata_collector: Any
    sorting_columns: Sequence[pq.SortingColumn] | None
    store_decimal_as_integer: bool
    store_schema: bool
    use_byte_stream_split: bool | Sequence[str]
    use_compliant_nested_type: bool
    use_content_defined_chunking: bool | Mapping[str, int]
    use_deprecated_int96_timestamps: bool | None
    use_dictionary: bool | Sequence[str]
    version: str
    write_batch_size: int | None
    write_page_checksum: bool
    write_page_index: bool
    write_statistics: bool | Sequence[str]
    write_time_adjusted_to_utc: bool


class FilterOptions(BuildOptions, EngineOption, SyncOption, total=False):
    """Options of the filters of a new file."""


class NewFileOptions(FilterOptions, WriterOptions, total=False):
    """Keywords of FilterWriter and `write_table`, beside those that they name; each has a default."""


# --- new files with filters -----------------------------------------------------------------------

BloomFilters = bool | Sequence[str] | Mapping[str, Rate]
_ROW_GROUP_ROWS = 1 << 20  # pyarrow's own


class SupportsArrowStream(Protocol):
    """A table or a stream of batches by Arrow's PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


class FilterWriter:
    """A pyarrow.parquet.ParquetWriter whose file has Bloom filters when it is closed.

        with FilterWriter("events.parquet", schema, bloom_filters=["trace_id"]) as writer:
            for batch in batches:
                writer.write_batch(batch)

    where          the new file, on a local disk
    overwrite      replace a file that exists; otherwise that is an error
    form, fpp      as in add_filters
    bloom_filters  True: every column that a filter helps, as add_filters chooses them; names or patterns; or
                   column -> fpp; False: none
    options        placement, ndv, max_bytes, threads, engine and sync as in add_filters, and what
                   pyarrow.parquet.ParquetWriter takes: see NewFileOptions

    If the body raises, nothing is left of the new file. `report` (AddedFile) is there once closed.
    Raises RequestError and its kinds for columns that the schema lacks, or that can have no filter, and for the
    URI of another storage; TypeError for an option that there is not; StorageError where `where` exists, or is a
    folder or a device.
    """

    def __init__(
        self,
        where: PathLike,
        schema: pa.Schema,
        *,
        bloom_filters: BloomFilters = True,
        overwrite: bool = False,
        form: Form | None = None,
        fpp: Rate | Mapping[str, Rate] | None = None,
        **options: Unpack[NewFileOptions],
    ) -> None:
        refuse_unknown("FilterWriter", options, NewFileOptions)
        writer_options = part(WriterOptions, options)
        if writer_options.get("filesystem") is not None:
            raise RequestError("files with filters are written locally only; leave filesystem out")
        self.report: AddedFile | None = None
        self._where = _target(where, overwrite)
        asked = part(FilterOptions, options)
        form, fpp, asked["ndv"] = with_properties(requested_form(form, asked.pop("spec", None)), fpp, asked.get("ndv"))
        columns, rates = _columns(bloom_filters, fpp)
        self._filters = bloom_filters is not False
        self._sync = asked.get("sync", True)
        if self._filters:
            self._request = Request.checked(columns=columns, form=form, fpp=rates, overwrite=overwrite, **asked)
            try:
                _check_columns(schema, writer_options, self._request)
            except RequestError as error:
                raise type(error)(f"{self._where}: " + error.message) from error
        # The data's file is locked and named like every unfinished file, so a later run clears it up.
        like = self._where if os.path.exists(self._where) else None
        self._data = AtomicFile.new(self._where, overwrite, self._sync and not self._filters)
        try:
            with self._storage_errors():
                if self._filters:  # add makes the last file as secret as this one
                    mode = 0o666 & ~umask() if like is None else stat.S_IMODE(os.stat(like).st_mode) & 0o777
                    os.fchmod(self._data.fd, mode)
                self._writer: pq.ParquetWriter | None = pq.ParquetWriter(self._data.path, schema, **writer_options)
        except BaseException:
            self._data.discard()
            raise

    def __repr__(self) -> str:
        return line("FilterWriter", [brief(self._where), "closed" if self._writer is None else "open"])

    def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
        """Write a table as one or more row groups."""
        with self._storage_errors():
            self._open().write_table(table, row_group_size)

    def write_batch(self, batch: pa.RecordBatch, row_group_size: int | None = None) -> None:
        """Write a record batch as one or more row groups."""
        with self._storage_errors():
            self._open().write_batch(batch, row_group_size)

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        """Turns errors of the disk while pyarrow writes into StorageError, with the name of the target."""
        try:
            yield
        except OSError as error:
            raise storage_error(self._where, error) from error

    def _open(self) -> pq.ParquetWriter:
        if self._writer is None:
            raise RequestError(f"{self._where}: the writer is closed")
        return self._writer

    def close(self) -> None:
        """Finish the data, add the filters, and put the file in its place."""
        if self._writer is None:
            return
        writer, self._writer = self._writer, None
        try:
            writer.close()
            if self._filters:
                to = ChangeableFiles(CallSource(self._data.path), self._where, self._request.how)
                self.report = add_to_source(to, self._request).files[0]
                self.report.source = self.report.output
                if self._sync:
                    self._data.sync_made()
            else:
                self._data.commit()
        except FileError as error:
            raise type(error)(self._where, error.reason) from error
        except OSError as error:
            raise storage_error(self._where, error) from error
        finally:
            self._data.discard()

    def abandon(self) -> None:
        """Leave nothing of the new file behind; what was there before stays."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(OSError, pa.ArrowException):
                writer.close()
        self._data.discard()

    def __enter__(self) -> FilterWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


def _target(where: PathLike, overwrite: bool) -> str:
    """The path of the new file, links followed. Raises RequestError, StorageError where none can be."""
    return new_target(followed(os.path.abspath(local_target(where))), overwrite)


def _check_columns(schema: pa.Schema, options: WriterOptions, request: Request) -> None:
    """Plan for a file without rows, so that a wrong column is an error before the data are written."""
    out = pa.BufferOutputStream()
    with pq.ParquetWriter(out, schema, **{k: v for k, v in options.items() if k != "metadata_collector"}):
        pass
    data = out.getvalue().to_pybytes()
    with suppress(FooterError):  # an encrypted one: for add to refuse
        at = len(data) - TAIL_BYTES - footer_length(data, len(data))
        plan_columns(decode_footer(data[at:-TAIL_BYTES], at), request)


def _columns(
    wanted: BloomFilters, fpp: Rate | Mapping[str, Rate] | None
) -> tuple[list[str] | None, Rate | Mapping[str, Rate] | None]:
    if isinstance(wanted, bool):
        return None, fpp
    if isinstance(wanted, str):
        raise RequestError("bloom_filters takes True, a list of columns, or column -> fpp, not one text")
    if isinstance(wanted, Mapping):
        if isinstance(fpp, Mapping):
            raise RequestError("give rates in bloom_filters or in fpp, not in both")
        return list(wanted), {**({"*": fpp} if fpp is not None else {}), **wanted}
    return list(wanted), fpp


def write_table(
    table: SupportsArrowStream,
    where: PathLike,
    *,
    row_group_size: int | None = None,
    bloom_filters: BloomFilters = True,
    overwrite: bool = False,
    form: Form | None = None,
    fpp: Rate | Mapping[str, Rate] | None = None,
    **options: Unpack[NewFileOptions],
) -> AddedFile | None:
    """Write a table to a new Parquet file with Bloom filters; arguments as FilterWriter's.

    table           a pyarrow Table or RecordBatchReader, a frame of pandas or Polars, a result of DuckDB: anything
                    with Arrow's `__arrow_c_stream__`. Of a reader one row group at a time is in memory
    row_group_size  rows; 1,048,576 unless given
    options         as FilterWriter's, see NewFileOptions
    returns         what was added; None with bloom_filters=False
    """
    refuse_unknown("write_table", options, NewFileOptions)
    if not isinstance(table, pa.Table) and not hasattr(table, "__arrow_c_stream__"):
        kind = type(table).__name__
        raise RequestError(f"table is a {kind}; give a table or frame that has __arrow_c_stream__, such as pyarrow's")
    stream = table if isinstance(table, pa.Table) else pa.RecordBatchReader.from_stream(table)
    with FilterWriter(
        where, stream.schema, bloom_filters=bloom_filters, overwrite=overwrite, form=form, fpp=fpp, **options
    ) as writer:
        for some in _row_groups(stream, row_group_size or _ROW_GROUP_ROWS):
            writer.write_table(some, row_group_size)
    return writer.report


def _row_groups(stream: pa.Table | pa.RecordBatchReader, rows: int) -> Iterator[pa.Table]:
    """A table as it is; of a stream so many rows at a time, whatever its batches are."""
    if isinstance(stream, pa.Table):
        yield stream
        return
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in stream:
        while len(batch):
            held.append(batch[: rows - count])
            count += len(held[-1])
            batch = batch[len(held[-1]) :]
            if count == rows:
                yield pa.Table.from_batches(held, stream.schema)
                held, count = [], 0
    if held:
        yield pa.Table.from_batches(held, stream.schema)
