"""`parquet-bloom completion`: scripts that make a shell complete commands, options, files and columns."""

from __future__ import annotations

import click

from parquet_bloom.cli.common import print_lines
from parquet_bloom.cli.groups import Command

_SHELLS = ("bash", "zsh", "fish")


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
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
