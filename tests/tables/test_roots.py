"""Words of a table's log choose among files below trusted folders, and nothing else: no host, no option, no way out.

Each log here lies, by hand. A listener on loopback must hear nothing, with credentials in the environment.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import write_manifest_list
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField
from support.delta_tables import add, commit, field, file_of, metadata, protocol
from support.ducklake_tables import Lake
from support.iceberg_tables import Warehouse
from support.loopback import hostile_names, listening

import parquet_bloom
from parquet_bloom.cli import run
from parquet_bloom.errors import ParquetBloomError, RequestError, StorageError, TableFormatError
from parquet_bloom.source.names import TableAccess
from parquet_bloom.source.roots import Roots
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.stores import LOCAL, Stores

ROWS = pa.table({"id": pa.array(range(20), pa.int64())})
FIELDS = [field("id", "long")]


@pytest.fixture
def listener(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIACALLER")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "callers-secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "callers-token")
    with listening() as found:
        yield found


def delta(root: Path, *actions: dict, **reader: object) -> str:
    needs = protocol(["deletionVectors"], ["deletionVectors"]) if reader else protocol()
    commit(root, 0, needs, metadata(FIELDS), *actions)
    return f"delta:{root}"


def calls(name: str, **more: object) -> list[object]:
    """What every function says of a table: rows, or our error. An error of others fails the test."""
    said: list[object] = []
    work: list[Callable[[], object]] = [
        lambda: parquet_bloom.inspect(name, **more),
        lambda: parquet_bloom.check(name, "id = 5", **more),
        lambda: parquet_bloom.read_table(name, "id = 5", **more).num_rows,
        lambda: parquet_bloom.add_filters(name, columns=["id"], dry_run=True, **more),
    ]
    if not name.startswith("ducklake:"):  # whose rows are not changed here
        work.append(lambda: parquet_bloom.delete_keys(name, "id", [-1], **more))
        work.append(lambda: parquet_bloom.upsert(name, ROWS.slice(0, 1), "id", dry_run=True, **more))
    for call in work:
        try:
            said.append(call())
        except parquet_bloom.ParquetBloomError as error:
            said.append(error)
    assert not any("\n" in str(one) for one in said if isinstance(one, Exception))
    return said


def refused(said: object) -> bool:
    """Whether a call gave no row: by an error of ours, or one of the only file."""
    return isinstance(said, TableFormatError | StorageError) or bool(getattr(said, "failed", ()))


# --- Delta ----------------------------------------------------------------------------------------


def test_no_word_of_a_delta_log_leads_to_a_host_or_an_option(tmp_path, listener):
    for i, word in enumerate(hostile_names(listener.authority)):
        root = tmp_path / str(i)
        said = calls(delta(root / "path", file_of(root / "path", "a.parquet", ROWS), add(word)))
        assert all(map(refused, said)), word
        vector = {"storageType": "p", "pathOrInlineDv": word, "offset": 1, "sizeInBytes": 34, "cardinality": 1}
        mine = file_of(root / "vector", "a.parquet", ROWS, deletionVector=vector)
        with pytest.raises((TableFormatError, StorageError)):
            parquet_bloom.read_table(delta(root / "vector", mine, reader=True))
        actions = [protocol(["v2Checkpoint"], ["v2Checkpoint"]), metadata(FIELDS), {"sidecar": {"path": word}}]
        path = commit(root / "sidecar", 0, *actions)
        commit(root / "sidecar", 1, add("gone.parquet"))
        path.rename(path.with_name(f"{0:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"))
        assert all(map(refused, calls(f"delta:{root}/sidecar"))), word


OUTSIDE = [
    ("../secret/x.parquet", "'..'"),
    ("%2e%2e/secret/x.parquet", "'..'"),
    ("a/../../secret/x.parquet", "'..'"),
    ("..%2Fsecret%2Fx.parquet", "'..'"),
    ("{0}/secret/x.parquet", "allow_roots"),
    ("{0}/t/../secret/x.parquet", "'..'"),
    ("%2F{0}/secret/x.parquet", "allow_roots"),
    ("file://{0}/secret/x.parquet", "allow_roots"),
    ("file:{0}/secret/x.parquet", "allow_roots"),
    ("file://{0}/t/%2e%2e/secret/x.parquet", "'..'"),
    ("link/x.parquet", "allow_roots"),
    ("linked.parquet", "allow_roots"),
    ("{0}/t-secret/x.parquet", "allow_roots"),  # a sibling whose name begins alike
    ("\ud800.parquet", "half a character"),
]


@pytest.mark.smoke
def test_nothing_outside_of_a_delta_table_is_opened(tmp_path):
    for folder in ("secret", "t-secret"):
        (tmp_path / folder).mkdir()
        pq.write_table(ROWS, tmp_path / folder / "x.parquet")
    root = tmp_path / "t"
    mine = file_of(root, "a.parquet", ROWS.slice(0, 5))
    (root / "link").symlink_to("../secret")
    (root / "linked.parquet").symlink_to("../secret/x.parquet")
    for word, reason in OUTSIDE:
        name = delta(root, mine, add(word.format(tmp_path)))
        said = calls(name)
        assert all(isinstance(error, TableFormatError) and reason in str(error) for error in said), (word, said)
        if reason != "allow_roots":
            continue
        folder = re.search(r"allow_roots='(.*)'", str(said[-1]))[1]
        assert folder in (str(tmp_path / "secret"), str(tmp_path / "t-secret"))
        assert parquet_bloom.read_table(name, allow_roots=folder).num_rows == 25
        assert parquet_bloom.read_table(name, allow_roots=[Path(folder), tmp_path / "none"]).num_rows == 25
        with pytest.raises(TableFormatError, match="cannot be taken out of the table: it lies outside"):
            parquet_bloom.delete_keys(name, "id", [19], allow_roots=folder)
        assert parquet_bloom.read_table(name, allow_roots=folder).num_rows == 25


def test_the_option_that_a_refusal_prints_is_enough(tmp_path, capsys):
    """Shallow clones, files in two folders of other tables, names with blanks."""
    sources = [tmp_path / "lake of others" / name / "k=1" for name in ("one", "two")]
    paths = []
    for source in sources:
        source.mkdir(parents=True)
        pq.write_table(ROWS, source / "x.parquet")
        paths.append(str(source / "x.parquet").replace(" ", "%20"))
    name = delta(tmp_path / "clone", *map(add, paths))
    assert run(["check", name, "id = 5"]) == 2
    option = re.search(r"--allow-root '([^']*)'", capsys.readouterr().err)[1]
    assert option == str(tmp_path / "lake of others")
    assert run(["read", name, "--where", "id = 5", "--allow-root", option]) == 0
    assert capsys.readouterr().out.count("5") == 2


def test_a_vector_outside_of_its_table_is_not_opened(tmp_path):
    root = tmp_path / "t"
    for text in (f"{tmp_path}/v.bin", "../" + "0" * 20, f"file://{tmp_path}/v.bin"):
        kind = "u" if text.startswith("..") else "p"
        vector = {"storageType": kind, "pathOrInlineDv": text, "offset": 1, "sizeInBytes": 34, "cardinality": 1}
        name = delta(root, file_of(root, "a.parquet", ROWS, deletionVector=vector), reader=True)
        with pytest.raises(TableFormatError, match=r"leads upwards|allow_roots="):
            parquet_bloom.read_table(name)


def test_a_name_of_two_lines_is_told_in_one(tmp_path):
    for word in ("a\nb.parquet", "/elsewhere/a\r\nb.parquet", "/else\nwhere/x.parquet"):
        for error in calls(delta(tmp_path / "t", add(word))):
            assert isinstance(error, ParquetBloomError) or error.failed, "and calls sees that it is one line"
    needs = protocol(["deletionVectors"], ["a\nb"])
    commit(tmp_path, 0, needs, metadata(FIELDS), file_of(tmp_path, "a.parquet", ROWS))
    assert "a\\nb" in str(calls(f"delta:{tmp_path}")[-1])


# --- DuckLake -------------------------------------------------------------------------------------


@contextmanager
def changing(catalog: Path) -> Iterator[sqlite3.Connection]:
    """A transaction in a catalog, which is closed afterwards: two libraries of one process may not have it open."""
    with closing(sqlite3.connect(catalog)) as connection, connection:
        yield connection


def ducklake(folder: Path, *statements: str) -> str:
    """A catalog in SQLite that DuckLake wrote, of one file of 20 rows, changed by hand."""
    lake = Lake(folder, True)
    lake.sql("CALL lake.set_option('data_inlining_row_limit', 0)", "CREATE TABLE t AS SELECT * FROM range(20) r(id)")
    lake.release()
    with changing(lake.catalog) as connection:
        for statement in statements:
            connection.execute(statement)
    return f"ducklake:{lake.name()}"


def test_no_path_of_a_ducklake_catalog_leads_to_a_host_or_an_option(tmp_path, listener):
    values = {
        "delete_file_id": 9, "table_id": 1, "begin_snapshot": 0, "path": "'x'", "path_is_relative": 0,
        "format": "'parquet'", "delete_count": 1, "file_size_bytes": 100, "footer_size": 10,
        "data_file_id": "(SELECT data_file_id FROM ducklake_data_file)",
    }  # fmt: skip
    deletes = f"INSERT INTO ducklake_delete_file ({', '.join(values)}) VALUES ({', '.join(map(str, values.values()))})"
    name, catalog = ducklake(tmp_path), tmp_path / "meta.sqlite"
    good = catalog.read_bytes()
    for word in hostile_names(listener.authority):
        for place in ("metadata", "data_file", "table", "schema", "delete_file"):
            change = "path = ?, path_is_relative = 0"
            if place == "metadata":
                change = "value = ? WHERE key = 'data_path'"
            catalog.write_bytes(good)
            with changing(catalog) as connection:
                if place == "delete_file":
                    connection.execute(deletes)
                assert connection.execute(f"UPDATE ducklake_{place} SET {change}", [word]).rowcount
            assert all(map(refused, calls(name))), (place, word)


def test_a_data_path_with_options_is_refused_and_says_whose_words_may_have_them(tmp_path, capsys):
    lies = "s3://bucket/lake/?endpoint_override=127.0.0.1:1&secret_key=hidden"
    name = ducklake(tmp_path, f"UPDATE ducklake_metadata SET value = '{lies}' WHERE key = 'data_path'")
    assert run(["inspect", name]) == 2
    said = capsys.readouterr().err
    assert "--catalog-property data_path=s3://bucket/lake/?..." in said
    assert "hidden" not in said
    with changing(tmp_path / "meta.sqlite") as connection:
        connection.execute("UPDATE ducklake_metadata SET value = '/' WHERE key = 'data_path'")
    with pytest.raises(TableFormatError, match="is all of this machine"):
        parquet_bloom.inspect(name)


@pytest.mark.parametrize("word", ["{0}/victim/x.parquet", "../../../victim/x.parquet", "../victim/x.parquet"])
def test_nothing_outside_of_a_ducklake_table_is_read_or_written(tmp_path, word):
    victim = tmp_path / "victim" / "x.parquet"
    victim.parent.mkdir()
    relative = 0 if word.startswith("{") else 1
    path = word.format(tmp_path)
    name = ducklake(tmp_path / "lake", f"UPDATE ducklake_data_file SET path = '{path}', path_is_relative = {relative}")
    [mine] = (tmp_path / "lake" / "data").rglob("*.parquet")
    victim.write_bytes(mine.read_bytes())
    for error in calls(name):
        assert isinstance(error, TableFormatError)
    with pytest.raises(TableFormatError):
        parquet_bloom.add_filters(name, columns=["id"])
    if not relative:
        with pytest.raises(TableFormatError, match="outside of the table's folders; force=True"):
            parquet_bloom.add_filters(name, columns=["id"], allow_roots=victim.parent)
    assert os.listdir(victim.parent) == ["x.parquet"]
    with changing(tmp_path / "lake" / "meta.sqlite") as connection:
        assert connection.execute("SELECT * FROM ducklake_files_scheduled_for_deletion").fetchall() == []
    if not relative:
        assert len(parquet_bloom.add_filters(name, columns=["id"], allow_roots=victim.parent, force=True).commits) == 1


# --- Iceberg --------------------------------------------------------------------------------------


@pytest.fixture
def listener_and_code(tmp_path, monkeypatch, listener):
    """Where nobody should knock, and the mark that a module leaves on the disk when it is imported."""
    (tmp_path / "evil_module.py").write_text(
        f"open({str(tmp_path / 'imported')!r}, 'w').close()\nfrom pyiceberg.io.pyarrow import PyArrowFileIO as Evil\n"
        "from pyiceberg.table.locations import SimpleLocationProvider as Provider\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return listener, tmp_path / "imported"


NAME = "iceberg:cat/ns.t"


def iceberg(warehouse: Warehouse, name: str = "ns.t") -> Table:
    table = warehouse.create(Schema(NestedField(1, "id", LongType())), name)
    table.append(ROWS)
    return table


def rewritten(table: Table, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a table's metadata where they lie, as whoever writes to its folder can."""
    path = table.metadata_location.removeprefix("file://")
    document = json.loads(Path(path).read_text())
    change(document)
    Path(path).write_text(json.dumps(document))


