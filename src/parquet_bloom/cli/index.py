"""`parquet-bloom index`: library calls of parquet_bloom.keys and parquet_bloom.lance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from parquet_bloom.cli import key_index
from parquet_bloom.cli.check import split
from parquet_bloom.cli.common import (
    all_option,
    complain,
    indexed_columns_option,
    json_option,
    memory_option,
    print_json,
    quiet,
    raw_files_option,
    say,
    say_unused,
    table_options,
)
from parquet_bloom.cli.groups import COLUMN, FILE, Commands
from parquet_bloom.cli.key_index import only_for
from parquet_bloom.cli.progress import Watch
from parquet_bloom.errors import RequestError
from parquet_bloom.options import ReadOptions, part
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


class _BuildOptions(ReadOptions):
    """Options of `index build` that are of one kind of index, and those of reading."""

    false_places: float | None
    root: str | None
    dry_run: bool
    items: int | None
    probability: float | None
    sync: bool


@click.group("index", cls=Commands)
def index_command() -> None:
    """Indexes beside the data: key indexes, and Lance's zone indexes.

    A key index says which row groups of many files hold a value; it is a folder with a manifest.json. A zone index is
    for steps finer than row groups; INDEX is then a bloomfilter.lance, a folder of them, or a Lance data set that has
    such indexes, and pylance is needed (extra `lance`).

    \b
    parquet-bloom index build events/ -c trace_id -c user.id -o events-index/
    parquet-bloom check events/ "user.id = 42" --index events-index/
    """


@index_command.command("build")
@click.argument("data", nargs=-1, required=True, type=FILE, metavar="DATA...")
@indexed_columns_option
@key_index.kind_option
@click.option("--output", "-o", required=True, type=FILE, metavar="DIR", help="The folder of the index.")
@key_index.false_places_option
@key_index.root_option
@click.option("--dry-run", is_flag=True, help="Of keys: say how large it would be at most; write nothing.")
@key_index.items_option
@key_index.probability_option
@click.option("--overwrite", is_flag=True, help="Replace an index that is there.")
@click.option(
    "--no-sync", "sync", is_flag=True, flag_value=False, default=True, help="Of lance: do not wait for the disk."
)
@raw_files_option
@table_options
@json_option
@memory_option
def build(
    data: tuple[str, ...],
    columns: tuple[str, ...],
    kind: str,
    output: str,
    overwrite: bool,
    as_json: bool,
    **options: Unpack[_BuildOptions],
) -> int:
    """Build an index over columns of Parquet files or folders, or of the files of a table.

    \b
    parquet-bloom index build events/ --column trace_id -o events-index/
    parquet-bloom index build delta:lake/events -c trace_id -o events-index/
    parquet-bloom index build events/ --kind lance -c trace_id -o events-zones/

    A build of keys that was killed goes on when it is started again; it sorts in --max-memory. --kind lance also takes
    one Lance data set; it writes DIR/<column>/bloomfilter.lance.
    """
    reading = part(ReadOptions, options)
    items, probability, sync = options["items"], options["probability"], options["sync"]
    false_places, root, dry_run = options["false_places"], options["root"], options["dry_run"]
    if kind == "keys":
        of_lance = {"--items": items is not None, "--probability": probability is not None, "--no-sync": not sync}
        only_for("lance", of_lance)
        wanted = key_index.FALSE_PLACES if false_places is None else false_places
        how = {"root": root, "false_places": wanted, "overwrite": overwrite, "dry_run": dry_run}
        return key_index.build(data, columns, output, as_json, how, reading)
    only_for("keys", {"--false-places": false_places is not None, "--root": root is not None, "--dry-run": dry_run})
    from parquet_bloom.report.text import plural, size
    from parquet_bloom.zones.build import build_index

    with Watch("index build", quiet=as_json) as watch:
        report = build_index(
            data,
            columns,
            output,
            **key_index.zone_sizes(items, probability),
            overwrite=overwrite,
            sync=sync,
            progress=watch.files,
            **reading,
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


@index_command.command("update")
@click.argument("index", type=FILE, metavar="INDEX")
@click.argument("data", nargs=-1, required=True, type=FILE, metavar="DATA...")
@raw_files_option
@table_options
@json_option
@memory_option
def update(index: str, data: tuple[str, ...], as_json: bool, **options: Unpack[ReadOptions]) -> int:
    """Bring a key index up to date: new files are decoded, gone ones leave, segments merge.

    \b
    parquet-bloom index update events-index/ events/

    DATA are named again, as an index opens no file by names of its own.
    """
    _refuse_other(index)
    return key_index.update(index, data, as_json, options)


def _refuse_other(index: str) -> None:
    from parquet_bloom.search.question import is_key_index

    if is_key_index(index):
        return
    from parquet_bloom.zones.match import is_zone_index

    if is_zone_index(index):
        again = "parquet-bloom index build DATA --kind lance --column C --output DIR --overwrite"
        raise RequestError(f"{index}: a zone index, which is built again; use {again}")
    raise RequestError(f"{index}: no key index (manifest.json is not in it); name the folder of one")


def _indexes_and_data(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words that name indexes, of which the first is one, and those that name data."""
    from parquet_bloom.search.question import is_key_index

    if is_key_index(words[0]):
        return words[:1], words[1:]
    from parquet_bloom.zones.match import is_zone_index
    from parquet_bloom.zones.sources import is_lance

    if is_lance(words[0]):  # a data set with its own indexes
        return words, ()
    n = 1
    while n < len(words) and is_zone_index(words[n]):
        n += 1
    return words[:n], words[n:]


