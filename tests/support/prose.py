"""What is written for people: pages, and the docstrings and comments of modules."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "fixtures/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
]
SOURCES = [
    path
    for folder in ("src", "tests", "benchmarks", "fixtures")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "_thrift" not in path.parts
]


@cache
def prose() -> dict[Path, str]:
    """Pages without their Python; of modules texts that begin a line, as docstrings do, and comments.

    To parse all of them took 20 seconds.
    """
    found = {page: re.sub(r"```python\n.*?```", "", page.read_text(), flags=re.DOTALL) for page in PAGES}
    for path in SOURCES:
        text = path.read_text()
        every = re.finditer(r'(?:(^\s*r?)|)"""(.*?)"""', text, re.MULTILINE | re.DOTALL)
        texts = [one[2] for one in every if one[1] is not None]
        found[path] = "\n".join([*texts, *re.findall(r"(?:^|\s)#.*", text)])
    return found
