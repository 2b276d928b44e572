"""The command that adds filters, as a shell takes it: results advise it, and people paste it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence


def add_command(sources: Sequence[str], columns: Iterable[str], *words: str) -> str:
    """`parquet-bloom add` of these columns, quoted; a source that begins with a dash is no option there.

    words  further options
    """
    options = [*(word for name in columns for word in ("--column", name)), *words]
    behind = any(one.startswith("-") for one in sources)
    return shlex.join(["parquet-bloom", "add", *([*options, "--", *sources] if behind else [*sources, *options])])
