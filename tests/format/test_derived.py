"""What is worked out from a footer once: kept with it, asked for by its arguments, gone with it."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parquet_bloom.format.footer import derived
from parquet_bloom.format.statistics import statistics_of
from parquet_bloom.storage.open_file import OpenFile


class Keeper:
    def __init__(self) -> None:
        self.memory: dict[Any, Any] = {}


def test_a_value_is_worked_out_once_for_each_keeper_and_arguments() -> None:
    asked: list[tuple[Any, ...]] = []

    @derived
    def double(keeper: Keeper, number: int, also: int = 0) -> int | None:
        """Twice."""
        asked.append((number, also))
        return None if number == 0 else 2 * number + also

    one, other = Keeper(), Keeper()
    assert [double(one, 3), double(one, 3), double(one, 3, also=1), double(one, 4)] == [6, 6, 7, 8]
    assert asked == [(3, 0), (3, 1), (4, 0)]
    assert double(other, 3) == 6
    assert len(asked) == 4, "what one footer keeps says nothing of another"
    assert double(one, 0) is double(one, 0) is None
    assert len(asked) == 5, "None is a value like others"
    assert (double.__name__, double.__doc__) == ("double", "Twice.")


def test_an_error_is_not_kept() -> None:
    found: list[int] = []

    @derived
    def third(keeper: Keeper) -> int:
        found.append(1)
        if len(found) < 3:
            raise ValueError(str(len(found)))
        return 3

    keeper = Keeper()
    for attempt in ("1", "2"):
        with pytest.raises(ValueError, match=attempt):
            third(keeper)
    assert third(keeper) == third(keeper) == len(found) == 3


def test_each_column_has_its_own_and_all_goes_with_the_outline(tmp_path: Path) -> None:
    path = tmp_path / "two.parquet"
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", "y"]}), path)
    with OpenFile(str(path)) as source:
        outline = source.outline()
        a, b = (statistics_of(outline, leaf) for leaf in outline.leaves)
        assert a is statistics_of(outline, outline.leaves[0])
        assert (int(a.upper[0]), b.upper[0]) == (2, b"y")
    kept = weakref.ref(outline)
    del outline, source
    gc.collect()
    assert kept() is None
    assert len(a) == 1, "who has the facts may go on using them"
