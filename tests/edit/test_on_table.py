"""Tables of any kind: what is committed, what happens when others commit meanwhile, and what a refusal leaves."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.meanwhile import a_filter_built, meanwhile
from support.plain_table import PlainTable

from parquet_bloom import inspect
from parquet_bloom.change import add_filters, remove_filters
from parquet_bloom.edit.add_to_source import add_to_source
from parquet_bloom.edit.changeable import ChangeableTable
from parquet_bloom.edit.plan import Request
from parquet_bloom.edit.remove import RemoveRequest, remove_from_source
from parquet_bloom.edit.table_commit import Committing
from parquet_bloom.errors import (
    ConflictError,
    RefusedTypeError,
    RequestError,
    StorageError,
    TableFormatError,
    UnknownColumnError,
    UnknownCommitError,
)
from parquet_bloom.filters.stored import StoredFilters
from parquet_bloom.filters.tails import as_it_was
from parquet_bloom.output.target import Writing
from parquet_bloom.report.added import print_commits
from parquet_bloom.source.snapshot import CommitModes, Field
from parquet_bloom.storage.open_file import OpenFile

ROWS = 3000


def rows(seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table({
        "id": random.integers(0, 2**60, ROWS),
        "user": [f"user-{n}" for n in random.integers(0, 10**9, ROWS)],
        "flag": random.integers(0, 2, ROWS) == 1,
    })  # fmt: skip


@pytest.fixture
def table(tmp_path) -> PlainTable:
    made = PlainTable(tmp_path / "table", rows().schema)
    for seed in range(3):
        made.append(rows(seed))
    return made


def add(table: PlainTable, columns=("id",), how: Committing | None = None, **arguments):
    given = Request.checked(columns=columns and list(columns), **arguments)
    return add_to_source(ChangeableTable(table, how or Committing("add")), given)


def remove(table: PlainTable, columns=None, how: Committing | None = None):
    how = how or Committing("remove")
    return remove_from_source(
        ChangeableTable(table, how), RemoveRequest(columns=columns, how=Writing(dry_run=how.dry_run))
    )


def filters(table: PlainTable) -> dict[str, set[str]]:
    """Live file -> the columns that have filters."""
    return {
        name: {one.column for file in inspect(str(table.folder / name)).files for one in file.filters}
        for name in table.entries()
    }


def print_shown(report) -> list[str]:
    """What people are told of commits."""
    lines: list[str] = []
    print_commits(report, lines.append)
    return lines


def same_rows(table: PlainTable, before: pa.Table) -> None:
    order = [("id", "ascending")]
    assert table.rows().sort_by(order) == before.sort_by(order), "no row came, went, or changed"


# --- the same path -----------------------------------------------------------------------------------

SAME = Committing("add", "same-path")


@pytest.mark.parametrize("append", [False, True], ids=["clone", "append"])
def test_files_grow_at_their_ends_and_old_versions_read_the_old_sizes(table, append):
    before, old, version = table.rows(), table.entries(), table.version
    bytes_before = {name: (table.folder / name).read_bytes() for name in old}
    report = add(table, how=Committing("add", "same-path", append=append))
    assert [(c.files, c.same_path) for c in report.commits] == [(3, 3)]
    assert table.files() == set(old), "no file came"
    assert table.entries().keys() == old.keys()
    for name, size in table.entries().items():
        data = (table.folder / name).read_bytes()
        assert len(data) == size > old[name]
        assert data.startswith(bytes_before[name]), "no old byte changed"
    assert table.rows() == before
    assert table.rows(version) == before
    assert all(columns == {"id"} for columns in filters(table).values())
    assert add(table, how=SAME).commits == []


def add_without_a_commit(table: PlainTable, **arguments) -> dict[str, int]:
    """A run whose commit fails; the sizes that its files have by then."""

    def fail(_: PlainTable) -> None:
        raise StorageError("log", "no space left on device")

    table.before_commit = fail
    with pytest.raises(StorageError, match="no space left"):
        add(table, **arguments)
    table.before_commit = lambda _: None
    return {name: (table.folder / name).stat().st_size for name in table.entries()}


def test_a_tail_that_no_commit_names_is_committed_by_the_next_run(table):
    old, before = table.entries(), table.rows()
    grown = add_without_a_commit(table, how=SAME)
    assert table.entries() == old
    assert table.rows() == before, "the log's sizes still hold whole files"
    assert all(grown[name] > old[name] for name in old)
    report = add(table, how=SAME)
    assert [commit.files for commit in report.commits] == [3]
    assert table.entries() == grown, "nothing was appended twice"
    assert all({one.column for one in file.filters} == {"id"} for file in report.files), "those that the commit gives"
    assert not any(file.written for file in report.files)


@pytest.mark.parametrize("arguments", [{"columns": None, "fpp": "auto"}, {"fpp": 0.2, "max_bytes": 1024}], ids=str)
def test_what_an_interrupted_run_left_is_not_written_twice_whatever_was_asked(table, arguments):
    grown = add_without_a_commit(table, how=SAME, **arguments)
    dry = add(table, how=Committing("add", "same-path", dry_run=True), **arguments)
    report = add(table, how=SAME, **arguments)
    assert table.entries() == grown
    assert [file.planned_filters for file in dry.files] == [len(file.filters) for file in report.files]
    assert not any(file.written or file.bytes_needed for file in dry.files)


def fpp_of(table: PlainTable) -> dict[str, float]:
    """Column -> the worst rate, of all live files as long as the log says."""
    worst: dict[str, float] = {}
    for name, size in table.entries().items():
        with OpenFile(table.folder / name) as whole:
            source = as_it_was(whole, size)
            assert source is not None
            for group in range(source.footer().n_row_groups):
                for leaf in source.footer().leaves:
                    for one in StoredFilters(source).of(group, leaf):
                        worst[leaf.name] = max(worst.get(leaf.name, 0.0), one.read().fpp)
    return worst


@pytest.mark.parametrize(("append", "asked"), [(False, ["id"]), (True, ["user", "id"])])
def test_a_tail_that_nobody_asked_for_is_passed_over(table, append, asked):
    how = Committing("add", "same-path", append=append)
    before, old = table.rows(), table.entries()
    add(table, ["id", "user"], how, fpp=0.2)
    long, version = table.entries(), table.version
    bytes_before = {name: (table.folder / name).read_bytes() for name in long}
    remove(table, how=Committing("remove", "same-path"))
    assert table.entries() == old
    report = add(table, asked, how, fpp=0.001)
    assert [commit.files for commit in report.commits] == [3]
    assert all({one.column for one in file.filters} == set(asked) for file in report.files)
    assert all(file.bytes_before == old[os.path.basename(file.source)] for file in report.files)
    worst = fpp_of(table)
    assert worst.keys() == set(asked)
    assert all(rate <= 0.001 for rate in worst.values())
    for name, data in bytes_before.items():
        assert (table.folder / name).read_bytes().startswith(data), "a version names the size between"
    assert table.rows() == table.rows(version) == before
    remove(table, how=Committing("remove", "same-path"))
    assert table.entries() == old


def test_a_table_that_goes_back_to_a_size_that_was_passed_over_is_changed_as_any_other(table):
    add(table, ["user"], SAME)
    long = table.entries()
    remove(table, how=Committing("remove", "same-path"))
    add(table, ["id"], SAME)
    table.put(long)  # as a restore
    assert fpp_of(table).keys() == {"user"}
    report = add(table, ["user", "id"], SAME)
    assert not report.failed
    assert fpp_of(table).keys() == {"user", "id"}
    same_rows(table, table.rows())


def test_a_tail_with_some_of_what_is_asked_gets_the_rest_behind_it(table):
    add(table, ["user"], SAME)
    remove(table, how=Committing("remove", "same-path"))
    report = add(table, ["user", "id"], SAME)
    assert [len(file.filters) for file in report.files] == [6, 6, 6]
    assert all(file.written for file in report.files)
    assert fpp_of(table).keys() == {"user", "id"}


def test_filters_that_are_there_are_no_reason_to_commit_others(table):
    add(table, ["id"], SAME)
    first = next(iter(table.entries()))
    add_filters(str(table.folder / first), columns=["user"], placement="tail", in_place=True, force=True)
    assert add(table, ["id"], SAME).commits == []


def test_a_copy_is_of_what_the_log_has(table):
    """Not of a tail that no version names, or none any more: its filters may have been removed on purpose."""
    first = next(iter(table.entries()))
    add_filters(str(table.folder / first), columns=["user"], placement="tail", in_place=True)
    before = table.rows()
    report = add(table)
    assert [(c.files, c.same_path) for c in report.commits] == [(3, 0)]
    assert all(columns == {"id"} for columns in filters(table).values())
    same_rows(table, before)


def test_removing_commits_the_old_size_and_cuts_nothing(table):
    before, old = table.rows(), table.entries()
    add(table, how=SAME)
    grown, version = table.entries(), table.version
    dry = remove(table, how=Committing("remove", "same-path", dry_run=True))
    assert print_shown(dry)[-1].endswith("same-path: 3 files; no byte of them changes, the commit alone names another "
                                         "size of each")  # fmt: skip
    report = remove(table, how=Committing("remove", "same-path"))
    assert [(c.files, c.same_path) for c in report.commits] == [(3, 3)]
    assert table.entries() == old
    dry = add(table, how=Committing("add", "same-path", dry_run=True))
    assert "no byte of them changes" in print_shown(dry)[-1]
    dry = add(table, ["user"], how=Committing("add", "same-path", dry_run=True))
    assert "filters and a footer are written behind each" in print_shown(dry)[-1]
    assert {name: (table.folder / name).stat().st_size for name in grown} == grown
    assert table.rows() == before
    assert table.rows(version) == before, "the version that names the larger size reads it"
    assert remove(table, how=Committing("remove", "same-path")).commits == []
    again = add(table, how=SAME)
    assert table.entries() == grown, "the bytes that stayed are named again"
    assert len(again.commits) == 1


def test_removing_some_of_a_tail_needs_another_file(table):
    before, plain = table.rows(), sorted((table.folder / name).read_bytes() for name in table.entries())
    add(table, ["id", "user"], how=SAME)
    report = remove(table, ["user"], Committing("remove", "same-path"))
    assert {one.reason for one in report.failed} == {
        "has filters that lie in no tail of its end, which only another file can be without; see commit='new-path'"
    }
    remove(table, ["user"])
    assert all(columns == {"id"} for columns in filters(table).values())
    remove(table)
    assert sorted((table.folder / name).read_bytes() for name in table.entries()) == plain, "as they were"
    assert remove(table).commits == [], "no file has a filter"
    same_rows(table, before)


def test_files_that_row_level_deletes_name_grow_while_others_are_replaced(table):
    first = next(iter(table.entries()))
    table.open_ways[first] = CommitModes("same-path", "", "row-level deletes name its path")
    report = add(table)
    assert [(c.files, c.same_path) for c in report.commits] == [(3, 1)]
    assert {file.source: (file.way, file.why) for file in report.files}[str(table.folder / first)] == (
        "same-path", "row-level deletes name its path",
    )  # fmt: skip
    assert first in table.entries()


def test_forms_that_are_no_tail_are_refused_on_the_same_path(table):
    files = table.files()
    report = add(table, spec="parquet-41", how=SAME)
    assert len(report.failed) == 3
    assert "form parquet-41 puts no filters; form='final' does" in report.failed[0].reason
    assert table.files() == files


def test_a_second_add_meanwhile_on_the_same_path(table):
    before = table.rows()
    table.before_commit = once(lambda t: add(t, ["id"], how=SAME))
    report = add(table, ["id"], how=SAME)
    assert report.commits == [], "the other run committed the very same"
    table.before_commit = once(lambda t: add(t, ["user"]))
    add(table, ["user"], how=SAME)
    assert all(columns == {"id", "user"} for columns in filters(table).values())
    same_rows(table, before)


# --- names ----------------------------------------------------------------------------------------


def test_columns_have_the_names_of_the_table(table):
    table.fields = (Field("key", pa.int64(), physical="id"), Field("name", pa.string(), physical="user"))
    report = add(table, ["key", "na*"], fpp={"key": 0.001, "*": 0.05})
    assert {tuple(file.columns) for file in report.files} == {("key", "name")}
    assert {one.column for file in report.files for one in file.filters} == {"key", "name"}
    assert all(columns == {"id", "user"} for columns in filters(table).values()), "the file keeps its own"
    assert all(one.fpp <= (0.001 if one.column == "key" else 0.05) for file in report.files for one in file.filters)
    with pytest.raises(UnknownColumnError, match="no column id"):
        add(table, ["id"])
    assert {tuple(file.columns) for file in remove(table, ["name"]).files} == {("name",)}
    assert all(columns == {"id"} for columns in filters(table).values())


def test_columns_that_no_file_can_be_asked_for_end_the_call_before_any_work(table):
    before = table.files()
    for columns, kind in (
        (["nothing"], UnknownColumnError),
        (["flag"], RefusedTypeError),
        (["x*"], UnknownColumnError),
    ):
        with pytest.raises(kind):
            add(table, columns)
    with pytest.raises(UnknownColumnError):
        add(table, fpp={"nothing": 0.1})
    with pytest.raises(UnknownColumnError):
        remove(table, ["nothing"])
    assert table.files() == before


def test_a_file_that_lacks_a_column_says_so_and_gets_the_others(table):
    table.fields = (*table.fields, Field("added", pa.int64()))
    table.append(rows(9).append_column("added", pa.array(range(ROWS))))
    report = add(table, ["id", "added"])
    assert sorted(map(len, filters(table).values())) == [1, 1, 1, 2]
    lacking = [one for file in report.files for one in file.skipped]
    assert {(one.column, one.reason) for one in lacking} == {
        ("added", "the file was written before the column was added")
    }
    assert len(lacking) == 3


def test_without_names_columns_that_the_table_dropped_get_no_filter(table):
    table.fields = tuple(one for one in table.fields if one.name != "user")
    add(table, None)
    assert all(columns == {"id"} for columns in filters(table).values())


def test_the_tables_properties_are_the_wishes_where_no_column_is_named(table):
    table.filter_settings = {"columns": ["user", "gone", "flag"], "fpp": {"user": 0.001}, "max_bytes": 1 << 20}
    report = add(table, None)
    assert all(columns == {"user"} for columns in filters(table).values())
    assert all(one.fpp <= 0.001 for file in report.files for one in file.filters)
    assert report.notes == [
        "the table's properties ask for filters on user",
        "they ask for one on gone too, which is no column",
        "they ask for one on flag too, which can have none (BOOLEAN)",
    ]
    assert add(table, ["id"]).notes == [], "names that are given go first"
    assert all(columns == {"user", "id"} for columns in filters(table).values())


# --- others commit meanwhile ----------------------------------------------------------------------


def once(what) -> object:
    """Before the first commit only."""
    done = []

    def hook(table: PlainTable) -> None:
        if not done:
            done.append(1)
            what(table)

    return hook


def test_a_delete_meanwhile_is_not_undone(table):
    gone = next(iter(table.entries()))
    table.before_commit = once(lambda t: t.drop(gone))
    report = add(table)
    assert table.rows().num_rows == 2 * ROWS, "rows of a file that was deleted do not come back"
    assert [commit.files for commit in report.commits] == [2]
    assert report.notes == [f"{table.folder / gone}: another commit removed it meanwhile"]
    assert len(table.files()) == 3 + 2, "what was built for it is gone"
    assert all(columns == {"id"} for columns in filters(table).values())


def test_new_deletes_meanwhile_change_the_way(table):
    """A new path would lose what names the old one, so what was built for it is not committed."""
    first = next(iter(table.entries()))

    def delete(t: PlainTable) -> None:
        t.open_ways[first] = CommitModes(None, "the log cannot say so", "row-level deletes name its path")
        t.drop(next(reversed(t.entries())))

    table.before_commit = once(delete)
    report = add(table)
    assert first in table.entries()
    assert [one.path for one in report.failed] == [str(table.folder / first)]
    assert report.failed[0].reason == (
        "cannot get a new version: the log cannot say so; row-level deletes name its path"
    )
    assert [commit.files for commit in report.commits] == [1]
    assert len(table.files()) == 3 + 1


def test_a_run_that_grows_the_file_meanwhile_is_waited_out(table):
    """Its tail takes the file's place while a copy is made: the copy is made once more."""
    before, grown = table.rows(), []
    first = next(iter(table.entries()))

    def grow() -> None:
        grown.append(add_filters(str(table.folder / first), columns=["user"], placement="tail", in_place=True))

    progress = meanwhile(grow, a_filter_built)
    report = add_to_source(ChangeableTable(table, Committing("add")), Request.checked(columns=["id"]), progress)
    assert grown
    assert report.failed == []
    assert [commit.files for commit in report.commits] == [3]
    same_rows(table, before)


