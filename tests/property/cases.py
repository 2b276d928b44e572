"""One case: a file, a predicate, what is decided and what is true. Everything follows from seeds.

for case in cases(range(100), folder, each=50): case.check()
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from random_columns import KINDS, Column
from random_files import File, random_dataset, random_file
from random_trees import Trees, expression_of
from truth import FALSE, NULL, TRUE, Truth

import parquet_bloom
from parquet_bloom.errors import RequestError
from parquet_bloom.filters import asking
from parquet_bloom.format.footer import decode_footer
from parquet_bloom.format.outline import Outline, outline_of
from parquet_bloom.format.outlines import walk_outline
from parquet_bloom.predicates.rows import row_filter
from parquet_bloom.predicates.tree import Predicate, leaves_of
from parquet_bloom.storage import open_file as storage

NAMES = {TRUE: "TRUE", FALSE: "FALSE", NULL: "NULL"}
ARROW_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError, NotImplementedError)


class WrongError(AssertionError):
    """A decision that rows contradict."""


@dataclass
class World:
    """A file, or the files of a data set, and the seed that made them.

    options  of all functions that ask, such as an index
    """

    seed: int
    source: str
    files: list[File]
    options: dict[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def columns(self) -> dict[str, Column]:
        """Those of the first file, and of the folders."""
        found = {column.name: column for column in self.files[0].columns}
        for name in self.files[0].pairs:
            texts = [file.pairs[name] for file in self.files if file.pairs[name] is not None]
            kind = KINDS["int32" if texts and all(_whole(text) for text in texts) else "string"]
            found[name] = Column(name, kind, "flat", False, int, 0.0)
        return found

    def groups(self) -> Iterator[tuple[File, dict[str, Column], dict[str, list[Any]], pa.Table]]:
        """Every row group: its file, the file's columns, exact values, the table."""
        for file in self.files:
            columns = {**self.columns, **{column.name: column for column in file.columns}}
            for values, table in zip(file.groups, file.tables, strict=True):
                known = dict(values)
                for name, text in file.pairs.items():
                    whole = columns[name].kind.family == "integer"
                    value = None if text is None else int(text) if whole else text.encode()
                    known[name] = [value] * table.num_rows
                yield file, columns, known, table


def _whole(text: str) -> bool:
    return text.lstrip("-").isdigit()


def world(seed: int, folder: Path) -> World:
    """Four of five are one file, the others data sets."""
    folder = folder / "one" / "two" / "three" / "four"  # searches look beside four levels
    folder.mkdir(parents=True, exist_ok=True)
    if seed % 5 == 4:
        return World(seed, str(folder / str(seed)), random_dataset(seed, folder))
    file = random_file(seed, folder)
    return World(seed, str(file.path), [file])


# --- how footers are read --------------------------------------------------------------------------


def _bindings(data: bytes, start: int) -> Outline:
    return outline_of(decode_footer(data, start))


def _walk(data: bytes, start: int) -> Outline:
    found = walk_outline(data, start)
    assert found is not None, "a sound footer is walked"
    return found


@contextmanager
def one_way(compiled: bool) -> Iterator[None]:
    """Footers and filters are read by compiled code, or without."""
    modules = SimpleNamespace(modules={"numba": None} if compiled else {})
    with (
        mock.patch.object(storage, "decode_outline", _walk if compiled else _bindings),
        mock.patch.object(asking, "sys", modules),
    ):
        yield


# --- cases ------------------------------------------------------------------------------------------


