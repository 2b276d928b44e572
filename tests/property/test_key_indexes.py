"""Random files and predicates, with a key index over some of the columns: no row is lost, and little stays open.

Files have filters, statistics that say little and footers of old writers, folders have keys, later files other types or
not all columns. Truth is brute force over every row (tests/property/truth.py, cases.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from cases import Case, World, cases_of, worlds
from random_columns import Column
from random_trees import Trees
from support.repeats import more_then_slow
from truth import TRUE, NoLiteralError, Truth, exact_literal

import parquet_bloom
from parquet_bloom.errors import RequestError
from parquet_bloom.format.schema import join_path
from parquet_bloom.keys.build import build_index
from parquet_bloom.predicates.tree import Compare, Contains

pytestmark = pytest.mark.filterwarnings("ignore::parquet_bloom.errors.FilterWarning")
EACH = 25  # predicates of a file, or of a data set


def leaf_of(column: Column) -> tuple[str, ...]:
    return (*column.path, "list", "element") if column.shape == "list" else column.path


def index_some(where: World, rng: Random, folder: Path) -> list[Column]:
    """Build an index over some columns, and ask the world with it from now on; returns the columns."""
    able = [column for column in where.files[0].columns if column.kind.name != "bool"]
    some = rng.sample(able, rng.randint(1, len(able))) if able else []
    names = [join_path(leaf_of(column)) for column in some]
    try:
        build_index(where.source, names, folder / f"index{where.seed}", false_places=rng.choice([1e-6, 0.05, 30.0]))
    except RequestError as error:
        if some and "no row group" not in str(error):
            raise
        return []
    where.options["index"] = folder / f"index{where.seed}"
    return some


def ask(seeds: range, folder: Path) -> Iterator[tuple[Case, list[Column]]]:
    """Ask each world about random predicates, and yield what was asked with which columns indexed."""
    for where in worlds(seeds, folder / "data"):
        some = index_some(where, Random(where.seed), folder)
        if some:
            for case in cases_of(where, EACH):
                case.check()
                yield case, some
        for file in where.files:
            file.path.unlink(missing_ok=True)


@pytest.mark.parametrize("part", [0, *more_then_slow(range(1, 150), 2)])
def test_no_row_is_lost(tmp_path: Path, part: int) -> None:
    assert sum(1 for _ in ask(range(10 * part, 10 * part + 10), tmp_path)) > 5 * EACH


def test_of_values_that_are_not_there_nearly_all_is_closed(tmp_path: Path) -> None:
    """Filters are not asked, and bounds often say nothing: so an index that says nothing would show."""
    by_index = left = 0
    for where in worlds(range(16), tmp_path / "data"):
        rng = Random(where.seed)
        some = index_some(where, rng, tmp_path)
        trees = Trees(rng, where.files[0])
        for column in some:
            value = trees.near(column)
            literal = trees.spelled(column, value)
            try:
                if exact_literal(literal, column) != value:
                    continue
            except NoLiteralError:
                continue
            tree = Contains(column.path, literal) if column.shape == "list" else Compare(column.path, "=", literal)
            verdicts = parquet_bloom.check(where.source, tree, use_filters=False, index=where.options["index"])
            found = {(one.path, one.row_group): one for one in verdicts}
            gone = {one.path for one in verdicts.excluded}
            for at, (file, columns, values, table) in enumerate(where.groups()):
                if columns.get(column.name) != column or column.name not in values or not table.num_rows:
                    continue
                rows = Truth(columns, "ieee", rng).outcomes(tree, values, table.num_rows)
                number = sum(f is file for f, *_ in list(where.groups())[:at])
                verdict = found.get((str(file.path), number))
                if TRUE in rows:
                    assert verdict is not None
                    assert not verdict.skipped
                elif str(file.path) in gone:
                    by_index += 1
                else:
                    assert verdict is not None
                    by_index += verdict.decided_by == "index"
                    left += not verdict.skipped
    assert by_index > 20
    assert left < 0.03 * by_index
