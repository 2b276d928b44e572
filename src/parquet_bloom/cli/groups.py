"""Help pages of commands, options that all of them have, in sections; near names for unknown commands."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar

import click

from parquet_bloom.cli.process import talk
from parquet_bloom.cli.progress import log_as_lines
from parquet_bloom.errors import ParquetBloomError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from parquet_bloom.format.forms import Rate

# Options by what they are for, in the order of the help page: what most people need first, limits last. All others
# are "Options".
SECTIONS = {
    "Which columns": ("columns", "exclude"),
    "Where the result goes": (
        "output",
        "in_place",
        "overwrite",
        "dry_run",
        "append",
        "last",
        "force",
        "sync",
        "read_back",
        "form",
    ),
    "Options": (),
    "Form and size of the filters": (
        "spec",
        "placement",
        "fpp",
        "column_fpp",
        "ndv",
        "max_bytes",
        "replace",
        "items",
        "probability",
    ),
    "What is printed": ("show_all", "as_json", "output_format", "report", "quiet", "verbose", "help"),
    "Gates, for continuous integration": ("min_skipped", "assert_filters", "assert_complete"),
    "Tables": ("commit", "files_per_commit", "raw_files", "catalog_properties", "allow_roots"),
    "Only for --spec statistics": ("hash_family", "strategy", "properties"),
    "Limits, for files that one trusts": ("max_memory", "max_list_elements", "max_string_bytes"),
}


def _quiet(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    talk.quiet = talk.quiet or value


def _verbose(ctx: click.Context, param: click.Parameter, value: int) -> None:
    if value:
        talk.verbose += value
        ctx.call_on_close(log_as_lines(talk.verbose))


# Of every command, before or after its name.
_SHARED_OPTIONS = (
    click.Option(
        ["-q", "--quiet"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_quiet,
        help="Print errors, and what programs read (--json, rows); nothing else.",
    ),
    click.Option(
        ["-v", "--verbose"],
        count=True,
        is_eager=True,
        expose_value=False,
        callback=_verbose,
        help="Say on stderr what is done, a line a file; -vv each step.",
    ),
)


class _Command(click.Command):
    """A command that has the options which every command has, and whose page begins with what it does, and examples.

    Examples are the paragraphs of commands that click leaves as they are, behind a \\b.
    """

    def __init__(self, name: str | None = None, *, help: str | None = None, **options: Any) -> None:
        # Of each command: click keeps the first --help that it makes, whatever context that was for.
        settings = {"help_option_names": ["-h", "--help"], **options.pop("context_settings", {})}
        super().__init__(name, help=help, context_settings=settings, **options)
        texts = inspect.cleandoc(help or "").split("\n\n")
        self.first = texts[0]
        examples = [text for text in texts if text.startswith("\b\nparquet-bloom ")]
        self.examples = [line for text in examples for line in text.splitlines()[1:]]
        self.more = [text for text in texts[1:] if text not in examples]

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the purpose, the examples, a line each, and the rest."""
        self._format_beginning(formatter)
        self._format_more(formatter)

    def _format_beginning(self, formatter: click.HelpFormatter) -> None:
        _write(formatter, self.first)
        if self.examples:
            _write(formatter, "\b\n" + "\n".join(self.examples))

    def _format_more(self, formatter: click.HelpFormatter) -> None:
        for text in self.more:
            _write(formatter, text)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its own options, those of all, --help."""
        own = super().get_params(ctx)
        return [*own[: len(self.params)], *_SHARED_OPTIONS, *own[len(self.params) :]]


def _write(formatter: click.HelpFormatter, text: str) -> None:
    """A paragraph, with an empty line before it."""
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text(text)


class Command(_Command):
    """A command whose options are listed in sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options by section, in the order of SECTIONS."""
        records: dict[str, list[tuple[str, str]]] = {}
        sections = {name: title for title, names in SECTIONS.items() for name in names}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                name = "help" if "--help" in param.opts else param.name or ""  # click has a name of its own for it
                records.setdefault(sections.get(name, "Options"), []).append(record)
        for title in SECTIONS:
            if title in records:
                with formatter.section(title):
                    formatter.write_dl(records[title])


class Commands(_Command, click.Group):
    """A group that knows what a mistyped command may have meant, and lists its commands in whole sentences."""

    command_class = Command
    sections: ClassVar[Mapping[str, Sequence[str]]] = {}  # by what they are for; all others are "More commands"

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command by its name; a name that is none is an error with those that are near."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            names = self.list_commands(ctx)
            from difflib import get_close_matches

            near = get_close_matches(name, names, 2, 0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(names)}"
            ctx.fail(f"no command {name}; {hint}")
        return super().resolve_command(ctx, args)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the purpose and examples; the rest comes behind the commands."""
        self._format_beginning(formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands, and then the few options."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the notes on all commands."""
        self._format_more(formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List each command with the first sentence of its help."""
        names = self.list_commands(ctx)
        rest = [name for name in names if not any(name in some for some in self.sections.values())]
        sections = {**self.sections, "More commands" if self.sections else "Commands": rest}
        wide = max(map(len, names))
        for title, some in sections.items():
            rows = [(name.ljust(wide), first_sentence(self.get_command(ctx, name))) for name in some if name in names]
            with formatter.section(title):
                formatter.write_dl(rows)


def first_sentence(command: click.Command | None) -> str:
    """The first sentence of a command's help."""
    paragraph = ((command.help or "") if command is not None else "").strip().split("\n\n")[0]
    return re.split(r"(?<=\.)\s", " ".join(paragraph.split()), maxsplit=1)[0]


class Size(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2
    """A number of bytes: 1048576, 1_000_000, 64KiB, 1.5 MB; a unit of 1000 (kB, MB, ...) or 1024 (KiB, MiB, ...)."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse the text into bytes. A number is passed through."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(-?[0-9][0-9_,]*(?:\.[0-9]+)?) ?(?:([kmgt]?)(i?)b)?", value.strip(), re.IGNORECASE)
        if found is None or (found[3] and not found[2]):
            self.fail(f"{value!r} is no number of bytes; write 65536, 64KiB (of 1024) or 1MB (of 1000)", param, ctx)
        unit = (1024 if found[3] else 1000) ** " kmgt".index((found[2] or " ").lower())
        return int(Decimal(re.sub("[_,]", "", found[1])) * unit)


SIZE = Size()


class RateType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2
    """A false positive rate, or "auto"."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Rate:
        """Parse the text. A number is passed through."""
        if value == "auto":
            return "auto"
        try:
            return float(value)
        except ValueError:
            self.fail(f"{value!r} is neither a rate, as 0.01, nor auto", param, ctx)


RATE = RateType()


class FileName(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2
    """The name of a file, a folder or a table; a shell completes the first two."""

    name = "text"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Leave it to the shell."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


FILE = FileName()


class ColumnName(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2
    """The name of a column; a shell completes those of the file that is named before."""

    name = "text"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The columns whose names begin so; none where no local file is named yet, or it cannot be read."""
        from click.shell_completion import CompletionItem

        # Behind an option that lacks its value the parser has stopped, and what stood before is in args.
        given = [ctx.params.get(name) or () for name in ("sources", "data", "paths")] + [ctx.args]
        return [
            CompletionItem(name)
            for name in _columns([name for names in given for name in names])
            if name.startswith(incomplete) and re.fullmatch(r"[\w.@%+:-]+", name)  # what a shell takes as it is
        ]


COLUMN = ColumnName()


def _columns(names: list[str]) -> list[str]:
    """The columns of the first file that is named, or that lies in a folder that is."""
    for name in map(os.path.expanduser, names):
        if os.path.isdir(name):
            files = (os.path.join(at, file) for at, _, here in os.walk(name) for file in sorted(here))
            name = next((file for file in files if file.endswith(".parquet")), "")
        if os.path.isfile(name):
            from parquet_bloom.storage.open_file import OpenFile

            with contextlib.suppress(ParquetBloomError, OSError), OpenFile(name) as source:
                return [leaf.name for leaf in source.footer().leaves]
    return []
