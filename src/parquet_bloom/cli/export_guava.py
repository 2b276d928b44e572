"""`parquet-bloom export-guava`: library call parquet_bloom.export_guava."""

from __future__ import annotations

import click

from parquet_bloom.cli.common import say
from parquet_bloom.cli.groups import Command


@click.command("export-guava", cls=Command)
@click.argument("source", metavar="FILE")
@click.option("--column", "-c", required=True, metavar="C", help="Whose filter.")
@click.option("--row-group", "-g", type=click.IntRange(0), default=0, show_default=True, metavar="N")
@click.option("--output", "-o", required=True, metavar="OUT", help="Write here; - is standard output.")
@click.option("--overwrite", is_flag=True, help="Replace an --output that exists.")
def command(source: str, column: str, row_group: int, output: str, overwrite: bool) -> None:
    """Write one filter of `statistics` as the bytes that Guava's BloomFilter.readFrom takes.

    \b
    parquet-bloom export-guava events.parquet --column id --output id.guava
    parquet-bloom add x.parquet --spec statistics --guava id:0=id.guava --in-place

    Its hash family must be guava. The other way is `add --guava`.
    """
    from parquet_bloom.audit.guava import export_guava
    from parquet_bloom.storage.writing.new_file import new_output

    data = export_guava(source, column, row_group)
    if output == "-":
        click.echo(data, nl=False)
        return
    with new_output(output, overwrite) as out:
        out.write(data)
    say(f"{source}: column {column}, row group {row_group} -> {output}, {len(data):,} bytes")
