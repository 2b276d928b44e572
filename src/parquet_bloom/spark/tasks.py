"""The work of executors on a file, or a part of one, to add filters. No Spark here: rows in, rows out.

    small file   add                       -> its row of the report
    large file   cut: header row and units -> build: a row a filter -> assemble: its row of the report

A unit is a run of column chunks in the order in which their filters are written. Its file may be
replaced between the steps, and filters of other bytes are never put in. Each filter's row says of which bytes it is
(filters.content): by the file's version token, where that is proof on any machine, else by a hash of the chunk,
taken before and after it was decoded and once more by `assemble`. Size and CRC-32 of the footer, which all rows of a
file have in common, tell only that the chunks are the same ones. Which columns get filters is decided once, by `cut`;
the header and the units carry it.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from queue import SimpleQueue
from typing import Any, ClassVar

import pyarrow as pa

from parquet_bloom.edit.add import add_file
from parquet_bloom.edit.plan import Plan, Request, Run, plan_file, writing_order
from parquet_bloom.edit.repair import RepairedFile, RepairRequest
from parquet_bloom.edit.reports import AddedFile
from parquet_bloom.edit.rewrite import is_made_from
from parquet_bloom.edit.writer import BuiltElsewhere, build
from parquet_bloom.errors import CHANGED, ConflictError, FileError, ParquetBloomError, StorageError
from parquet_bloom.filters.content import chunk_hash
from parquet_bloom.filters.decode import ColumnReader
from parquet_bloom.format.footer import ChunkKey
from parquet_bloom.format.forms import BuiltFilter
from parquet_bloom.spark.storages import Storages
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.stores import store_of
from parquet_bloom.storage.table_folders import Tables
from parquet_bloom.storage.workers import Workers

logger = logging.getLogger("parquet_bloom.spark")
logger.addHandler(logging.NullHandler())  # silent by default; add a handler to see a line a file in executors' logs

Row = dict[str, Any]
DONE, UNCHANGED, FAILED = "done", "unchanged", "failed"
_UNIT_BYTES = 64 << 20  # of column chunks, so that a unit is some tenths of a second
_UNIT_FILTERS = 256
_ABREAST = 2  # small files of a task: one is decoded while the other waits for the disk or the network


_WRONG = pa.struct(
    [("row_group", pa.int32()), *((name, pa.string()) for name in ("column", "statistic", "stated", "found"))]
)
ADDED = pa.schema(
    [
        ("path", pa.string()),
        ("output", pa.string()),
        ("status", pa.string()),
        ("row_groups", pa.int32()),
        ("filters", pa.int64()),
        ("bytes_before", pa.int64()),
        ("bytes_after", pa.int64()),
        ("filter_bytes", pa.int64()),
        ("offset_indexes", pa.int64()),
        ("column_indexes", pa.int64()),
        ("index_bytes", pa.int64()),
        ("index_notes", pa.list_(pa.string())),
        ("seconds", pa.float64()),
        ("error", pa.string()),
    ]
)
REPAIRED = pa.schema(
    [
        ("path", pa.string()),
        ("output", pa.string()),
        ("status", pa.string()),
        ("chunks", pa.int64()),
        ("wrong", pa.list_(_WRONG)),
        ("mended", pa.int64()),
        ("mended_log", pa.int64()),
        ("bytes_before", pa.int64()),
        ("bytes_after", pa.int64()),
        ("notes", pa.list_(pa.string())),
        ("unchecked", pa.list_(pa.string())),
        ("seconds", pa.float64()),
        ("error", pa.string()),
    ]
)


@dataclass(frozen=True)
class Job:
    """The request for every file; made on the driver, sent to the executors.

    output   a folder that takes the new versions; None: in place
    schema   the columns of its report
    """

    schema: ClassVar[pa.Schema] = ADDED
    storages: Storages
    request: Any  # Request; of RepairJob, RepairRequest
    output: str | None = None

    @property
    def named(self) -> list[str]:
        """The columns that the request names."""
        return [*(self.request.columns or ()), *(self.request.exclude or ()), *self.request.page_bounds]

    def data_file(self, row: Row) -> DataFile:
        """The data file of a row."""
        return self.storages.data_file(row["path"], row["root"])

    def target(self, data_file: DataFile) -> Location:
        """The place of a file's new version."""
        if self.output is None:
            return data_file
        name = f"{self.output.rstrip('/')}/{data_file.relative}"
        store, path = self.storages.open(name)
        return Location(path, store.filesystem, name)

    def run(self, workers: Workers) -> Any:
        """The request with what this process works on it with; one for all files of a task."""
        return Run(self.request, workers, Tables())

    def workers(self) -> Workers:
        """The threads of one task."""
        return Workers(self.request.threads or 1)

    def change(
        self,
        data_file: DataFile,
        target: Location,
        run: Any,
        built: BuiltElsewhere | None = None,
        chosen: Sequence[int] | None = None,
    ) -> tuple[str, Any]:
        """Make a file's new version; the status and the report.

        run  as the method gives it; the others as add_file has them
        """
        return _once(data_file, target, run, built, chosen)

    def row(self, found_as: str, target: str, status: str, report: Any, seconds: float) -> Row:
        """A file's row of the report."""
        return report_row(found_as, target, status, report, seconds)