def catalog(warehouse: Warehouse) -> dict[str, Any]:
    return {"catalog_properties": warehouse.properties}


IO_PROPERTIES = {
    "s3.endpoint": "http://{0}", "s3.proxy-uri": "http://{0}", "s3.signer": "S3V4RestSigner",
    "s3.signer.uri": "http://{0}", "s3.region": "us-east-1", "gcs.service.host": "http://{0}",
    "adls.blob-storage-authority": "{0}", "adls.account-name": "evil", "hdfs.host": "127.0.0.1",
    "py-io-impl": "evil_module.Evil",
}  # fmt: skip


def test_no_property_of_an_iceberg_table_chooses_a_host_or_a_class(warehouse, listener_and_code):
    listener, imported = listener_and_code
    lies = {name: value.format(listener.authority) for name, value in IO_PROPERTIES.items()}
    rewritten(iceberg(warehouse), lambda document: document["properties"].update(lies))
    given = catalog(warehouse)
    assert parquet_bloom.read_table(NAME, "id = 5", **given).num_rows == 1
    assert len(parquet_bloom.add_filters(NAME, columns=["id"], **given).commits) == 1
    assert parquet_bloom.read_table(NAME, "id = 5", **given).num_rows == 1, "and not when it is read again"
    assert not imported.exists()
    with pytest.raises(ParquetBloomError):  # the user's own word is taken
        parquet_bloom.count(NAME, catalog_properties={**warehouse.properties, "py-io-impl": "evil_module.Nobody"})
    assert imported.exists()


