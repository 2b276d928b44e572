"""Tails: filters and a second footer behind a whole file, over and over, and off again."""

from __future__ import annotations

import io
import itertools
import json
import os
import random
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import disguised_changes
from support.repeats import first_then_more
from support.samples import FIXTURES, ROW_GROUPS, ROWS, keys_table, leftovers, write_keys

import parquet_bloom
from parquet_bloom.errors import LayoutError, ParquetBloomError, RequestError, StorageError
from parquet_bloom.filters.tails import tail_of
from parquet_bloom.format.edits import FooterEdit, edit_footer
from parquet_bloom.storage.open_file import OpenFile

WAYS = pytest.mark.parametrize("append", [False, True], ids=["clone-or-copy", "append"])


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return write_keys(tmp_path / "keys.parquet")


def add(path: Path, *columns: str, append: bool = False, **options: object):
    report = parquet_bloom.add_filters(
        path, in_place=True, placement="tail", columns=columns or ["id"], append=append, sync=False, **options
    )
    return report.files[0]


def remove(path: Path, **options: object):
    return parquet_bloom.remove_filters(path, in_place=True, sync=False, **options).files[0]


def add_a_footer(path: Path, **more: str) -> None:
    """As some other program would: one more footer behind the file, with a key-value of its own."""
    with OpenFile(path) as source:
        footer = edit_footer(source.footer().data, FooterEdit(append=list(more.items())))
    path.write_bytes(path.read_bytes() + footer + len(footer).to_bytes(4, "little") + b"PAR1")


@pytest.mark.smoke
@WAYS
def test_old_file_is_the_beginning_of_the_new_one(keys: Path, append: bool) -> None:
    old, inode = keys.read_bytes(), keys.stat().st_ino
    report = add(keys, "id", "name", append=append)
    new = keys.read_bytes()
    assert new[: len(old)] == old, "no byte of the old file changes"
    assert (report.bytes_before, report.bytes_after) == (len(old), len(new))
    assert min(f.offset for f in report.filters) == len(old), "filters begin where the old file ends"
    with OpenFile(keys) as source:
        assert max(f.offset + f.length for f in report.filters) == source.footer().start, "and then comes the footer"
    assert (keys.stat().st_ino == inode) is append, "only append writes to the file itself"
    assert pq.read_table(keys).equals(keys_table())
    assert pq.read_table(io.BytesIO(new[: len(old)])).equals(keys_table()), "who trusts the old size reads the old file"
    assert [v.status for v in parquet_bloom.verify(keys).files[0].filters] == ["right"] * (2 * ROW_GROUPS)
    absent = sorted(keys_table()["id"].to_pylist())[ROWS] + 1
    deciders = {v.decided_by for v in parquet_bloom.check(keys, f"id = {absent}")}
    assert deciders == {"filter"}, "the value lies between min and max, and no filter knows it"
    assert leftovers(keys.parent) == []


@WAYS
def test_tails_upon_tails_go_one_by_one_or_all(keys: Path, append: bool) -> None:
    states = [keys.read_bytes()]
    for columns in (["id"], ["name"], ["id", "user.id"]):
        add(keys, *columns, append=append, replace="id" in columns)
        states.append(keys.read_bytes())
        assert states[-1].startswith(states[-2])
    top = states[-1]
    for state in states[-2::-1]:
        report = remove(keys, last=True, append=append)
        assert keys.read_bytes() == state, "as it was before that add"
        assert report.tails == 1
        assert (report.bytes_before, report.bytes_after) == (
            os.path.getsize(keys) + len(states[states.index(state) + 1]) - len(state),
            len(state),
        )
    assert remove(keys, last=True, append=append).tails == 0, "there is none any more: nothing is done"
    keys.write_bytes(top)
    report = remove(keys, append=append)
    assert keys.read_bytes() == states[0]
    assert (report.tails, report.removed) == (3, 3 * ROW_GROUPS)
    assert leftovers(keys.parent) == []


