"""Reports of `advise` and `engines` for people."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from parquet_bloom.advice.advise import Advice, ColumnAdvice
from parquet_bloom.edit.sample import Interval
from parquet_bloom.facts.known import (
    ALL,
    CONTAINS,
    DICTIONARY,
    ELEMENT,
    EQUAL,
    FIELD,
    IN,
    KINDS,
    NOT_USED,
    PLAIN,
    RANGE,
    RUN,
    SOURCES,
    USED,
    range_text,
    same_release,
)
from parquet_bloom.report.text import COMMAND, Column, Say, Table, folded, plural, share, shortened, size, width_of


def print_advice(advice: Advice, show_all: bool, say: Say) -> None:
    """Columns that are advised, with gain and cost; why others are not; flags; commands."""
    some = "" if advice.footers_read == advice.files else f" (by the footers of {advice.footers_read:,})"
    shape = f"{plural(advice.files, 'file')}, {plural(advice.row_groups, 'row group')}, {plural(advice.rows, 'row')}"
    say(f"{shape}, {size(advice.bytes)}{some}")
    if advice.queries is not None:
        understood, lost = advice.queries
        say(f"{understood:,} of the log's {understood + lost:,} queries are understood")
    advised = [column for column in advice.columns if column.advised]
    if advised:
        today = filters_today(advised)
        say(f"{plural(len(advised), 'column')} should have filters{'; ' if today else ''}{today}", "magenta")
    else:
        say("no column needs a filter that it lacks", "green")
    if advised:
        say(Table.of(advised, *_COLUMNS))
        say(
            "absent, present key: the share of all row groups that a lookup is spared, beyond what bounds spare it; "
            "in vain: row groups that it reads because a filter errs"
        )
        if advice.seconds is not None:
            say(
                f"to add: decoding and hashing; with new files for {plural(advice.files, 'old one')} "
                f"{in_seconds(advice.seconds)} in all"
            )
        for used, names in _by_engines(advised).items():
            say(f"{', '.join(names)}: {used}")
    others = [column for column in advice.columns if not column.advised]
    if others:
        because = Column("column", lambda one: one.column, "name"), Column("not advised, as", lambda one: one.reason)
        say(Table.of(others, *because, most=None if show_all else 20, noun="column"))
    for line in advice.flags:
        say("note: " + line)
    for command in advice.commands:
        say(command, COMMAND)


def filters_today(advised: Sequence[ColumnAdvice]) -> str:
    """How many row groups have filters on columns that should have them everywhere; empty where none has."""
    shares = sorted(column.with_filter for column in advised)
    if not shares or not shares[-1]:
        return ""
    return f"{between(Interval(shares[0], shares[0], shares[-1]), share)} of the row groups have one today"


def _by_engines(columns: Sequence[ColumnAdvice]) -> dict[str, list[str]]:
    """Engines that use the filters -> the columns."""
    used: dict[str, list[str]] = {}
    for column in columns:
        engines = ", ".join(["this package", *column.engines])
        used.setdefault(f"used by {engines}" if column.engines else "used by this package only", []).append(
            column.column
        )
    return used


def in_percent(interval: Interval) -> str:
    """A share as people read it: "98 to 100 %"."""
    return f"{between(interval, lambda end: str(round(100 * end)))} %"


def in_seconds(interval: Interval) -> str:
    """Seconds as people read them: "< 1 s", "3 to 10 s"."""
    if interval.high < 1:
        return "< 1 s"
    low, high = round(interval.low), max(1, round(interval.high))
    return f"{high} s" if low == high else f"{low} to {high} s"


def between(interval: Interval, text: Callable[[float], str]) -> str:
    """Both ends of an interval, or one where they read the same: "1.0 MiB to 2.0 MiB"."""
    low, high = text(interval.low), text(interval.high)
    return low if low == high else f"{low} to {high}"


def bytes_between(interval: Interval) -> str:
    """Bytes as people read them."""
    return between(interval, lambda end: size(round(end)))


# Of an advised column; a page sorts it by the numbers.
NAME, RATE, BYTES, SECONDS, ABSENT, PRESENT, VAIN = _COLUMNS = (
    Column("column", lambda one: one.column, "name"),
    Column("fpp", lambda one: (share(one.fpp), one.fpp or 0.0), "number"),
    Column("filters", lambda one: (bytes_between(one.filter_bytes), one.filter_bytes.likely), "number"),
    Column("to add", lambda one: (in_seconds(one.seconds), one.seconds.likely), "number"),
    Column("absent key", lambda one: _spared(one.absent), "number"),
    Column("present key", lambda one: _spared(one.present), "number"),
    Column("in vain", lambda one: (f"{one.in_vain:.2g}", one.in_vain or 0.0), "number"),
)


def _spared(lookup: Any) -> tuple[str, float]:
    return in_percent(lookup.row_groups), lookup.row_groups.likely


# --- engines --------------------------------------------------------------------------------------
#
# Which engine uses filters, for people: a table on the terminal, and the page docs/engines.md.

Key = tuple[str, str, str, str]  # engine, kind, stored, question
# Rows below the kinds: what is asked over those kinds whose plain columns an engine's filters serve.
_MORE = (
    ("with a dictionary", DICTIONARY, EQUAL),
    ("x IN (5, 7)", PLAIN, IN),
    ("x >= 5 AND x <= 7", PLAIN, RANGE),
    ("field of a struct", FIELD, EQUAL),
    ("element of a list", ELEMENT, CONTAINS),
)
# Kinds that readers take for one: a name, and the kinds with what tells each from the others.
_FAMILIES: tuple[tuple[str, dict[str, str]], ...] = (
    ("signed integers", {f"int{bits}": f"{bits} bits" for bits in (8, 16, 32, 64)}),
    ("unsigned integers", {f"uint{bits}": f"{bits} bits" for bits in (8, 16, 32, 64)}),
    ("floats", {"float16": "16 bits", "float": "32 bits", "double": "64 bits"}),
    ("texts", {"string": ""}),
    ("bytes", {"binary": "of any length", "fixed": "of a fixed length"}),
    ("UUIDs", {"uuid": ""}),
    ("dates", {"date": ""}),
    ("times", {f"time[{unit}]": unit for unit in ("ms", "us", "ns")}),
    ("timestamps without a zone", {f"timestamp[{unit}]": unit for unit in ("ms", "us", "ns")}),
    ("timestamps in UTC", {f"timestamp[{unit}, UTC]": unit for unit in ("ms", "us", "ns")}),
    ("decimals", {f"decimal as {stored}": f"as {stored}" for stored in ("INT32", "INT64", "FIXED")}),
)
_NESTED = (("fields of structs", FIELD, EQUAL), ("elements of lists", ELEMENT, CONTAINS))
_OTHER = "?"
_FEW = 6  # hazards that are told in full

_PAGE = """# Engines

