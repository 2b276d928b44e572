"""Advice on a data set, before a byte is written: which columns get filters, at what rate, for what gain and cost."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import Any, Unpack

import pyarrow as pa

from parquet_bloom.advice.survey import (
    ColumnSurvey,
    Gain,
    Survey,
    Whole,
    file_seconds,
    filter_bytes,
    gains,
    least_rate,
    read_survey,
    row_groups_of_a_key,
    seconds,
    survey_column,
)
from parquet_bloom.edit.gain import reason_against
from parquet_bloom.edit.sample import Interval
from parquet_bloom.errors import (
    DamagedFileError,
    RequestError,
    StorageError,
    TextError,
    first_line,
    parameter,
)
from parquet_bloom.facts.known import check_engine, danger_of, engines_for, notes_of
from parquet_bloom.filters.locate import filter_ranges_of
from parquet_bloom.filters.stored import StoredFilters
from parquet_bloom.format.forms import FORMATS, Sizing
from parquet_bloom.format.schema import BOOLEAN, Leaf, join_path
from parquet_bloom.kernels import split_block
from parquet_bloom.options import PathLike, ReadOptions, refuse_unknown, several
from parquet_bloom.predicates.text import parse
from parquet_bloom.predicates.tree import And, Compare, Contains, IsIn, Not, Or, Predicate
from parquet_bloom.source.names import add_command, check_command, paths_of_source
from parquet_bloom.source.results import Result
from parquet_bloom.source.source import ResolvedSource, source_of
from parquet_bloom.storage.display import line, quantity
from parquet_bloom.storage.paths import FailedFile
from parquet_bloom.storage.remote import in_order
from parquet_bloom.storage.table_folders import RAW_FILES
from parquet_bloom.storage.workers import Meter, ProgressCallback

# --- what is wrong today --------------------------------------------------------------------------
#
# What is wrong with a data set's filters today, and where filters are not the answer.

SATURATED = 0.5  # a rate above which a filter admits more absent values than it denies
BLOATED = 4  # times as large as 1 % takes
_MANY_FILES = 1000
_MANY_ROW_GROUPS = 10_000  # from where on more than a hundred get through filters of 1 %
_INDEX_BYTES = 4  # of a key index for each row, where all values differ
_LARGE_BYTES, _LARGE_ROWS = 512 << 20, 5_000_000
_LOOKED_AT = 6  # row groups of a column
_FAR_COLUMNS = 16  # of files on another storage that are sampled at a time


def flags_of(data: Survey) -> list[str]:
    """A line for each thing, the worst first."""
    return [*_filter_flags(data), *_shape_flags(data)]


def _shape_flags(data: Survey) -> Iterator[str]:
    groups = max(1, data.row_groups)
    if data.row_groups >= _MANY_ROW_GROUPS:
        through, size = data.row_groups // 100, data.rows * _INDEX_BYTES / (1 << 20)
        yield (
            f"{data.row_groups:,} row groups: filters of 1 % let some {through:,} of them through for any key; a key "
            f"index beside them lets hardly one, for some {size:,.0f} MiB a column (parquet-bloom index build)"
        )
    elif data.files >= _MANY_FILES and data.row_groups <= len(data.read):
        yield (
            f"{data.files:,} files with one row group each: opening every one of them for its filter costs more than "
            "the filters save; a key index over all files answers here (parquet-bloom index build)"
        )
    if data.row_groups == 1 and data.files == 1:
        yield "one row group: a filter can only show whether the file must be read at all"
    if data.bytes / groups > _LARGE_BYTES or data.rows / groups > _LARGE_ROWS:
        yield (
            f"row groups of {data.bytes / groups / (1 << 20):,.0f} MiB and {data.rows // groups:,} rows: one row that "
            "matches costs the reading of all of them; write smaller ones, or build a zone index"
        )


def _filter_flags(data: Survey) -> Iterator[str]:
    for leaf in data.leaves:
        found = list(_sampled_filters(data, leaf))
        if not found:
            continue
        some = f"column {leaf.name}: {len(found)} filters read"
        if leaf.physical == BOOLEAN:
            empty = sum(bits == 0 for bits, _, _, _ in found)
            if empty:
                yield f"{some}, {empty} without any bit: they deny true and false alike, and readers lose rows by them"
            continue
        saturated = [fpp for bits, fpp, _, _ in found if fpp > SATURATED]
        if saturated:
            told = f"{some}, {len(saturated)} admit {max(saturated):.0%} of absent values: rebuild them with "
            yield told + parameter("replace", True)
        sizes = [
            (size, split_block.size_for(max(1, round(ndv)), 0.01))
            for bits, _, size, ndv in found
            if 0 < bits < 8 * size
        ]
        bloated = [(size, enough) for size, enough in sizes if size >= BLOATED * enough]
        if bloated:
            size, enough = max(bloated)
            told = f"{some}, {len(bloated)} far larger than 1 % takes: {size:,} bytes where {enough:,} do; "
            yield told + parameter("replace", True) + " rebuilds them"
        if leaf.refusal is not None:
            yield f"{some}, which say nothing: {leaf.refusal}"
        yield from (f"column {leaf.name} has filters, and {line}" for line in notes_of([leaf]))


def _sampled_filters(data: Survey, leaf: Leaf) -> Iterator[tuple[int, float, int, float]]:
    """(bits set, fpp, bytes, estimated ndv) of some filters of a column that can be read."""
    left = _LOOKED_AT
    for at, same in data.having(leaf):
        outline = data.outlines[at]
        if not left:
            return
        if not filter_ranges_of(outline, same.index).exists.any():
            continue
        filters = StoredFilters(data.open(at))
        for group in range(min(outline.n_row_groups, left)):
            for stored in filters.of(group, same):
                try:
                    found = stored.describe()
                except DamagedFileError:
                    continue
                if found.bloom is not None:
                    left -= 1
                    bloom = found.bloom
                    yield bloom.bits_set, bloom.fpp, bloom.num_bytes, bloom.estimated_ndv
        if at >= 4 * _LOOKED_AT:
            return


# --- the log of queries ---------------------------------------------------------------------------
#
# A log of queries: how often each column is asked for values, which is where a filter can answer.


@dataclass(slots=True)
class QueryLog:
    """The predicates of a log of queries, counted by column.

    queries  how many were understood; `lost` how many were not
    asked    a column's name -> how many queries could be answered by a filter on it
    """

    queries: int = 0
    lost: int = 0
    asked: Counter[str] = field(default_factory=Counter)


def read_queries(path: str | os.PathLike[str]) -> QueryLog:
    """Read a text file of WHERE clauses or SQL statements, one a line or ended by `;`. Lines of `--` are comments.

    Raises StorageError where it cannot be read, RequestError where nothing in it is a query.
    """
    try:
        with open(path, encoding="utf-8") as lines:
            text = lines.read()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(path, f"cannot be read as text: {first_line(error)}") from error
    log = QueryLog()
    for query in _queries(text):
        predicate = _predicate(query)
        if predicate is None:
            log.lost += 1
            continue
        log.queries += 1
        log.asked.update(answered_by(predicate))
    if not log.queries:
        raise RequestError(f"{os.fspath(path)}: no line of it is a WHERE clause or a SQL statement with one")
    return log


def _queries(text: str) -> Iterator[str]:
    plain = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    parts = plain.split(";") if ";" in plain else plain.splitlines()
    yield from (part.strip() for part in parts if part.strip())


def _predicate(query: str) -> Predicate | None:
    """The predicate of a clause or a statement; None where there is none that is understood."""
    first, *rest = query.split(None, 1)
    clause: str | None = query
    if first.lower() == "where":
        clause = "".join(rest)
    elif first.lower() in ("select", "with"):
        clause = _where_of(query)
    try:
        return None if clause is None else parse(clause)
    except TextError:
        return None


def _where_of(statement: str) -> str | None:
    import sqlglot
    from sqlglot import exp

    try:
        tree = sqlglot.parse_one(statement)
    except sqlglot.errors.SqlglotError:
        return None
    where = tree.find(exp.Where)
    if where is None:
        return None
    for column in where.find_all(exp.Column):  # t.id of FROM events t is the column id
        if column.table and not column.args.get("db"):
            column.set("table", None)
    return str(where.this.sql())


def answered_by(predicate: Predicate) -> set[str]:
    """The columns of which a filter's no decides: those that are compared by =, IN or list_contains.

    Under an OR each part has to be decided, so all of its columns are needed; they count together.
    """
    if isinstance(predicate, And):
        return set().union(*(answered_by(part) for part in predicate.parts))
    if isinstance(predicate, Or):
        parts = [answered_by(part) for part in predicate.parts]
        return set().union(*parts) if all(parts) else set()
    if isinstance(predicate, Not):
        return set()
    if isinstance(predicate, IsIn | Contains) or (isinstance(predicate, Compare) and predicate.op == "="):
        return {join_path(predicate.path)}
    return set()


# --- advise ---------------------------------------------------------------------------------------

_ALREADY = 0.99  # of its row groups have a filter: nothing is to be added


@dataclass(slots=True, repr=False)
class ColumnAdvice(Result):
    """The advice for one column. Figures are intervals: (low, likely, high).

    advised       whether filters are worth their bytes; `reason` says why not
    null_share    of its values; with_filter: the share of its row groups that have a filter today
    distinct_share  distinct values of a row group, as a share of its values
    overlap       the share of row groups whose bounds admit a present value
    row_groups_of_a_key  how many hold it
    fpp           the rate that is advised, see advice.survey.least_rate; the commands of an Advice name it, and no
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
class Advice(Result):
    """The advice for a data set.

    files, row_groups, bytes, rows  of all of it; where there are more than 500 files, carried on from 500 of them
    footers_read  of how many files the footer was read
    columns       every column, those advised first, the largest gain before others
    flags         what is wrong today, and where filters are not the answer
    commands      to be pasted into a shell; none where nothing is advised. Of each `python` is the call that does the
                  same
    queries       how many queries the log has that were understood, and how many that were not
    seconds       that `add` of all advised columns takes here: decoding and hashing, copies of the bytes, and what each
                  file costs, its sync above all; None where none is advised
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
    seconds: Interval | None = None

    @property
    def advised(self) -> list[str]:
        """The names of the columns that should have filters."""
        return [column.column for column in self.columns if column.advised]

    def __repr__(self) -> str:
        advised = f"{len(self.advised):,} of {quantity(len(self.columns), 'columns')} advised"
        names = f": {', '.join(self.advised)}" if 0 < sum(map(len, self.advised)) < 80 else ""
        parts = [advised + names, quantity(self.files, "files"), quantity(self.row_groups, "row groups")]
        parts += [f"{quantity(len(self.failed), 'files')} failed"] if self.failed else []
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
    progress: ProgressCallback | None = None,
    **options: Unpack[ReadOptions],
) -> Advice:
    """Say which columns of a data set should have Bloom filters, what they gain and what they cost; nothing is written.

    source      a file, a folder, a glob, a URI, or a list of them; or one table, "delta:PATH_OR_URI",
                "iceberg:CATALOG/namespace.table", "ducklake:CATALOG/schema.table": its live files
    queries     a text file of WHERE clauses or SQL statements: columns that no query asks for values are not advised
    engine      that will read the files, as "duckdb" or "duckdb@1.4": columns whose filters it does not use, or breaks
                on (`engines`), are not advised; None: any
    filesystem  any pyarrow or fsspec file system; source then names files on it
    progress    is called with a Progress for every column
    options     see ReadOptions: raw_files; of a table catalog_properties, allow_roots

    Reads the footers of up to 500 files, and of each column some 262,144 rows of at least four row groups. The
    columns of one file are those that `add_filters` without `columns` chooses, for the same reasons, by the same
    sample. Of several files it judges each by itself, this function all.

    Raises RequestError for a log without a query, or an engine of which nothing is known; FileError and its kinds
    where no footer can be read.
    """
    refuse_unknown("advise", options, ReadOptions)
    log = None if queries is None else read_queries(os.fspath(queries))
    if engine is not None:
        check_engine(engine)
    found = source_of(source, filesystem, options).resolve(stored_only=True, refuses=RAW_FILES)
    return advise_on(found, source, log=log, engine=engine, progress=progress)


def advise_on(
    found: ResolvedSource,
    named: Any,
    *,
    log: QueryLog | None = None,
    engine: str | None = None,
    progress: ProgressCallback | None = None,
) -> Advice:
    """`advise` over files that were found, with a log of queries that was read; `named` is the source for commands."""
    data, failed = read_survey(found)
    with data:
        scale = data.scale
        advice = Advice(
            data.files,
            len(data.read),
            round(data.row_groups * scale),
            round(data.bytes * scale),
            round(data.rows * scale),
            failed=failed,
        )
        if log is not None:
            advice.queries = log.queries, log.lost
        meter = Meter(progress, data.read[:1], unit="columns")
        column = partial(_column, data, advice, log, engine)
        results = in_order(column, data.leaves, _FAR_COLUMNS if data.is_far else 0)
        for done, result in enumerate(results, 1):
            advice.columns.append(result())
            meter.part(done, len(data.leaves))
        meter.finish()
        advice.columns.sort(key=_rank)
        if advice.advised:
            advice.seconds = file_seconds(advice.files, advice.bytes, data.is_far)
            for one in advice.columns:
                if one.advised and one.seconds is not None:
                    advice.seconds = advice.seconds.plus(one.seconds)
        advice.flags = flags_of(data)
        advice.commands = _commands(advice, named)
    return advice


def _column(data: Survey, advice: Advice, log: QueryLog | None, engine: str | None, leaf: Leaf) -> ColumnAdvice:
    found = ColumnAdvice(leaf.name, leaf.type_name, False, "", engines=engines_for(leaf))
    if log is not None:
        found.asked = log.asked[leaf.name]
    refusal = FORMATS["final"].refusal(leaf)
    if refusal is not None:
        found.reason = refusal
        return found
    try:
        surveyed = survey_column(data, leaf)
    except DamagedFileError as error:  # the other columns can be read
        found.reason = str(error)
        return found
    if surveyed is None:
        found.reason = "no value is stored"
        return found
    _fill(found, surveyed, data, advice)
    assert found.fpp is not None
    found.reason = reason_against(surveyed.found, Sizing()) or ""
    if not found.reason and found.asked == 0:
        found.reason = "no query of the log asks for its values"
    if not found.reason:
        found.reason = danger_of(leaf, engine) or ""
    if not found.reason and engine is not None:
        found.reason = next(iter(notes_of([leaf], engine)), "")
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
    paths = several(paths_of_source(source))
    # The rates that the table names. --fpp auto would choose again for each file, and another one than this.
    rates = Counter(f"{column.fpp:g}" for column in advised)
    [(most, _)] = rates.most_common(1)
    others = {column.column: rate for column in advised if (rate := f"{column.fpp:g}") != most}
    return [
        add_command(
            [os.fspath(path) for path in paths],
            [column.column for column in advised],
            rate=float(most),
            rates={name: float(rate) for name, rate in others.items()},
        ),
        check_command([os.fspath(path) for path in paths], f"{advised[0].column} = ..."),
    ]


__all__ = ["Advice", "ColumnAdvice", "advise"]
