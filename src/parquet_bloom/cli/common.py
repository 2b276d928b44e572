"""Shared by the commands: options, lines for people, JSON, warnings, the closing count of failures."""

from __future__ import annotations

import dataclasses
import functools
import json
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

import click

from parquet_bloom.cli.groups import COLUMN, FILE, RATE, SIZE
from parquet_bloom.cli.process import talk
from parquet_bloom.cli.progress import Watch
from parquet_bloom.errors import FilterWarning, Parameter, RequestError, TableWarning, parameter, worded
from parquet_bloom.options import RANGE_VALUES, Draft2015, Form, FormName, ReadOptions, set_limits
from parquet_bloom.report.gates import Gate
from parquet_bloom.report.text import (
    COMMAND,
    MOST_REASONS,
    UNBOUNDED,
    Table,
    coloured,
    failure_lines,
    folded,
    inert,
    json_text,
    painted,
    print_table,
    visible,
    width_of,
)
from parquet_bloom.storage.display import without_secret

if TYPE_CHECKING:
    from parquet_bloom.format.forms import Rate
    from parquet_bloom.options import Family, Strategy

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS = {
    "form": "--spec",
    "properties": "--property",
    "names": "--engine",
    "kinds": "--kind",
    "catalog_properties": "--catalog-property",
    "allow_roots": "--allow-root",
}  # of parameters that the command line calls otherwise


def decorated(function: Callable[..., Any], decorators: Sequence[Callable[[Any], Any]]) -> Any:
    """A function with decorators, the first of them outermost."""
    return functools.reduce(lambda inner, decorate: decorate(inner), reversed(decorators), function)


def columns_options(function: F) -> F:
    """--column and --exclude, names or patterns."""
    return _columns_option(
        click.option(
            "--exclude", "-x", multiple=True, type=COLUMN, metavar="C", help="Leave out a column, by name or pattern."
        )(function)
    )


def indexed_columns_option(function: F) -> F:
    """--column, which is needed."""

    @functools.wraps(function)
    def checked(*args: Any, columns: tuple[str, ...], **options: Any) -> Any:
        if not columns:
            raise click.MissingParameter(
                param=next(p for p in click.get_current_context().command.params if p.name == "columns")
            )
        return function(*args, columns=columns, **options)

    return _columns_option(cast(F, checked))


def _columns_option(function: F) -> F:
    """--column C, as often as there are columns; and, as people type it, --columns A,B."""

    @functools.wraps(function)
    def joined(*args: Any, columns: tuple[str, ...], listed_columns: str | None, **options: Any) -> Any:
        return function(*args, columns=(*columns, *split_names(listed_columns)), **options)

    several = click.option("--columns", "listed_columns", type=COLUMN, metavar="A,B", hidden=True)
    return click.option(
        "--column", "-c", "columns", multiple=True, type=COLUMN, metavar="C", help="A column, by name or pattern."
    )(several(cast(F, joined)))


def split_names(text: str | None) -> list[str]:
    """The names in A,B."""
    return [name.strip() for name in text.split(",")] if text else []


raw_outputs_option = click.option(
    "--raw-files", is_flag=True, help="With --output: a table's files too, also dead ones."
)
no_sync_option = click.option(
    "--no-sync", "sync", is_flag=True, flag_value=False, default=True, help="Do not wait for the disk."
)
_OUTPUT = (
    click.option("--output", "-o", type=FILE, metavar="FILE_OR_DIR", help="Write here; several sources need a folder."),
    click.option("--in-place", is_flag=True, help="Replace each source by its new version, atomically."),
    click.option("--overwrite", is_flag=True, help="Replace an --output that exists."),
    click.option("--force", is_flag=True, help="Also in a table's folder, hard-linked and read-only files."),
    raw_outputs_option,
    click.option("--dry-run", is_flag=True, help="Say what would be done; write nothing."),
    no_sync_option,
    click.option("--read-back", is_flag=True, help="Compare all bytes, read from the disk, before they count."),
)


