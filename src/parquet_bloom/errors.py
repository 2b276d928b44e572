"""Everything that can go wrong, sorted by whose doing it is: the file's, the request's or the text's.

Every message is one line that names the file (where there is one), the reason and what to do.
The command line prints it and ends with exit status 2; a library caller catches
`ParquetBloomError` or one of its kinds. docs/errors.md has a section for each: a new kind
gets one in report/errors.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

# --- what errors advise -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function, with the value to give it; None: whatever the caller wants."""

    name: str
    value: object = None

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value!r}"


class Message(str):
    """A text that knows which of its parts name parameters, so that the command line can name options there.

        "exists; give " + parameter("overwrite", True)     exists; give overwrite=True
                                                           exists; give --overwrite

    As a text it names parameters as Python does. `+` and removeprefix keep its parts; all else gives plain texts.
    """

    __slots__ = ("parts",)
    parts: tuple[str | Parameter, ...]

    def __new__(cls, *parts: str | Parameter) -> Message:
        """Join texts and names of parameters."""
        self = super().__new__(cls, "".join(map(str, parts)))
        self.parts = parts
        return self

    def __getnewargs__(self) -> tuple[str | Parameter, ...]:  # type: ignore[override]
        return self.parts

    def __add__(self, other: str) -> Message:
        return Message(*self.parts, *parts_of(other))

    def __radd__(self, other: str) -> Message:
        return Message(*parts_of(other), *self.parts)

    def removeprefix(self, prefix: str, /) -> str:
        """Take off a first text; the names of parameters stay what they are."""
        first, *others = self.parts
        if isinstance(first, str) and first.startswith(prefix):
            return Message(first.removeprefix(prefix), *others)
        return super().removeprefix(prefix)


def parts_of(text: str) -> tuple[str | Parameter, ...]:
    """The texts and names of parameters that a message is made of."""
    return text.parts if isinstance(text, Message) else (text,)


def parameter(name: str, value: object = None) -> Message:
    """A parameter as part of a message."""
    return Message(Parameter(name, value))


def worded(text: str, named: Callable[[Parameter], str]) -> str:
    """A text with its parameters named by `name`; the rest of the text stays."""
    return "".join(named(part) if isinstance(part, Parameter) else part for part in parts_of(text))


_PACKAGE = os.path.join(os.path.dirname(__file__), "")

CHANGED = "was changed by another program meanwhile; nothing was written"
EXISTS = "exists; give " + parameter("overwrite", True) + " to replace it"


class ParquetBloomError(Exception):
    """The root of all errors that this package raises on purpose."""

    @property
    def message(self) -> str:
        """The text of str(), as a `Message` if it advises a parameter."""
        return self.args[0] if self.args and isinstance(self.args[0], str) else str(self)

    def _render_traceback_(self) -> list[str]:
        """For IPython and notebooks, which call it: the line that called this package, and the message."""
        import traceback

        frames = traceback.extract_tb(self.__traceback__)
        ours = next((at for at, frame in enumerate(frames) if frame.filename.startswith(_PACKAGE)), len(frames))
        called = traceback.format_list(frames[max(0, ours - 1) : ours])
        return [*"".join(called).splitlines(), f"{type(self).__name__}: " + visible(str(self), but="\n")]


def visible(text: str, but: str = "") -> str:
    """A text with escapes for what does not print, `but` for these characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in but else c.encode("unicode_escape").decode() for c in text)


_LINE = 1000  # characters of another library's error


def first_line(error: BaseException) -> str:
    """The first line of another library's error, or else its name; without the end of a long one, as of a value."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return line if len(line) <= _LINE else f"{line[:_LINE]}..."


# --- the file's doing -------------------------------------------------------------------------


def on_one_line(name: str) -> str:
    """A name for a message, which is one line, whatever the name is."""
    return name.replace("\r", "\\r").replace("\n", "\\n")


