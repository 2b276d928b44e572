"""`parquet-bloom add`: library call parquet_bloom.add_filters."""

from __future__ import annotations

from typing import Any

import click

from parquet_bloom.cli.common import (
    column_rates,
    columns_options,
    guava_files,
    json_option,
    listed,
    output_options,
    print_json,
    progress_bar,
    say_failed,
    say_travel,
    sources_argument,
    warnings_as_lines,
)  # fmt: skip


@click.command("add")
@sources_argument
@columns_options
@output_options
@click.option("--spec", default="final", show_default=True, metavar="SPEC",
              help="final, parquet-41, parquet-41-early, parquet-41-raw or statistics.")  # fmt: skip
@click.option("--placement", type=click.Choice(["footer", "chunk-start"]),
              help="Default: footer for final, chunk-start for the 2018 forms.")  # fmt: skip
@click.option("--hash-family", metavar="FAMILY", help="Of statistics: orc, guava or hive.  [default: orc]")
@click.option("--strategy", metavar="NAME", help="Of statistics: MURMUR128_32 or (guava's default) MURMUR128_64.")
@click.option("--conf", multiple=True, metavar="P=V",
              help="Of statistics: a property of the draft, as parquet.expected.entries=1000; more may follow.",
)  # fmt: skip
@click.option("--guava", multiple=True, metavar="C:N=FILE",
              help="Of statistics: what Guava's writeTo wrote, for column C of row group N. Only these are put in.",
)  # fmt: skip
@click.option("--fpp", type=float, help="False positive rate to stay within.  [default: 0.01, statistics: 0.05]")
@click.option("--column-fpp", multiple=True, metavar="C=RATE", help="The rate of one column.")
@click.option("--ndv", type=int, help="First guess of distinct values per row group (statistics: their number).")
@click.option("--max-bytes", type=int, metavar="N", help="The most a filter may take; the rate it reaches is told.")
@click.option("--replace", is_flag=True, help="Build filters anew where there are some.")
@click.option("--threads", type=int, metavar="N", help="How many decode and hash at a time.")
@json_option
def command(
    sources: tuple[str, ...], columns: tuple[str, ...], exclude: tuple[str, ...], as_json: bool, fpp: float | None,
    column_fpp: tuple[str, ...], conf: tuple[str, ...], guava: tuple[str, ...], **options: Any,
) -> int:  # fmt: skip
    """Add Bloom filters to Parquet files; all other bytes stay as they are.

    \b
    parquet-bloom add events.parquet --column trace_id --output events-bloom.parquet
    parquet-bloom add data/ --column 'user.*' --in-place
    parquet-bloom add s3://bucket/events.parquet --in-place

    Without --column: every column that a filter can help. Row groups that lack a filter are
    filled; filters that are there stay, unless --replace.
    """
    from parquet_bloom.files.add import add_filters
    from parquet_bloom.formats.filters import format_named
    from parquet_bloom.formats.properties import PROPERTIES, parse_properties

    form = format_named(options["spec"])
    if conf:  # `--conf a=1 b=2`: what follows the first would be taken for files
        conf += tuple(s for s in sources if s.partition("=")[0] in PROPERTIES)
        sources = tuple(s for s in sources if s.partition("=")[0] not in PROPERTIES)
    if not sources:
        raise click.UsageError("Missing argument 'FILES...'.")
    with warnings_as_lines(), progress_bar(as_json) as progress:
        report = add_filters(
            sources,
            columns=listed(columns),
            exclude=listed(exclude),
            fpp=column_rates(fpp, column_fpp),
            conf=parse_properties(conf),
            guava=guava_files(guava),
            progress=progress,
            **options,
        )
    if form.breaks and any(f.filters for f in report.files):
        click.echo(f"parquet-bloom: warning: {form.breaks} fail on files with {form.name} filters", err=True)
    if as_json:
        print_json({"files": report.files, "failed": report.failed})
    else:
        for file in report.files:
            _print(file)
    return say_failed(report.failed, len(report.files) + len(report.failed))


def _print(file: Any) -> None:
    from parquet_bloom.report.tables import plural, share, size

    arrow = file.source if file.source == file.output else f"{file.source} -> {file.output}"
    names = ", ".join(file.columns[:6]) + (", ..." if len(file.columns) > 6 else "")
    if file.dry_run:
        click.echo(
            f"{arrow}: would add {plural(file.planned_filters, 'filter')}{' on ' + names if names else ''}; "
            f"up to {size(file.planned_bytes)}; needs up to {size(file.bytes_needed)} of disk"
        )
    elif not file.filters:
        click.echo(f"{arrow}: nothing to add")
    else:
        more = file.bytes_after / file.bytes_before - 1
        click.echo(
            f"{arrow}: {plural(len(file.filters), 'filter')} on {names} in {plural(file.row_groups, 'row group')}, "
            f"{size(file.filter_bytes)} (file {100 * more:+.2g} %), {file.seconds:.2f} s"
        )
    say_travel(file)
    for f in file.filters:
        if not f.reached:
            click.echo(f"  {f.column}, row group {f.row_group}: {size(f.num_bytes)} reach a rate of {share(f.rate)}")
    _print_skipped(file.skipped)


def _print_skipped(skipped: list[Any]) -> None:
    from parquet_bloom.report.tables import plural

    several: dict[tuple[str, str], list[int]] = {}
    for s in skipped:
        several.setdefault((s.column, s.reason), []).extend([] if s.row_group is None else [s.row_group])
    for (column, reason), groups in several.items():
        where = (
            ""
            if not groups
            else f", row group {groups[0]}"
            if len(groups) == 1
            else f", {plural(len(groups), 'row group')}"
        )
        click.echo(f"  no filter on {column}{where}: {reason}")