def output_options(function: F) -> F:
    """Options for the place of a new version, and how it is written."""
    return cast(F, decorated(function, _OUTPUT))


all_option = click.option("--all", "show_all", is_flag=True, help="Show every row of what is summed up.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document, always of everything.")


def _set_limit(ctx: click.Context, param: click.Parameter, value: int | None) -> None:
    """For this command: programs that call `run` have their own limits back afterwards."""
    if value is not None:
        before = set_limits(**{str(param.name): value})
        ctx.call_on_close(lambda: set_limits(**dataclasses.asdict(before)))


def _limit_option(name: str, kind: Any, metavar: str, what: str) -> Callable[[F], F]:
    return click.option(name, type=kind, metavar=metavar, help=what, expose_value=False, callback=_set_limit)


memory_option = _limit_option(
    "--max-memory", SIZE, "SIZE", "Memory for decoding a column, in each thread; default 512MiB."
)


def footer_limits(command: F) -> F:
    """Limits of footers, as parquet-cpp has them, and of requests."""
    lists = _limit_option("--max-list-elements", click.INT, "N", "Refuse footers with longer lists; default 1,000,000.")
    texts = _limit_option("--max-string-bytes", SIZE, "SIZE", "Refuse footers with longer texts; default 100MB.")
    files = _limit_option("--concurrency", click.INT, "N", "Files of other storages at a time; default 64.")
    return lists(texts(files(command)))


github_option = click.option(
    "--output-format",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    show_default=True,
    help="github: annotations of a workflow run; json: as --json.",
)
assert_filters_option = click.option(
    "--assert-filters",
    multiple=True,
    type=COLUMN,
    metavar="C",
    help="Status 1 if a row group lacks a sound filter on this column; may be repeated.",
)
index_option = click.option(
    "--index", type=FILE, metavar="DIR", help="A key index: files in which it denies all are not opened."
)
raw_files_option = click.option(
    "--raw-files", is_flag=True, help="Read every file that lies in a table's folder as it is, dead ones too."
)


strict_index_option = click.option(
    "--strict-index",
    is_flag=True,
    help="A file that the index does not cover, or a damaged part of it, is an error.",
)


no_listing_option = click.option(
    "--no-listing",
    "listing",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Take the names of the files from the index; files that came since are not seen.",
)


def key_index_options(function: F) -> F:
    """--strict-index, --no-listing."""
    return strict_index_option(no_listing_option(function))


class IndexKeywords(ReadOptions):
    """Options that the library takes as they come, of commands that ask a key index."""

    listing: bool
    strict_index: bool


def _properties(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str] | None:
    """K=V, several times, as a mapping."""
    pairs = [text.partition("=") for text in values]
    for text, (name, sign, _) in zip(values, pairs, strict=True):
        if not name or not sign:
            raise RequestError(f"{option_of(Parameter(str(param.name)))} {text}: expected NAME=VALUE, as in type=sql")
    return {name: value for name, _, value in pairs} or None


def table_options(function: F) -> F:
    """Options of a table beside its name."""
    for option in (
        click.option(
            "--allow-root",
            "allow_roots",
            multiple=True,
            type=FILE,
            metavar="DIR",
            help="A folder or URI, beside a table's own, below which its log may name files.",
        ),
        click.option(
            "--catalog-property",
            "catalog_properties",
            multiple=True,
            metavar="K=V",
            callback=_properties,
            help="Of the catalog of an iceberg: or ducklake: table, as pyiceberg has them.",
        ),
    ):
        function = option(function)
    return function


def commit_options(function: F) -> F:
    """How a table's files get new versions."""
    function = table_options(function)
    function = click.option(
        "--files-per-commit",
        type=int,
        metavar="N",
        help="Of a table: a commit after so many files; default one for all.",
    )(function)
    return click.option(
        "--commit",
        type=click.Choice(["same-path", "new-path"]),
        help="Of a table: grow files, or replace them; default what keeps all its promises.",
    )(function)