Which engine uses Bloom filters, by type of column. Made by `docs/generate` from what the package keeps;
`parquet-bloom engines` prints the same.

## By engine

"""
_HOW = """
The question is `x = 5`; others are below. A type in neither cell: the engine cannot be asked. `parquet_bloom` is this
package: engines that use no filters by themselves gain through its `read_table`, `scan_polars` and `dataset`.

## By type

**How it is found out.** A file with one row group has filters that deny every value. An engine is asked for a value
that is stored, with a literal of the column's own type, between min and max. If it does not find the row, it has used
the filter. The same file with right filters is the control: where the row is not found there either, or the engine
gives an error, it cannot be asked ("-"). Each engine runs in a process of its own. Iceberg is asked through
Spark 3.5, of a table that has the file, and only for types that both know.

"""
_HAZARDS = """
## Releases that break on right filters

Some releases lose rows, or crash, over filters or page indexes that are right; some programs write wrong ones.
`parquet-bloom add --engine clickhouse@26.3` leaves out the columns over whose filters that release breaks, with the
reason, and `parquet-bloom advise` does not advise them. A column that `--column` names gets its filter all the same,
and a warning. A version may be short: 26.3 is any 26.3. Where it takes a condition that no file shows, `add` says so
in a note and leaves nothing out.

