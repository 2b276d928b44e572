"""Zone indexes that are damaged, or made to do harm: one error line, and nothing opened that was not named."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands import command, error_lines
from support.corpus import FIXTURES
from support.lance_data import crafted, lance

import parquet_bloom
import parquet_bloom.lance as zones
from parquet_bloom.errors import DamagedFileError, ParquetBloomError, RequestError, StaleIndexError
from parquet_bloom.format import lance as form
from parquet_bloom.format.lance import MARK, checksum, checksum_offset
from parquet_bloom.output import folder as litter
from parquet_bloom.output.atomic_file import AtomicFile
from parquet_bloom.output.folder import SUFFIX
from parquet_bloom.zones import reader
from parquet_bloom.zones.container import COLUMN, FRAGMENTS, ZoneFile, ZoneWriter
from parquet_bloom.zones.reader import DistantReader, LanceReader


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """An index of tmp/data/0.parquet."""
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"id": range(300)}), tmp_path / "data/0.parquet")
    built = zones.build_index(tmp_path / "data", ["id"], tmp_path / "index", items=50, sync=False)
    return Path(built.indexes[0].path)


def fragments(index: Path, **changes: Any) -> str:
    """The JSON of an index's fragments with something else in each; a key whose value is ... is left out."""
    [one] = json.loads(ZoneFile(str(index)).metadata[FRAGMENTS])
    return json.dumps([{key: value for key, value in {**one, **changes}.items() if value is not ...}])


def questions(path: Path, data: Path) -> list[Any]:
    return [
        lambda: zones.inspect_index(path),
        lambda: zones.query_index(path, "id = 5"),
        lambda: zones.query_index(path, "id = 5", check=False),
        lambda: zones.verify_index(path),
        lambda: zones.verify_index(path, data),
        lambda: parquet_bloom.read_table(data, "id = 5", index=path),
    ]


# --- damage ---------------------------------------------------------------------------------------


