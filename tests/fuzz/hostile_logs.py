"""Tables whose logs lie: Delta, Iceberg and DuckLake tables that were sound, changed at random in one to three places.

Each is then called as a user would; see hostile_site for what is found.
"""

from __future__ import annotations

import functools
import json
import random
import re
import shutil
import sqlite3
import struct
import uuid
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import avro_bytes
import pyarrow as pa
import pyarrow.parquet as pq
from hostile_site import Files, Site, called, files_below, lay, link, mostly_one, same_names, site_of
from hostile_words import NUMBERS, Words, deep, dumped, lied, listed, places
from support import delta_tables as delta
from thrift_bytes import flipped

# What a change meets in a file that the change before it has spoilt: the case goes on without it.
_CHANGED_BEFORE = (OSError, ValueError, TypeError, LookupError, AttributeError, AssertionError, RecursionError)
_CHANGED_BEFORE += (zlib.error, pa.ArrowException)
_DECLARING = listed(
    "location¦write.data.path¦write.metadata.path¦write.object-storage.path¦write.folder-storage.path",
)

# --- Delta ----------------------------------------------------------------------------------------

_LOG = "_delta_log"
_CHECKPOINT = f"{_LOG}/{1:020d}.checkpoint"


def _struct(texts: str, **more: pa.DataType) -> pa.DataType:
    """Fields of text by their names, and others."""
    return pa.struct([*((name, pa.string()) for name in texts.split()), *more.items()])


_MAP, _TEXTS = pa.map_(pa.string(), pa.string()), pa.list_(pa.string())
_VECTOR = _struct("storageType pathOrInlineDv", offset=pa.int32(), sizeInBytes=pa.int32(), cardinality=pa.int64())
_VERSIONS = {"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}
_STORED = {"partitionValues": _MAP, "size": pa.int64(), "modificationTime": pa.int64(), "dataChange": pa.bool_()}
_ACTIONS = pa.schema({
    "protocol": _struct("", **_VERSIONS, readerFeatures=_TEXTS, writerFeatures=_TEXTS),
    "metaData": _struct("id schemaString", partitionColumns=_TEXTS, configuration=_MAP),
    "add": _struct("path", **_STORED, stats=pa.string(), deletionVector=_VECTOR),
    "sidecar": _struct("path", sizeInBytes=pa.int64()),
})  # fmt: skip


def _delta_rows(first: int, n: int = 10) -> pa.Table:
    ids = list(range(first, first + n))
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"a{i % 3}" for i in ids]})


@functools.lru_cache(1)
def delta_tables(site: Site) -> list[Files]:
    """Four files, three of them with vectors, one of each kind; by commits, and by checkpoints of each kind."""
    root = site.at / "delta" / "t"
    site.neighbour(site.at / "delta" / "t-neighbour")
    features = ["deletionVectors", "v2Checkpoint"]
    fields = [delta.field("id", "long"), delta.field("name", "string"), delta.field("p", "string")]
    properties = {"delta__enableDeletionVectors": "true", "delta__checkpointPolicy": "v2"}
    begin = [delta.protocol(features, features), delta.metadata(fields, ["p"], **properties)]
    with same_names(1):
        root.mkdir(parents=True)
        stored = delta.vector_file(root, [[1, 2], [3]], "v")
    data = delta.vector([4])
    packed = struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    (root / "mine.bin").write_bytes(b"\1" + packed)
    by_path = {"storageType": "p", "pathOrInlineDv": f"file://{root}/mine.bin", "offset": 1, "cardinality": 1}
    by_path["sizeInBytes"] = len(data)
    vectors = [None, delta.inline([0, 5]), stored[0], by_path]
    adds = []
    for i, vector in enumerate(vectors):
        name, value = (("p=x/a.parquet", "x"), ("p=a%20b/b.parquet", "a b"), ("c.parquet", None), ("d.parquet", "1"))[i]
        made = delta.file_of(root, name.replace("%20", " "), _delta_rows(10 * i))["add"]
        bounds = {"minValues": {"id": 10 * i, "name": "a0"}, "maxValues": {"id": 10 * i + 9, "name": "a2"}}
        stats = json.dumps({"numRecords": 10, **bounds, "nullCount": {"id": 0, "name": 0}})
        path = f"{root}/{name}" if i == 3 else name
        made |= {"path": path, "stats": stats, "partitionValues": {"p": value}}
        adds.append({"add": made | ({"deletionVector": vector} if vector else {})})
    delta.commit(root, 0, *begin, adds[0])
    delta.commit(root, 1, *adds[1:])
    gone = {"path": "c.parquet", "dataChange": True, "deletionVector": stored[0]}
    delta.commit(root, 2, {"remove": gone}, {"add": adds[2]["add"] | {"deletionVector": stored[1]}})
    plain = files_below(root)
    late = {name: data for name, data in plain.items() if not re.search(r"0[01]\.json", name)}
    side = {f"{_LOG}/_sidecars/s.parquet": _parquet(adds)}
    listed = [*begin, {"sidecar": {"path": "s.parquet", "sizeInBytes": 99}}]
    of_json = "".join(json.dumps(one) + "\n" for one in [{"checkpointMetadata": {"version": 1}}, *listed]).encode()
    name = f"{_CHECKPOINT}.3a0d65cd-4056-49b8-937b-95f9e3ee90e5"
    parts = {f"{_CHECKPOINT}.{i:010d}.{2:010d}.parquet": _parquet(some) for i, some in ((1, begin), (2, adds))}
    return [
        plain,
        plain,
        {**late, f"{_CHECKPOINT}.parquet": _parquet([*begin, *adds])},
        {**late, **parts},
        {**late, **side, f"{name}.json": of_json},
        {**late, **side, f"{name}.parquet": _parquet(listed)},
    ]


