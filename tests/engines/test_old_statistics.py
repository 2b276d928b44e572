"""Files whose writers got statistics wrong: no stored value is lost, no row too many comes back.

The files are of released programs (`fixtures/writers/old_statistics.py`); what their footers say wrongly lies beside
them. Each question goes to `check`, `count` and `read_table`, and again to `count` with the filters that `add`
puts in; the answer is pyarrow's over all rows of the file, which uses no statistics.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.corpus import FIXTURES
from support.repeats import some_then_more

from parquet_bloom import add_filters, check, count, read_table, verify

FOLDER = FIXTURES / "old_statistics"
EXPECTED: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text())
FEW = 2  # values of a column that are looked for, spread from the least to the largest


def questions(table: pa.Table) -> list[tuple[str, pc.Expression]]:
    """Of each column, IS NULL and IS NOT NULL, = for some of its values, < and > for the middle and the ends."""
    found = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        struct = pa.types.is_struct(column.type)
        field = pc.field(name, "word") if struct else pc.field(name)
        column = column.combine_chunks().field(0) if struct else column
        found += [(name, field.is_null()), (name, field.is_valid())]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if isinstance(column.type, pa.BaseExtensionType):  # a UUID: pyarrow compares none
            continue
        values = pc.unique(column).drop_null()
        values = values.take(pc.sort_indices(values))
        plain = [value for value in values if value.as_py() == value.as_py()]
        found += [(name, field == value) for value in (*plain[:: max(1, len(plain) // FEW)], *plain[-1:])]
        if plain:
            middle = plain[len(plain) // 2]
            found += [
                (name, field < middle),
                (name, field > middle),
                (name, field <= plain[0]),
                (name, field >= plain[-1]),
            ]
    return found


def without_views(table: pa.Table) -> pa.Table:
    """Views of texts and bytes, which DataFusion writes, as plain ones: pyarrow neither sorts nor filters views."""
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return table.cast(pa.schema([field.with_type(plain.get(field.type, field.type)) for field in table.schema]))


def values_of(table: pa.Table) -> Counter[str]:
    """How often each value of the one column is there, as a text: a NaN is equal to a NaN there."""
    return Counter(map(repr, table.column(0).to_pylist()))


def assert_nothing_is_lost(path: Path, *, rows_too: bool) -> int:
    """Compare each answer with all rows; gives how many row groups were skipped."""
    file = pq.ParquetFile(path)
    groups = [without_views(file.read_row_group(at)) for at in range(file.num_row_groups)]
    table, skipped = pa.concat_tables(groups), 0
    for name, question in questions(table):
        wanted = table.filter(question)
        case = f"{path.name}: {question}"
        assert count(path, question) == wanted.num_rows, case
        if rows_too:
            assert values_of(read_table(path, question, columns=[name])) == values_of(wanted.select([name])), case
            for verdict, rows in zip(check(path, question), groups, strict=True):
                skipped += verdict.skipped
                assert not (verdict.skipped and rows.filter(question).num_rows), case
    return skipped


@pytest.mark.parametrize("release", some_then_more(sorted(EXPECTED)))
def test_no_row_is_lost(release: str, tmp_path: Path) -> None:
    """Skipping is not given up: each file has columns whose bounds are right."""
    path = FOLDER / f"{release}.parquet"
    assert pq.ParquetFile(path).metadata.created_by == EXPECTED[release]["created_by"]
    assert assert_nothing_is_lost(path, rows_too=True) > 0
    ours = tmp_path / path.name
    add_filters(path, ours, columns="*", sync=False)
    assert_nothing_is_lost(ours, rows_too=False)
    assert {found.status for file in verify(ours).files for found in file.filters} == {"right"}