def test_no_bucket_of_an_iceberg_log_is_asked_at_an_endpoint_of_the_log(warehouse, listener):
    """Lists, manifests, data files and folders on S3, with an endpoint in the table's properties."""
    for key in ("location", "manifest-list", "write.data.path"):
        warehouse.catalog.drop_table("ns.t") if warehouse.catalog.table_exists("ns.t") else None
        table = iceberg(warehouse)

        def lie(document: dict[str, Any], key: str = key) -> None:
            document["properties"] |= {"s3.endpoint": f"http://{listener.authority}", "s3.region": "us-east-1"}
            if key == "manifest-list":
                document["snapshots"][0][key] = f"s3://bucket@{listener.authority}/list.avro"
            elif key == "location":
                document[key] = f"hdfs://{listener.authority}/table"
            else:
                document["properties"][key] = f"abfss://container@{listener.authority}/data"

        rewritten(table, lie)
        for error in calls(NAME, **catalog(warehouse)):
            assert isinstance(error, TableFormatError), key


def changed_word(table: Table, key: str, word: str) -> None:
    """Another word in the metadata, at a key of theirs, of their first snapshot, or of their properties."""
    places = {"manifest-list": lambda document: document["snapshots"][0], "location": lambda document: document}
    rewritten(table, lambda document: places.get(key, lambda d: d["properties"])(document).update({key: word}))