def test_others_that_are_always_first_end_the_call(table):
    old = table.files()

    def always(t: PlainTable) -> None:
        name = next(iter(t.entries()))
        entries = t.entries()
        new = f"{len(t.files())}.parquet"
        (t.folder / new).write_bytes((t.folder / name).read_bytes())
        t.put({new: entries.pop(name), **entries})

    table.before_commit = always
    before = table.rows()
    with pytest.raises(
        ConflictError, match="other commits were first 10 times, the last time: .*: another commit changed it$"
    ) as raised:
        add(table)
    assert raised.value.path == table.name
    same_rows(table, before)
    assert not [name for name in table.files() if "-bloom-" in name], "what was built is gone"
    assert old < table.files()


# --- refusals -------------------------------------------------------------------------------------


def test_a_table_that_allows_no_way_is_refused_before_any_work(table):
    before = table.files()
    for name in table.entries():
        table.open_ways[name] = CommitModes(None, "row tracking is on", "deletion vectors are on")
    with pytest.raises(TableFormatError, match="row tracking is on; deletion vectors are on"):
        add(table)
    with pytest.raises(TableFormatError, match="cannot get new versions: row tracking is on$"):
        add(table, how=Committing("add", "same-path"))
    assert table.files() == before


@pytest.mark.parametrize("spec", ["final", "statistics"])
def test_a_file_without_a_way_is_refused_for_that_alone(table, spec):
    [first, *_] = table.entries()
    add(table, spec=spec)
    [held, *rest] = table.entries()
    table.open_ways[held] = CommitModes(None, "x", "y")
    assert [str(one.error) for one in remove(table).failed] == [
        f"{table.folder / held}: cannot get a new version: x; y"
    ]
    [report] = add(table, ["user"], spec=spec).failed
    assert str(report.error) == f"{table.folder / held}: cannot get a new version: x; y"
    assert len(rest) == 2
    assert first not in table.entries()