def test_output_leaves_the_source(keys: Path, tmp_path: Path) -> None:
    old = keys.read_bytes()
    one, two, three = (tmp_path / f"{n}.parquet" for n in (1, 2, 3))
    parquet_bloom.add_filters(keys, one, columns=["id"], placement="tail")
    parquet_bloom.add_filters(one, two, columns=["name"], placement="tail")
    assert keys.read_bytes() == old
    assert two.read_bytes().startswith(one.read_bytes())
    parquet_bloom.remove_filters(two, three, last=True)
    assert three.read_bytes() == one.read_bytes()
    parquet_bloom.remove_filters(two, three, overwrite=True)
    assert three.read_bytes() == old


def test_tails_mix_with_filters_before_the_footer(keys: Path) -> None:
    old = keys.read_bytes()
    options = {"in_place": True, "sync": False}
    parquet_bloom.add_filters(keys, columns=["id"], **options)
    body = keys.read_bytes()
    add(keys, "name")
    tail = keys.read_bytes()
    assert tail.startswith(body)
    remove(keys, columns=["name"])
    assert keys.read_bytes() == body, "a tail all of whose filters go is taken off, whatever lies before"
    add(keys, "name")
    assert keys.read_bytes() == tail
    parquet_bloom.add_filters(keys, columns=["user.id"], **options)
    with pytest.raises(LayoutError, match="filters were added to it after its last tail"):
        remove(keys, last=True)
    assert remove(keys).removed == 3 * ROW_GROUPS
    assert keys.read_bytes() == old, "all that was added goes, in whatever order it came"


def test_filters_that_take_a_tails_place_leave_it_a_tail(keys: Path) -> None:
    old = keys.read_bytes()
    for spec in ("final", "statistics"):
        parquet_bloom.add_filters(keys, in_place=True, columns=["name"], sync=False)
        add(keys, "id")
        for columns in (["id"], ["name"]):
            parquet_bloom.add_filters(keys, in_place=True, columns=columns, spec=spec, replace=True, sync=False)
            assert parquet_bloom.inspect(keys).files[0].older_footers == 1, spec
        assert remove(keys).removed == 2 * ROW_GROUPS, spec
        assert keys.read_bytes() == old, spec


def test_some_columns_go_and_the_bytes_stay(keys: Path) -> None:
    old = keys.read_bytes()
    add(keys, "id", "name")
    first = keys.read_bytes()
    add(keys, "user.id")
    report = remove(keys, columns=["id"])
    now = keys.read_bytes()
    assert now.startswith(first), "only the last footer is written again"
    assert (report.removed, report.bytes_stay, report.tails) == (ROW_GROUPS, ROW_GROUPS, 0)
    assert {f.column for f in parquet_bloom.inspect(keys).files[0].filters} == {"name", "user.id"}
    assert pq.read_table(keys).equals(keys_table())
    remove(keys, columns=["name"])
    assert {f.column for f in parquet_bloom.inspect(keys).files[0].filters} == {"user.id"}
    remove(keys, columns=["user.*"])
    assert keys.read_bytes() == old, "when the last one goes, all tails go"


def test_a_body_filter_under_a_tail_leaves_the_footer_only(keys: Path) -> None:
    old = keys.read_bytes()
    parquet_bloom.add_filters(keys, in_place=True, columns=["id"], sync=False)
    add(keys, "name")
    size = keys.stat().st_size
    assert remove(keys, columns=["id"]).bytes_stay == ROW_GROUPS, "cutting them out would move the old footer"
    assert keys.stat().st_size <= size
    assert {f.column for f in parquet_bloom.inspect(keys).files[0].filters} == {"name"}
    remove(keys)
    assert keys.read_bytes() == old


def test_under_somebody_elses_footer_bytes_stay(keys: Path) -> None:
    add(keys, "id")
    ours = keys.read_bytes()
    add_a_footer(keys, theirs="1")
    info = parquet_bloom.inspect(keys).files[0]
    assert info.older_footers == 1, "the one before our tail; of theirs nothing is known"
    assert info.tails == 0, "remove takes none off"
    report = remove(keys)
    assert (report.tails, report.removed) == (0, ROW_GROUPS)
    assert keys.read_bytes().startswith(ours), "what they wrote is not cut off with our filters"
    assert pq.read_metadata(keys).metadata[b"theirs"] == b"1"
    assert parquet_bloom.inspect(keys).files[0].filters == []
    assert pq.read_table(keys).equals(keys_table())