def test_no_bucket_of_a_local_iceberg_log_is_opened(warehouse, monkeypatch):
    """pyiceberg asks S3 for the region of a bucket as it opens it, with a name of the log's choice."""
    opened = []
    initialize = PyArrowFileIO._initialize_fs

    def spied(self: PyArrowFileIO, scheme: str, *rest: Any) -> Any:
        if scheme == "file":
            return initialize(self, scheme, *rest)
        opened.append((scheme, *rest))
        raise OSError("no network in this test")

    monkeypatch.setattr(PyArrowFileIO, "_initialize_fs", spied)
    keys = ("location", "write.data.path", "write.metadata.path", "write.object-storage.path", "manifest-list")
    for i, key in enumerate(keys):
        changed_word(iceberg(warehouse, f"ns.t{i}"), key, "s3://bucket/list.avro")
        said = calls(f"{NAME}{i}", **catalog(warehouse))
        assert opened == [], key
        if key != "manifest-list":
            assert parquet_bloom.count(f"{NAME}{i}", **catalog(warehouse)) == 20, key
    for one in said:
        assert isinstance(one, TableFormatError)
        assert "s3://bucket/list.avro" in str(one)
        assert "allow_roots='s3://bucket'" in str(one)
    with pytest.raises(TableFormatError, match="no network"):
        parquet_bloom.count(f"{NAME}{i}", **catalog(warehouse), allow_roots="s3://bucket")
    assert opened, "a root that the user allows is opened"