"""
_EXPLAIN = """
The upper rows ask `x = 5` over a column without a dictionary. The lower rows are over all types that say yes above:
"some" is some of them. A dictionary matters to ClickHouse, which then uses no filter. DuckDB takes IN over
neighbouring integers, `x IN (5, 6)`, for a range. DataFusion needs a literal of the column's type over FLOAT:
`x = 1.5::double` uses no filter. An engine of another release may differ; `parquet-bloom add --engine` says so.

## See it in the engine

**DuckDB.** `EXPLAIN ANALYZE SELECT ...` has a line `Row Groups Scanned: 1 / 50` in the scan (since 2.0). Which row
groups a filter excludes: `SELECT * FROM parquet_bloom_probe('file.parquet', 'trace_id', '4bf92f3577b34da6')`.

**DataFusion.** `EXPLAIN ANALYZE SELECT ...` has `row_groups_pruned_bloom_filter=50 total → 1 matched` among the
metrics of the scan, and `row_groups_pruned_statistics` for min and max.

**Spark.** The SQL tab of its web page shows `number of output rows` at the scan: the rows of the row groups that it
read. In code it is the metric `numOutputRows` of the scan in `df._jdf.queryExecution().executedPlan()`, after the
query ran.
"""


def _answers(report: Any) -> dict[Key, str]:
    return {(a.engine, a.kind, a.stored, a.question): a.answer for a in report.answers}


def _word(answer: str | None) -> str:
    return {USED: "yes", NOT_USED: "no", None: _OTHER}.get(answer, "-" if answer != "lost" else "lost")


def _more(answers: dict[Key, str], engine: str, stored: str, question: str) -> str:
    """Of the kinds whose plain columns the engine's filters serve: yes, no or some."""
    served = [kind for kind in KINDS if answers.get((engine, kind, PLAIN, EQUAL)) == USED]
    found = [answer for kind in served if (answer := answers.get((engine, kind, stored, question))) is not None]
    if not found:
        return "-" if served else ""
    return "yes" if set(found) == {USED} else "some" if USED in found else "no"


def table_rows(report: Any, engines: Sequence[Any]) -> list[list[str]]:
    """A row a kind, then the rows of other questions; a cell an engine."""
    answers = _answers(report)
    kinds = [kind for kind in KINDS if any((e.name, kind, PLAIN, EQUAL) in answers for e in engines)]
    rows = [[kind, *(_word(answers.get((e.name, kind, PLAIN, EQUAL))) for e in engines)] for kind in kinds]
    for title, stored, question in _MORE:
        cells = [_more(answers, e.name, stored, question) for e in engines]
        if any(cells):
            rows.append([title, *cells])
    return rows


def _by_engine(report: Any, engine: Any) -> list[str]:
    """The engine, the types on which it uses filters, and those on which it does not, in words."""
    answers = _answers(report)
    said = {kind: _word(answers.get((engine.name, kind, PLAIN, EQUAL))) for kind in KINDS}
    if "yes" not in said.values():
        return [f"{engine.title} {engine.version}", "nothing", "all types of the run"]
    nested = {title: _more(answers, engine.name, stored, question) for title, stored, question in _NESTED}
    cells = []
    for word in ("yes", "no"):
        parts = [_of_family(name, kinds, {k for k in kinds if said[k] == word}) for name, kinds in _FAMILIES]
        parts += [title for title, found in nested.items() if found == word]
        parts += [f"some {title}" for title, found in nested.items() if found == "some" and word == "yes"]
        cells.append(", ".join(filter(None, parts)))
    return [f"{engine.title} {engine.version}", *cells]


def _of_family(name: str, kinds: dict[str, str], these: set[str]) -> str:
    """The family's name, with those of its kinds if it is not all of them; empty without any."""
    if not these or len(these) == len(kinds):
        return name if these else ""
    return f"{name} ({', '.join(detail for kind, detail in kinds.items() if kind in these)})"