def _parquet(actions: list[dict[str, Any]]) -> bytes:
    """Actions as a checkpoint has them; where their types are others, as pyarrow sees them. Raises ValueError."""
    sink = pa.BufferOutputStream()
    try:
        rows = [{name: _as_arrow(action.get(name)) for name in _ACTIONS.names} for action in actions]
        table = pa.Table.from_pylist(rows, _ACTIONS)
    except (pa.ArrowException, TypeError, AttributeError, OverflowError):
        try:
            table = pa.Table.from_pylist(actions)
        except (pa.ArrowException, TypeError, AttributeError, OverflowError) as error:
            raise ValueError from error
    try:
        pq.write_table(table, sink)
    except pa.ArrowException as error:
        raise ValueError from error
    return sink.getvalue().to_pybytes()


def _as_arrow(action: Any) -> Any:
    if not isinstance(action, dict):
        return action
    maps = ("partitionValues", "configuration")
    return {key: list(one.items()) if key in maps and isinstance(one, dict) else one for key, one in action.items()}


def _actions_of(path: Path) -> list[Any]:
    if path.suffix == ".json":
        return [json.loads(line) for line in path.read_text().splitlines()]
    rows = pq.ParquetFile(path).read().to_pylist(maps_as_pydicts="lossy")
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def _delta_action(site: Site, root: Path, rng: random.Random) -> None:
    """An action of a commit, of a checkpoint or of a sidecar."""
    files = (path for path in (root / _LOG).rglob("*") if path.is_file())
    path = rng.choice(sorted(path for path in files if path.suffix in (".json", ".parquet")))
    try:
        actions = lied(_actions_of(path), site.words(root), rng)
        actions = actions if isinstance(actions, list) else [actions]
        if path.suffix == ".json":
            path.write_text("".join(dumped(action) + "\n" for action in actions), errors="surrogatepass")
        else:
            path.write_bytes(_parquet([action if isinstance(action, dict) else {"add": action} for action in actions]))
    except (ValueError, pa.ArrowException, UnicodeError, RecursionError):
        path.write_bytes(flipped(path.read_bytes(), rng))


def _delta_vector(site: Site, root: Path, rng: random.Random) -> None:
    for path in rng.sample(found := sorted(root.rglob("*.bin")), min(1, len(found))):
        path.write_bytes(flipped(path.read_bytes(), rng))


def _delta_word(site: Site, root: Path, rng: random.Random) -> None:
    """A path of the log, as text: in an add, a vector or a sidecar."""
    words = site.words(root)
    for path in rng.sample(found := sorted((root / _LOG).glob("*.json")), min(1, len(found))):
        text = path.read_text()
        said = list(re.finditer(r'"(?:path|pathOrInlineDv|p)": ("[^"]*")', text))
        if said:
            one = rng.choice(said)
            path.write_text(text[: one.start(1)] + json.dumps(words.any(rng)) + text[one.end(1) :])