def test_a_file_that_has_its_filters_needs_no_way(table):
    add(table)
    for name in [*table.entries()][:2]:
        table.open_ways[name] = CommitModes(None, "x", "y")
    assert add(table).failed == []


def test_a_commit_that_fails_leaves_nothing(table):
    before, version, files = table.rows(), table.version, table.files()
    add_without_a_commit(table)
    assert (table.files(), table.version) == (files, version)
    same_rows(table, before)


@pytest.mark.parametrize("kind", [UnknownCommitError, KeyboardInterrupt, OSError])
def test_files_stay_where_nobody_knows_whether_a_commit_landed(table, kind):
    """It may have: a file that a version names must never go."""
    version = table.version

    def die(t: PlainTable) -> None:
        t.before_commit = lambda _: None
        t.commit(t.snapshot(), pending, {})
        raise kind("log", "the catalog does not answer")

    pending = []
    commit = table.commit

    def keep(snapshot, changes, properties):
        pending.extend(changes)
        return commit(snapshot, changes, properties)

    table.commit = keep  # type: ignore[method-assign]
    table.before_commit = die
    with pytest.raises(kind):
        add(table)
    assert table.version == version + 1
    assert table.rows().num_rows == 3 * ROWS, "the version that landed reads"


def test_a_damaged_file_among_others_is_told_and_the_others_are_committed(table):
    first = next(iter(table.entries()))
    size = table.entries()[first]
    (table.folder / first).write_bytes(bytes(size))
    report = add(table)
    assert [one.path for one in report.failed] == [str(table.folder / first)]
    assert [commit.files for commit in report.commits] == [2]
    assert first in table.entries()