def test_a_tail_is_believed_only_if_all_of_it_fits(keys: Path) -> None:
    add(keys, "id")
    whole = keys.read_bytes()
    with OpenFile(keys) as source:
        footer, tail = source.footer(), tail_of(source)
    assert tail is not None
    entry = json.loads(next(pair.value for pair in footer.key_values if pair.key == "parquet_bloom"))[0]
    crc, places = str(entry["tail"]["footer_crc32"]), str(entry["places"])
    damaged = bytearray(whole)
    damaged[tail.size - 20] ^= 1
    for wrong in (
        changed(whole, footer.start, str(entry["tail"]["size"]), str(entry["tail"]["size"] + 1)),
        changed(whole, footer.start, crc, str(int(crc[0]) % 9 + 1) + crc[1:]),
        changed(whole, footer.start, f'"places":{places}', f'"places":{int(places[0]) % 9 + 1}{places[1:]}'),
        bytes(damaged),  # the old footer
    ):
        keys.write_bytes(wrong)
        with OpenFile(keys) as source:
            assert tail_of(source) is None
        assert remove(keys).tails == 0
        assert keys.stat().st_size > tail.size, "nothing is cut off on a claim alone"
        assert pq.read_table(keys).equals(keys_table())


def changed(data: bytes, start: int, old: str, new: str) -> bytes:
    assert len(old) == len(new)
    assert data.count(old.encode(), start) == 1
    return bytes(data[:start] + data[start:].replace(old.encode(), new.encode()))


def test_inspect_tells_of_older_footers(keys: Path) -> None:
    with OpenFile(keys) as source:
        first = len(source.footer().data) + 8
    add(keys, "id")
    with OpenFile(keys) as source:
        second = len(source.footer().data) + 8
    add(keys, "name")
    info = parquet_bloom.inspect(keys).files[0]
    assert (info.older_footers, info.older_footer_bytes, info.tails) == (2, first + second, 2)
    assert {f.place for f in info.filters} == {"tail"}
    assert info.problems == 0
    assert parquet_bloom.inspect(FIXTURES / "pyarrow" / "types_filters.parquet").files[0].older_footers == 0


def test_options_that_make_no_sense(keys: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"append=True is for placement='tail' and in_place=True"):
        parquet_bloom.add_filters(keys, tmp_path / "o", placement="tail", append=True)
    with pytest.raises(RequestError, match="append=True is for"):
        parquet_bloom.add_filters(keys, in_place=True, append=True)
    with pytest.raises(RequestError, match="read_back"):
        add(keys, append=True, read_back=True)
    for spec in ("parquet-41", "parquet-41-early", "parquet-41-raw", "statistics"):
        with pytest.raises(RequestError, match="placement='tail' is not for"):
            add(keys, "id", spec=spec)
    with pytest.raises(RequestError, match="append=True is for in_place=True"):
        parquet_bloom.remove_filters(keys, tmp_path / "o", append=True)
    with pytest.raises(RequestError, match="last=True takes off a whole tail"):
        remove(keys, last=True, columns=["id"])
    parquet_bloom.add_filters(keys, in_place=True, columns=["id"])
    before = keys.read_bytes()
    with pytest.raises(LayoutError, match="lie in no tail of its end"):
        remove(keys, append=True)
    assert keys.read_bytes() == before


def test_nothing_to_add_changes_nothing(keys: Path) -> None:
    add(keys, "id", append=True)
    before = keys.read_bytes()
    assert add(keys, "id", append=True).filters == []
    assert add(keys, "id", max_bytes=64, replace=True, append=True).filters == [], "no filter reaches a useful rate"
    assert keys.read_bytes() == before


def test_hadoops_checksums_go(keys: Path) -> None:
    crc = keys.with_name(f".{keys.name}.crc")
    for append, step in itertools.product((False, True), (add, remove)):
        crc.write_bytes(b"of the old bytes")
        step(keys, append=append)
        assert not crc.exists(), "with it Spark would refuse the new bytes"


