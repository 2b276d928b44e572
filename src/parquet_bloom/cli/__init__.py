"""The command `parquet-bloom`: one thin command per library call, those of one purpose in a module.

Exit status: 0 done; 1 the answer is "no" (check: no row group can match; verify: a filter is
wrong); 2 an error, of whatever kind. Of several files the worst counts. Errors are one line on stderr,
and a hint below it where one helps.

Decisions

A command ends the process itself (`process`), once the functions registered with `atexit` have run.
    It does not take the interpreter apart. Otherwise a thread of Arrow that frees Python's bytes at that moment aborts
    the process after its work is done: one in some 400 runs of `read --index` on a busy machine (apache/arrow#45214).
    `zones.query` gives its threads bytes that Arrow allocated for the same reason.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar

import click

from parquet_bloom._version import __version__
from parquet_bloom.cli import process
from parquet_bloom.cli.common import complain, option_of, print_json, print_lines, suggest, warnings_as_lines
from parquet_bloom.cli.groups import Commands
from parquet_bloom.errors import ParquetBloomError, TextError, worded
from parquet_bloom.report.gates import annotation

_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
_TABLES = ("delta:", "iceberg:", "ducklake:")  # known here without an import, which takes time
_COMMANDS = {  # by name, as they are listed; the module of each
    "add": "make",
    "remove": "make",
    "repair": "make",
    "inspect": "look",
    "verify": "look",
    "status": "look",
    "check": "check",
    "read": "read",
    "locate": "locate",
    "delete": "rows",
    "upsert": "rows",
    "advise": "make",
    "engines": "look",
    "report": "look",
    "index": "index",
    "spark": "spark",
    "explain": "help",
    "completion": "help",
}
_NoArguments = getattr(click.exceptions, "NoArgsIsHelpError", ())  # click 8.1 prints the help itself


class _Commands(Commands):
    """Loads a command's module when it runs: `--help` must not wait for pyarrow."""

    sections: ClassVar[Mapping[str, Sequence[str]]] = {
        "Make filters": ("advise", "add", "remove", "repair"),
        "Use filters": ("check", "read", "locate"),
        "Change rows": ("delete", "upsert"),
        "Look at filters": ("status", "inspect", "verify", "report", "engines"),
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command = getattr(import_module(f"parquet_bloom.cli.{_COMMANDS[name]}"), f"{name}_command")
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
    """The program that reads our output has closed it."""


class _Interrupted(Exception):
    """Control-C, or a signal to end."""


@click.group(cls=_Commands, context_settings={"max_content_width": 100})
@click.version_option(__version__, prog_name="parquet-bloom")
@click.option("--traceback", is_flag=True, help="Where an error arose; before or after the command's name.")
def group(traceback: bool) -> None:
    """Bloom filters in Parquet files: add them to files that exist, read them back, skip row groups with them.

    \b
    parquet-bloom add events.parquet --column trace_id --in-place
    parquet-bloom check events.parquet "trace_id = '4bf92f3577b34da6'"

    FILES are files, folders, globs, or URIs of other storages (s3:, gs:, hdfs:).

    Exit status: 0 done, 1 the answer is no (check: no row group can match; verify: a filter is wrong), 2 an
    error, 130 interrupted. Of several files the worst counts.
    """


def main() -> None:
    """The process's own command: run it and exit with its status. Programs call `run`."""
    status = 2  # where `run` itself was ended by an error
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    process.leave_with(lambda: status)
    process.listen()
    status = run()
    process.leave_after_signal()
    sys.exit(status)


def run(arguments: list[str] | None = None) -> int:
    """Run a command; return its exit status."""
    given, show_traceback = _without_traceback(sys.argv[1:] if arguments is None else arguments)
    process.talk.quiet, process.talk.verbose = False, 0
    try:
        with warnings_as_lines():
            status = group.main(given, prog_name="parquet-bloom", standalone_mode=False)
        sys.stdout.flush()
        return int(status or 0)
    except BaseException as error:
        if show_traceback and not isinstance(error, _NoArguments):
            traceback.print_exception(error)
        number = process.ending_signal()
        if number is not None or isinstance(error, _Interrupted | KeyboardInterrupt | click.Abort):
            # Whatever went wrong while work was given up: others, such as Spark's JVM, may have had the signal too.
            complain(f"interrupted; {_interrupted_text(given)}")
            return 128 + (number or signal.SIGINT)
        status = _report_error(error)
        if status:
            _print_for_programs(error, status, _format(given))
        return status


def _interrupted_text(arguments: list[str]) -> str:
    """The state after an interrupted command, as far as its words show whether it changes a table."""
    names = [word for word in arguments if not word.startswith("-")][:2]  # as spark add
    if {"add", "remove"}.intersection(names) and any(word.startswith(_TABLES) for word in arguments):
        return "commits that were made stay, and no reader sees what was not committed; run it again to go on"
    return "files that were not finished are as they were"


def _format(arguments: list[str]) -> str:
    """The format that the options of a command set: "json", "github" or "text"."""
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    last = next((b for a, b in zip(words[-2::-1], words[:0:-1], strict=True) if a == "--output-format"), "")
    last = next((w.partition("=")[2] for w in words if w.startswith("--output-format=")), last)
    return "json" if "--json" in words else last or "text"


def _print_for_programs(error: BaseException, status: int, form: str) -> None:
    """The error once more on standard output, where a program reads it: as a document, or as an annotation."""
    text = str(error)
    if isinstance(error, ParquetBloomError):
        text = worded(error.message, option_of)
    elif isinstance(error, click.ClickException):
        text = error.format_message()
    with contextlib.suppress(OSError):
        if form == "json":
            path, column = getattr(error, "path", None), getattr(error, "column", None)
            content = {"error": text, "kind": type(error).__name__, "path": path, "column": column, "status": status}
            print_json("error", content)
        elif form == "github":
            print_lines([annotation("error", text, "parquet-bloom")], as_it_is=True)
        sys.stdout.flush()


def _without_traceback(arguments: list[str]) -> tuple[list[str], bool]:
    """The arguments without --traceback, which may stand anywhere before "--"; and whether it was among them."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    left = [a for a in arguments[:end] if a != "--traceback"]
    return left + arguments[end:], len(left) < end


def _report_error(error: BaseException) -> int:
    """Say what went wrong in one line; the exit status."""
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case SystemExit():
            return 2 if error.code else 0
        case click.UsageError():
            if isinstance(error, _NoArguments):
                click.echo(error.message)  # the help page
                return 0
            where = error.ctx.command_path if error.ctx is not None else "parquet-bloom"
            complain(f"{error.format_message().rstrip('.')} (see {where} --help)")
        case click.ClickException():
            complain(error.format_message())
        case TextError():
            first, *spot = str(error).split("\n")
            complain(first, spot)
        case ParquetBloomError():
            complain(error.message)
            suggest([error])
        case _ReaderGone() | BrokenPipeError():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        case OSError(filename=None) if error.errno in _DISK:  # those of files have names, or are ours by then
            complain(f"standard output: {error.strerror}")
        case OSError():
            complain(str(error) or type(error).__name__)
        case MemoryError():
            complain("out of memory; files that were not finished are as they were")
        case _:
            said = " ".join(str(error).split())
            what = f"{type(error).__name__}: {said}" if said else type(error).__name__
            complain(f"an unexpected error, {what}; the same command with --traceback shows where")
    return 2