@index_command.command("rebuild")
@click.argument("index", type=FILE, metavar="INDEX")
@click.argument("data", nargs=-1, required=True, type=FILE, metavar="DATA...")
@key_index.false_places_again_option
@raw_files_option
@table_options
@json_option
@memory_option
def rebuild(
    index: str, data: tuple[str, ...], false_places: float | None, as_json: bool, **options: Unpack[ReadOptions]
) -> int:
    """Build a key index again over its data, with the columns that it has.

    \b
    parquet-bloom index rebuild events-index/ events/

    For an index that grew by updates: its bits stay, so false row groups become more. `index inspect` says how many.
    """
    _refuse_other(index)
    return key_index.rebuild(index, data, false_places, as_json, options)


@index_command.command("inspect")
@click.argument("index", nargs=-1, required=True, type=FILE, metavar="INDEX... [DATA...]")
@click.option(
    "--data", multiple=True, type=FILE, metavar="DATA", help="Of keys: say how many of their files it covers."
)
@all_option
@raw_files_option
@table_options
@json_option
def inspect(
    index: tuple[str, ...], data: tuple[str, ...], show_all: bool, as_json: bool, **options: Unpack[ReadOptions]
) -> int:
    """Show what an index holds: a key index its columns and segments, a zone index the first fifty zones, or --all.

    \b
    parquet-bloom index inspect events-index/ events/
    parquet-bloom index inspect events-zones/
    """
    from parquet_bloom.search.question import is_key_index

    index, more = _indexes_and_data(index)
    data = more + data
    if is_key_index(index[0]):
        return key_index.inspect(index[0], data, as_json, options)
    from parquet_bloom.zones.match import find_indexes
    from parquet_bloom.zones.verify import inspect_index

    paths = find_indexes(index)
    if data:
        raise click.UsageError(f"{data[0]}: of a zone index no data are inspected; index verify holds it against them")
    found = [inspect_index(path) for path in paths]
    if as_json:
        print_json("index-inspect", {"indexes": found})
    elif not quiet():
        for info in found:
            _print_index(info, show_all)
    return 0