class RepairJob(Job):
    """A RepairRequest for every file."""

    schema = REPAIRED
    named: ClassVar[list[str]] = []

    def run(self, workers: Workers) -> RepairRequest:
        """As Job has it."""
        request: RepairRequest = self.request
        return dataclasses.replace(request, tables=Tables())

    def workers(self) -> Workers:
        """As Job has it: a file is compared by one thread."""
        return Workers(1)

    def change(self, data_file: DataFile, target: Location, run: RepairRequest, *_: Any) -> tuple[str, RepairedFile]:
        """As Job has it."""
        how = run.how
        if not how.replaces and store_of(target).exists(target.path):
            with OpenFile(data_file) as source, OpenFile(target) as new:
                if not is_made_from(*((new, source) if run.undo else (source, new))):
                    raise StorageError(target, "exists and is not this file repaired; give overwrite to replace it")
            look = dataclasses.replace(run, how=dataclasses.replace(how, in_place=True, dry_run=True))
            before = look(DataFile(target.path, target.filesystem, target.shown), target, True).report
            if run.undo or not before.wrong:
                return UNCHANGED, dataclasses.replace(before, source=str(data_file))
            run = dataclasses.replace(run, how=dataclasses.replace(how, overwrite=True))
        report = run(data_file, target, how.dry_run).report
        changed = report.mended or report.undone or not how.in_place
        return DONE if changed else UNCHANGED, report

    def row(self, found_as: str, target: str, status: str, report: RepairedFile, seconds: float) -> Row:
        """As Job has it."""
        return repaired_row(found_as, target, status, report, seconds)


# --- a file's row of the report -------------------------------------------------------------------
#
# Small files, whole: a row each, also of those that fail.


def report_row(
    found_as: str, target: str, status: str, report: AddedFile | None, seconds: float, error: str | None = None
) -> Row:
    """One file's row, for each kind of its work."""
    row = {name: getattr(report, name, None) for name in ADDED.names}
    filters = report.filters if report is not None else []
    row |= {"filters": len(filters), "filter_bytes": sum(f.length for f in filters)}
    row |= {"path": found_as, "output": target, "status": status, "seconds": seconds, "error": error}
    return _logged(row)


def repaired_row(found_as: str, target: str, status: str, report: RepairedFile, seconds: float) -> Row:
    """One file's row of a repair."""
    row = {name: getattr(report, name, None) for name in REPAIRED.names}
    row |= {"path": found_as, "output": target, "status": status, "seconds": seconds}
    return _logged(row | {"wrong": [dataclasses.asdict(one) for one in report.wrong]})


def _logged(row: Row) -> Row:
    logger.log(logging.WARNING if row["status"] == FAILED else logging.INFO, "%s", json.dumps(row))
    return row


def failed_row(path: str, error: BaseException | str, seconds: float = 0.0, target: str | None = None) -> Row:
    """The row that reports a failure."""
    text = str(error) if isinstance(error, ParquetBloomError | str) else f"{type(error).__name__}: {error}"
    if not isinstance(error, FileError | str):  # a column that this file lacks, or an unexpected error
        text = f"{path}: {text}"
    return report_row(path, target or path, FAILED, None, seconds, " ".join(text.split("\n")))


def counted(rows: Iterator[Row], work: Callable[[Iterator[Row]], Iterator[Row]], progress: Any) -> Iterator[Row]:
    """Rows of the report, as `work` gives them; `progress` (of spark.sessions, or None) counts their files."""
    for row in work(rows):
        if progress is not None:
            progress.add(row["bytes_before"] or 0)
        yield row