range_option = click.option(
    "--range-values",
    type=click.IntRange(0),
    default=RANGE_VALUES,
    show_default=True,
    metavar="N",
    help="Ask filters for each value of a range of so many integers or dates.",
)
sources_argument = click.argument("sources", nargs=-1, required=True, type=FILE, metavar="FILES...")


def none_if_empty(values: Sequence[str]) -> list[str] | None:
    """Return None for an option without a value, so that the library takes its default."""
    return list(values) or None


_FILTER = (
    click.option(
        "--spec",
        default="final",
        show_default=True,
        metavar="SPEC",
        help="final, parquet-41, parquet-41-early, parquet-41-raw or statistics.",
    ),
    click.option(
        "--placement",
        type=click.Choice(["footer", "chunk-start", "tail"]),
        help="Default: footer for final, chunk-start for the 2018 forms.",
    ),
    click.option("--hash-family", metavar="FAMILY", help="orc, guava or hive.  [default: orc]"),
    click.option("--strategy", metavar="NAME", help="MURMUR128_32 or (guava's default) MURMUR128_64."),
    click.option(
        "--property",
        "properties",
        multiple=True,
        metavar="P=V",
        help="A property of the draft, as parquet.expected.entries=1000; may be repeated.",
    ),
    click.option(
        "--fpp",
        type=RATE,
        metavar="RATE",
        help="False positive rate to stay within, or auto.  [default: 0.01, statistics: 0.05]",
    ),
    click.option("--column-fpp", multiple=True, metavar="C=RATE", help="The rate of one column."),
    click.option("--ndv", type=int, help="First guess of distinct values per row group (statistics: their number)."),
    click.option("--max-bytes", type=SIZE, metavar="SIZE", help="The most a filter may take, as 64KiB or 1MB."),
    click.option("--replace", is_flag=True, help="Rebuild filters that are there already."),
    click.option("--page-index", is_flag=True, help="Also page indexes, which let engines read single pages."),
    click.option(
        "--page-bounds",
        multiple=True,
        type=COLUMN,
        metavar="C",
        help="With --page-index: a column that gets bounds of its pages, by name or pattern.",
    ),
)


def filter_options(function: F) -> F:
    """Options of `add`: --spec and what belongs to it as `form`, --fpp and --column-fpp as `fpp`; page indexes."""

    @functools.wraps(function)
    def joined(
        *args: Any,
        spec: FormName,
        hash_family: Family | None,
        strategy: Strategy | None,
        properties: Sequence[str],
        fpp: Rate | None,
        column_fpp: Sequence[str],
        **options: Any,
    ) -> Any:
        form = _form(spec, hash_family, strategy, properties)
        return function(*args, form=form, fpp=column_rates(fpp, column_fpp), **options)

    return cast(F, decorated(joined, _FILTER))


def _form(spec: FormName, family: Family | None, strategy: Strategy | None, properties: Sequence[str]) -> Form:
    """Raises RequestError for an unknown form, and for a style of another form than statistics."""
    from parquet_bloom.format.forms import format_named, parse_properties

    name = format_named(spec).name
    only = parameter("form", "statistics") + f", not for {name}"
    if name == "statistics":
        return Draft2015(family or "orc", strategy, parse_properties(properties))
    if properties:
        raise RequestError(parameter("properties") + " is for " + only)
    if family is not None or strategy is not None:
        raise RequestError(parameter("hash_family") + " and " + parameter("strategy") + " are for " + only)
    return spec


def column_rates(fpp: Rate | None, column_fpp: Sequence[str]) -> Rate | Mapping[str, Rate] | None:
    """--fpp and --column-fpp C=RATE as the library takes them."""
    if not column_fpp:
        return fpp
    rates: dict[str, Rate] = {} if fpp is None else {"*": fpp}
    for text in column_fpp:
        name, equals, rate = text.rpartition("=")
        try:
            rates[name] = rate if rate == "auto" else float(rate)  # type: ignore[assignment]
        except ValueError:
            equals = ""
        if not equals or not name:
            raise RequestError(f"--column-fpp {text}: expected COLUMN=RATE, as in id=0.001")
    return rates


