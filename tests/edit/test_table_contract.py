"""What a commit of filters promises, of tables of every kind: rows stay for everybody, and so does what others commit.

The kinds and their verbs are in support/table_kinds.py; a table of no format is in test_on_table.py. What is peculiar
to a format, or to a moment within its commit, stands in test_on_delta.py, test_on_iceberg.py and in tests/tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import convert_to_deltalake
from support.meanwhile import meanwhile
from support.table_kinds import KINDS, Delta, Kind, N, in_order, rows_of

import parquet_bloom as pb
from parquet_bloom.cli import run
from parquet_bloom.errors import TableFormatError

FILES = 3
WAYS = [
    pytest.param(name, way, marks=[pytest.mark.smoke] if way is None else [], id=f"{name} {way or 'default'}")
    for name, kind in KINDS.items()
    for way in kind.commit_modes
]
ONCE = list(KINDS)


@pytest.fixture
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    """A table of a kind, with three files."""
    made = KINDS[request.param](tmp_path)
    for seed in range(FILES):
        made.append(seed)
    yield made
    made.close()


class Converted(Delta):
    """A Delta table of files that pyarrow wrote, without page indexes."""

    def __init__(self, root: Path) -> None:
        super().__init__(root / "converted")
        self.root.mkdir(parents=True)
        for seed in range(FILES):
            pq.write_table(rows_of(seed), self.root / f"{seed}.parquet")
        convert_to_deltalake(str(self.root))


def all_agree(table: Kind, rows: list[str]) -> None:
    assert table.rows() == rows, "its own library"
    assert in_order(table.read_by_us()) == rows
    for other in table.read_by_others():
        assert in_order(other) == rows, "another program, which trusts the log's sizes"


@pytest.mark.parametrize(("table", "way"), WAYS, indirect=["table"])
def test_rows_stay_and_filters_come_and_go(table: Kind, way: str | None) -> None:
    before, old = table.rows(), table.version()
    report = table.add(["id"], commit=way)
    assert [(c.version, c.files, c.same_path) for c in report.commits] == [
        (table.version(), FILES, FILES if way == "same-path" else 0)
    ]
    assert report.failed == []
    assert table.filtered() == [{"id"}] * FILES
    all_agree(table, before)
    assert table.rows(old) == before, "the version before reads as it did"
    filtered = table.version()
    assert table.add(["id"], commit=way).commits == [], "there is nothing to commit"
    assert table.version() == filtered
    named = table.named()
    assert named is None or table.data_files() == named, "no other file was made"
    removed = table.remove(commit=way)
    assert [(c.files, c.same_path) for c in removed.commits] == [(FILES, FILES if way == "same-path" else 0)]
    all_agree(table, before)
    for version in (old, filtered):
        assert table.rows(version) == before
    assert table.remove(commit=way).commits == [], "no live file has a filter"


@pytest.mark.parametrize(("table", "way"), WAYS, indirect=["table"])
def test_page_indexes_come_and_go(table: Kind, way: str | None) -> None:
    """Alone where files get new paths, and beside filters where they grow."""
    columns = ["id"] if way else []
    options = {"page_index": True, "page_bounds": ["name"], "commit": way}
    if isinstance(table, Delta):  # whose writer gives files page indexes
        table = Converted(table.root.parent)
    before, old, each = table.rows(), table.version(), (FILES, FILES if way == "same-path" else 0)
    assert planned(table, columns, **options) == [(2, 1, way is None)] * FILES
    report = table.add(columns, **options)
    assert [(c.files, c.same_path) for c in report.commits] == [each]
    assert [(f.offset_indexes, f.column_indexes) for f in report.files] == [(2, 1)] * FILES
    found = pb.inspect(table.files(), raw_files=True).files
    columns_of = [[(one.column, one.offset_indexes, one.column_indexes) for one in file.page_indexes] for file in found]
    assert columns_of == [[("id", 1, 0), ("name", 1, 1)]] * FILES
    all_agree(table, before)
    assert table.rows(old) == before, "the version before reads as it did"
    assert table.add(columns, **options).commits == [], "there is nothing to commit"
    assert planned(table, columns, **options | {"page_bounds": ["*"]}) == [(0, 1, way is None)] * FILES
    removed = table.remove(commit=way)
    assert [(c.files, c.same_path) for c in removed.commits] == [each]
    assert [file.indexes for file in removed.files] == [3] * FILES
    all_agree(table, before)


def planned(table: Kind, columns: list[str], **options: Any) -> list[tuple[int, int, bool]]:
    """The page indexes that a dry run says, and whether their file would be another."""
    report = table.add(columns, **options, dry_run=True)
    return [(one.offset_indexes, one.column_indexes, one.output != one.source) for one in report.files]


@pytest.mark.parametrize("table", ONCE, indirect=True)
def test_commits_of_so_many_files_are_whole_each(table: Kind) -> None:
    """A dry run says how and writes nothing; a check uses the filters; names do not grow with each version."""
    before, files, version = table.rows(), table.data_files(), table.version()
    known = sorted(rows_of(1)["id"].to_pylist())[N // 2]
    assert table.row_groups_read(f"id = {known + 1}") == FILES, "bounds admit it"
    dry = table.add(["id"], dry_run=True)
    assert [(file.way, file.planned.keys()) for file in dry.files] == [("new-path", {"id"})] * FILES
    assert (dry.commits, table.data_files(), table.version()) == ([], files, version)
    report = table.add(["id"], files_per_commit=2)
    assert [commit.files for commit in report.commits] == [2, 1]
    for commit in report.commits:
        if commit.version:  # DuckLake's snapshots have numbers of its own
            assert table.rows(commit.version) == before
    all_agree(table, before)
    assert [table.row_groups_read(f"id = {one}") for one in (known, known + 1)] == [1, 0]
    table.add(["name"])
    assert [path.count("-bloom-") for path in table.files()] == [1] * FILES


# --- others commit while filters are built --------------------------------------------------------

OTHERS: dict[str, Callable[[Kind], object]] = {
    "append": lambda table: table.append(9),
    "delete": lambda table: table.delete("n7"),
    "rewrite": lambda table: table.rewrite(),
    "add": lambda table: table.add(["name"]),
}


def meetings() -> Iterator[Any]:
    """Each kind and each of the others, the ways of the kind in turn; CI's larger run has all products."""
    for name, kind in KINDS.items():
        for at, way in enumerate(kind.commit_modes):
            for turn, other in enumerate(OTHERS):
                mark = pytest.mark.more if turn % len(kind.commit_modes) != at else pytest.mark.smoke if at == 0 else ()
                yield pytest.param(name, way, other, marks=mark)


