"""The command `parquet-bloom`: one thin command per library call.

Exit status: 0 done; 1 the answer is "no" (check: no row group can match; verify: a filter is
wrong); 2 an error. Of several files the worst counts. Errors are one line on stderr.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from importlib import import_module
from typing import Any, NoReturn

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
    """Control-C, or a signal to end."""


class _Stopped(KeyboardInterrupt):
    """A signal that asks the process to end: work is given up as after Control-C."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _stop(number: int, _: Any) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)  # whoever asks twice does not want to wait
    raise _Stopped(number)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="parquet-bloom")
def group() -> None:
    """Bloom filters in Parquet files: add them to files that exist, read them back, check values.

    FILES are files, folders, globs, or URIs of other storages (s3:, gs:, hdfs:). Exit status: 0 done, 1 the
    answer is no, 2 an error.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit with its status, without taking the interpreter apart.

    Threads of Arrow may hold bytes of Python's a moment longer than the command takes. To let them go
    they ask for the lock of an interpreter that is gone by then, and the process aborts after its work
    was done (apache/arrow#36389, #45214). Functions that others gave to atexit are called before.
    """
    status = 1  # where a traceback was printed

    def leave() -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(status)

    atexit.register(leave)  # the first one is the last one called
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # nohup: it is ignored
            signal.signal(number, _stop)
    status = run(arguments)
    sys.exit(status)


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
    except (_Interrupted, KeyboardInterrupt, click.Abort) as error:
        _say("interrupted; files that were not finished are as they were")
        cause = error.__cause__ or error
        return 128 + (cause.number if isinstance(cause, _Stopped) else signal.SIGINT)
    except ParquetBloomError as error:
        _say(str(error))
    except (_ReaderGone, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # those of files are ours by then: this is standard output's, on a full disk
        name = error.filename or "standard output"
        _say(f"{name}: {error.strerror or error}")
    except MemoryError:
        _say("out of memory; files that were not finished are as they were")
    return 2


def _say(message: str) -> None:
    click.echo(f"parquet-bloom: {message}", err=True)
