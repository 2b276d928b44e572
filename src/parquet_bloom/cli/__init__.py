"""The command `parquet-bloom`: one thin command per library call.

Exit status: 0 done; 1 the answer is "no" (check: no row group can match; verify: a filter is
wrong); 2 an error. Of several files the worst counts. Errors are one line on stderr.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from importlib import import_module
from typing import Any

import click

from parquet_bloom._version import __version__
from parquet_bloom.cli import process
from parquet_bloom.errors import ParquetBloomError

_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
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
    """Control-C, or a signal to end."""


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="parquet-bloom")
def group() -> None:
    """Bloom filters in Parquet files: add them to files that exist, read them back, check values.

    FILES are files, folders, globs, or URIs of other storages (s3:, gs:, hdfs:). Exit status: 0 done, 1 the
    answer is no, 2 an error.
    """


def main() -> None:
    """The process's own command: run it and exit with its status. Programs call `run`."""
    status = 1  # where a traceback was printed
    process.leave_with(lambda: status)
    process.listen()
    status = run()
    sys.exit(status)


def run(arguments: list[str] | None = None) -> int:
    """Run a command; return its exit status."""
    try:
        status = group.main(arguments, prog_name="parquet-bloom", standalone_mode=False)
        sys.stdout.flush()
        return int(status or 0)
    except BaseException as error:
        number = process.asked_to_end()
        if number is not None or isinstance(error, _Interrupted | KeyboardInterrupt | click.Abort):
            # Whatever went wrong while work was given up: others, such as Spark's JVM, may have had the signal too.
            _say("interrupted; files that were not finished are as they were")
            return 128 + (number or signal.SIGINT)
        told = _told(error)
        if told is None:
            raise
        return told


def _told(error: BaseException) -> int | None:
    """Say what went wrong in one line; the exit status, or None for an error that nobody expected."""
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case click.UsageError():
            where = error.ctx.command_path if error.ctx is not None else "parquet-bloom"
            _say(f"{error.format_message()} (see {where} --help)")
        case click.ClickException():
            _say(error.format_message())
        case ParquetBloomError():
            _say(str(error))
        case _ReaderGone() | BrokenPipeError():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        case OSError(filename=None) if error.errno in _DISK:  # those of files have names, or are ours by then
            _say(f"standard output: {error.strerror}")
        case OSError():
            _say(str(error) or type(error).__name__)
        case MemoryError():
            _say("out of memory; files that were not finished are as they were")
        case _:
            return None
    return 2


def _say(message: str) -> None:
    click.echo(f"parquet-bloom: {message}", err=True)
