"""`parquet-bloom index`: library calls of parquet_bloom.lance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

import click

from parquet_bloom.cli.common import (
    all_option,
    complain,
    indexed_columns_option,
    json_option,
    print_json,
    quiet,
    raw_files_option,
    say,
    say_unused,
    table_options,
)
from parquet_bloom.cli.groups import COLUMN, FILE, Commands
from parquet_bloom.cli.predicate import split
from parquet_bloom.cli.progress import Watch
from parquet_bloom.options import ReadOptions
from parquet_bloom.report.text import headline

if TYPE_CHECKING:
    from parquet_bloom.zones.verify import IndexInfo

_ROWS_SHOWN = 50
_FRAGMENTS_SHOWN = 20
_column_option = click.option(
    "--column", type=COLUMN, metavar="C", help="The column, of an index that does not say it."
)
_type_option = click.option("--type", "kind", metavar="T", help="Its Arrow type (int64, string, timestamp[us], ...).")


_root_option = click.option(
    "--root",
    type=FILE,
    metavar="DIR",
    help="Where the data are: an index opens nothing else. Default: beside its folder.",
)


@click.group("index", cls=Commands)
def command() -> None:
    """Zone indexes beside the data, as Lance has them.

    They are for data that must not be touched, or for steps finer than row groups. INDEX is a bloomfilter.lance, a
    folder of them, or a Lance data set that has such indexes. Needs pylance (extra `lance`).

    \b
    parquet-bloom index build events/ --column trace_id -o events-index/
    """


@command.command("build")
@click.argument("data", nargs=-1, required=True, type=FILE, metavar="DATA...")
@indexed_columns_option
@click.option("--items", type=int, default=8192, show_default=True, metavar="N", help="Rows a zone.")
@click.option("--probability", type=float, default=0.00057, show_default=True, metavar="P", help="False positives.")
@click.option("--output", "-o", required=True, type=FILE, metavar="DIR", help="Write DIR/<column>/bloomfilter.lance.")
@click.option("--overwrite", is_flag=True, help="Replace indexes that are there.")
@click.option("--no-sync", "sync", is_flag=True, flag_value=False, default=True, help="Do not wait for the disk.")
@raw_files_option
@table_options
@json_option
def build(
    data: tuple[str, ...],
    columns: tuple[str, ...],
    items: int,
    probability: float,
    output: str,
    overwrite: bool,
    sync: bool,
    as_json: bool,
    **options: Unpack[ReadOptions],
) -> int:
    """Build an index over columns of Parquet files or folders, of the files of a table, or of one Lance data set.

    \b
    parquet-bloom index build events/ --column trace_id -o events-index/
    parquet-bloom index build delta:lake/events --column trace_id -o events-index/
    """
    from parquet_bloom.report.text import plural, size
    from parquet_bloom.zones.build import build_index

    with Watch("index build", quiet=as_json) as watch:
        report = build_index(
            data,
            columns,
            output,
            items=items,
            probability=probability,
            overwrite=overwrite,
            sync=sync,
            progress=watch.files,
            **options,
        )
    if as_json:
        print_json("index-build", report)
        return 0
    for one in report.indexes:
        headline(one.path, f"{one.column} ({one.type}), {plural(one.zones, 'zone')}, {size(one.bytes)}", say)
    say(
        f"{plural(report.fragments, 'fragment')}, filters of {size(report.filter_bytes)} a zone, {report.seconds:.2f} s"
    )
    return 0


@command.command("inspect")
@click.argument("file", type=FILE, metavar="FILE")
@all_option
@json_option
def inspect(file: str, show_all: bool, as_json: bool) -> int:
    """Show what an index file holds: its metadata and its zones, the first fifty of them without --all.

    \b
    parquet-bloom index inspect events-index/trace_id/bloomfilter.lance
    """
    from parquet_bloom.zones.verify import inspect_index

    info = inspect_index(file)
    if as_json:
        print_json("index-inspect", info)
    elif not quiet():
        _print_index(info, show_all)
    return 0


def _print_index(info: IndexInfo, show_all: bool) -> None:
    from parquet_bloom.report.text import plural, share, size

    of = f" of {info.column} ({info.type})" if info.column else ""
    nulls = "with" if info.null_bitmap else "without"
    held = f"{plural(len(info.zones), 'zone')}{of}, {info.items} rows each for {info.probability:g}"
    headline(info.path, f"{held}, {nulls} a null bitmap, Lance file {info.version}", say)
    fragments = info.fragments or []
    for one in fragments if show_all else fragments[:_FRAGMENTS_SHOWN]:
        say(f"  fragment {one.get('fragment')}: {one.get('path')}")
    if len(fragments) > _FRAGMENTS_SHOWN and not show_all:
        say(f"  ... and {len(fragments) - _FRAGMENTS_SHOWN:,} fragments more")
    rows = [
        (
            z.fragment_id,
            z.zone_start,
            z.zone_length,
            "?" if z.nulls is None else z.nulls,
            size(z.bytes),
            share(z.fpp),
            "; ".join(z.problems),
        )
        for z in info.zones
    ]
    _print_rows(("fragment", "start", "rows", "nulls", "bytes", "fpp", ""), rows, range(6), show_all)


def _print_rows(
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    right: Sequence[int],
    show_all: bool,
    names: Sequence[int] = (),
) -> None:
    """The first rows of a table, or all, and how many there are more."""
    from parquet_bloom.report.text import print_table

    shown = rows if show_all else rows[:_ROWS_SHOWN]
    if shown:
        print_table(headings, shown, right, names=names)
    if len(shown) < len(rows):
        say(f"... and {len(rows) - len(shown):,} more; --all has all")


@command.command("query")
@click.argument("index", nargs=-1, required=True, type=FILE, metavar="INDEX... PREDICATE")
@_column_option
@_type_option
@_root_option
@click.option("--no-check", is_flag=True, help="Do not check whether the data are still those of the index.")
@all_option
@json_option
def query(
    index: tuple[str, ...],
    column: str | None,
    kind: str | None,
    root: str | None,
    no_check: bool,
    show_all: bool,
    as_json: bool,
) -> int:
    """Say which zones may hold a row that matches: =, IN, IS NULL, AND, OR.

    \b
    parquet-bloom index query events-index/ "trace_id = '4bf92f3577b34da6'"

    Exit status 1 if none may.
    """
    from parquet_bloom.report.added import enumerated
    from parquet_bloom.report.text import plural
    from parquet_bloom.zones.query import query_index

    index, predicate = split(index, required=True, what="INDEX")
    found = query_index(index, predicate, column=column, type=kind, check=not no_check, root=root)
    if as_json:
        print_json("index-query", found)
    elif not quiet():
        say(
            f"{len(found.zones):,} of {plural(found.total_zones, 'zone')} may match, "
            f"{found.rows:,} of {found.total_rows:,} rows"
        )
        rows = [(z.fragment, z.start, z.length, z.path or "") for z in found.zones]
        _print_rows(("fragment", "start", "rows", "file"), rows, (0, 1, 2), show_all, names=(3,))
        if found.uncovered:
            numbers = enumerated(list(map(str, found.uncovered)), None if show_all else _FRAGMENTS_SHOWN)
            say(f"no index covers fragments {numbers}: read them whole")
    say_unused(found.unused)
    return 0 if found.zones or found.uncovered else 1


@command.command("verify")
@click.argument("index", nargs=-1, required=True, type=FILE, metavar="INDEX...")
@click.option(
    "--data", multiple=True, type=FILE, metavar="DATA", help="The data, where they are not those the index names."
)
@_column_option
@_type_option
@_root_option
@json_option
def verify(
    index: tuple[str, ...], data: tuple[str, ...], column: str | None, kind: str | None, root: str | None, as_json: bool
) -> int:
    """Hold an index against every row of its data. Exit status 1 if it is wrong: it would cost rows.

    \b
    parquet-bloom index verify events-index/
    """
    from parquet_bloom.report.text import plural
    from parquet_bloom.zones.verify import verify_index

    given = data[0] if len(data) == 1 else list(data) or None
    with Watch("index verify", quiet=as_json) as watch:
        watch.tell("reading every row")
        verdicts = verify_index(index, given, column=column, type=kind, root=root)
    if as_json:
        print_json("index-verify", {"indexes": verdicts})
    else:
        for v in verdicts:
            why = f": {v.reason}" if v.reason else ""
            told = f"{v.column}, {v.rows:,} rows in {plural(v.fragments, 'fragment')}, {v.status}{why}"
            headline(v.path, told, say)
            if quiet() and v.status == "wrong":
                complain(f"{v.path}: {told}")
    return 1 if any(v.status == "wrong" for v in verdicts) else 0


@command.command("register")
@click.argument("file", type=FILE, metavar="FILE")
@click.argument("dataset", type=FILE, metavar="DATASET")
@click.option("--name", metavar="NAME", help="Of the index in Lance; default <column>_idx.")
@click.option("--replace", is_flag=True, help="Take the place of an index of that name.")
def register(file: str, dataset: str, name: str | None, replace: bool) -> int:
    """Add an index to the manifest of its Lance data set, after verifying it; Lance's own queries then use it.

    \b
    parquet-bloom index register index/trace_id/bloomfilter.lance events.lance
    """
    from parquet_bloom.zones.verify import register_index

    with Watch("index register") as watch:
        watch.tell("verifying every row")
        done = register_index(file, dataset, name=name, replace=replace)
    say(f"{dataset}: index over {done.column} registered, {done.rows:,} rows verified")
    return 0