def test_append_is_refused_with_hard_links(keys: Path) -> None:
    old = keys.read_bytes()
    os.link(keys, keys.with_name("other.parquet"))
    for force, dry_run in itertools.product((False, True), repeat=2):
        with pytest.raises(StorageError, match="hard links, whose readers would see its end change"):
            add(keys, append=True, force=force, dry_run=dry_run)
    assert keys.read_bytes() == old
    assert sorted(os.listdir(keys.parent)) == ["keys.parquet", "other.parquet"]


def test_append_is_refused_where_the_file_may_not_be_written_to(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)  # root may write to all
    advice = "as append=True does; make it writable, or leave out append"
    for force in (False, True):
        with pytest.raises(StorageError, match=f"is read-only, and cannot be written to itself, {advice}"):
            add(keys, append=True, force=force)


def test_append_follows_a_link(keys: Path, tmp_path: Path) -> None:
    folder = tmp_path / "links"
    folder.mkdir()
    link = folder / "link.parquet"
    link.symlink_to(keys)
    old = keys.read_bytes()
    add(link, append=True)
    assert link.is_symlink()
    assert keys.read_bytes().startswith(old)
    assert keys.stat().st_size > len(old)
    assert os.listdir(folder) == ["link.parquet"]


@WAYS
def test_a_body_that_got_other_values_stays_as_it_is(tmp_path: Path, append: bool) -> None:
    """Size, footer and tails do not tell that another program wrote into the body; what it wrote is not lost."""
    table = pa.table({"id": range(5000)})
    old = disguised_changes.written(table, write_statistics=False)
    new = disguised_changes.written(disguised_changes.replaced(table, "id", 2500, -1), write_statistics=False)
    assert disguised_changes.looks_alike(old, new)
    path = tmp_path / "a.parquet"
    path.write_bytes(old)
    add(path, "id", append=append)
    disguised_changes.in_place(path, new + path.read_bytes()[len(old) :])
    remove(path, append=append)
    assert path.read_bytes() == new
    assert parquet_bloom.read_table(path, "id = -1").num_rows == 1


def files() -> list[Path]:
    """Of many writers, some of them damaged."""
    found = sorted(FIXTURES.rglob("*.parquet"))
    corpus = os.environ.get("PARQUET_BLOOM_CORPUS")
    found += sorted(Path(corpus).rglob("*.parquet")) if corpus else []
    return [path for path in found if path.stat().st_size <= 4 << 20]


@pytest.mark.parametrize("share", first_then_more(range(10), 1))
def test_files_of_many_writers_come_back(tmp_path: Path, share: int) -> None:
    """Two tails of random columns, one by one taken off again; of random files: property/test_tails.py."""
    rng, work, done = random.Random(29), tmp_path / "x.parquet", 0
    for path in files()[share::10]:
        states = [path.read_bytes()]
        work.write_bytes(states[0])
        for append in rng.sample([False, True], 2):
            with suppress(ParquetBloomError):
                with OpenFile(work) as source:
                    names = [leaf.name for leaf in source.footer().leaves if leaf.refusal is None]
                if add(work, *rng.sample(names, min(len(names), 3)), append=append, replace=True).filters:
                    states.append(work.read_bytes())
            assert work.read_bytes() == states[-1], f"{path}: an error leaves what was there"
            assert states[-1].startswith(states[0])
        for older in states[-2::-1]:
            remove(work, last=True, append=rng.random() < 0.5)
            assert work.read_bytes() == older, path
        done += len(states) > 1
    assert done > 5
    assert leftovers(tmp_path) == []


def test_what_a_file_written_anew_has_from_another_one_is_not_believed(keys: Path) -> None:
    add(keys, "id")
    parquet_bloom.add_filters(keys, in_place=True, columns=["name"], sync=False)
    remove(keys, columns=["id"])
    carried = {"parquet_bloom": pq.read_metadata(keys).metadata[b"parquet_bloom"]}
    assert b'{"tail"' in carried["parquet_bloom"]
    table = keys_table().slice(0, 50)
    pq.write_table(table.replace_schema_metadata(carried), keys)
    old = keys.read_bytes()
    add(keys, "id")
    assert parquet_bloom.inspect(keys).files[0].tails == 1
    remove(keys)
    assert keys.read_bytes() == old
