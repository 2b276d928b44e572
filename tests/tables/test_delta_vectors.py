"""Deletion vectors of Delta tables: made from the protocol, held against deltalake and DuckDB; doubts are errors."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from support import delta_tables as made
from support.duckdb_process import Asked
from test_delta_snapshot import rows_of

from parquet_bloom.errors import DamagedFileError, FilterFormatError, StorageError
from parquet_bloom.source.snapshot import Deletes
from parquet_bloom.tables import deletion_vector
from parquet_bloom.tables.delta.table import VectorDeletes, decode_z85, open_delta

N = 70_000  # rows a file: more than a Roaring container spans
FIXTURE = Path(__file__).parents[2] / "fixtures" / "delta_deletion_vectors"
FEATURE = ["deletionVectors"]


def sets(rng: random.Random) -> list[list[int]]:
    """Positions for one vector of each kind of container, and some between."""
    dense, few = rng.sample(range(65536), 5000), rng.sample(range(N), rng.randint(1, 50))
    return [[0], [N - 1], list(range(N)), dense, list(range(65000, 66000)), few]


def table_with(root: Path, vectors: list[dict[str, Any] | None], rows: int = N) -> Path:
    """A table with a file for each vector; ids run on."""
    adds = []
    for i, vector in enumerate(vectors):
        ids = pa.table({"id": pa.array(range(i * rows, (i + 1) * rows), pa.int64())})
        more = {} if vector is None else {"deletionVector": vector}
        adds.append(made.file_of(root, f"{i}.parquet", ids, **more))
    made.commit(root, 0, made.protocol(FEATURE, FEATURE), made.metadata([made.field("id", "long")]), *adds)
    return root


def deletes_of(root: Path, vector: dict[str, Any], rows: int) -> Deletes:
    """What the one file of a table has, whose log has this vector."""
    table_with(root, [vector], rows)
    [file] = open_delta(str(root), None).snapshot().files
    assert file.deletes is not None
    return file.deletes


def all_kinds(root: Path) -> list[list[int]]:
    """A table with vectors of every storage; returns what each deletes."""
    root.mkdir()
    wanted = sets(random.Random(7))
    vectors = made.vector_file(root, wanted[:3]) + made.vector_file(root, wanted[3:5], "a b")
    [absolute] = made.vector_file(root, wanted[5:6], "absolute")
    place = next((root / "absolute").iterdir())
    absolute |= {"storageType": "p", "pathOrInlineDv": place.as_uri()}
    table_with(root, [*vectors, absolute, made.inline([0, 2, 4, 65536]), None])
    return [*wanted, [0, 2, 4, 65536]]


def test_every_storage_gives_the_rows_that_were_deleted(tmp_path):
    wanted = all_kinds(tmp_path / "t")
    theirs = DeltaTable(str(tmp_path / "t")).deletion_vectors().read_all()
    found = dict(zip(theirs["filepath"].to_pylist(), theirs["selection_vector"].to_pylist(), strict=True))
    *files, last = open_delta(str(tmp_path / "t"), None).snapshot().files
    assert last.deletes is None
    for file, positions in zip(files, wanted, strict=True):
        keeps = found[Path(file.path).as_uri()]
        assert [i for i, keep in enumerate(keeps) if not keep] == sorted(positions), "as deltalake reads them"
        assert file.deletes is not None
        assert file.deletes.rows == len(positions)
        assert file.deletes.positions().tolist() == sorted(positions)
        assert file.deletes.positions().dtype == np.int64


@pytest.mark.more
def test_duckdb_shows_the_same_rows(tmp_path, delta_duckdb: Asked):
    all_kinds(tmp_path / "t")
    for root in (tmp_path / "t", FIXTURE):
        ours = rows_of(open_delta(str(root), None).snapshot())["id"].to_pylist()
        [[rows, total]] = delta_duckdb(f"SELECT count(*), sum(id)::VARCHAR FROM delta_scan('{root}')")
        assert (rows, int(total)) == (len(ours), sum(ours))


def test_the_fixture_has_the_rows_that_its_script_tells():
    rows = rows_of(open_delta(str(FIXTURE), None).snapshot())["id"].to_pylist()
    assert sorted(rows) == sorted(set(range(300)) - {0, 7, 99, 100, 150, 199, *range(210, 220)})


def test_vectors_come_back_as_they_were_written():
    for seed in range(20):
        rng = random.Random(seed)
        high = [rng.randrange(1 << 40) for _ in range(rng.randint(0, 30))]
        positions = sorted({*high, *rng.sample(range(1 << 18), rng.randint(0, 9000)), *range(seed * 1000, seed * 1500)})
        assert deletion_vector.positions(made.vector(positions), len(positions)).tolist() == positions, seed


def test_runs_are_read():
    # 12347, one container, flagged; key 0, 11 members; one run from 5, 10 more
    runs = struct.pack("<HHBHHHHH", 12347, 0, 1, 0, 10, 1, 5, 10)
    data = struct.pack("<IQI", 1681511377, 1, 0) + runs
    assert deletion_vector.positions(data, 11).tolist() == list(range(5, 16))


def test_a_few_bytes_of_runs_do_not_become_gigabytes(tmp_path):
    full = struct.pack("<HHHHHH", 0, 0xFFFF, 1, 0, 0xFFFF, 0)[4:10]  # one run of 65,536 rows, in 6 bytes
    heads = b"".join(struct.pack("<HH", key, 0xFFFF) for key in range(2000))
    offsets = b"".join(struct.pack("<I", 4 + 250 + 12 * 2000 - 8000 + 8000 + 6 * key) for key in range(2000))
    runs = struct.pack("<HH", 12347, 1999) + b"\xff" * 250 + heads + offsets + full * 2000
    data = struct.pack("<IQI", 1681511377, 1, 0) + runs
    with pytest.raises(FilterFormatError, match=r"131,072,000 rows takes more than 536,870,912 bytes|takes more than"):
        deletion_vector.positions(data, 2000 << 16)
    lies = {"pathOrInlineDv": made.encode_z85(data), "sizeInBytes": len(data), "cardinality": 2000 << 16}
    with pytest.raises(DamagedFileError, match="raise max_memory"):
        deletes_of(tmp_path, made.inline([]) | lies, 1).positions()


def test_a_vector_that_is_said_to_be_larger_than_its_file_is_not_read(tmp_path):
    for lie in ({"sizeInBytes": 1 << 62}, {"offset": 1 << 62}, {"sizeInBytes": 1 << 62, "offset": 1 << 62}):
        with pytest.raises(DamagedFileError, match="bytes of its deletion vector at"):
            deletes_of(tmp_path, told(tmp_path, **lie), 10).positions()


def test_the_protocols_own_examples(tmp_path):
    # Of a path, and of rows 3, 4, 7, 11, 18 and 29 in a form that is no longer written.
    vector = made.inline([]) | {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^"}
    deletes = deletes_of(tmp_path, vector, 1)
    assert isinstance(deletes, VectorDeletes)
    assert deletes.place().path == f"{tmp_path}/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    data = decode_z85("wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L")
    assert struct.unpack_from("<6H", data, 28) == (3, 4, 7, 11, 18, 29), "Z85 is read as the protocol does"
    with pytest.raises(FilterFormatError, match="does not begin with its magic"):
        deletion_vector.positions(data[:40], 6)


# --- what is in doubt -----------------------------------------------------------------------------

GOOD = [1, 5, 9]


def told(root: Path, **changed: Any) -> dict[str, Any]:
    root.mkdir(exist_ok=True)
    return made.vector_file(root, [GOOD])[0] | changed


def spoilt(root: Path, at: int, value: int) -> dict[str, Any]:
    vector = told(root)
    [path] = root.glob("*.bin")
    data = bytearray(path.read_bytes())
    data[at] = value
    path.write_bytes(data)
    return vector


WRONG = {
    "another count in the log": (lambda r: told(r, cardinality=2), DamagedFileError),
    "another size in the log": (lambda r: told(r, sizeInBytes=40), DamagedFileError),
    "a place behind the end": (lambda r: told(r, offset=400), DamagedFileError),
    "no place": (lambda r: told(r, offset=None), DamagedFileError),
    "an unknown storage": (lambda r: told(r, storageType="z"), DamagedFileError),
    "an unknown version of the file": (lambda r: spoilt(r, 0, 2), DamagedFileError),
    "a byte of the bitmap": (lambda r: spoilt(r, 25, 77), DamagedFileError),
    "a byte of the sum": (lambda r: spoilt(r, -1, 77), DamagedFileError),
    "a name that is no Z85": (lambda r: told(r, pathOrInlineDv='"' * 20), DamagedFileError),
    "a short name": (lambda r: told(r, pathOrInlineDv="abc"), DamagedFileError),
    "a file that is not there": (lambda r: told(r, pathOrInlineDv=made.encode_z85(bytes(16))), StorageError),
    "a row that the file does not have": (lambda r: made.inline([3, N + 5]), DamagedFileError),
    "inline text that is cut": (lambda r: made.inline(GOOD) | {"pathOrInlineDv": "wi5b="}, DamagedFileError),
    "inline text of another length": (lambda r: made.inline(GOOD) | {"sizeInBytes": 20}, DamagedFileError),
    "inline rows of another count": (lambda r: made.inline(GOOD) | {"cardinality": 4}, DamagedFileError),
}  # fmt: skip


def test_a_vector_that_is_in_doubt_is_an_error(tmp_path):
    for name, (make, error) in WRONG.items():
        root = tmp_path / name
        deletes = deletes_of(root, make(root), 100)
        with pytest.raises(error):
            deletes.positions()


def test_every_changed_byte_of_a_file_of_vectors_is_seen(tmp_path):
    deletes = deletes_of(tmp_path, told(tmp_path), 100)
    [path] = tmp_path.glob("*.bin")
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(DamagedFileError):
            deletes.positions()


# --- what a vector does to evidence and to the log ------------------------------------------------


def test_null_counts_beside_a_vector_are_none_or_all(tmp_path):
    stats = {"numRecords": 10, "minValues": {"b": 1}, "nullCount": {"a": 10, "b": 3, "c": 0}}
    fields = [made.field(name, "long") for name in "abc"]
    adds = [
        made.add("tight", stats=stats),
        made.add("wide", stats=stats | {"tightBounds": False}),
        made.add("deleted", stats=stats, deletionVector=made.inline([1])),
    ]
    made.commit(tmp_path, 0, made.protocol(FEATURE, FEATURE), made.metadata(fields), *adds)
    tight, *loose = open_delta(str(tmp_path), None).snapshot().files
    assert [tight.bounds[(name,)].null_count for name in "abc"] == [10, 3, 0]
    for file in loose:
        assert not file.bounds[("a",)].has_values, "all NULL stays all NULL"
        assert [file.bounds[(name,)].null_count for name in "abc"] == [None, None, 0]


def test_a_file_gets_its_newest_vector(tmp_path):
    first, second = made.inline([1]), made.inline([1, 2])
    table_with(tmp_path, [first], 10)
    add = made.file_of(tmp_path, "0.parquet", pa.table({"id": range(10)}), deletionVector=second)
    made.commit(tmp_path, 1, {"remove": {"path": "0.parquet", "deletionVector": first}}, add)
    for version, gone in ((None, [1, 2]), ("0", [1])):
        [file] = open_delta(str(tmp_path), version).snapshot().files
        assert file.deletes is not None
        assert file.deletes.positions().tolist() == gone