def option_of(parameter: Parameter) -> str:
    """The option of the command line for a parameter: overwrite=True is --overwrite."""
    option = _OPTIONS.get(parameter.name) or f"--{parameter.name.replace('_', '-')}"
    if isinstance(parameter.value, list):  # each with an option of its own
        return " ".join(f"{option.removesuffix('s')} {shlex.quote(str(one))}" for one in parameter.value)
    return option if parameter.value in (None, True) else f"{option} {shlex.quote(str(parameter.value))}"


def quiet() -> bool:
    """Whether --quiet is set: only errors are printed, and output for programs."""
    return talk.quiet


def say(part: str | Table, style: str = "") -> None:
    """Print a table or a line for people: folded at spaces to the terminal's width, with nothing that one would obey.

    style  of report.text.painted, where standard output takes colours; COMMAND: people will paste it, it stays whole
    """
    if not talk.quiet:
        _draw(part, style, sys.stdout)


def aside(part: str | Table, style: str = "") -> None:
    """Print on stderr what goes with what is on standard output, but not with --quiet."""
    if talk.quiet:
        return
    if isinstance(part, str):
        _print_line("", "", part)
    else:
        with Watch.room():
            _draw(part, style, sys.stderr)


def _draw(part: str | Table, style: str, file: IO[str]) -> None:
    if isinstance(part, Table):
        print_table(part, file)
        for line in part.notes:
            _draw(line, "", file)
        return
    text = visible(without_secret(worded(part, option_of)))
    lines = ["  " + text] if style == COMMAND else folded(text, width_of(file))
    _echo("\n".join(painted(inert(line), style, file) for line in lines), file)


def _echo(text: str, file: IO[str]) -> None:
    """Print what is painted where the file takes colours; click by itself strips codes of what is no terminal."""
    click.echo(text, file=file, color=coloured(file))


def complain(text: str, more: Sequence[str] = ()) -> None:
    """Print an error on stderr, and `more` lines below it that mark a position in a text."""
    _print_line("parquet-bloom: ", "red", text, more)


def suggest(errors: Iterable[Exception]) -> None:
    """Print below errors what to try next, each hint once, but not with --quiet.

    The page that tells it is read here, and not before.
    """
    if talk.quiet:
        return
    from parquet_bloom.report.explained import hint_of

    found = dict.fromkeys(hint for hint in map(hint_of, errors) if hint)
    for hint in list(found)[:MOST_REASONS]:
        _print_line("  hint: ", "dim", hint)


def note(text: str) -> None:
    """Print a warning or a note on stderr, but not with --quiet."""
    if not talk.quiet:
        _print_line("parquet-bloom: ", "magenta", text)


def _print_line(head: str, style: str, text: str, more: Sequence[str] = ()) -> None:
    """A line on stderr, folded on terminals alone, with nothing that one would obey and no secret of a URI."""
    first, *rest = (visible(without_secret(worded(line, option_of))) for line in (text, *more))
    width = width_of(sys.stderr) if sys.stderr.isatty() else UNBOUNDED
    lines = list(map(inert, folded(head + first, width)))
    lines[0] = painted(head.rstrip(), style, sys.stderr) + lines[0][len(head.rstrip()) :]
    with Watch.room():
        _echo("\n".join([*lines, *map(inert, rest)]), sys.stderr)


# Counts up when a name of a document goes or changes its meaning.
DOCUMENT_VERSION = 1