def _delta_names(site: Site, root: Path, rng: random.Random) -> None:
    """Files of the log that should not be there, or not be so."""
    log = root / _LOG
    number = rng.choice((0, 1, 2, 3, 7, 10**19, 10**20 - 1, 2**63 - 1, 2**63, rng.randrange(10**6)))
    one = f"{number:020d}"
    parts = f"{1:010d}.{rng.choice((1, 2, 10**9)):010d}"
    kinds = ["checkpoint.parquet", f"checkpoint.{parts}.parquet", f"checkpoint.{uuid.UUID(int=1)}.json"]
    kinds += [f"checkpoint.{'-' * 36}.json", f"{10**19:020d}.compacted.json", "json", "crc"]
    names = [*(f"{one}.{kind}" for kind in kinds), "_last_checkpoint", "\u0663" * 20 + ".json", "_sidecars"]
    path, what = log / rng.choice(names), rng.random()
    present = sorted(one for one in log.iterdir() if one.is_file())
    try:
        if what < 0.3 and present:
            shutil.copy(rng.choice(present), path)
        elif what < 0.5 and present:
            rng.choice(present).rename(path)
        elif what < 0.6 and present:
            rng.choice(present).unlink()
        elif what < 0.7:
            path.mkdir()
        elif what < 0.8:
            path.symlink_to(rng.choice(("nothing", path.name, ".")))
        else:
            texts = ["", "\n\n", "{}", "[]", "null", '"x"', '{"version": 1e400}', "\ufeff{}"]
            path.write_text(rng.choice([*texts, "[" * 100_000, '{"add":' * 3000]))
    except OSError:
        return


_DELTA = [*[_delta_action] * 6, *[_delta_word] * 3, _delta_vector, _delta_names]


def run_delta(data: bytes, folder: Path) -> None:
    site, rng = site_of(folder), random.Random(int(data))
    root = site.at / "delta" / "t"
    lay(root, rng.choice(delta_tables(site)))
    link(site, root)
    for _ in range(mostly_one(rng)):
        with suppress(*_CHANGED_BEFORE):
            rng.choice(_DELTA)(site, root, rng)
    with site.watched(root.parent, {"t"}):
        refused = called(f"delta:{root}", rng, ("id", "name"))
    if refused is not None:
        raise refused


# --- Iceberg --------------------------------------------------------------------------------------


@functools.lru_cache(1)
def _iceberg(site: Site) -> tuple[dict[str, str], Files]:
    """A partitioned table with position and equality deletes, and its catalog: (properties, files)."""
    from pyiceberg.schema import Schema
    from support.iceberg_tables import (
        BY_NAME,
        SCHEMA,
        Warehouse,
        add_deletes,
        append,
        entries,
        equality_deletes,
        position_deletes,
    )

    root = site.at / "iceberg"
    root.mkdir()
    with same_names(2):
        warehouse = Warehouse(root)
        table = warehouse.create(Schema(*SCHEMA.fields), partition_spec=BY_NAME)
        append(table, [{"id": i, "name": f"a{i % 2}"} for i in range(20)])
        first = entries(table)[0].data_file
        add_deletes(table, position_deletes(table, {first.file_path: [1, 3]}, first))
        add_deletes(table, equality_deletes(table, ["id"], pa.table({"id": pa.array([6], pa.int64())}), first))
        append(table, [{"id": i, "name": "a1"} for i in range(20, 30)])
    properties = {**warehouse.properties, "commit.retry.num-retries": "1"}
    warehouse.close()
    files = files_below(root)
    site.neighbour(root / "warehouse" / "ns" / "other")
    return properties, files


def _iceberg_folder(root: Path) -> Path:
    return root / "warehouse" / "ns" / "t"


def _iceberg_metadata(site: Site, root: Path, rng: random.Random) -> None:
    """The document that the catalog names."""
    path = sorted((_iceberg_folder(root) / "metadata").glob("*.metadata.json"))[-1]
    try:
        document = lied(json.loads(path.read_text()), site.words(_iceberg_folder(root)), rng, _DECLARING)
        path.write_text(dumped(document))
    except (ValueError, RecursionError):
        path.write_bytes(flipped(path.read_bytes(), rng))


def _iceberg_avro(site: Site, root: Path, rng: random.Random) -> None:
    """A value in a list of manifests or in a manifest, its schema, or its bytes."""
    folder = _iceberg_folder(root)
    path = rng.choice(sorted((folder / "metadata").glob("*.avro")))
    what = rng.random()
    try:
        container = avro_bytes.decode(path.read_bytes())
    except (AssertionError, ValueError, KeyError, IndexError, zlib.error):
        return  # was changed before
    schema = json.loads(container.metadata["avro.schema"])
    if what < 0.1:
        path.write_bytes(flipped(path.read_bytes(), rng))
        return
    if what < 0.3:
        key = rng.choice([key for key in container.metadata if key not in ("avro.codec", "avro.sync")])
        text = container.metadata[key].decode()
        try:
            text = dumped(lied(json.loads(text), site.words(folder), rng))
        except ValueError:
            text = site.words(folder).any(rng)
        container.metadata[key] = text.encode("utf-8", "surrogatepass")
    else:
        _wrong_record(container.records, site.words(folder), rng)
    path.write_bytes(avro_bytes.encode(container, schema))


