"""Advice on a data set, before a byte is written: which columns get filters, at what rate, for what gain and cost."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import pyarrow as pa

from parquet_bloom.arguments import several
from parquet_bloom.chunks.logged import open_logged
from parquet_bloom.edit.choose import why_not
from parquet_bloom.edit.sample import Interval
from parquet_bloom.errors import ParquetBloomError, RequestError
from parquet_bloom.facts.advice import check_engine, danger_of, engines_for, notes_of
from parquet_bloom.formats.forms.form import Sizing
from parquet_bloom.formats.forms.known import FORMATS
from parquet_bloom.formats.metadata.outline import Outline
from parquet_bloom.formats.metadata.schema import Leaf
from parquet_bloom.storage.paths import DataFile, FailedFile
from parquet_bloom.storage.progress import Meter, ProgressCallback
from parquet_bloom.storage.remote import side_by_side
from parquet_bloom.storage.results import Printed
from parquet_bloom.storage.shown import counted, line
from parquet_bloom.storage.source import PathLike
from parquet_bloom.storage.table_folders import refusing
from parquet_bloom.tables.columns import named_leaves
from parquet_bloom.tables.named.names import named_table
from parquet_bloom.tables.named.sources import Sources, find
from parquet_bloom.tables.named.typed import add_command, check_command
from parquet_bloom.tables.roots import TableAccess
from parquet_bloom.worth.advice.flags import flags_of
from parquet_bloom.worth.advice.gain import (
    Gain,
    Whole,
    filter_bytes,
    gains,
    least_rate,
    row_groups_of_a_key,
    seconds,
)
from parquet_bloom.worth.advice.queries import QueryLog, read_queries
from parquet_bloom.worth.advice.survey import ColumnSurvey, Survey, spread, survey_column

_ALREADY = 0.99  # of its row groups have a filter: nothing is to be added


@dataclass(slots=True, repr=False)
class ColumnAdvice(Printed):
    """What is advised for one column. Figures are intervals: (low, likely, high).

    advised       whether filters are worth their bytes; `reason` says why not
    null_share    of its values; with_filter: the share of its row groups that have a filter today
    distinct_share  distinct values of a row group, as a share of its values
    overlap       the share of row groups whose bounds admit a present value
    row_groups_of_a_key  how many hold it
    fpp           the rate that is advised, see worth.advice.gain.least_rate; the commands of an Advice name it, and no
                  filter that they add errs more often
    filter_bytes  that all filters take; seconds: for decoding and hashing, here
    present       what a lookup of a present value is spared: of any distinct value of any row group that holds values.
                  Its keys are equally likely, however many rows have them
    absent        the same for the next value above such a one that no row group holds
    in_vain       row groups that a lookup of an absent value reads because a filter errs
    engines       that are known to use filters on such a column
    asked         queries of the log that a filter on it could answer; None without a log
    """

    column: str
    type: str
    advised: bool
    reason: str
    null_share: float = 0.0
    with_filter: float = 0.0
    distinct_share: float | None = None
    overlap: float | None = None
    row_groups_of_a_key: Interval | None = None
    fpp: float | None = None
    filter_bytes: Interval | None = None
    seconds: Interval | None = None
    absent: Gain | None = None
    present: Gain | None = None
    in_vain: float | None = None
    engines: list[str] = field(default_factory=list)
    asked: int | None = None


@dataclass(slots=True, repr=False)
class Advice(Printed):
    """What is advised for a data set.

    files, row_groups, bytes, rows  of all of it; where there are more than 500 files, carried on from 500 of them
    footers_read  of how many files the footer was read
    columns       every column, those advised first, the largest gain before others
    flags         what is wrong today, and where filters are not the answer
    commands      to be pasted into a shell; none where nothing is advised. Of each `python` is the call that does the
                  same
    queries       how many queries the log has that were understood, and how many that were not
    """

    files: int
    footers_read: int
    row_groups: int
    bytes: int
    rows: int
    columns: list[ColumnAdvice] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    queries: tuple[int, int] | None = None
    failed: list[FailedFile] = field(default_factory=list)

    @property
    def advised(self) -> list[str]:
        """The names of the columns that should have filters."""
        return [column.column for column in self.columns if column.advised]

    def __repr__(self) -> str:
        advised = f"{len(self.advised):,} of {counted(len(self.columns), 'columns')} advised"
        names = f": {', '.join(self.advised)}" if 0 < sum(map(len, self.advised)) < 80 else ""
        parts = [advised + names, counted(self.files, "files"), counted(self.row_groups, "row groups")]
        parts += [f"{counted(len(self.failed), 'files')} failed"] if self.failed else []
        return line("Advice", parts)

    def to_arrow(self) -> pa.Table:
        """A row a column, with the likely figures."""
        plain = ("column", "type", "advised", "reason", "null_share", "with_filter", "distinct_share", "overlap", "fpp")
        table = pa.table({name: [getattr(column, name) for column in self.columns] for name in plain})
        for name in ("filter_bytes", "seconds"):
            likely = [None if (one := getattr(c, name)) is None else one.likely for c in self.columns]
            table = table.append_column(name, pa.array(likely, pa.float64()))
        for name in ("absent", "present"):
            share = [None if (one := getattr(c, name)) is None else one.row_groups.likely for c in self.columns]
            table = table.append_column(f"row_groups_saved_{name}", pa.array(share, pa.float64()))
        return table


def advise(
    source: PathLike | Sequence[PathLike],
    *,
    queries: PathLike | None = None,
    engine: str | None = None,
    filesystem: Any = None,
    raw_files: bool = False,
    catalog_properties: Mapping[str, str] | None = None,
    allow_roots: PathLike | Sequence[PathLike] = (),
    progress: ProgressCallback | None = None,
) -> Advice:
    """Say which columns of a data set should have Bloom filters, what they gain and what they cost; nothing is written.

    source      a file, a folder, a glob, a URI, or a list of them; or one table, "delta:PATH_OR_URI",
                "iceberg:CATALOG/namespace.table", "ducklake:CATALOG/schema.table": its live files
    queries     a text file of WHERE clauses or SQL statements: columns that no query asks for values are not advised
    engine      that will read the files, as "duckdb" or "duckdb@1.4": columns whose filters it does not use, or breaks
                on (`engines`), are not advised; None: any
    filesystem  any pyarrow or fsspec file system; source then names files on it
    raw_files   also files of an Iceberg, Delta or Hudi table, whatever its log says of them
    catalog_properties  of Iceberg's or DuckLake's catalog, beside those of its own configuration
    progress    is called with a Progress for every column

    Reads the footers of up to 500 files, and of each column some 262,144 rows of at least four row groups, up to
    1,048,576 while intervals are wide. The columns of one file are those that `add_filters` without `columns`
    chooses, for the same reasons, by the same sample. Of several files it judges each by itself, this function all.

    Raises RequestError for a log without a query, or an engine of which nothing is known; FileError and its kinds
    where no footer can be read.
    """
    log = None if queries is None else read_queries(os.fspath(queries))
    if engine is not None:
        check_engine(engine)
    access = TableAccess.of(catalog_properties, allow_roots)
    found = find(source, filesystem, refusing(raw_files), access, stored_only=True)
    return advise_on(found, source, log=log, engine=engine, progress=progress)


def advise_on(
    found: Sources, named: PathLike | Sequence[PathLike], *, log: QueryLog | None = None, engine: str | None = None,
    progress: ProgressCallback | None = None,
) -> Advice:  # fmt: skip
    """`advise` where the files are found, and the log of queries is read, already; named: what commands call them."""
    data, failed = _read(found)
    with data:
        scale = data.scale
        advice = Advice(
            data.files, len(data.read), round(data.row_groups * scale), round(data.bytes * scale),
            round(data.rows * scale), failed=failed,
        )  # fmt: skip
        if log is not None:
            advice.queries = log.queries, log.lost
        meter = Meter(progress, data.read[:1], unit="columns")
        for done, leaf in enumerate(data.leaves):
            advice.columns.append(_column(data, advice, leaf, log, engine))
            meter.part(done + 1, len(data.leaves))
        meter.finish()
        advice.columns.sort(key=_rank)
        advice.flags = flags_of(data)
        advice.commands = _commands(advice, named)
    return advice


def _read(found: Sources) -> tuple[Survey, list[FailedFile]]:
    file_set, snapshot = found.file_set, found.snapshot
    files, outlines, failed = [], [], list(file_set.failed)

    def outline(file: DataFile) -> Outline | ParquetBloomError:
        try:
            with open_logged(file) as opened:
                own = opened.outline()
            if snapshot is None:
                return own
            # Columns have the names that the table has for them; what it does not have is nameless.
            named = named_leaves(own.leaves, snapshot, own.metadata.schema, file)
            return replace(own, leaves=tuple(named), memory={})
        except ParquetBloomError as error:
            return error

    some = spread(file_set.files)
    for file, seen in zip(some, side_by_side(outline, some), strict=True):
        if isinstance(seen, ParquetBloomError):
            if file_set.single:
                raise seen
            failed.append(FailedFile(str(file), seen))
        elif seen.n_row_groups:
            files.append(file)
            outlines.append(seen)
    if not outlines:
        if failed:
            raise failed[0].error
        raise RequestError("no file has a row group; there is nothing to advise on")
    return Survey(len(file_set.files), files, outlines, _columns(outlines, snapshot is not None)), failed


def _columns(outlines: Sequence[Outline], is_table: bool) -> tuple[Leaf, ...]:
    """The columns of the first file; of a table those of any, as files may be older than columns."""
    if not is_table:
        return outlines[0].leaves
    known = {leaf.path: leaf for outline in reversed(outlines) for leaf in outline.leaves if leaf.path}
    return tuple(known.values())


def _column(data: Survey, advice: Advice, leaf: Leaf, log: QueryLog | None, engine: str | None) -> ColumnAdvice:
    found = ColumnAdvice(leaf.name, leaf.type_name, False, "", engines=engines_for(leaf))
    if log is not None:
        found.asked = log.asked[leaf.name]
    refusal = FORMATS["final"].refusal(leaf)
    if refusal is not None:
        found.reason = refusal
        return found
    surveyed = survey_column(data, leaf)
    if surveyed is None:
        found.reason = "no value is stored"
        return found
    _fill(found, surveyed, data, advice)
    assert found.fpp is not None
    found.reason = why_not(surveyed.found, Sizing()) or ""
    if not found.reason and found.asked == 0:
        found.reason = "no query of the log asks for its values"
    if not found.reason and engine is not None:
        found.reason = danger_of(leaf, engine) or next(iter(notes_of([leaf], engine)), "")
    if not found.reason and found.with_filter >= _ALREADY:
        found.reason = "it has filters"
    found.advised = not found.reason
    return found


def _fill(column: ColumnAdvice, surveyed: ColumnSurvey, data: Survey, advice: Advice) -> None:
    found = surveyed.found
    column.null_share = surveyed.null_share
    column.with_filter = surveyed.with_filter / len(found.chunks)
    column.distinct_share = fmean(sample.n_distinct / len(sample.hashes) for sample in found.samples)
    column.fpp = least_rate(found)
    column.row_groups_of_a_key = row_groups_of_a_key(found).times(data.scale)
    column.filter_bytes = filter_bytes(found, column.fpp, data.scale)
    column.seconds = seconds(found, data.scale)
    whole = Whole(advice.row_groups, advice.bytes, len(data.outlines[0].leaves))
    column.absent, column.present = gains(found, column.fpp, whole)
    column.overlap = found.admitted.likely
    column.in_vain = column.fpp * found.absent.likely * advice.row_groups


def _rank(column: ColumnAdvice) -> tuple[bool, float, str]:
    gain = 0.0 if column.absent is None else column.absent.row_groups.likely
    return not column.advised, -(column.asked or 0) - gain if column.advised else 0.0, column.column


def _commands(advice: Advice, source: PathLike | Sequence[PathLike]) -> list[str]:
    advised = [column for column in advice.columns if column.advised]
    if not advised:
        return []
    paths = several(source)
    table = named_table(source)
    changed = paths if table is None else [table.unversioned]  # of a table the latest version alone
    # The rates that the table names. --fpp auto would choose again for each file, and another one than this.
    rates = Counter(f"{column.fpp:g}" for column in advised)
    [(most, _)] = rates.most_common(1)
    others = {column.column: rate for column in advised if (rate := f"{column.fpp:g}") != most}
    return [
        add_command(
            [os.fspath(path) for path in changed],
            [column.column for column in advised],
            in_place=table is None,
            rate=float(most),
            rates={name: float(rate) for name, rate in others.items()},
        ),
        check_command([os.fspath(path) for path in paths], f"{advised[0].column} = ..."),
    ]


__all__ = ["Advice", "ColumnAdvice", "advise"]
