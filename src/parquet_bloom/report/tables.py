"""Reports as tables and lines for people."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from typing import IO


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[int] = (), file: IO[str] | None = None
) -> None:
    """Print rows under headings; columns in `right` are aligned to the right. Nothing is cut off."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="right" if i in right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    Console(file=file or sys.stdout, width=100_000, highlight=False).print(table)


def size(number: int) -> str:
    """Bytes for people: 1,024 B, 2.0 MiB."""
    if number < 10_000:
        return f"{number:,} B"
    scaled = float(number)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        scaled /= 1024
        if scaled < 1000 or unit == "TiB":
            return f"{scaled:,.1f} {unit}"
    raise AssertionError


def share(rate: float | None) -> str:
    """A rate for people: 0.81 %."""
    if rate is None:
        return "-"
    return f"{100 * rate:.2g} %" if rate < 0.1 else f"{100 * rate:.0f} %"


def count(number: float) -> str:
    return "?" if math.isinf(number) else f"{round(number):,}"


def plural(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