def test_every_flipped_byte_is_told_before_pylance_sees_it(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = index.read_bytes()
    monkeypatch.setattr(LanceReader, "_open", lambda *_: pytest.fail("pylance was asked"))
    place = checksum_offset(lambda at, n: whole[at : at + n], len(whole))
    assert place is not None
    for at in (*random.Random(5).sample(range(len(whole) - 40), 60), place, place + 7):
        data = bytearray(whole)
        data[at] ^= 0x20
        index.write_bytes(data)
        if MARK not in data or data[-400:-40] != whole[-400:-40]:
            continue  # no longer known as ours: see the next test
        with pytest.raises(DamagedFileError, match=r"its checksum is \w+, its bytes give \w+; build it again"):
            ZoneFile(str(index))


def test_what_ends_pylance_or_contradicts_itself_is_one_line(tmp_path: Path) -> None:
    """Indexes of ours with two or three bytes changed: pylance aborts its process over one, and miscounts the other."""
    path = tmp_path / "bloomfilter.lance"
    for name, reason in (("zones_abort", "ended its process over it"), ("zones_counts", "zones where it names")):
        data = (FIXTURES / "damaged" / f"{name}.lance").read_bytes()
        path.write_bytes(data)
        with pytest.raises(DamagedFileError, match="checksum"):
            zones.inspect_index(path)
        path.write_bytes(data.replace(MARK, bytes(len(MARK))))  # as of somebody who has no checksum
        for call in questions(path, tmp_path)[:4:3]:  # to inspect and to verify; the command queries
            with pytest.raises(DamagedFileError, match=reason):
                call()
        done = command("index", "query", path, "id = 5")
        assert (done.returncode, done.stdout, error_lines(done.stderr)) == (2, "", 1)
        assert str(path) in done.stderr


def test_after_an_abort_the_next_index_is_read(index: Path, tmp_path: Path) -> None:
    data = (FIXTURES / "damaged/zones_abort.lance").read_bytes()
    (tmp_path / "bad.lance").write_bytes(data)
    foreign = DistantReader(str(index), index.stat().st_size)
    foreign.describe()
    first = reader._SERVER._process
    assert first is not None
    with pytest.raises(DamagedFileError, match="ended its process"):
        DistantReader(str(tmp_path / "bad.lance"), len(data)).describe()
    assert first.poll() == -signal.SIGABRT
    assert foreign.describe().places.num_rows == 6
    second = reader._SERVER._process
    foreign.describe()
    assert reader._SERVER._process is second, "one process for all files"


def test_both_ways_of_reading_give_the_same(index: Path) -> None:
    size = index.stat().st_size
    near, far = LanceReader(str(index), size), DistantReader(str(index), size)
    assert near.describe() == far.describe()
    assert near.buffer(1) == far.buffer(1)
    for rows in ([0, 1, 2], [1, 3, 5], [], [5]):
        assert near.filters(rows).equals(far.filters(rows)), rows
    for one in (near, far):
        with pytest.raises(DamagedFileError):
            one.buffer(77)
        with pytest.raises(DamagedFileError):
            one.filters([6])


def test_an_index_without_our_checksum_gives_the_same_answers(index: Path, tmp_path: Path) -> None:
    index.write_bytes(index.read_bytes().replace(MARK, bytes(len(MARK))))
    assert isinstance(ZoneFile(str(index))._reader, DistantReader)
    assert [zone[:3] for zone in zones.query_index(index, "id = 60").zones] == [(0, 50, 50)]
    assert zones.verify_index(index)[0].status == "right"


def test_cut_indexes_are_errors(index: Path) -> None:
    whole = index.read_bytes()
    for size in (0, 1, 39, 40, 100, len(whole) // 2, len(whole) - 1):
        index.write_bytes(whole[:size])
        with pytest.raises(DamagedFileError):
            ZoneFile(str(index))


def test_more_zones_than_bytes_are_an_error(index: Path) -> None:
    with pytest.raises(DamagedFileError, match="names 6 zones, more than it has bytes for"):
        LanceReader(str(index), 5).describe()


SAID = {
    "nested lists": {FRAGMENTS: "[" * 200_000},
    "nested objects": {COLUMN: '{"a":' * 100_000},
    "digits": {FRAGMENTS: '[{"fragment":' + "1" * 5000 + "}]"},
    "no fields": {FRAGMENTS: "[{}]"},
    "no list": {FRAGMENTS: "5"},
    "a list of numbers": {FRAGMENTS: "[5]"},
    "no column": {COLUMN: "[]"},
    "a column without a name": {COLUMN: '{"type": "int64"}'},
    "numbers for names": {COLUMN: '{"name": 5, "type": []}'},
    "a type of types": {COLUMN: '{"name": "id", "type": "' + "list<" * 5000 + '"}'},
    "a type that is none": {COLUMN: '{"name": "id", "type": "list<int64>"}'},
    "a path with an open quote": {COLUMN: '{"name": "\\"id", "type": "int64"}'},
    "half a character": {COLUMN: '{"name": "id\\ud800", "type": "int64"}'},
    "a data set that is a number": {COLUMN: '{"name": "id", "type": "int64", "dataset": 5}'},
    "items": {form.ITEMS: "9" * 5000},
    "a negative number of items": {form.ITEMS: "-1"},
    "no probability": {form.PROBABILITY: "nan"},
}


def test_what_an_index_says_of_itself_is_checked(index: Path, tmp_path: Path) -> None:
    for name, said in SAID.items():
        bad = crafted(index, tmp_path / name, **said)
        for i, call in enumerate(questions(bad, tmp_path / "data")):
            told = ""
            try:
                call()
            except ParquetBloomError as error:
                told = str(error)
            else:
                assert i in (0, 1, 2) or name == "a data set that is a number", "some questions need not know"
            assert len(told) < 600, f"{name}: the text is not repeated"


FIELDS: list[dict[str, Any]] = [
    {"fragment": None}, {"fragment": "0"}, {"fragment": 2**70}, {"fragment": -1}, {"fragment": True},
    {"path": 5}, {"path": ...}, {"path": "/a\0b"}, {"relative": 7}, {"relative": "\0"}, {"size": "17"},
    {"footer_crc32": []}, {"relative": "\ud800"}, {"path": "/data/\udfff"},
    {"rows": 5}, {"chunk_xxh3": [1]}, {"rows": [True]}, {"token": []}, {"token": "x"}, {"chunk_xxh3": None},
]  # fmt: skip


def test_each_field_of_a_fragment_is_checked(index: Path, tmp_path: Path) -> None:
    for at, changes in enumerate(FIELDS):
        bad = crafted(index, tmp_path / f"bad{at}", **{FRAGMENTS: fragments(index, **changes)})
        for call in questions(bad, tmp_path / "data")[3:]:
            with pytest.raises(DamagedFileError, match="fragment"):
                call()


def test_two_fragments_of_one_number_or_one_file_are_damage(index: Path, tmp_path: Path) -> None:
    one = json.loads(fragments(index))
    for i, other in enumerate((one[0], {**one[0], "fragment": 1})):
        bad = crafted(index, tmp_path / f"bad{i}", **{FRAGMENTS: json.dumps([*one, other])})
        with pytest.raises(DamagedFileError, match="twice|as several fragments"):
            zones.query_index(bad, "id = 5")


def test_many_fragments_of_one_folder_take_a_look_or_two_each(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [one] = json.loads(fragments(index))
    many = [one | {"fragment": i, "path": str(tmp_path / f"data/{i}.parquet"), "relative": f"../../data/{i}.parquet"}
            for i in range(500)]  # fmt: skip
    bad = crafted(index, tmp_path / "bad", **{FRAGMENTS: json.dumps(many)})
    looks: list[Any] = []
    for look in (os.lstat, os.stat):

        def counted(path: Any, *more: Any, look: Any = look, **others: Any) -> Any:
            looks.append(path)
            return look(path, *more, **others)

        monkeypatch.setattr(os, look.__name__, counted)
    with pytest.raises(StaleIndexError, match="its file .*1.parquet cannot be read"):
        zones.query_index(bad, "id = 5")
    assert 500 <= len(looks) < 1200, "folders above them are looked up once"


# --- what an index may open -------------------------------------------------------------------------


@pytest.fixture
def store() -> Iterator[tuple[int, list[bytes]]]:
    """A port that notes what it is asked."""
    asked: list[bytes] = []
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    asked.append(connection.recv(1000))

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1], asked


OUTSIDE = [
    "s3://bucket/x.parquet?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1",
    "http://127.0.0.1:{port}/x.parquet", "file:///etc/passwd", "/etc/passwd", "/", "~/x.parquet", "x.parquet",
    "{root}/data/../../../../etc/passwd", "{root}-beside/x.parquet", "/usr/**/*.parquet",
]  # fmt: skip


def test_nothing_is_opened_that_is_not_below_the_root(
    index: Path, tmp_path: Path, store: tuple[int, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, asked = store
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    indexes: dict[str, list[Path]] = {}
    for at, said in enumerate(text.format(port=port, root=tmp_path) for text in OUTSIDE):
        bad = crafted(index, tmp_path / f"bad{at}", **{FRAGMENTS: fragments(index, path=said, relative=...)})
        column = json.dumps({"name": "id", "type": "int64", "dataset": said})
        indexes[said] = [bad, crafted(index, tmp_path / f"set{at}", **{COLUMN: column})]
    opened: list[str] = []
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *rest, **more: (opened.append(str(path)), real(path, *rest, **more))[1]
    )
    for said, both in indexes.items():
        for root in (None, tmp_path, tmp_path / "data"):
            for path in both:
                for call in (zones.query_index, lambda index, _, root: zones.verify_index(index, root=root)):
                    with pytest.raises(StaleIndexError, match="an index opens nothing else, so name the folder"):
                        call(path, "id = 5", root=root)
        assert zones.query_index(both[0], "id = 5", check=False).zones[0].path == said, "a name is only shown"
    assert not asked
    assert not [name for name in opened if not name.startswith(str(tmp_path))]


def test_the_way_from_the_index_leads_to_no_file_above_the_root(index: Path, tmp_path: Path) -> None:
    up = crafted(index, tmp_path / "up", **{FRAGMENTS: fragments(index, path="/x", relative="../" * 20 + "etc/passwd")})
    with pytest.raises(StaleIndexError, match="not below"):
        zones.query_index(up, "id = 5")
    assert zones.query_index(index, "id = 5", root=tmp_path / "data").rows == 50
    with pytest.raises(StaleIndexError, match=f"not below {tmp_path}/other"):
        zones.query_index(index, "id = 5", root=tmp_path / "other")


def test_no_symbolic_link_leads_out_of_the_root(index: Path, tmp_path: Path) -> None:
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    (tmp_path / "here").mkdir()
    (tmp_path / "index").rename(tmp_path / "here/index")
    (tmp_path / "here/data").symlink_to(tmp_path / "elsewhere")
    linked = tmp_path / "here/index/id/bloomfilter.lance"
    with pytest.raises(StaleIndexError, match="not below"):
        zones.query_index(linked, "id = 5")
    assert zones.query_index(linked, "id = 5", root=tmp_path).rows == 50
    assert zones.query_index(linked, "id = 5", root=tmp_path / "here/data").rows == 50, "the user's own link is a name"


def test_an_error_shows_nothing_of_the_file(index: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"the password is PASSWORD")
    os.mkfifo(tmp_path / "pipe")
    for name in ("secret", "pipe", "data", "nothing"):
        said = fragments(index, path=str(tmp_path / name), relative=...)
        bad = crafted(index, tmp_path / f"bad-{name}", **{FRAGMENTS: said})
        with pytest.raises(StaleIndexError, match="cannot be read") as caught:
            zones.query_index(bad, "id = 5")
        assert "SSWORD" not in str(caught.value)


def test_an_index_at_the_root_of_the_disk_names_nothing_by_itself(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from parquet_bloom.zones.match import Root

    file = ZoneFile(str(index))
    file.path = "/ix/bloomfilter.lance"
    with pytest.raises(RequestError, match="name the folder that the data are in with root"):
        Root(file, None)


def test_a_lance_data_set_beside_its_index_or_named(tmp_path: Path) -> None:
    uri = tmp_path / "d.lance"
    lance.write_dataset(pa.table({"id": range(100)}), uri)
    built = zones.build_index(uri, ["id"], tmp_path / "far/away/index", items=10, sync=False).indexes[0].path
    with pytest.raises(StaleIndexError, match="not below"):
        zones.query_index(built, "id = 5")
    assert zones.query_index(built, "id = 5", root=uri).rows == 10
    assert zones.query_index(built, "id = 5", root=tmp_path).rows == 10
    uri.rename(tmp_path / "moved.lance")
    assert zones.verify_index(built, root=tmp_path / "moved.lance")[0].status == "right"


def test_data_on_a_store_are_opened_by_the_users_own_name_for_them(tmp_path: Path) -> None:
    """The index has URIs too; the way to the store, and the keys to it, are the user's."""
    from support.object_store import serving

    with serving() as store:
        store.client.create_bucket(Bucket="data")
        out = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": range(300)}), out)
        for name in ("events/a b.parquet", "events/b.parquet", "other/b.parquet"):
            store.put(f"data/{name}", out.getvalue().to_pybytes())
        built = zones.build_index(store.uri("data/events"), ["id"], tmp_path / "index", items=50, sync=False)
        index = Path(built.indexes[0].path)
        assert zones.query_index(index, "id = 5", root=store.uri("data/events")).rows == 100
        assert zones.verify_index(index, root=store.uri("data"))[0].status == "right"
        store.wire.clear()
        for root in (None, tmp_path, store.uri("data/other"), store.uri("data/event")):
            with pytest.raises(StaleIndexError, match="an index opens nothing else"):
                zones.query_index(index, "id = 5", root=root)
        [first, _] = json.loads(ZoneFile(str(index)).metadata[FRAGMENTS])
        for said in (
            "s3://data/events/../other/b.parquet",
            "s3://data/events/%2e%2e/other/b.parquet",
            "s3://data/events//b",
        ):
            up = crafted(index, tmp_path / "up", **{FRAGMENTS: json.dumps([{**first, "path": said}])})
            with pytest.raises(StaleIndexError, match="an index opens nothing else"):
                zones.query_index(up, "id = 5", root=store.uri("data/events"))
            up.unlink()
        assert not store.wire.kinds, "nothing was asked for"


def test_the_command_takes_a_root(index: Path, tmp_path: Path) -> None:
    (tmp_path / "far/away").mkdir(parents=True)
    (tmp_path / "index").rename(tmp_path / "far/away/index")
    for words in (("query", tmp_path / "far/away/index", "id = 5"), ("verify", tmp_path / "far/away/index")):
        failed = command("index", *words)
        assert (failed.returncode, error_lines(failed.stderr)) == (2, 1)
        assert "--root" in failed.stderr
        assert command("index", *words, "--root", tmp_path).returncode == 0


# --- building ---------------------------------------------------------------------------------------


def test_a_killed_build_leaves_nothing_behind_the_next(index: Path, tmp_path: Path) -> None:
    code = f"""
import os, signal, sys
from parquet_bloom.zones import container
container.ZoneWriter.write = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
import parquet_bloom.lance as lance
lance.build_index({str(tmp_path / "data")!r}, ["id"], {str(tmp_path / "index")!r}, overwrite=True)
"""
    before = index.read_bytes()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    left = [name for name in os.listdir(index.parent) if name != index.name]
    assert [name.endswith(SUFFIX) for name in left] == [True], left
    assert index.read_bytes() == before
    assert zones.query_index(index, "id = 5").rows == 50
    litter._cleared.clear()  # this process looked here less than half a second ago
    zones.build_index(tmp_path / "data", ["id"], tmp_path / "index", overwrite=True, sync=False)
    assert os.listdir(index.parent) == [index.name]


def test_what_a_living_build_writes_is_left_alone(index: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "index/id/other.lance")
    with ZoneWriter(AtomicFile.new(path, False, False, by_name=True), {}) as living:
        zones.build_index(tmp_path / "data", ["id"], tmp_path / "index", overwrite=True, sync=False)
        assert os.path.isdir(os.path.dirname(living._new.path))
        living.commit()
    assert sorted(os.listdir(index.parent)) == [index.name, "other.lance"]


def test_a_built_index_is_on_the_disk_with_its_name(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd))[1])
    zones.build_index(tmp_path / "data", ["id"], tmp_path / "index", overwrite=True)
    assert any(name.startswith(f"{index.parent}/.bloomfilter.lance.") for name in synced)
    assert synced[-1] == str(index.parent), "the folder last: the name is in it"
    synced.clear()
    zones.build_index(tmp_path / "data", ["id"], tmp_path / "index", overwrite=True, sync=False)
    assert not synced


def test_permissions_are_those_of_a_new_file_and_then_stay(index: Path, tmp_path: Path) -> None:
    again = tmp_path / "again/id" / index.name
    old = os.umask(0o027)
    try:
        zones.build_index(tmp_path / "data", ["id"], tmp_path / "again", sync=False)
    finally:
        os.umask(old)
    assert again.stat().st_mode & 0o777 == 0o640
    zones.build_index(tmp_path / "data", ["id"], tmp_path / "again", overwrite=True, sync=False)
    assert again.stat().st_mode & 0o777 == 0o640


def test_the_checksum_is_of_all_bytes_but_its_own(index: Path) -> None:
    data = index.read_bytes()

    def read(at: int, length: int) -> bytes:
        return data[at : at + length]

    place = checksum_offset(read, len(data))
    assert place is not None
    assert checksum(read, len(data), place) == data[place : place + 8]
    import xxhash

    plain = xxhash.xxh3_64(data[:place] + data[place + 8 :]).intdigest()
    assert int.from_bytes(data[place : place + 8], "little") == plain


def test_the_other_process_runs_no_file_of_the_working_folder(index: Path, tmp_path: Path) -> None:
    index.write_bytes(index.read_bytes().replace(MARK, bytes(len(MARK))))
    here = tmp_path / "here"
    here.mkdir()
    for name in ("json", "parquet_bloom", "importlib"):
        (here / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    done = command("index", "verify", index.parents[1], tmp_path / "data", cwd=here)
    assert (done.returncode, (tmp_path / "ran").exists()) == (0, False), done.stderr


def test_the_other_process_ends_with_ours(index: Path) -> None:
    index.write_bytes(index.read_bytes().replace(MARK, bytes(len(MARK))))
    code = f"""
from parquet_bloom.zones import container, reader
container.ZoneFile({str(index)!r})
print(reader._SERVER._process.pid)
import os
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for _ in range(100):
        if not os.path.exists(f"/proc/{int(done.stdout)}"):
            return
        time.sleep(0.05)
    pytest.fail("the process that read the index still runs")


@pytest.mark.parametrize("name", ["id", f"id/{form.FILE_NAME}"])
def test_no_link_below_a_folder_of_indexes_is_followed(name: str, tmp_path: Path) -> None:
    """Neither is the file behind it replaced, nor is it read as the folder's index."""
    data, index, victim = tmp_path / "a.parquet", tmp_path / "index", tmp_path / "victim"
    pq.write_table(pa.table({"id": range(100)}), data)
    zones.build_index(data, ["id"], index, sync=False)
    shutil.move(index / name, victim)
    (index / name).symlink_to(victim)
    file = victim / form.FILE_NAME if victim.is_dir() else victim
    before = file.read_bytes()
    with pytest.raises(parquet_bloom.StorageError, match="is a link"):
        zones.build_index(data, ["id"], index, overwrite=True, sync=False)
    assert file.read_bytes() == before
    with pytest.raises(parquet_bloom.StorageError, match=r"is a link|no bloomfilter\.lance in it"):
        zones.query_index(index, "id = 5")