def add(rows: Iterator[Row], job: Job) -> Iterator[Row]:
    """Rows of a listing, small files and what could not be listed -> their rows of the report, in their order."""
    with ExitStack() as stack:
        free: SimpleQueue[Any] = SimpleQueue()
        for _ in range(_ABREAST):
            free.put(job.run(stack.enter_context(job.workers())))

        def work(row: Row) -> Row:
            if row["error"]:
                return failed_row(row["path"], row["error"])
            run = free.get()
            try:
                return _add(row, job, run)
            finally:
                free.put(run)

        yield from stack.enter_context(Workers(_ABREAST)).in_order(work, rows)


def _add(row: Row, job: Job, run: Any, built: BuiltElsewhere | None = None, chosen: Sequence[int] | None = None) -> Row:
    started = time.perf_counter()
    target = None
    try:
        data_file = job.data_file(row)
        target = job.target(data_file)
        try:
            status, report = job.change(data_file, target, run, built, chosen)
        except ConflictError:
            # A twin of this task, or the one it repeats, has just finished this very file.
            status, report = job.change(data_file, target, run)
        return job.row(row["path"], str(target), status, report, time.perf_counter() - started)
    except ImportError:  # what this executor lacks is not the file's doing
        raise
    except Exception as error:  # one bad file must not fail the other files' rows, whatever it did to us
        return failed_row(row["path"], error, time.perf_counter() - started, str(target) if target else None)


def _once(
    data_file: DataFile, target: Location, run: Run, built: BuiltElsewhere | None, chosen: Sequence[int] | None
) -> tuple[str, AddedFile]:
    request = run.request
    how = request.how
    if not how.replaces and store_of(target).exists(target.path):
        report = _made_before(data_file, target, run)
        if report is not None:
            return UNCHANGED, report
        # Ours, of this very source, but without some of the filters asked for.
        run = dataclasses.replace(run, request=request.written(overwrite=True))
    report = add_file(data_file, target, run, built, chosen)
    return DONE if report.filters or report.index_bytes or not how.in_place else UNCHANGED, report


def _made_before(data_file: DataFile, target: Location, run: Run) -> AddedFile | None:
    """The report of an output that an earlier run finished; None if it lacks filters of this request.

    Raises StorageError for a file that is something else.
    """
    with OpenFile(data_file) as source, OpenFile(target) as new:
        if run.request.replace or not is_made_from(source, new):
            raise StorageError(target, "exists and is not this file with filters; give overwrite to replace it")
        wanted, lacking = plan_file(source, run), plan_file(new, run)
        if set(wanted.sizings) & set(lacking.sizings) or set(wanted.indexes.pages) & set(lacking.indexes.pages):
            return None
        footer = source.footer()
        return AddedFile(str(data_file), str(target), footer.n_row_groups, [], source.size, new.size)


# --- large files ----------------------------------------------------------------------------------
#
# Cut into units, whose filters many tasks build, and put together by one.

HEADER = -1  # the place of a file's header row before its units


def cut(rows: Iterator[Row], job: Job) -> Iterator[Row]:
    """Split large files. Each gives a header row, then its units: place and stop in the writing order."""
    with job.workers() as workers:
        run = job.run(workers)
        for row in rows:
            file_fields = {"path": row["path"], "root": row["root"], "size": row["size"]}
            header = {**file_fields, "place": HEADER, "stop": 0, "crc": None, "chosen": None}
            units: list[Row] = []
            try:
                with OpenFile(job.data_file(row), pin=True) as source:
                    file_plan = plan_file(source, run)
                    plan_fields = {"crc": _layout(source), "chosen": file_plan.columns}
                    header |= plan_fields
                    for first, stop in _unit_ranges(source, file_plan, job.request):
                        units.append({**file_fields, "place": first, "stop": stop, **plan_fields})
            except ImportError:  # what this executor lacks is not the file's doing
                raise
            except Exception:
                units = []  # `assemble` meets the same error, and says so
            yield header
            yield from units


def _layout(source: OpenFile) -> int:
    """A CRC-32 of the file's size and footer: where chunks lie. Files of other values may share it."""
    return zlib.crc32(source.footer().data, source.size & 0xFFFFFFFF)


def _unit_ranges(source: OpenFile, made: Plan, request: Request) -> Iterator[tuple[int, int]]:
    footer = source.footer()
    order = writing_order(footer, made, request.at_chunk_start)
    first = size = 0
    for at, key in enumerate(order):
        size += max(footer.meta(*key).total_compressed_size or 0, 0)
        if size >= _UNIT_BYTES or at + 1 - first == _UNIT_FILTERS or at + 1 == len(order):
            yield first, at + 1
            first, size = at + 1, 0