def test_a_file_that_is_not_what_the_log_says_is_not_touched(table):
    first = next(iter(table.entries()))
    pq.write_table(rows(5), table.folder / first, row_group_size=500)
    report = add(table)
    assert "another program changed it" in report.failed[0].reason
    assert first in table.entries()


def test_control_c_takes_what_was_built(table):
    files, seen = table.files(), []

    def stop(progress) -> None:
        seen.append(progress)
        if progress.files_done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        add_to_source(ChangeableTable(table, Committing("add")), Request.checked(columns=["id"]), stop)
    assert seen
    assert table.files() == files


# --- what makes no sense --------------------------------------------------------------------------


def test_filters_go_nowhere_but_behind_a_file_that_keeps_its_path(tmp_path):
    for place in ("footer", "chunk-start"):
        said = f"placement='{place}' is not for commit='same-path', which puts filters behind the file; leave it out"
        with pytest.raises(RequestError, match=said):
            add_filters(f"delta:{tmp_path}/nothing", columns=["id"], placement=place, commit="same-path")


def test_a_tables_change_is_its_commit(tmp_path):
    name = f"delta:{tmp_path}"
    for function in (add_filters, remove_filters):
        for given, text in (
            ({"output": "x"}, "output is for files"),
            ({"in_place": True}, "in_place=True is for files"),
            ({"commit": "elsewhere"}, "commit 'elsewhere' is neither"),
            ({"files_per_commit": 0}, "files_per_commit 0 is not positive"),
        ):
            with pytest.raises(RequestError, match=text):
                function(name, **given)
        with pytest.raises(RequestError, match="leave out @3"):
            function(f"{name}@3")
        for given in ({"commit": "new-path"}, {"files_per_commit": 1}, {"catalog_properties": {"a": "b"}}):
            with pytest.raises(RequestError, match="is for tables"):
                function(str(tmp_path / "x.parquet"), in_place=True, **given)