def test_an_iceberg_table_that_names_code_is_not_changed(warehouse, listener_and_code):
    _, imported = listener_and_code
    name = "write.py-location-provider.impl"
    table = iceberg(warehouse)
    ours = warehouse.open()
    changed_word(table, name, "evil_module.Provider")
    log = ours._log.catalog
    with pytest.raises(TableFormatError, match="names Python code"):  # where it came between the look and the commit
        log._update_and_stage_table(log.load_table("ns.t"), ("ns", "t"), (), ())
    assert parquet_bloom.count(NAME, **catalog(warehouse)) == 20, "it is read all the same"
    said = "names Python code that a commit would run, evil_module.Provider"
    with pytest.raises(TableFormatError, match=said):
        parquet_bloom.add_filters(NAME, columns=["id"], **catalog(warehouse))
    assert not imported.exists()
    allowed = {**warehouse.properties, name: "evil_module.Provider"}
    assert parquet_bloom.add_filters(NAME, columns=["id"], catalog_properties=allowed).commits


@pytest.mark.parametrize("what", ["data file", "manifest", "manifest list"])
def test_nothing_outside_of_an_iceberg_table_is_read_or_written(warehouse, tmp_path, what):
    """A table of another catalog is the victim: its files are named in this one's log."""
    table = iceberg(warehouse)
    victim = tmp_path / "victim"
    victim.mkdir()
    if what == "data file":
        [task] = table.scan().plan_files()
        shutil.copy(task.file.file_path.removeprefix("file://"), victim / "x.parquet")
        table.add_files([f"file://{victim}/x.parquet"])
    elif what == "manifest list":
        listed = table.current_snapshot().manifest_list.removeprefix("file://")
        shutil.copy(listed, victim / "x.avro")
        changed_word(table, "manifest-list", f"file://{victim}/x.avro")
    else:
        [manifest] = table.current_snapshot().manifests(table.io)
        path = manifest.manifest_path.removeprefix("file://")
        shutil.move(path, victim / os.path.basename(path))
        listed = Path(table.current_snapshot().manifest_list.removeprefix("file://"))
        other = f"file://{victim}/{os.path.basename(path)}"
        with table.io.new_output(f"file://{tmp_path}/list.avro").create() as _:
            pass
        moved = copy.copy(manifest)
        moved[0] = other
        with write_manifest_list(
            2, table.io.new_output(f"file://{tmp_path}/new.avro"), table.current_snapshot().snapshot_id, None, 1, "null"
        ) as writer:
            writer.add_manifests([moved])
        listed.write_bytes((tmp_path / "new.avro").read_bytes())
    before = {path.name: path.read_bytes() for path in victim.iterdir()}
    name = NAME
    for error in calls(name, **catalog(warehouse)):
        assert isinstance(error, TableFormatError)
        assert f"allow_roots='{victim}'" in str(error)
    allowed = {**catalog(warehouse), "allow_roots": victim}
    assert parquet_bloom.count(name, **allowed) == (40 if what == "data file" else 20)
    if what == "data file":
        for commit in ("same-path", "new-path"):
            [failed] = parquet_bloom.add_filters(name, columns=["id"], commit=commit, **allowed).failed
            assert "outside of the table's folders; force=True" in str(failed.error)
        with pytest.raises(TableFormatError, match="outside of the table's folders"):
            parquet_bloom.delete_keys(name, "id", [5], **allowed)
        assert {path.name: path.read_bytes() for path in victim.iterdir()} == before
        assert parquet_bloom.add_filters(name, columns=["id"], commit="same-path", force=True, **allowed).commits
        assert (victim / "x.parquet").read_bytes().startswith(before["x.parquet"])
        assert parquet_bloom.count(name, **allowed) == 40


# --- Roots ----------------------------------------------------------------------------------------


def test_a_declared_root_needs_a_storage_that_a_log_may_choose(listener):
    roots = Roots("t", TableAccess())
    for word in hostile_names(listener.authority):
        if "::" in word:
            continue  # without "://" behind a plain scheme it is a folder of this machine, whose name is odd
        with pytest.raises((TableFormatError, StorageError)):
            roots.declare(word)
    for word in ("s3://", "gs:///x", "/", "//", "/tmp/..", "file:///"):
        with pytest.raises(TableFormatError):
            roots.declare(word)