def _print_index(info: IndexInfo, show_all: bool) -> None:
    from parquet_bloom.report.text import Column, Table, plural, share, size

    of = f" of {info.column} ({info.type})" if info.column else ""
    nulls = "with" if info.null_bitmap else "without"
    held = f"{plural(len(info.zones), 'zone')}{of}, {info.items} rows each for {info.probability:g}"
    headline(info.path, f"{held}, {nulls} a null bitmap, Lance file {info.version}", say)
    fragments = info.fragments or []
    for one in fragments if show_all else fragments[:_FRAGMENTS_SHOWN]:
        say(f"  fragment {one.get('fragment')}: {one.get('path')}")
    if len(fragments) > _FRAGMENTS_SHOWN and not show_all:
        say(f"  ... and {len(fragments) - _FRAGMENTS_SHOWN:,} fragments more")
    zones = Table.of(
        info.zones,
        Column("fragment", lambda z: z.fragment_id, "number"),
        Column("start", lambda z: z.zone_start, "number"),
        Column("rows", lambda z: z.zone_length, "number"),
        Column("nulls", lambda z: "?" if z.nulls is None else z.nulls, "number"),
        Column("bytes", lambda z: size(z.bytes), "number"),
        Column("fpp", lambda z: share(z.fpp), "number"),
        Column("", lambda z: "; ".join(z.problems)),
        most=None if show_all else _ROWS_SHOWN,
        noun="zone",
    )
    if info.zones:
        say(zones)


@index_command.command("query")
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
    """Say which zones of a zone index may hold a row that matches: =, IN, IS NULL, AND, OR.

    \b
    parquet-bloom index query events-zones/ "trace_id = '4bf92f3577b34da6'"

    Exit status 1 if none may.
    """
    from parquet_bloom.report.added import enumerated
    from parquet_bloom.report.text import Column, Table, plural
    from parquet_bloom.search.question import is_key_index
    from parquet_bloom.zones.query import query_index

    index, predicate = split(index, required=True, what="INDEX")
    if is_key_index(index[0]):
        how = f"parquet-bloom check DATA PREDICATE --index {index[0]}"
        raise RequestError(f"{index[0]}: a key index, which says which row groups may match: {how}")
    found = query_index(index, predicate, column=column, type=kind, check=not no_check, root=root)
    if as_json:
        print_json("index-query", found)
    elif not quiet():
        say(
            f"{len(found.zones):,} of {plural(found.total_zones, 'zone')} may match, "
            f"{found.rows:,} of {found.total_rows:,} rows"
        )
        zones = Table.of(
            found.zones,
            Column("fragment", lambda z: z.fragment, "number"),
            Column("start", lambda z: z.start, "number"),
            Column("rows", lambda z: z.length, "number"),
            Column("file", lambda z: z.path or "", "name"),
            most=None if show_all else _ROWS_SHOWN,
            noun="zone",
        )
        if found.zones:
            say(zones)
        if found.uncovered:
            numbers = enumerated(list(map(str, found.uncovered)), None if show_all else _FRAGMENTS_SHOWN)
            say(f"no index covers fragments {numbers}: read them whole")
    say_unused(found.unused)
    return 0 if found.zones or found.uncovered else 1


@index_command.command("verify")
@click.argument("index", nargs=-1, required=True, type=FILE, metavar="INDEX... [DATA...]")
@click.option(
    "--data", multiple=True, type=FILE, metavar="DATA", help="The data; of a zone index, where it does not name them."
)
@click.option("--all-files", is_flag=True, help="Of keys: decode all files, and not 16 at random.")
@_column_option
@_type_option
@_root_option
@raw_files_option
@table_options
@json_option
@memory_option
def verify(
    index: tuple[str, ...],
    data: tuple[str, ...],
    all_files: bool,
    column: str | None,
    kind: str | None,
    root: str | None,
    as_json: bool,
    **options: Unpack[ReadOptions],
) -> int:
    """Hold an index against its data. Exit status 1 if it is wrong: it would cost rows, or is damaged.

    A zone index is held against every row. Of a key index all entries are read, and some files decoded again.

    \b
    parquet-bloom index verify events-index/ events/
    parquet-bloom index verify events-zones/
    """
    from parquet_bloom.search.question import is_key_index

    index, more = _indexes_and_data(index)
    data = more + data
    if is_key_index(index[0]):
        if not data:
            raise click.UsageError("name the data of a key index behind it: it opens no file by names of its own")
        return key_index.verify(index[0], data, all_files, as_json, options)
    only_for("keys", {"--all-files": all_files, "--raw-files": options.get("raw_files")})
    from parquet_bloom.report.text import plural
    from parquet_bloom.zones.verify import verify_index

    given = key_index.one_source(data) if data else None
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


@index_command.command("register")
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
