"""`parquet-bloom report`: library call parquet_bloom.write_report."""

from __future__ import annotations

from typing import Unpack

import click

from parquet_bloom.cli.common import (
    footer_limits,
    json_option,
    memory_option,
    print_json,
    raw_files_option,
    say,
    say_failed,
    table_options,
)
from parquet_bloom.cli.groups import FILE, Command
from parquet_bloom.cli.predicate import explain_last_word, split
from parquet_bloom.cli.progress import Watch
from parquet_bloom.options import ReadOptions


@click.command("report", cls=Command)
@click.argument("sources", nargs=-1, required=True, type=FILE, metavar="FILES... [PREDICATE]")
@click.option("--output", "-o", required=True, type=FILE, metavar="FILE", help="Write the page here.")
@click.option("--where", metavar="PREDICATE", help="The predicate, if it is not the last argument.")
@click.option("--count-rows", is_flag=True, help="With a predicate: read what is left, and count the rows that match.")
@click.option("--overwrite", is_flag=True, help="Replace an --output that exists.")
@raw_files_option
@table_options
@json_option
@footer_limits
@memory_option
def command(
    sources: tuple[str, ...],
    output: str,
    where: str | None,
    count_rows: bool,
    overwrite: bool,
    as_json: bool,
    **options: Unpack[ReadOptions],
) -> int:
    """Write one HTML page about files and their filters.

    \b
    parquet-bloom report events/ -o report.html
    parquet-bloom report events/ "trace_id = '4bf92f35'" -o report.html
    parquet-bloom report delta:lake/events -o report.html

    It shows what to do, gain and cost, and pictures of the largest file. With a predicate (SQL text, the last
    argument) it shows what folders' names, bounds and filters leave of it. The page is one file that needs no
    network; the data behind its pictures is in it as JSON.
    """
    from parquet_bloom.report.page.page import write_report
    from parquet_bloom.report.text import plural, size

    words = sources
    sources, where = split(words, where)
    with Watch("report", quiet=as_json) as watch, explain_last_word(words, where):
        page = write_report(
            sources,
            output,
            where=where,
            count_rows=count_rows,
            overwrite=overwrite,
            progress=watch.files,
            **options,
        )
    if as_json:
        print_json("report", page)
    else:
        say(f"{page.path}: {size(page.bytes)}, about {plural(page.files, 'file')}")
    return say_failed(page.failed, page.files)
