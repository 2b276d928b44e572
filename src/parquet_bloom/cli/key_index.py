"""`parquet-bloom index` for key indexes: library calls of parquet_bloom.keys, and what is printed of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypedDict

import click

from parquet_bloom.cli.common import complain, print_json, quiet, say
from parquet_bloom.cli.groups import FILE
from parquet_bloom.cli.progress import Watch
from parquet_bloom.options import ReadOptions
from parquet_bloom.report.text import headline

if TYPE_CHECKING:
    from parquet_bloom.keys.plan import IndexedColumn, KeyIndexReport

_DAY_S = 86_400
FALSE_PLACES = 0.05  # as build_index has it, whose module takes its time to load
kind_option = click.option(
    "--kind", type=click.Choice(["keys", "lance"]), default="keys", show_default=True, help="The kind of index."
)


def _false_places(meaning: str) -> Callable[[Any], Any]:
    return click.option("--false-places", type=click.FloatRange(0, min_open=True), metavar="F", help=meaning)


false_places_option = _false_places(
    "Of keys: row groups that a lookup of a value meets by chance, on average; default 0.05."
)
false_places_again_option = _false_places(
    "Row groups that a lookup of a value meets by chance, on average; default: what the index has."
)
root_option = click.option(
    "--root",
    type=FILE,
    metavar="DIR",
    help="Of keys: the folder that names of files begin with; default: the one that all lie in.",
)
items_option = click.option("--items", type=int, metavar="N", help="Of lance: rows a zone; default 8192.")
probability_option = click.option(
    "--probability", type=float, metavar="P", help="Of lance: false positives; default 0.00057."
)


class ZoneSizes(TypedDict):
    """Sizes of a zone index, as its build_index has them."""

    items: int
    probability: float


def zone_sizes(items: int | None, probability: float | None) -> ZoneSizes:
    """The sizes of a zone index by its options."""
    return {
        "items": 8192 if items is None else items,
        "probability": 0.00057 if probability is None else probability,
    }


def only_for(kind: str, given: dict[str, Any]) -> None:
    """Raise click.UsageError for an option of the other kind of index."""
    for name, value in given.items():
        if value:
            raise click.UsageError(f"{name} is for --kind {kind}")


def one_source(data: Sequence[str]) -> Any:
    """Names of a command as functions take them: a table is named alone."""
    return data[0] if len(data) == 1 else list(data)


def build(
    data: Sequence[str],
    columns: Sequence[str],
    output: str,
    as_json: bool,
    how: dict[str, Any],
    options: ReadOptions,
) -> int:
    """Build a key index, and print its report."""
    from parquet_bloom.keys.build import build_index

    with Watch("index build", quiet=as_json) as watch:
        report = build_index(one_source(data), list(columns), output, progress=watch.files, **how, **options)
    if as_json:
        print_json("index-build-keys", report)
        return 0
    print_report(report, " at most; nothing is written" if how["dry_run"] else "")
    return 0


def print_report(report: KeyIndexReport, more: str = "") -> None:
    """Print what a key index has."""
    from parquet_bloom.report.text import plural, size

    of = f"{plural(report.row_groups, 'row group')} of {plural(report.files, 'file')}"
    headline(report.path, f"{of}, {plural(report.rows, 'row')}, {size(report.bytes)}{more}", say)
    _print_columns(report.columns)
    if report.passed_over:
        say(f"{plural(report.passed_over, 'file')} without row groups: no row to find")
    if report.seconds:
        say(f"{report.seconds:.2f} s")


def _print_columns(columns: Sequence[IndexedColumn]) -> None:
    from parquet_bloom.report.text import Column, Table, size

    say(
        Table.of(
            columns,
            Column("column", lambda one: one.column, "name"),
            Column("entries", lambda one: f"{one.entries:,}", "number"),
            Column("bits", lambda one: one.bits, "number"),
            Column("size", lambda one: size(one.bytes), "number"),
            Column("bytes a key", _bytes_a_key, "number"),
            Column("false row groups a lookup", lambda one: f"{one.false_places:.2g}", "number"),
        )
    )


def _bytes_a_key(one: IndexedColumn) -> str:
    return f"{one.bytes / one.entries:.1f}" if one.entries else ""


def update(index: str, data: Sequence[str], as_json: bool, options: ReadOptions) -> int:
    """Update a key index, and print its report."""
    from parquet_bloom.keys.update import update_index
    from parquet_bloom.report.text import plural

    with Watch("index update", quiet=as_json) as watch:
        report = update_index(index, one_source(data), progress=watch.files, **options)
    if as_json:
        print_json("index-update", report)
        return 0
    parts = [f"{report.kept:,} kept"]
    parts += [f"{report.recognised:,} of them by checksums"] if report.recognised else []
    parts += [f"{report.added:,} added", f"{report.gone:,} gone"]
    parts += [f"{plural(report.merged, 'segment')} merged"] if report.merged else []
    say("files: " + ", ".join(parts))
    print_report(report.index)
    return 0


def rebuild(index: str, data: Sequence[str], false_places: float | None, as_json: bool, options: ReadOptions) -> int:
    """Build a key index again, and print its report."""
    from parquet_bloom.keys.update import rebuild_index

    with Watch("index rebuild", quiet=as_json) as watch:
        report = rebuild_index(index, one_source(data), false_places=false_places, progress=watch.files, **options)
    if as_json:
        print_json("index-rebuild", report)
        return 0
    print_report(report)
    return 0


def inspect(index: str, data: Sequence[str], as_json: bool, options: ReadOptions) -> int:
    """Print what a key index has."""
    from parquet_bloom.keys.verify import inspect_key_index
    from parquet_bloom.report.text import Column, Table, plural, size

    info = inspect_key_index(index, one_source(data) if data else None, **options)
    if as_json:
        print_json("index-inspect-keys", info)
        return 0
    of = f"{plural(info.row_groups, 'row group')} of {plural(info.files, 'file')}"
    headline(info.path, f"{of}, {plural(info.rows, 'row')}, {size(info.bytes)}, {info.bytes_per_row:.1f} a row", say)
    when = datetime.fromtimestamp(info.created, UTC).strftime("%Y-%m-%d %H:%M")
    say(f"of {info.table or info.root}{f', version {info.version}' if info.version else ''}")
    say(f"written {when} UTC, {_age(info.age)} ago, by {info.writer}")
    _print_columns(info.columns)
    say(
        Table.of(
            info.segments,
            Column("segment", lambda s: s.id),
            Column("files", lambda s: s.files, "number"),
            Column("gone", lambda s: s.left, "number"),
            Column("row groups", lambda s: s.row_groups, "number"),
            Column("entries", lambda s: f"{s.entries:,}", "number"),
            Column("size", lambda s: size(s.bytes), "number"),
        )
    )
    wrong = [one.column for one in info.columns if one.false_places > 2 * info.false_places]
    if wrong:
        say(f"{', '.join(wrong)}: more false row groups than the {info.false_places:g} that were wanted; index rebuild")
    if info.data_files is not None:
        changed = f" ({info.changed:,} changed since)" if info.changed else ""
        rest = "; the others are read as without it" if info.data_files > (info.covered or 0) else ""
        say(f"covers {info.covered:,} of {plural(info.data_files, 'file')}{changed}{rest}")
    return 0


def _age(seconds: int) -> str:
    from parquet_bloom.report.text import plural

    unit, name = (_DAY_S, "day") if seconds >= 2 * _DAY_S else (3600, "hour") if seconds >= 2 * 3600 else (60, "minute")
    return plural(seconds // unit, name)


def verify(index: str, data: Sequence[str], all_files: bool, as_json: bool, options: ReadOptions) -> int:
    """Verify a key index, and print the verdict."""
    from parquet_bloom.keys.verify import verify_key_index
    from parquet_bloom.report.text import plural

    with Watch("index verify", quiet=as_json) as watch:
        verdict = verify_key_index(index, one_source(data), all_files=all_files, progress=watch.files, **options)
    if as_json:
        print_json("index-verify-keys", verdict)
    else:
        of = f"{verdict.files:,} of {plural(verdict.covered, 'file')} decoded, {plural(verdict.values, 'value')}"
        missed = f", {verdict.missed:,} of them missing" if verdict.missed else ""
        headline(verdict.path, f"{of}{missed}, {verdict.status}", say)
        if quiet() and verdict.missed:
            complain(f"{verdict.path}: {of}{missed}")
        for one in verdict.damaged:
            complain(one)
    return 1 if verdict.status == "wrong" else 0