def build_units(rows: Iterator[Row], job: Job) -> Iterator[Row]:
    """Units -> a row a filter; or a row with the error that its file's row will have."""
    with job.workers() as workers:
        run = job.run(workers)
        for row in rows:
            place = row["place"]
            try:
                for key, built, known in _build_unit(row, job, run):
                    yield _filter_row(row, place, key, built, known, None)
                    place += 1
            except ImportError:
                raise
            except Exception as error:
                text = str(error) if isinstance(error, ParquetBloomError) else f"{type(error).__name__}: {error}"
                yield _filter_row(row, place, (-1, -1), None, {}, text)


def _build_unit(row: Row, job: Job, run: Run) -> Iterator[tuple[ChunkKey, BuiltFilter, Row]]:
    """Filters, each with an identity of its bytes: version_token, or else chunk_xxh3."""
    request = run.request
    with OpenFile(job.data_file(row), pin=True) as source:
        if _layout(source) != row["crc"]:
            raise ConflictError(source.path, "was changed by another program meanwhile; run the job again")
        footer = source.footer()
        made = plan_file(source, run, row["chosen"])
        keys = writing_order(footer, made, request.at_chunk_start)[row["place"] : row["stop"]]
        readers = {column: ColumnReader(source, footer.leaves[column]) for _, column in keys}
        token = source.lasting_token(wait=True)
        token_text = None if token is None else json.dumps(token, sort_keys=True)

        def work(key: ChunkKey) -> tuple[ChunkKey, BuiltFilter, Row]:
            before = chunk_hash(source, footer, footer.leaves[key[1]], key[0]) if token is None else None
            built = build(readers[key[1]], footer, key[0], request.form, made.sizings[key])
            if token is not None:
                source.check_unchanged()
            elif chunk_hash(source, footer, footer.leaves[key[1]], key[0]) != before:
                raise ConflictError(source.path, "was changed by another program meanwhile; run the job again")
            return key, built, {"version_token": token_text, "chunk_xxh3": before}

        try:
            yield from run.workers.in_order(work, keys)
        finally:
            run.workers.settle()


def _filter_row(
    row: Row, position: int, key: ChunkKey, built: BuiltFilter | None, known: Row, error: str | None
) -> Row:
    return {
        "path": row["path"],
        "root": row["root"],
        "size": row["size"],
        "place": position,
        "crc": row["crc"],
        "version_token": known.get("version_token"),
        "chunk_xxh3": known.get("chunk_xxh3"),
        "row_group": key[0],
        "column": key[1],
        "data": built.data if built is not None else None,
        "built": json.dumps(built._replace(data=None)._asdict()) if built else None,
        "error": error,
    }


def assemble(rows: Iterator[Row], job: Job) -> Iterator[Row]:
    """Rows of large files, sorted by path and place: a header, then its filters -> rows of the report."""
    with job.workers() as workers:
        run = job.run(workers)
        for _, group in groupby(rows, key=lambda row: row["path"]):
            own = iter(group)
            header = next(own)
            yield _add(header, job, run, _received(header, own), header["chosen"])


def _received(header: Row, rows: Iterator[Row]) -> Callable[[OpenFile, Sequence[ChunkKey]], Iterator[BuiltFilter]]:
    def built(source: OpenFile, keys: Sequence[ChunkKey]) -> Iterator[BuiltFilter]:
        if header["place"] != HEADER or _layout(source) != header["crc"]:
            raise ConflictError(source.path, CHANGED)
        for key in keys:
            row = next(rows, None)
            # Rows of a task that was repeated may come twice only if Spark lost count; never trust the order.
            if row is None or row["error"] is not None or (row["row_group"], row["column"]) != key:
                reason = row["error"] if row is not None and row["error"] else "some of its filters did not arrive"
                raise _Lost(source.path, reason.removeprefix(f"{source.path}: "))
            if row["crc"] != header["crc"] or not _is_of(row, source, key):
                raise ConflictError(source.path, CHANGED)
            fields = json.loads(row["built"])
            texts = tuple((name, value) for name, value in fields.pop("texts"))
            yield BuiltFilter(**{**fields, "data": row["data"], "texts": texts})

    return built


def _is_of(row: Row, source: OpenFile, key: ChunkKey) -> bool:
    """Whether a filter was built from the bytes that a file has now."""
    if row["version_token"] is not None:
        return source.is_known_by(json.loads(row["version_token"]))
    footer = source.footer()
    return bool(chunk_hash(source, footer, footer.leaves[key[1]], key[0]) == row["chunk_xxh3"])


class _Lost(StorageError):
    """Filters that were built elsewhere did not come; running the job again helps, or says what is wrong."""
