"""`parquet-bloom index`: library calls of parquet_bloom.lance."""

from __future__ import annotations

from typing import Any

import click

from parquet_bloom.cli.common import json_option, print_json, raw_files_option, say_unused

_index_argument = click.argument("index", nargs=-1, required=True, metavar="INDEX...")
_column_option = click.option("--column", metavar="C", help="The column, of an index that does not say it.")
_type_option = click.option("--type", "kind", metavar="T", help="Its Arrow type (int64, string, timestamp[us], ...).")


@click.group("index", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Zone indexes as Lance has them: for data that must not be touched, or in steps finer than row groups.

    INDEX is a bloomfilter.lance, a folder of them, or a Lance data set that has such indexes. Needs pylance:
    pip install 'parquet-bloom[lance]'
    """


@command.command("build")
@click.argument("data", nargs=-1, required=True, metavar="DATA...")
@click.option(
    "--column", "-c", "columns", multiple=True, required=True, metavar="C", help="A column, by name or pattern."
)
@click.option("--items", type=int, default=8192, show_default=True, metavar="N", help="Rows a zone.")
@click.option("--probability", type=float, default=0.00057, show_default=True, metavar="P", help="False positives.")
@click.option("--output", "-o", required=True, metavar="DIR", help="Write DIR/<column>/bloomfilter.lance.")
@click.option("--overwrite", is_flag=True, help="Replace indexes that are there.")
@click.option("--no-sync", "sync", is_flag=True, flag_value=False, default=True, help="Do not wait for the disk.")
@raw_files_option
@json_option
def build(
    data: tuple[str, ...], columns: tuple[str, ...], items: int, probability: float, output: str, overwrite: bool,
    sync: bool, raw_files: bool, as_json: bool,
) -> int:  # fmt: skip
    """Build an index over columns of Parquet files or folders, or of one Lance data set.

    \b
    parquet-bloom index build events/ --column trace_id -o events-index/
    """
    from parquet_bloom.files.index_build import build_index
    from parquet_bloom.report.tables import plural, size

    report = build_index(
        data, columns, output, items=items, probability=probability, overwrite=overwrite, sync=sync, raw_files=raw_files
    )  # fmt: skip
    if as_json:
        print_json(report)
        return 0
    for one in report.indexes:
        click.echo(f"{one.path}: {one.column} ({one.type}), {plural(one.zones, 'zone')}, {size(one.bytes)}")
    click.echo(
        f"{plural(report.fragments, 'fragment')}, filters of {size(report.filter_bytes)} a zone, {report.seconds:.2f} s"
    )
    return 0


@command.command("inspect")
@click.argument("file", metavar="FILE")
@json_option
def inspect(file: str, as_json: bool) -> int:
    """Show what an index file holds: its metadata, and each zone."""
    from parquet_bloom.files.index_verify import inspect_index
    from parquet_bloom.report.tables import plural, print_table, share

    info = inspect_index(file)
    if as_json:
        print_json(info)
        return 0
    of = f" of {info.column} ({info.type})" if info.column else ""
    nulls = "with" if info.null_bitmap else "without"
    click.echo(
        f"{info.path}: {plural(len(info.zones), 'zone')}{of}, {info.items} rows each for {info.probability:g}, "
        f"{nulls} a null bitmap, Lance file {info.version}"
    )
    for one in info.fragments or ():
        click.echo(f"  fragment {one.get('fragment')}: {one.get('path')}")
    rows = [
        (z.fragment_id, z.zone_start, z.zone_length, "?" if z.nulls is None else z.nulls, z.bytes, share(z.rate),
         "; ".join(z.problems))
        for z in info.zones
    ]  # fmt: skip
    if rows:
        print_table(("fragment", "start", "rows", "nulls", "bytes", "rate", ""), rows, right=(0, 1, 2, 3, 4, 5))
    return 0


@command.command("query")
@_index_argument
@click.argument("predicate")
@_column_option
@_type_option
@click.option("--no-check", is_flag=True, help="Do not look whether the data are still those of the index.")
@json_option
def query(
    index: tuple[str, ...], predicate: str, column: str | None, kind: str | None, no_check: bool, as_json: bool
) -> int:
    """Say which zones may hold a row that matches: =, IN, IS NULL, AND, OR.

    \b
    parquet-bloom index query events-index/ "trace_id = '4bf92f3577b34da6'"

    Exit status 1 if none may.
    """
    from parquet_bloom.files.index_query import query_index
    from parquet_bloom.report.tables import plural, print_table

    found = query_index(index, predicate, column=column, type=kind, check=not no_check)
    if as_json:
        print_json({**_fields(found), "rows": found.rows})
    else:
        if found.zones:
            rows = [(z.fragment, z.start, z.length, z.path or "") for z in found.zones]
            print_table(("fragment", "start", "rows", "file"), rows, right=(0, 1, 2))
        click.echo(
            f"{len(found.zones):,} of {plural(found.total_zones, 'zone')} may match, "
            f"{found.rows:,} of {found.total_rows:,} rows"
        )
        if found.uncovered:
            click.echo(f"no index covers fragments {', '.join(map(str, found.uncovered))}: read them whole")
    say_unused(found.unused)
    return 0 if found.zones or found.uncovered else 1


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


@command.command("verify")
@_index_argument
@click.option("--data", multiple=True, metavar="DATA", help="The data, where they are not those the index names.")
@_column_option
@_type_option
@json_option
def verify(index: tuple[str, ...], data: tuple[str, ...], column: str | None, kind: str | None, as_json: bool) -> int:
    """Hold an index against every row of its data. Exit status 1 if it is wrong: it would cost rows."""
    from parquet_bloom.files.index_verify import verify_index

    given = data[0] if len(data) == 1 else list(data) or None
    verdicts = verify_index(index, given, column=column, type=kind)
    if as_json:
        print_json([{**_fields(v), "status": v.status, "reason": v.reason} for v in verdicts])
    else:
        for v in verdicts:
            why = f": {v.reason}" if v.reason else ""
            click.echo(f"{v.path}: {v.column}, {v.rows:,} rows in {v.fragments:,} fragments, {v.status}{why}")
    return 1 if any(v.status == "wrong" for v in verdicts) else 0


@command.command("register")
@click.argument("file", metavar="FILE")
@click.argument("dataset", metavar="DATASET")
@click.option("--name", metavar="NAME", help="Of the index in Lance; default <column>_idx.")
@click.option("--replace", is_flag=True, help="Take the place of an index of that name.")
def register(file: str, dataset: str, name: str | None, replace: bool) -> int:
    """Add an index to the manifest of its Lance data set, after verifying it; Lance's own queries then use it."""
    from parquet_bloom.files.index_register import register_index

    done = register_index(file, dataset, name=name, replace=replace)
    click.echo(f"{dataset}: index over {done.column} registered, {done.rows:,} rows verified")
    return 0
