"""One query before and after: what filters gain in the engines that are installed, and whether the rows are the same.

    the file has filters on the predicate's columns    before: a copy without filters    after: the file
    it has none there                                  before: the file                  after: a copy with filters

Copies lie in a temporary folder that goes away. Each engine runs in a process of its own; a run of
each file that does not count comes first, then both take turns.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from sqlglot import ErrorLevel, exp
from sqlglot.errors import SqlglotError

from parquet_bloom.change import add_filters, remove_filters
from parquet_bloom.dataclass import dataclass
from parquet_bloom.errors import RequestError, first_line, parameter
from parquet_bloom.facts.known import OURS, Engine
from parquet_bloom.filters.inspect import FileInfo, inspect
from parquet_bloom.options import PathLike
from parquet_bloom.predicates.sql import ShortenedText, parsed, split
from parquet_bloom.search.check import Verdicts, check
from parquet_bloom.source.names import named_table
from parquet_bloom.source.results import Result, table_of
from parquet_bloom.storage.paths import locate
from parquet_bloom.trials.ask import EngineError, EngineProcess, installed_engines

# --- a query in each engine's SQL -----------------------------------------------------------------
#
# A predicate in our SQL -> the same in an engine's: quoted names, fields of structs, what a list holds.

# Engines that take our text as it is are not here.
_DIALECTS = {
    "duckdb": "duckdb",
    "datafusion": "postgres",
    "polars": "postgres",
    "daft": "postgres",
    "spark": "spark",
    "clickhouse": "clickhouse",
}
_CONTAINS = {"spark": "array_contains", "polars": "array_contains", "clickhouse": "has"}


def translated(text: str, engine: str) -> str:
    """The predicate as an engine reads it. Raises TextError; EngineError where its SQL cannot say it."""
    dialect = _DIALECTS.get(engine)
    if dialect is None:
        return text
    whole = ShortenedText(text, {})
    tree = parsed(text, split(text, whole))
    for node in list(tree.find_all(exp.Anonymous)):
        if node.name.lower() == "list_contains" and engine in _CONTAINS:
            node.set("this", _CONTAINS[engine])
    if engine == "datafusion":  # which takes "s"."f" for a table's column
        tree = tree.transform(_field)
    try:
        # Daft takes quotes for a part of the name.
        return tree.sql(dialect=dialect, identify=engine != "daft", unsupported_level=ErrorLevel.RAISE)
    except SqlglotError as error:
        raise EngineError(f"its SQL cannot say this predicate: {first_line(error)}") from None


def _field(node: exp.Expression) -> exp.Expression:
    """A field of a struct in brackets."""
    if not isinstance(node, exp.Column) or len(node.parts) == 1:
        return node
    first, *fields = node.parts
    found: exp.Expression = exp.Column(this=first)
    for part in fields:
        found = exp.Bracket(this=found, expressions=[exp.Literal.string(part.name)], offset=0)
    return found


# --- bench ----------------------------------------------------------------------------------------

BEFORE, AFTER = "before", "after"
_SECONDS = 600  # that one run may take
_GAIN = 1.1  # times as fast, at least: less may be chance


@dataclass(slots=True, repr=False)
class EngineGain(Result):
    """One engine over both files; a figure that it lacks is None.

    seconds_before, seconds_after        median of the runs, planning and the footer included
    bytes_before, bytes_after            that its process asked the system for with read calls in one run, median
                                         (rchar of /proc/self/io); None of engines that read in another way
    row_groups_before, row_groups_after  that it read, of row_groups
    rows                                 found in the file after
    same_rows                            whether both files gave the same rows, whatever their order
    note                                 what else it tells, or why it could not be asked
    """

    engine: str
    title: str
    version: str
    seconds_before: float | None = None
    seconds_after: float | None = None
    bytes_before: int | None = None
    bytes_after: int | None = None
    row_groups_before: int | None = None
    row_groups_after: int | None = None
    row_groups: int | None = None
    rows: int | None = None
    same_rows: bool | None = None
    note: str = ""

    @property
    def times(self) -> float | None:
        """How many times as fast after as before."""
        if not self.seconds_before or not self.seconds_after:
            return None
        return self.seconds_before / self.seconds_after

    @property
    def gained(self) -> bool:
        """Whether it was faster, and reads less by its figures: without that, faster is chance."""
        if (self.times or 0) < _GAIN:
            return False
        if self.row_groups_after is not None and self.row_groups_before is not None:
            return self.row_groups_after < self.row_groups_before
        if self.bytes_after is not None and self.bytes_before is not None:
            return _GAIN * self.bytes_after < self.bytes_before
        return True


@dataclass(slots=True, repr=False)
class BenchReport(Result):
    """The gain of filters for one query.

    made            the file that was made for it: "before" (filters removed) or "after" (filters added)
    columns         of the predicate that a filter can speak of, and that have filters in the file after
    filter_bytes    of these columns in the file after
    size            of the file before, bytes
    row_groups_kept  by this package, with filters
    sentence        what came of it, for people who were not there
    """

    _more: ClassVar = ("sentence",)

    path: str
    predicate: str
    made: str
    columns: list[str]
    filter_bytes: int
    size: int
    row_groups: int
    row_groups_kept: int
    runs: int
    engines: list[EngineGain] = field(default_factory=list)

    def to_arrow(self) -> pa.Table:
        """A row an engine."""
        return table_of(EngineGain, self.engines)

    @property
    def lost_rows(self) -> list[EngineGain]:
        """The engines that found other rows with filters than without."""
        return [gain for gain in self.engines if gain.same_rows is False]

    @property
    def sentence(self) -> str:
        """The result: the engine that gains most, and its cost."""
        if self.lost_rows:
            names = ", ".join(gain.title for gain in self.lost_rows)
            return f"With filters, {names} finds other rows than without: run verify before anybody uses this file."
        share = f"{100 * self.filter_bytes / self.size:.2g} % of the file"
        cost = f"filters on {', '.join(self.columns) or 'no column'} ({share})"
        gains = [gain for gain in self.engines if gain.gained]
        best = max(gains, key=lambda gain: (gain.engine != OURS, gain.times or 0), default=None)
        if best is None:
            asked = ", ".join(gain.title for gain in self.engines if gain.times is not None) or "no engine"
            return f"This query gains nothing by {cost}; asked: {asked}."
        times = f"{best.title} {best.version} answers in {_ms(best.seconds_after)}, not {_ms(best.seconds_before)}"
        read = ""
        if best.row_groups_after is not None:
            few, many = best.row_groups_after, best.row_groups_before
            read = f", and reads {few:,} of {self.row_groups:,} row groups, not {many:,}"
        return f"With {cost} {times}: {best.times:.1f} times as fast{read}; the rows are the same."


def _ms(seconds: float | None) -> str:
    assert seconds is not None
    return f"{1000 * seconds:,.{0 if seconds >= 0.1 else 1}f} ms"


def bench(
    source: PathLike,
    predicate: str,
    *,
    names: Sequence[str] | None = None,
    runs: int = 5,
    raw_files: bool = False,
    progress: Callable[[str], None] | None = None,
) -> BenchReport:
    """Run one query over a file with filters and without, by the engines that are installed here.

    source     one file on a local disk; it stays as it is. A copy with or without filters is made beside the
               system's temporary files, and goes away
    predicate  SQL text that compares a column by =, IN or list_contains; its rows are held in memory
    names      of engines, as `engines` has them; None: all that are installed
    runs       how often each engine asks each file, in turns; one more run comes first and does not count
    raw_files  also a file of an Iceberg, Delta or Hudi table
    progress   is called with each engine's name before it is asked

    Raises RequestError for a predicate that no filter can speak of, tables, several files, files of other storages and
    engines that are not installed; TextError, UnknownColumnError, FileError and its kinds as `check`.
    """
    if runs < 1:
        raise RequestError(parameter("runs") + f" {runs}: at least one is needed")
    if named_table(source) is not None:
        raw = parameter("raw_files", True)
        raise RequestError(f"{source}: bench takes one file on a local disk, no table; name a file of it, with " + raw)
    asked = installed_engines(names)
    file_set = locate(source)
    if len(file_set.files) != 1 or not file_set.files[0].is_local:
        raise RequestError(f"{source}: bench takes one file on a local disk")
    path = file_set.files[0].path
    verdicts = check(path, predicate, raw_files=raw_files)
    columns = [each.column for each in verdicts.columns]
    if not columns:
        raise RequestError(
            "the predicate compares no column by =, IN or list_contains, so there is no filter that could help it"
        )
    with tempfile.TemporaryDirectory(prefix="parquet-bloom-") as folder:
        files, made = _both(Path(path), columns, Path(folder))
        report = _report(
            files, made, str(source), predicate, columns, check(files[AFTER], predicate, raw_files=True), runs
        )
        for engine, version in asked:
            (progress or (lambda name: None))(engine.title)
            report.engines.append(_gain(engine, version, files, predicate, runs))
    _compare(report.engines)
    return report


def _compare(engines: Sequence[EngineGain]) -> None:
    """Note engines that find another number of rows than this package: they understand the predicate otherwise."""
    ours = next((gain.rows for gain in engines if gain.engine == OURS), None)
    for gain in engines:
        if None not in (ours, gain.rows) and gain.rows != ours:
            gain.note = f"{gain.note}; ".removeprefix("; ") + f"{gain.rows:,} rows, where {OURS} finds {ours:,}"


def _both(path: Path, columns: Sequence[str], folder: Path) -> tuple[dict[str, str], str]:
    """(the files before and after, which of them was made)."""
    filters = inspect(path).files[0].filters
    copy = folder / path.name
    if any(each.column in columns for each in filters):
        remove_filters(path, copy, sync=False, raw_files=True)
        return {BEFORE: str(copy), AFTER: str(path)}, BEFORE
    add_filters(path, copy, columns=columns, sync=False, raw_files=True)
    return {BEFORE: str(path), AFTER: str(copy)}, AFTER


def _report(
    files: dict[str, str], made: str, name: str, predicate: str, columns: Sequence[str], verdicts: Verdicts, runs: int
) -> BenchReport:
    after: FileInfo = inspect(files[AFTER]).files[0]
    filters = [each for each in after.filters if each.column in columns]
    return BenchReport(
        name,
        predicate,
        made,
        list(dict.fromkeys(each.column for each in filters)),
        sum(each.length or each.num_bytes for each in filters),
        Path(files[BEFORE]).stat().st_size,
        after.row_groups,
        after.row_groups - verdicts.skipped,
        runs,
    )


def _gain(engine: Engine, version: str, files: dict[str, str], predicate: str, runs: int) -> EngineGain:
    """One engine over both files. An engine that fails or crashes says so in its note."""
    gain = EngineGain(engine.name, engine.title, version)
    with EngineProcess(replace(engine, seconds=max(engine.seconds, _SECONDS))) as process:
        try:
            _measure(process, translated(predicate, engine.name), files, runs, gain)
            if not engine.counted:
                gain.bytes_before = gain.bytes_after = None
        except EngineError as error:
            return EngineGain(engine.name, engine.title, version, note=str(error))
    return gain


def _measure(process: EngineProcess, where: str, files: dict[str, str], runs: int, gain: EngineGain) -> None:
    found: dict[str, list[dict[str, Any]]] = {BEFORE: [], AFTER: []}
    for turn in range(runs + 1):
        for when in (BEFORE, AFTER) if turn % 2 else (AFTER, BEFORE):
            found[when].append(process.ask("find", path=files[when], where=where))
    told = {when: process.ask("tell", path=path, where=where) for when, path in files.items()}
    gain.seconds_before, gain.seconds_after = (_median(found[when], "seconds") for when in (BEFORE, AFTER))
    before, after = (_median(found[when], "bytes") for when in (BEFORE, AFTER))
    gain.bytes_before, gain.bytes_after = (None if n is None else round(n) for n in (before, after))
    gain.row_groups_before, gain.row_groups_after = told[BEFORE]["read"], told[AFTER]["read"]
    gain.row_groups = told[AFTER]["of"]
    gain.rows = found[AFTER][0]["rows"]
    gain.same_rows = len({each["digest"] for runs_of in found.values() for each in runs_of}) == 1
    notes = [told[when]["note"] for when in (BEFORE, AFTER)]
    gain.note = f"{notes[0]} before, {notes[1]} after" if all(notes) else ""


def _median(runs: Sequence[dict[str, Any]], what: str) -> float | None:
    """The median of all runs but the first, which warms up; None where one has no figure."""
    values = [each[what] for each in runs[1:]]
    return None if None in values else statistics.median(values)