class FileError(ParquetBloomError):
    """A file could not be used. `path` names it, `reason` says why."""

    def __init__(self, path: object, reason: str) -> None:
        self.path = str(path)
        self.reason = reason
        shown = on_one_line(reason) if {"\n", "\r"} & set(reason) else reason  # most are Messages, which it would end
        super().__init__(f"{on_one_line(self.path)}: " + shown)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.reason)


class NotParquetError(FileError):
    """The bytes are not those of a Parquet file."""


class DamagedFileError(FileError):
    """A Parquet file whose bytes contradict each other."""


class LimitError(FileError):
    """A file that claims or takes more than the limits of this process allow (`set_limits`); it may be sound."""


class EncryptedFileError(FileError):
    """A Parquet file with encrypted parts; adding to it would break its signature or its keys."""


class LayoutError(FileError):
    """A sound file whose bytes must not be moved, or not to the wanted places."""


class StorageError(FileError):
    """The operating system or the store refused: no such file, no permission, disk full."""


class ConflictError(StorageError):
    """Another program was there first: the source was changed, or the target made, meanwhile."""


class UnknownCommitError(FileError):
    """A catalog did not say whether a commit landed; the files that it names must stay, as the table may need them."""


class FileChangedError(StorageError):
    """A file is no longer the one that was searched."""


class StaleIndexError(FileError):
    """An index of data that are not, or no longer, those that are to be read."""


class TableFormatError(FileError):
    """The file belongs to an Iceberg, Delta or Hudi table, whose log names live rows and file sizes."""


# --- the request's doing ----------------------------------------------------------------------


class RequestError(ParquetBloomError, ValueError):
    """The request makes no sense, whatever the file holds."""


class UnknownColumnError(RequestError):
    """No column, or more than one, has the wanted name."""


class RefusedTypeError(RequestError):
    """A Bloom filter over this column's type would be wrong or useless."""


# --- Spark's doing ----------------------------------------------------------------------------


class SparkJobError(ParquetBloomError):
    """A Spark job failed as a whole, such as on executors that lack this package; files are old or new and whole."""


# --- the text's doing -------------------------------------------------------------------------

_SHOWN = 100  # characters of a line on either side of the mark


class TextError(RequestError):
    """A predicate's text could not be understood; the message shows the line with the position marked.

    text    the whole text
    column  where it stopped making sense, characters from the start
    """

    def __init__(self, text: str, column: int, reason: str) -> None:
        self.text = text
        self.column = column
        self.reason = reason
        start = max(text.rfind(end, 0, column) for end in "\n\r") + 1
        line = re.split(r"[\n\r]", text[start:], maxsplit=1)[0]
        first = max(0, column - start - _SHOWN)
        shown = "".join(c if c.isprintable() else " " for c in line[first : first + 2 * _SHOWN])
        super().__init__(f"{reason}\n  {shown}\n  {' ' * (column - start - first)}^")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.text, self.column, self.reason)


# --- bytes that are no filter -----------------------------------------------------------------


class FilterFormatError(ParquetBloomError):
    """The bytes at a filter's place are not a filter that can be trusted."""


class UnknownFilterError(FilterFormatError):
    """A filter of a kind that this version does not know: no evidence, and no damage either."""


class FilterShapeError(FilterFormatError):
    """A bitset whose shape cannot be that of a split block Bloom filter."""


class FilterWarning(UserWarning):
    """A filter was ignored because its header, length or place contradict each other."""


class TableWarning(UserWarning):
    """Files lie in a table: they are changed, as was forced, or dead ones may be among them; the message says which."""


# --- bytes that are no footer -----------------------------------------------------------------


class FooterError(ParquetBloomError):
    """Bytes that should be Thrift (a footer, a page index) are not; storage adds the file's name."""


class FooterLimitError(FooterError):
    """A list or a text in it is longer than the limits of this process allow."""


class EncryptedFooterError(FooterError):
    """The footer, or a part of it, is encrypted."""