def print_json(document: str, value: Any) -> None:
    """One JSON document, by its name in the folder schemas; what is not finite becomes null."""
    from parquet_bloom.source.results import plain

    headed = {"document": document, "document_version": DOCUMENT_VERSION, **plain(value)}
    text = json_text(_as_options(headed), indent=2)
    if (sys.stdout.encoding or "").lower().replace("-", "") != "utf8":
        text = json.dumps(json.loads(text), indent=2)
    _put(text)


def _as_options(value: Any) -> Any:
    """A JSON value whose texts name options, where they advise a parameter."""
    if isinstance(value, str):
        return worded(value, option_of)
    if isinstance(value, dict):
        return {key: _as_options(inner) for key, inner in value.items()}
    return [_as_options(inner) for inner in value] if isinstance(value, list) else value


def format_of(as_json: bool, output_format: str) -> str:
    """The format of a command that has --json and --output-format."""
    return "json" if as_json else output_format


def print_lines(lines: Iterable[str], *, as_it_is: bool = False) -> None:
    """Print lines for programs, each whole, with nothing that a terminal would obey.

    as_it_is  lines that a runner of GitHub's workflows is to obey, or a shell
    """
    for line in lines:
        text = visible(without_secret(worded(line, option_of)))
        _put(text if as_it_is else inert(text))


def _put(text: str) -> None:
    """Print what is for programs, as it is."""
    click.echo(text)


def print_audit(
    document: str, shown: str, report: Any, gates: Sequence[Gate], annotations: Iterable[str], draw: Callable[[], None]
) -> int:
    """Print what `inspect`, `verify` or `status` found; the exit status.

    shown        "json", "github" or "text"
    annotations  of a workflow run; draw: prints the text
    """
    say_notes(report.notes)
    if shown == "json":
        print_json(document, {**report.to_dict(), **({"gates": gates} if gates else {})})
    elif shown == "github":
        print_lines(annotations, as_it_is=True)
    elif not quiet():
        draw()
    files = report.files if isinstance(report.files, int) else len(report.files)
    return say_failed(report.failed, files + len(report.failed)) or gate_status(gates, 0)


def gate_status(gates: Sequence[Gate], otherwise: int) -> int:
    """The exit status: 0 if all gates hold, 1 with the reason if not; without gates what the command says otherwise."""
    for gate in gates:
        if not gate.holds and gate.gate != "verify":  # which is no option, and its text says so
            complain(f"--{gate.gate}: {gate.reason}")
    return int(not all(gate.holds for gate in gates)) if gates else otherwise


def say_unused(unused: Sequence[tuple[str, str]]) -> None:
    """Name the parts of a predicate that could not skip anything."""
    for part, reason in unused:
        note(f"not used to skip: {part}: {reason}")


def say_notes(notes: Sequence[str]) -> None:
    """Print notes on tables that files belong to."""
    for text in notes:
        note("note: " + text)  # keeps the names of parameters in it


def say_table_notes(sources: Sequence[str], report: Any) -> None:
    """Print the notes on a table that is changed; of files a warning said them."""
    from parquet_bloom.source.names import named_table

    if named_table(sources) is not None:
        say_notes(report.notes)


def say_empty(sources: Sequence[str], report: Any) -> None:
    """Say that a table has no file, so that a report is empty."""
    if not report.files and not report.failed:
        say(f"{', '.join(sources)}: has no data file")


def say_failed(failed: Sequence[Any], total: int) -> int:
    """Say why files failed, the same reason once, then how many did; returns the exit status they make."""
    for line in failure_lines(failed):
        complain(line)
    if failed:
        suggest(one.error for one in failed)
        complain(f"{len(failed):,} of {total:,} files failed")
    return 2 if failed else 0


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Show warnings as one line each on stderr, each FilterWarning and TableWarning once."""
    with warnings.catch_warnings():
        warnings.simplefilter("once", FilterWarning)
        warnings.simplefilter("once", TableWarning)

        def show(message: Warning | str, *_: Any, **__: Any) -> None:
            note("warning: " + " ".join(str(message).split()))

        warnings.showwarning = show
        yield
