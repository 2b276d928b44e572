"""Files of other writers, read by pages: the same rows as pyarrow's, which reads them whole.

All row groups go in two steps here, however small they are, so that every column of a file is decoded from a file of
its pages: other programs' headers, encodings, codecs and schemas.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.corpus import FIXTURES, corpus_file, others_files

from parquet_bloom import RequestError, read_table
from parquet_bloom.rows.pages_file import PagesRead

_LARGEST, _MOST_ROWS = 4 << 20, 60_000
_COLUMNS, _VALUES = 8, 2  # that are looked for in a file
OURS = sorted(path.relative_to(FIXTURES).as_posix() for path in FIXTURES.rglob("*.parquet"))

pytestmark = pytest.mark.usefixtures("in_two")


def whole(path: Path) -> pa.Table | None:
    """All rows of a file by pyarrow; None of one that is large, or that it does not read."""
    try:
        if path.stat().st_size > _LARGEST or pq.read_metadata(path).num_rows > _MOST_ROWS:
            return None
        return pq.ParquetFile(path).read()
    except (OSError, ValueError, NotImplementedError, MemoryError):
        return None


def questions(table: pa.Table) -> list[pc.Expression]:
    """Equality with some values of the plain columns."""
    found: list[pc.Expression] = []
    for field, column in zip(table.schema, table.columns, strict=True):
        if not pa.types.is_nested(field.type) and len(found) < _COLUMNS * _VALUES:
            values = [value for value in (column[len(column) // 2], column[len(column) - 1]) if value.is_valid]
            found += [pc.field(field.name) == value for value in values]
    return found


def rows_of(table: pa.Table) -> list[str]:
    """Rows as texts, in order: a NaN is equal to a NaN there."""
    return list(map(repr, table.to_pylist()))


@pytest.mark.more
@pytest.mark.filterwarnings("ignore::parquet_bloom.FilterWarning")
@pytest.mark.parametrize("name", [*OURS, *others_files()])
def test_rows_by_pages_of_every_writer(name: str) -> None:
    path = corpus_file(name)
    table = whole(path)
    if table is None or not len(table) or len(set(table.column_names)) < len(table.column_names):
        pytest.skip("large, empty, or not read by pyarrow")
    asked = 0
    for question in questions(table):
        try:
            expected = rows_of(table.filter(question))
        except pa.ArrowNotImplementedError:  # pyarrow compares no such type
            continue
        try:
            found = read_table(path, question, raw_files=True)
        except RequestError as error:
            if "INT96 times outside" in str(error):
                continue
            raise
        assert rows_of(found) == expected, question
        asked += 1
    if not asked:
        pytest.skip("no column that pyarrow compares")


def test_pages_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above reads by pages: most files of fixtures/ have columns that are."""
    counted: list[int] = []
    monkeypatch.setattr(PagesRead, "add", lambda self, pages, n_bytes: counted.append(len(pages.chosen)))
    path = corpus_file("pyarrow/trace_ids.parquet")
    table = whole(path)
    assert table is not None
    for question in questions(table):
        read_table(path, question)
    assert sum(counted) > len(table.column_names)