def _wrong_record(records: list[Any], words: Words, rng: random.Random) -> None:
    holder, key = rng.choice([(holder, key) for holder, key in places(records) if not isinstance(holder[key], dict)])
    value = holder[key]
    if isinstance(value, str):
        holder[key] = words.any(rng)
    elif isinstance(value, bool):
        holder[key] = not value
    elif isinstance(value, int):
        holder[key] = avro_bytes.long(int(rng.choice((*NUMBERS, value + 1, -value, rng.randrange(9)))))
    elif isinstance(value, bytes):
        holder[key] = rng.choice((b"", b"\xff" * 9, value[:-1], value[::-1], bytes(100_000)))
    elif isinstance(value, list) and value and rng.random() < 0.6:
        holder[key] = rng.choice((value * 5, value[1:], []))
    else:
        number = avro_bytes.long(rng.choice((1, 0, 5, 2**40, 2**62, -1, -5)))
        holder[key] = avro_bytes.Raw(number + rng.randbytes(rng.randrange(9)))


def lay_iceberg(site: Site) -> tuple[dict[str, str], Path]:
    """Make the sound table: (properties of its catalog, its folder)."""
    from pyiceberg.manifest import clear_manifest_cache

    properties, files = _iceberg(site)
    root = site.at / "iceberg"
    table = _iceberg_folder(root)
    head = "warehouse/ns/t/"
    (root / "catalog.db").write_bytes(files["catalog.db"])
    lay(table, {name.removeprefix(head): data for name, data in files.items() if name.startswith(head)})
    link(site, table)
    clear_manifest_cache()
    return properties, table


def run_iceberg(data: bytes, folder: Path) -> None:
    site, rng = site_of(folder), random.Random(int(data))
    properties, table = lay_iceberg(site)
    for _ in range(mostly_one(rng)):
        with suppress(*_CHANGED_BEFORE):
            rng.choice((_iceberg_metadata, _iceberg_avro))(site, site.at / "iceberg", rng)
    with site.watched(table.parent, {"t"}):
        refused = called("iceberg:cat/ns.t", rng, ("id", "name"), catalog_properties=properties)
    if refused is not None:
        raise refused


# --- DuckLake -------------------------------------------------------------------------------------


@functools.lru_cache(2)
def _lake(site: Site, sqlite: bool) -> tuple[Files, list[tuple[str, str]]]:
    """A catalog with a row in each table that is read, and its files; (table, column) of all."""
    from support.ducklake_tables import Lake, fill

    root = site.at / ("lake-sqlite" if sqlite else "lake-duckdb")
    lake = Lake(root, sqlite)
    fill(lake)
    lake.release()
    site.neighbour(root / "others")
    with closing(connected(lake.catalog)) as connection:
        if sqlite:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1").fetchall()
            columns = [(one, row[1]) for (one,) in tables for row in connection.execute(f'PRAGMA table_info("{one}")')]
        else:
            asked = "SELECT table_name, column_name FROM information_schema.columns ORDER BY 1, 2"
            columns = connection.execute(asked).fetchall()
    return {name: data for name, data in files_below(root).items() if not name.startswith("others/")}, columns


def connected(catalog: Path) -> Any:
    if catalog.suffix == ".sqlite":
        connection = sqlite3.connect(catalog, isolation_level=None)
        connection.execute("PRAGMA ignore_check_constraints = ON")
        return connection
    import duckdb

    return duckdb.connect(str(catalog))


def _sql_value(words: Words, rng: random.Random, column: str) -> Any:
    what = rng.random()
    if column.endswith("path") or what < 0.3:
        return words.any(rng)
    if what < 0.6:
        number = rng.choice((*NUMBERS, rng.randrange(9)))
        return number if isinstance(number, float) or -(2**63) <= number < 2**63 else str(number)
    types = listed("decimal(99,1)¦struct¦list¦map¦bucket(0)¦year¦variant¦int32¦varchar¦true")
    odd = [None, None, b"", b"\xff\0", deep(rng)[2:-2][:20_000], rng.choice(words.strange()), "9" * 5000]
    return rng.choice([*odd, *types])