@dataclass
class Case:
    """A predicate to be asked.

    way     "tree", "largest" (a tree, NaN largest) or "arrow" (an Expression)
    sample  also read and count the rows
    """

    world: World
    number: int
    tree: Predicate
    way: str
    expression: pc.Expression | None = None
    sample: bool = False
    kept: Any = None

    @property
    def asked(self) -> Any:
        return self.tree if self.expression is None else self.expression

    def __str__(self) -> str:
        return f"seed {self.world.seed}, predicate {self.number} ({self.way}): {self.asked}"

    def check(self, keep: bool = False) -> None:
        """Raise WrongError where what is decided and what is true contradict each other.

        keep  what is true, for the next time
        """
        nan = "largest" if self.way == "largest" else "ieee"
        with one_way(self.number % 2 == 0):
            try:
                verdicts = parquet_bloom.check(self.world.source, self.asked, nan=nan, **self.world.options)
            except RequestError as error:
                self._refused(error)
                return
            if verdicts.failed:
                raise WrongError(f"{self}: {verdicts.failed[0].error}")
            truths, expected = self.kept or (list(self._truths(nan)), self._expected() if self.sample else None)
            if keep:
                self.kept = truths, expected
            for truth in truths:
                self._hold(verdicts, truth)
            if self.sample:
                self._read(verdicts, expected)

    def _truths(self, nan: str) -> Iterator[list[list[int] | None]]:
        """What is true of every row of every row group; None where it cannot be told."""
        if self.way == "arrow":
            yield [mask for _, mask in self._arrow_masks()]
            return
        rng = Random(self.number)
        yield [
            Truth(columns, nan, rng).outcomes(self.tree, values, table.num_rows)
            for _, columns, values, table in self.world.groups()
        ]
        if self.number % 4 == 0 and nan == "ieee" and len(self.world.files) == 1:
            try:
                keep = row_filter(self.tree, self.world.files[0].tables[0].schema)
            except RequestError:
                return
            batches = [t.combine_chunks().to_batches() for t in self.world.files[0].tables]
            yield [_numbers(pa.chunked_array([keep.mask(b) for b in bs], pa.bool_())) for bs in batches]

    def _refused(self, error: RequestError) -> None:
        """Only what nothing can compare is refused: a literal of another kind than its column."""
        if self.way == "arrow":
            fine = any(mask is not None for table, mask in self._arrow_masks() if table.num_rows)
        else:
            truth = Truth(self.world.columns, "ieee", Random(0))
            fine = all(truth.compares(leaf) for leaf in leaves_of(self.tree))
        if fine or "is no literal for it" not in str(error):
            raise WrongError(f"{self}\n  is refused: {error}")

    def _arrow_masks(self) -> Iterator[tuple[pa.Table, list[int] | None]]:
        for _, _, _, table in self.world.groups():
            yield table, _masks(table, self.expression)

    def _hold(self, verdicts: Any, truth: list[list[int] | None]) -> None:
        if verdicts.excluded:
            truth = self._not_excluded({str(one.path) for one in verdicts.excluded}, truth)
        assert len(verdicts) == len(truth)
        for at, (verdict, rows) in enumerate(zip(verdicts, truth, strict=True)):
            seen = functools.reduce(int.__or__, rows or (), 0)
            outcome = verdict.outcome.value
            if verdict.skipped and seen & TRUE:
                raise WrongError(f"{self}\n  row group {at} is skipped ({verdict.reason}), a row is TRUE")
            if rows and seen & ~outcome:
                found = ", ".join(name for bit, name in NAMES.items() if seen & ~outcome & bit)
                raise WrongError(f"{self}\n  row group {at} gives {verdict.outcome.names}, a row is {found}")
            if verdict.skipped == bool(outcome & TRUE):
                raise WrongError(f"{self}\n  row group {at}: skipped {verdict.skipped}, outcome {verdict.outcome}")

    def _not_excluded(self, excluded: set[str], truth: list[list[int] | None]) -> list[list[int] | None]:
        """What is true in files that were opened."""
        left = []
        for (file, _, _, _), rows in zip(self.world.groups(), truth, strict=True):
            if str(file.path) not in excluded:
                left.append(rows)
            elif TRUE in (rows or ()):
                raise WrongError(f"{self}\n  {file.path} is not opened, a row is TRUE")
        return left

    def _read(self, verdicts: Any, expected: list[int] | None) -> None:
        """Rows that are read are those that match, in their order; and all count the same."""
        source, asked, options = self.world.source, self.asked, self.world.options
        kept = [(v.path, v.row_group) for v in verdicts if not v.skipped]
        pruned = parquet_bloom.prune(source, asked, **options)
        if [(path, group) for path, groups in pruned for group in groups] != kept:
            raise WrongError(f"{self}\n  prune keeps {pruned}, check {kept}")
        if expected is None:
            return
        try:
            found = parquet_bloom.read_table(source, asked, columns=["row"], **options)["row"].to_pylist()
            if found != expected:
                raise WrongError(f"{self}\n  rows {found} are read, {expected} match")
            number = parquet_bloom.count(source, asked, **options)
        except (RequestError, *ARROW_ERRORS):
            return  # types that pyarrow does not filter or cast in files
        if number != len(expected):
            raise WrongError(f"{self}\n  {number} rows are counted, {len(expected)} match")

    def _expected(self) -> list[int] | None:
        """The numbers of the rows that match, by pyarrow over the whole table."""
        if len(self.world.files) > 1:
            return None
        table = pa.concat_tables(self.world.files[0].tables)
        try:
            if self.expression is not None:
                return list(table.filter(self.expression)["row"].to_pylist())
            keep = row_filter(self.tree, table.schema)
        except (RequestError, *ARROW_ERRORS):
            return None
        batches = table.combine_chunks().to_batches()
        return [row for batch in batches for row in keep.filter_batch(batch)["row"].to_pylist()]


def _masks(table: pa.Table, expression: pc.Expression | None) -> list[int] | None:
    """TRUE, FALSE or NULL for each row, by pyarrow; None where it cannot compare."""
    try:
        return _numbers(ds.dataset(table).to_table(columns={"mask": expression})["mask"])
    except ARROW_ERRORS:
        return None


def _numbers(mask: pa.ChunkedArray) -> list[int]:
    return [NULL if v is None else TRUE if v else FALSE for v in mask.to_pylist()]


def cases_of(where: World, each: int) -> Iterator[Case]:
    """Predicates over one world."""
    rng = Random(where.seed + 1)
    trees = Trees(rng, where.files[0], pairs=len(where.files) > 1)
    types = {c.path: c.kind.type for c in where.columns.values()}
    for number in range(each):
        way = rng.choices(["tree", "largest", "arrow"], [5, 2, 3])[0]
        tree = trees.tree()
        expression = None
        if way == "arrow":
            try:
                expression = expression_of(tree, rng, types)
            except (KeyError, *ARROW_ERRORS):
                way = "tree"
        yield Case(where, number, tree, way, expression, sample=way != "largest" and rng.random() < 0.05)


def worlds(seeds: Iterable[int], folder: Path) -> Iterator[World]:
    for seed in seeds:
        yield world(seed, folder)
