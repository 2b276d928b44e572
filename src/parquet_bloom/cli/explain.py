"""`parquet-bloom explain`: the meaning of an error and its cure; no library call, the page is docs/errors.md."""

from __future__ import annotations

import difflib
import sys

import click

from parquet_bloom.cli.common import print_lines
from parquet_bloom.cli.groups import Command
from parquet_bloom.report.text import width_of


@click.command("explain", cls=Command)
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """Explain an error: its meaning and its cure.

    \b
    parquet-bloom explain
    parquet-bloom explain damaged-file
    parquet-bloom explain StorageError

    NAME is the one that a hint gives, or the "kind" of an error that --json prints. Without one, all names are listed.
    """
    from parquet_bloom.report.explained import name_of, sections

    there = sections()
    if name is None:
        table = click.HelpFormatter(width=width_of(sys.stdout))
        table.write_dl([(one.name, one.gist()) for one in there.values()])
        print_lines(table.getvalue().splitlines())
        return
    section = there.get(name) or there.get(name_of(name))
    if section is None:
        near = difflib.get_close_matches(name_of(name), there, 2, 0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(there)}"
        raise click.UsageError(f"no error {name}; {hint}", click.get_current_context())
    print_lines(f"{section.name}\n\n{section.plain()}".rstrip("\n").split("\n"))
