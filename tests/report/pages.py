"""A data set that a page is made of, and a page as its parts."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import parquet_bloom

EVIL = """</script><script>alert(1)</script><img src=x onerror="alert(1)">&'"<!--"""
GROUPS, ROWS = 24, 500


def events(seed: int, rows: int) -> pa.Table:
    """Random keys, an order, few values, and a column whose name is made to break out of a page."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "trace": [f"{value:016x}" for value in rng.integers(0, 2**62, rows).tolist()],
            "user": rng.integers(0, 300, rows) * 7919,
            "at": np.arange(rows),
            EVIL: rng.integers(0, 2**40, rows),
        }
    )


def write_events(folder: Path) -> Path:
    """Two folders `day=`: a small file without filters, a larger one whose filters are of two rates."""
    for day, groups in ((1, 6), (2, GROUPS)):
        path = folder / f"day={day}" / f"{EVIL.replace('/', '')}.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(events(day, groups * ROWS), path, row_group_size=ROWS, write_page_index=True)
        if day == 2:
            rates = {"trace": 0.01, "user": 0.1, "*": 0.001}
            parquet_bloom.add_filters(path, in_place=True, columns=["*"], exclude=["at"], fpp=rates, sync=False)
    return folder


class Page(HTMLParser):
    """The elements of a page as (tag, attributes), its texts, and its data."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._inside = ""
        self._scripts: dict[str, str] = {}
        self.text = path.read_text("utf-8")
        self.feed(self.text)
        self.data: dict[str, Any] = json.loads(self._scripts["data"])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = str(dict(attrs).get("id", "")) if tag == "script" else ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self._scripts[self._inside] = self._scripts.get(self._inside, "") + data
        self.texts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def count(self, tag: str) -> int:
        return sum(one == tag for one, _ in self.elements)
