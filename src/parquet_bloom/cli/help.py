"""Commands about the program: explain has the page docs/errors.md, completion the scripts that make shells complete."""

from __future__ import annotations

import difflib
import sys

import click

from parquet_bloom.cli.common import print_lines
from parquet_bloom.cli.groups import Command
from parquet_bloom.report.text import width_of


@click.command("explain", cls=Command)
@click.argument("name", required=False)
def explain_command(name: str | None) -> None:
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


_SHELLS = ("bash", "zsh", "fish")


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> int:
    """Print a script by which a shell completes commands and columns.

    \b
    parquet-bloom completion bash >> ~/.bashrc
    parquet-bloom completion zsh > ~/.zfunc/_parquet-bloom
    parquet-bloom completion fish > ~/.config/fish/completions/parquet-bloom.fish

    For the shell that runs: eval "$(parquet-bloom completion bash)". Of zsh, ~/.zfunc must be in fpath, and compinit
    be called after that. Columns are those of the first file that stands before --column.
    """
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    assert script is not None
    root = ctx.find_root()
    print_lines(
        script(root.command, {}, "parquet-bloom", "_PARQUET_BLOOM_COMPLETE").source().splitlines(), as_it_is=True
    )
    return 0