def print_engines(report: Any, say: Say) -> None:
    """Print which engine uses filters of which type, then the reasons of unknown answers, and the sources."""
    if any(e.how != SOURCES for e in report.engines):
        _print_measured(report, say)
    sources = [e for e in report.engines if e.how == SOURCES]
    if sources:
        say("from their sources or documents, not run:")
    for e in sources:
        say(f"  {e.title} {e.note}")
    _print_hazards(report.hazards, say)


def _print_hazards(hazards: Sequence[Any], say: Say) -> None:
    """A line each, and of few what to do and the source."""
    if not hazards:
        return
    width, few = width_of(sys.stdout), len(hazards) <= _FEW
    say("releases that break on right filters or page indexes, or write wrong ones:", "red")
    for hazard in hazards:
        if few:
            for line in folded(f"  {_hazard(hazard)}; {hazard.avoid} ({hazard.how}, {hazard.source})", width):
                say(line)
        else:
            say(shortened(f"  {_hazard(hazard)}", width))
    if not few:
        say("  with --engine NAME also what to do, and the source")


def _hazard(hazard: Any) -> str:
    """The releases, their fault, the filters and the places, as a sentence without an end."""
    versions = ", ".join(range_text(tuple(one)) for one in hazard.versions)
    types = "all types" if ALL in hazard.types else ", ".join(hazard.types)
    where = f", where {hazard.when}" if hazard.when else ""
    ours = "" if hazard.ours else "; not over files of this package"
    return f"{hazard.title}, {versions}: {hazard.effect}, {types}{where}{ours}"


def _print_measured(report: Any, say: Say) -> None:
    measured = [e for e in report.engines if e.how != SOURCES]
    using = {a.engine for a in report.answers if a.answer == USED}
    always = using - {a.engine for a in report.answers if a.answer != USED}
    shown = [e for e in measured if e.name in using - always] or measured
    say(f"by type of column, {_named(shown)}:")
    columns = [Column(text, itemgetter(at)) for at, text in enumerate(["type", *(e.title for e in shown)])]
    say(Table.of(table_rows(report, shown), *columns))
    others = [e for e in measured if e not in shown]
    for what, some in (("for all of these", always), ("use no filters", {e.name for e in others} - always)):
        if named := _named([e for e in others if e.name in some]):
            say(f"{what}: {named}")
    for e in measured:
        if e.installed is not None and not same_release(e.installed, e.version):
            say(f"{e.title} {e.installed} is installed here; another release may differ")


def _named(engines: Sequence[Any]) -> str:
    return ", ".join(f"{e.title} {e.version}" for e in engines)


def markdown(report: Any) -> str:
    """The page docs/engines.md."""
    measured = [e for e in report.engines if e.how != SOURCES]
    text = _PAGE + _markdown_row(["engine", "uses filters on", "not on"]) + _markdown_row(["---"] * 3)
    text += "".join(_markdown_row(_by_engine(report, e)) for e in measured)
    text += _HOW + _markdown_row(["type", *(f"{e.title} {e.version}" for e in measured)])
    text += _markdown_row(["---"] * (len(measured) + 1))
    text += "".join(map(_markdown_row, table_rows(report, measured)))
    text += _EXPLAIN + "\n## From sources\n\nRead in their source or documents, not run.\n\n"
    text += "".join(f"* **{e.title}** {e.note}\n" for e in report.engines if e.how == SOURCES)
    text += _HAZARDS
    for hazard in report.hazards:
        tried = f" {'Run' if hazard.how == RUN else 'Read, not run'}: {hazard.tried}." if hazard.tried else ""
        how = tried or (" Run." if hazard.how == RUN else " Read, not run.")
        what = _hazard(hazard).removeprefix(f"{hazard.title}, ")
        text += f"* **{hazard.title}** {what}. To do: {hazard.avoid}.{how} <{hazard.source}>\n"
    return text


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"