def test_words_of_a_log_go_to_the_file_system_that_the_user_named():
    stores = Stores()
    uri = "s3://a:b@lake/t?endpoint_override=127.0.0.1:1&scheme=http&region=eu-north-1"
    store, path = stores.locate(uri)
    roots = Roots("t", TableAccess(None, ("s3://other/shared",)), stores)
    roots.add(store, path)
    for word, held in {
        "s3://lake/t/x.parquet": True,
        "s3a://lake/t/a%20%3Fb.parquet": True,
        "s3://lake/tt/x.parquet": False,
        "s3://other/shared/x.parquet": True,
        "s3://other/x.parquet": False,
        "s3://third/t/x.parquet": False,
    }.items():
        at = roots.place(word, encoded=True)
        assert at.filesystem is store.filesystem, "with the user's endpoint, whatever the bucket is"
        assert str(at) == word
        assert roots.holds(at) == held
    with pytest.raises(TableFormatError, match="on another storage"):
        roots.place("gs://lake/t/x.parquet")
    with pytest.raises(TableFormatError, match="on another storage"):
        roots.place("/lake/t/x.parquet")


def test_what_is_below_an_allowed_root_may_be_read_and_not_written(tmp_path):
    roots = Roots("t", TableAccess(None, (str(tmp_path / "b"),)))
    roots.add(LOCAL, str(tmp_path / "a"))
    for folder, read, written in (("a", True, True), ("b", True, False), ("c", False, False), ("bb", False, False)):
        at = Location(str(tmp_path / folder / "x.parquet"))
        assert (roots.holds(at), roots.holds(at, writing=True)) == (read, written)


def test_roots_are_paths_and_uris(tmp_path):
    for wrong in (5, "", ["a", ""], [5], b"x"):
        with pytest.raises(RequestError, match="allow_roots takes paths and URIs of folders"):
            parquet_bloom.check(f"delta:{tmp_path}", "id = 5", allow_roots=wrong)


def test_roots_are_for_tables(tmp_path):
    pq.write_table(ROWS, tmp_path / "x.parquet")
    for call in (
        lambda: parquet_bloom.check(tmp_path / "x.parquet", "id = 5", allow_roots="/lake"),
        lambda: parquet_bloom.add_filters(tmp_path / "x.parquet", in_place=True, allow_roots="/lake"),
    ):
        with pytest.raises(RequestError, match="allow_roots is for tables"):
            call()


# --- links and relative words -----------------------------------------------------------------------


def test_a_commit_of_a_delta_log_that_is_a_link_is_not_read(tmp_path):
    for version, said in ((1, "is a link"), (0, "is a link"), (0, "is not a regular file")):
        table, private = tmp_path / f"table{version}{said}", tmp_path / f"private{version}{said}"
        delta(table, file_of(table, "a.parquet", ROWS))
        commit(table, 1, file_of(table, "b.parquet", ROWS))
        log = (table / "_delta_log" / f"{version:020}.json").rename(private)
        place = table / "_delta_log" / f"{version:020}.json"
        place.symlink_to(log) if said == "is a link" else os.mkfifo(place)
        with pytest.raises(ParquetBloomError, match=said) as caught:
            parquet_bloom.check(f"delta:{table}", "id = 5")
        assert "\n" not in str(caught.value)


def test_a_relative_word_of_an_iceberg_table_leads_nowhere(warehouse, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    keys = ("location", "write.data.path", "write.metadata.path")
    for i, (key, word) in enumerate(product(keys, ("rel/loc", "file://rel/loc", "file:rel/loc"))):
        if i % 4 == 0 or word == "rel/loc":  # each key, and each spelling
            changed_word(iceberg(warehouse, f"ns.t{i}"), key, word)
            with pytest.raises(TableFormatError, match="is a relative path"):
                parquet_bloom.add_filters(f"{NAME}{i}", columns="id", **catalog(warehouse))
    assert not list((tmp_path / "here").iterdir())


def test_a_ducklake_catalog_that_names_a_file_twice_is_refused(tmp_path):
    name = ducklake(
        tmp_path,
        "CREATE TABLE forged AS SELECT * FROM ducklake_data_file UNION ALL SELECT * FROM ducklake_data_file",
        "DROP TABLE ducklake_data_file",
        "ALTER TABLE forged RENAME TO ducklake_data_file",
    )
    with pytest.raises(TableFormatError, match=r"names data file \d+ twice"):
        parquet_bloom.check(name, "id = 1")
