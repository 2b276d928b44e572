"""Explains each kind of error and its cure: the page docs/errors.md, which is part of the package.

A section of the page is a kind of error. Its "**Hint:**" is what to try next; lines "* `words`: hint" are for messages
that have these words, or files whose name ends so, where they begin with a dot. An empty hint: the message says it
already. Nothing of this is read before an error is shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_GENERAL = re.compile(r"^\*\*Hint:\*\* (.+?)(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
_SPECIAL = re.compile(r"^\* `([^`]+)`: ?(.*)$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


@dataclass(frozen=True, slots=True)
class Section:
    """One kind of error: its meaning, an example, its cure.

    name  as `parquet-bloom explain` takes it
    text  below its heading, as Markdown
    """

    name: str
    text: str

    def hint(self, reason: str, path: str = "") -> str | None:
        """The next step for this reason, of a file of this name; None where the reason says so itself."""
        for words, hint in _SPECIAL.findall(self.text):
            if words in reason or (words.startswith(".") and path.endswith(words)):
                return hint.rstrip(".") or None
        general = _GENERAL.search(self.text)
        return " ".join(general[1].split()).partition(". ")[0].rstrip(".") if general else None

    def gist(self) -> str:
        """Its meaning in a few words."""
        meaning = " ".join(self.text.split("\n\n")[0].partition(": ")[2].split())
        return re.split(r"[.:;] |\.$", meaning, maxsplit=1)[0]

    def plain(self) -> str:
        """The section for a terminal: without the marks of Markdown."""
        text = _LINK.sub(r"docs/\1", re.sub(r"```\w*\n(.*?)```\n", _indented, self.text, flags=re.DOTALL))
        return text.replace("**", "")


def _indented(block: re.Match[str]) -> str:
    return "".join(f"    {line}\n" for line in block[1].splitlines())


def page() -> str:
    """The whole page, as Markdown."""
    return files("parquet_bloom.report").joinpath("errors.md").read_text("utf-8")


@cache
def sections() -> dict[str, Section]:
    """The sections by name, in the order of the page."""
    parts = re.split(r"^## (.+)\n", page(), flags=re.MULTILINE)[1:]
    return {name: Section(name, text.strip() + "\n") for name, text in zip(parts[::2], parts[1::2], strict=True)}


def name_of(kind: str) -> str:
    """The section's name of a class: DamagedFileError is damaged-file, FilterWarning filter-warning."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.removeprefix("ParquetBloom")).lower()
    return words.removesuffix("-error")


def section_of(kind: type) -> Section | None:
    """The section of a class, or of the nearest one that it is derived from; None for errors that are not ours."""
    names = (name_of(each.__name__) for each in kind.__mro__ if each.__module__.startswith("parquet_bloom"))
    return next((sections()[name] for name in names if name in sections()), None)


def hint_of(error: BaseException) -> str | None:
    """The hint below an error: what to try next, and where to read more; None where its message says it all."""
    section = section_of(type(error))
    reason, path = getattr(error, "reason", str(error)), getattr(error, "path", "")
    if section is None or (hint := section.hint(reason, path)) is None:
        return None
    return f"{hint} (more: parquet-bloom explain {section.name})"
