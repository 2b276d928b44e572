"""The command `parquet-bloom`: one thin command per library call.

Exit status: 0 done; 1 the answer is "no" (check: no row group can match; verify: a filter is
wrong); 2 an error. Of several files the worst counts. Errors are one line on stderr.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from parquet_bloom._version import __version__
from parquet_bloom.errors import ParquetBloomError

_COMMANDS = ("add", "remove", "inspect", "verify", "check", "read", "index", "export-guava", "spark")


class _Commands(click.Group):
    """Loads a command's module when it is asked for: `--help` must not wait for pyarrow."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command = import_module(f"parquet_bloom.cli.{name.replace('-', '_')}").command
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        # Before click sees them: it would end with status 1, and with an empty line.
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ReaderGone from error
        except KeyboardInterrupt as error:
            raise _Interrupted from error


class _ReaderGone(Exception):
    """Whoever read our output has seen enough."""


class _Interrupted(Exception):
    """Control-C."""


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="parquet-bloom")
def group() -> None:
    """Bloom filters in Parquet files: add them to files that exist, read them back, check values.

    FILES are files, folders, globs, or URIs of other storages (s3:, gs:, hdfs:). Exit status: 0 done, 1 the
    answer is no, 2 an error.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit with its status."""
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run a command; return its exit status."""
    try:
        status = group.main(arguments, prog_name="parquet-bloom", standalone_mode=False)
        sys.stdout.flush()
        return int(status or 0)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx is not None else "parquet-bloom"
        _say(f"{error.format_message()} (see {where} --help)")
    except click.ClickException as error:
        _say(error.format_message())
    except (_Interrupted, click.Abort):
        _say("interrupted; files that were not finished are as they were")
        return 130
    except ParquetBloomError as error:
        _say(str(error))
    except (_ReaderGone, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError:
        _say("out of memory; files that were not finished are as they were")
    return 2


def _say(message: str) -> None:
    click.echo(f"parquet-bloom: {message}", err=True)