@pytest.mark.parametrize(("table", "way", "other"), [*meetings()], indirect=["table"])
def test_what_others_commit_meanwhile_stays(table: Kind, way: str | None, other: str) -> None:
    seeds = [*range(FILES), *([9] if other == "append" else [])]
    rows = [row for seed in seeds for row in in_order(rows_of(seed))]
    expected = sorted(row for row in rows if other != "delete" or not row.endswith("'n7')"))
    report = table.add(["id"], commit=way, progress=meanwhile(lambda: OTHERS[other](table)))
    assert report.failed == []
    all_agree(table, expected)
    live = table.filtered()
    came = other == "append"  # a file that came is the next run's
    assert sum("id" in columns for columns in live) >= len(live) - came
    if other == "add":
        assert live == [{"id", "name"}] * FILES
    named = table.named()
    assert named is None or table.data_files() <= named, "what was built for files that are gone is gone too"


@pytest.mark.parametrize("table", ["ducklake"], indirect=True)
def test_ducklakes_files_do_not_grow(table: Kind, capsys: pytest.CaptureFixture[str]) -> None:
    """And the command names no snapshot that it did not make."""
    with pytest.raises(TableFormatError, match="none of its files can be changed so: .*; leave out commit="):
        table.add(["id"], commit="same-path")
    assert run(["add", table.name, "--column", "id"]) == 0
    said = " ".join(capsys.readouterr().out.split())  # long paths are folded
    assert re.search(rf" committed to ducklake:\S*main\.t: {FILES} files$", said)
