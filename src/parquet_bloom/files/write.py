"""New files with filters of any form: pyarrow writes the data, then `add` writes the filters.

The file is written beside its target and takes its place when both are done, so a reader never
sees it without its filters, and an error leaves what was there before.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from parquet_bloom.errors import FileError, FooterError, RequestError
from parquet_bloom.files.add import add_filters
from parquet_bloom.files.commit import NewFile
from parquet_bloom.files.plan import check_request, plan, style_for, with_properties
from parquet_bloom.files.remote import storage_error
from parquet_bloom.files.reports import AddedFile
from parquet_bloom.files.storage import PathLike
from parquet_bloom.formats.filters import Format
from parquet_bloom.formats.footer import TAIL_BYTES, decode_footer, footer_length

BloomFilters = bool | Sequence[str] | Mapping[str, float]


class FilterWriter:
    """A pyarrow.parquet.ParquetWriter whose file has Bloom filters when it is closed.

        with FilterWriter("events.parquet", schema, bloom_filters=["trace_id"]) as writer:
            for batch in batches:
                writer.write_batch(batch)

    where          the new file; one that exists is replaced, as pyarrow does
    bloom_filters  True: every column a filter can help; names or patterns; or column -> fpp
    spec, placement, hash_family, strategy, fpp, ndv, conf, max_bytes, sync, threads   as in add_filters
    options        what pyarrow.parquet.ParquetWriter takes

    If the body raises, nothing is left of the new file. `report` (AddedFile) is there once closed.
    Raises RequestError and its kinds for columns that the schema lacks, or that can have no filter.
    """

    def __init__(
        self,
        where: PathLike,
        schema: pa.Schema,
        *,
        bloom_filters: BloomFilters = True,
        spec: str = "final",
        placement: str | None = None,
        hash_family: str | None = None,
        strategy: str | None = None,
        fpp: float | Mapping[str, float] | None = None,
        ndv: int | None = None,
        conf: Mapping[str, str] | None = None,
        max_bytes: int | None = None,
        sync: bool = True,
        threads: int | None = None,
        **options: Any,
    ) -> None:
        if options.get("filesystem") is not None:
            raise RequestError("files with filters are written locally only; leave filesystem out")
        self.report: AddedFile | None = None
        self._where = os.path.realpath(os.fspath(where))
        fpp, ndv = with_properties(conf, spec, fpp, ndv)
        columns, rates = _columns(bloom_filters, fpp)
        self._filters = bloom_filters is not False
        self._options: dict[str, Any] = {
            "columns": columns, "fpp": rates, "spec": spec, "placement": placement,
            "hash_family": hash_family, "strategy": strategy,
            "ndv": ndv, "max_bytes": max_bytes, "sync": sync, "threads": threads,
        }  # fmt: skip
        if self._filters:
            form, _ = check_request(columns, None, spec, placement, rates, ndv, max_bytes, threads)
            style_for(form, hash_family, strategy)
            try:
                _check_columns(schema, options, columns, rates, ndv, max_bytes, form)
            except RequestError as error:
                raise type(error)(f"{self._where}: {error}") from error
        # The data's file is locked and named like every unfinished file, so a later run clears it up.
        self._data = NewFile(self._where, self._where, overwrite=True, sync=False, mode=0o666)
        if os.path.exists(self._where):  # as secret as what it replaces
            os.chmod(self._data.path, stat.S_IMODE(os.stat(self._where).st_mode))
        try:
            self._writer: pq.ParquetWriter | None = pq.ParquetWriter(self._data.path, schema, **options)
        except BaseException:
            self._data.discard()
            raise

    def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
        """Write a table as one or more row groups."""
        self._open().write_table(table, row_group_size)

    def write_batch(self, batch: pa.RecordBatch, row_group_size: int | None = None) -> None:
        """Write a record batch as one or more row groups."""
        self._open().write_batch(batch, row_group_size)

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
                self.report = add_filters(self._data.path, self._where, overwrite=True, **self._options).files[0]
                self.report.source = self.report.output
            else:
                os.replace(self._data.path, self._where)
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


def _check_columns(
    schema: pa.Schema,
    options: Mapping[str, Any],
    columns: list[str] | None,
    rates: float | Mapping[str, float] | None,
    ndv: int | None,
    max_bytes: int | None,
    form: Format,
) -> None:
    """Plan for a file without rows, so that a wrong column is told before the data are written."""
    out = pa.BufferOutputStream()
    with pq.ParquetWriter(out, schema, **{k: v for k, v in options.items() if k != "metadata_collector"}):
        pass
    data = out.getvalue().to_pybytes()
    with suppress(FooterError):  # an encrypted one: for add to refuse
        at = len(data) - TAIL_BYTES - footer_length(data, len(data))
        plan(decode_footer(data[at:-TAIL_BYTES], at), columns, None, rates, ndv, max_bytes, False, form)


def _columns(
    wanted: BloomFilters, fpp: float | Mapping[str, float] | None
) -> tuple[list[str] | None, float | Mapping[str, float] | None]:
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
    table: pa.Table,
    where: PathLike,
    *,
    row_group_size: int | None = None,
    bloom_filters: BloomFilters = True,
    spec: str = "final",
    placement: str | None = None,
    hash_family: str | None = None,
    strategy: str | None = None,
    fpp: float | Mapping[str, float] | None = None,
    ndv: int | None = None,
    conf: Mapping[str, str] | None = None,
    max_bytes: int | None = None,
    sync: bool = True,
    threads: int | None = None,
    **options: Any,
) -> AddedFile | None:
    """Write a table to a new Parquet file with Bloom filters; arguments as FilterWriter's.

    options  what pyarrow.parquet.write_table takes
    returns  what was added; None with bloom_filters=False
    """
    with FilterWriter(
        where,
        table.schema,
        bloom_filters=bloom_filters,
        spec=spec,
        placement=placement,
        hash_family=hash_family,
        strategy=strategy,
        fpp=fpp,
        ndv=ndv,
        conf=conf,
        max_bytes=max_bytes,
        sync=sync,
        threads=threads,
        **options,
    ) as writer:
        writer.write_table(table, row_group_size)
    return writer.report