def _statements(
    words: Words, columns: list[tuple[str, str]], rng: random.Random, victim: Path
) -> Iterator[tuple[str, list[Any]]]:
    """Changes of a catalog, in SQL: (statement, parameters)."""
    table, column = rng.choice(columns)
    telling = listed("path¦value¦min_value¦max_value¦partition_value¦source_name¦column_type")
    if rng.random() < 0.4:
        table, column = rng.choice([one for one in columns if one[1] in telling])
    what, where = rng.random(), ""
    if rng.random() < 0.6:
        where = f' WHERE rowid = (SELECT rowid FROM "{table}" LIMIT 1 OFFSET {rng.randrange(4)})'
    if what < 0.6:
        value = words.declared(rng) if table == "ducklake_metadata" else _sql_value(words, rng, column)
        more = ", path_is_relative = false" if column == "path" and rng.random() < 0.6 else ""
        yield f'UPDATE "{table}" SET "{column}" = ?{more}{where}', [value]
    elif what < 0.68:
        yield f'INSERT INTO "{table}" SELECT * FROM "{table}"{where}', []
    elif what < 0.75:
        yield f'DELETE FROM "{table}"{where}', []
    elif what < 0.8:
        changes = (f'DROP COLUMN "{column}"', f'RENAME COLUMN "{column}" TO other', "ADD COLUMN other INT")
        yield rng.choice((f'DROP TABLE "{table}"', *(f'ALTER TABLE "{table}" {change}' for change in changes))), []
    elif what < 0.9:
        names = (f"{victim}/secret", f"http://{words.authority}/x")
        endless = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT max(n) FROM c"
        reads = [*(f"SELECT content FROM read_text('{name}')" for name in names), "SELECT 1 FROM other", endless]
        read = rng.choice([*reads, f"SELECT name FROM '{victim}/x.parquet'"])
        yield f'ALTER TABLE "{table}" RENAME TO other', []
        yield f'CREATE VIEW "{table}" AS SELECT * FROM other WHERE ({read}) IS NOT NULL', []
    elif what < 0.95:
        yield f'CREATE TRIGGER sly AFTER UPDATE ON "{table}" BEGIN DELETE FROM ducklake_snapshot; END', []
        yield f'CREATE INDEX sly ON "{table}" (("{column}" || \'x\'))', []
    else:
        yield f'CREATE TABLE other AS SELECT * FROM "{table}"', []
        yield f'DROP TABLE "{table}"', []
        yield f'ALTER TABLE other RENAME TO "{table}"', []
        yield f'UPDATE "{table}" SET "{column}" = ?{where}', [_sql_value(words, rng, column)]


def _change(catalog: Path, site: Site, columns: list[tuple[str, str]], rng: random.Random) -> None:
    import duckdb

    wrong = (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeError, duckdb.Error, RuntimeError)
    if catalog.suffix == ".sqlite" and rng.random() < 0.08:
        catalog.write_bytes(flipped(catalog.read_bytes(), rng))
        return
    try:
        connection = connected(catalog)
    except wrong:
        return  # was flipped before
    with closing(connection):
        for _ in range(mostly_one(rng)):
            for statement, values in _statements(site.words(catalog.parent), columns, rng, site.victim):
                try:
                    connection.execute(statement, values)
                except wrong:  # a type that does not fit: the column becomes a text, where that can be
                    column = re.match(r'UPDATE "(\w+)" SET "(\w+)"', statement)
                    if column and catalog.suffix != ".sqlite":
                        with suppress(*wrong):
                            connection.execute(f'ALTER TABLE "{column[1]}" ALTER "{column[2]}" TYPE VARCHAR')
                            connection.execute(statement, values)


def lay_lake(site: Site, sqlite: bool) -> tuple[Path, list[tuple[str, str]]]:
    """Make the sound lake: its catalog, and (table, column) of all."""
    files, columns = _lake(site, sqlite)
    root = site.at / ("lake-sqlite" if sqlite else "lake-duckdb")
    catalog = root / ("meta.sqlite" if sqlite else "meta.ducklake")
    for path in root.iterdir():
        if path.name not in ("data", "others"):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    catalog.write_bytes(files[catalog.name])
    lay(root / "data", {name.removeprefix("data/"): one for name, one in files.items() if name.startswith("data/")})
    link(site, root / "data")
    return catalog, columns


def _run_lake(sqlite: bool, data: bytes, folder: Path) -> None:
    site, rng = site_of(folder), random.Random(int(data))
    catalog, columns = lay_lake(site, sqlite)
    _change(catalog, site, columns, rng)
    with site.watched(catalog.parent, {"data", catalog.name}):
        refused = called(f"ducklake:{catalog}/main.t", rng, ("id", "k"))
    if refused is not None:
        raise refused


run_ducklake_sqlite = functools.partial(_run_lake, True)
run_ducklake_duckdb = functools.partial(_run_lake, False)
