"""Several local files at a time have the results of each one alone, or are left to be searched alone."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.corpus import corpus_file, corpus_files

import parquet_bloom
from parquet_bloom.errors import ParquetBloomError, RequestError
from parquet_bloom.search import together
from parquet_bloom.search.options import Options
from parquet_bloom.search.search import Search
from parquet_bloom.source.source import resolved_files
from parquet_bloom.storage.paths import DataFile


@pytest.fixture(params=["numpy", "numba"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether numba's loops are used."""
    if request.param == "numba":
        import numba  # noqa: F401
    else:
        from types import SimpleNamespace

        from parquet_bloom.filters import asking
        from parquet_bloom.storage import open_file

        without = SimpleNamespace(modules={})
        monkeypatch.setattr(asking, "sys", without)
        monkeypatch.setattr(open_file, "sys", without)
        monkeypatch.setattr(open_file._ReadByBindings, "row_groups", -(10**9))
        monkeypatch.setattr(together, "sys", without, raising=False)
    return str(request.param)


class Alone:
    """Counts the files that are searched alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: list[str] = []
        search = Search._search

        def counted(self_: Search, data_file: DataFile) -> Any:
            self.files.append(str(data_file))
            return search(self_, data_file)

        monkeypatch.setattr(Search, "_search", counted)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Alone:
    return Alone(monkeypatch)


def fact(one: Any) -> Any:
    """Everything that a search says of a file, as values."""
    if isinstance(one, tuple):
        file, error = one
        return str(file), type(error), str(error)
    decision, outline = one.decision, one.outline
    if decision is None:
        return str(one.file), one.excluded
    return (
        str(one.file),
        one.size,
        decision.outcomes.tolist(),
        decision.stage.tolist(),
        decision.bytes_read.tolist(),
        decision.asked.tolist(),
        decision.damaged,
        decision.notes,
        repr(one.bound),
        one.version_token,
        outline.data,
        outline.start,
        outline.leaves,
        repr(outline.metadata),
        outline.rows.tolist(),
        outline.slots.tolist(),
    )


def facts(files: Sequence[DataFile], predicate: Any, several: bool, **options: Any) -> tuple[Any, list[str]]:
    """What a search says of files, or the error that it ends with; and its warnings."""
    fewest = together.FEWEST
    together.FEWEST = 2 if several else 1 << 30
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            said: list[Any] = []
            try:
                for one in Search(resolved_files(files), predicate, Options(**options)):
                    said.append(fact(one))
            except RequestError as error:
                said.append((type(error), str(error)))
            return said, [str(one.message) for one in found]
    finally:
        together.FEWEST = fewest


def same(paths: Sequence[Path], predicate: Any, **options: Any) -> None:
    files = [DataFile(str(path)) for path in paths]
    several, one_by_one = (facts(files, predicate, way, **options) for way in (True, False))
    assert several == one_by_one
    few = {key: value for key, value in options.items() if key in ("use_filters", "nan")}
    assert checked(paths, predicate, True, **few) == checked(paths, predicate, False, **few)


def checked(paths: Sequence[Path], predicate: str, several: bool, **options: Any) -> Any:
    fewest = together.FEWEST
    together.FEWEST = 2 if several else 1 << 30
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return parquet_bloom.check(list(paths), predicate, **options).to_dict()
    except RequestError as error:
        return str(error)
    finally:
        together.FEWEST = fewest


def write(path: Path, seed: int, groups: int = 3, rows: int = 40, names: str = "ab") -> Path:
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {"id": rng.integers(-(2**62), 2**62, groups * rows)}
    for name in names:
        columns[name] = [f"{name}{value}" for value in rng.integers(0, 10**6, groups * rows)]
    table = pa.table(columns)
    plain = path.with_suffix(".plain")
    pq.write_table(table, plain, row_group_size=rows, use_dictionary=False)
    parquet_bloom.add_filters(plain, path, columns=list(columns), sync=False)
    plain.unlink()
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty files: most of one schema, some of another, or of another number of row groups."""
    folder = tmp_path_factory.mktemp("together")
    for i in range(20):
        write(folder / f"{i:02}.parquet", i, groups=1 + i % 4, names="abc" if i % 5 == 3 else "ab")
    return folder


def keys(path: Path, column: str = "id") -> list[Any]:
    return pq.read_table(path, columns=[column])[column].to_pylist()


PREDICATES: list[Callable[[Path], str]] = [
    lambda f: "id = 5",
    lambda f: f"id = {keys(f / '07.parquet')[11]}",
    lambda f: f"id IN (5, 6, {keys(f / '12.parquet')[3]})",
    lambda f: "id IN (" + ", ".join(map(str, keys(f / "03.parquet"))) + ")",
    lambda f: f"a = '{keys(f / '05.parquet', 'a')[0]}' OR b = '{keys(f / '13.parquet', 'b')[1]}'",
    lambda f: "a = 'no' AND id > 0",
    lambda f: "NOT (id = 5) OR a IS NULL",
    lambda f: "id BETWEEN 10 AND 300",
    lambda f: "c = 'x'",
    lambda f: "id = 5 AND c IS NULL",
    lambda f: "id = NULL",
    lambda f: "nothing = 5",
    lambda f: "id = 'x'",
]


@pytest.mark.smoke
@pytest.mark.parametrize("number", range(len(PREDICATES)))
def test_results_are_those_of_each_file_alone(folder: Path, number: int, loops: str) -> None:
    paths = sorted(folder.glob("*.parquet"))
    for options in ({}, {"use_filters": False}, {"decide_true": True}, {"nan": "largest"}):
        same(paths, PREDICATES[number](folder), **options)
        same(paths[3:], PREDICATES[number](folder), **options)  # the first file has another schema


def test_sound_files_are_not_searched_alone(folder: Path, loops: str, alone: Alone) -> None:
    paths = sorted(folder.glob("*.parquet"))
    found, _ = facts([DataFile(str(path)) for path in paths], "id = 5", True)
    assert len(found) == 20
    assert alone.files == [str(paths[0])], "it gives the schema"


def test_files_of_others(loops: str, tmp_path: Path) -> None:
    """Every file of fixtures and corpus, among others of its kind and of other kinds."""
    paths = [corpus_file(name) for name in corpus_files()]
    rng = random.Random(5)
    asked = 0
    for path in paths:
        try:
            leaves = _leaves(path)
        except ParquetBloomError:
            leaves = []
        others = rng.sample(paths, 3)
        for name, value in rng.sample(leaves, min(len(leaves), 2)):
            asked += 1
            same([path, path, others[0], path, *others[1:], path], f'"{name}" = {value}')
    assert asked > 50


def _leaves(path: Path) -> list[tuple[str, str]]:
    from parquet_bloom.storage.open_file import OpenFile

    with OpenFile(path) as source:
        found = []
        for leaf in source.outline().leaves:
            if len(leaf.path) == 1 and '"' not in leaf.name:
                found.append((leaf.path[0], "'x'" if leaf.logical == "STRING" else "5"))
        return found
