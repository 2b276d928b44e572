"""Delta tables for tests: random ones by deltalake, logs by hand, deletion vectors from the protocol."""

from __future__ import annotations

import datetime as dt
import json
import random
import struct
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from parquet_bloom.format.roaring import Writer
from support.random_questions import few_of, random_rows

WIDE = Context(prec=76)
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


# --- logs by hand ---------------------------------------------------------------------------------


def commit(root: Path, version: int, *actions: Mapping[str, Any]) -> Path:
    """Write one commit as it stands."""
    log = root / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    path = log / f"{version:020d}.json"
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return path


def protocol(reader: Sequence[str] | int = 1, writer: Sequence[str] | int = 2) -> dict[str, Any]:
    features = {"readerFeatures": list(reader)} if not isinstance(reader, int) else {}
    features |= {"writerFeatures": list(writer)} if not isinstance(writer, int) else {}
    least = reader if isinstance(reader, int) else 3
    return {
        "protocol": {
            "minReaderVersion": least,
            "minWriterVersion": writer if isinstance(writer, int) else 7,
            **features,
        }
    }


def field(name: str, kind: Any, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def mapped(name: str, kind: Any, physical: str, number: int) -> dict[str, Any]:
    return field(name, kind, **{"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": number})


def metadata(fields: Sequence[Mapping[str, Any]], partitions: Sequence[str] = (), **properties: str) -> dict[str, Any]:
    schema = json.dumps({"type": "struct", "fields": list(fields)})
    return {
        "metaData": {
            "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": list(partitions),
            "configuration": {name.replace("__", "."): value for name, value in properties.items()},
            "createdTime": 0,
        }
    }


def add(path: str, values: Mapping[str, str | None] | None = None, stats: Any = None, **more: Any) -> dict[str, Any]:
    told = stats if stats is None or isinstance(stats, str) else json.dumps(stats)
    entry = {"path": path, "partitionValues": dict(values or {}), "size": 1, "modificationTime": 0, "dataChange": True}
    return {"add": entry | {"stats": told} | more}


def file_of(root: Path, name: str, table: pa.Table, **more: Any) -> dict[str, Any]:
    """Write a data file; returns its add action, with a count of rows alone."""
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, root / name)
    more = {"stats": {"numRecords": table.num_rows}, "size": (root / name).stat().st_size} | more
    return add(name, **more)


# --- deletion vectors, from the protocol ----------------------------------------------------------


def encode_z85(data: bytes) -> str:
    padded = data + bytes(-len(data) % 4)
    text = ""
    for at in range(0, len(padded), 4):
        number, five = int.from_bytes(padded[at : at + 4], "big"), ""
        for _ in range(5):
            number, digit = divmod(number, 85)
            five = Z85[digit] + five
        text += five
    return text


def vector(positions: Iterable[int]) -> bytes:
    """Magic, count of bitmaps, and for each its high 32 bits and the bitmap."""
    by_high: dict[int, list[int]] = {}
    for position in sorted(set(positions)):
        by_high.setdefault(position >> 32, []).append(position & 0xFFFFFFFF)
    parts = [struct.pack("<IQ", 1681511377, len(by_high))]
    for high, low in by_high.items():
        writer = Writer()
        writer.add(np.array(low, np.int64))
        parts += [struct.pack("<I", high), writer.finish()]
    return b"".join(parts)


def inline(positions: Sequence[int]) -> dict[str, Any]:
    data = vector(positions)
    size = {"sizeInBytes": len(data), "cardinality": len(set(positions))}
    return {"storageType": "i", "pathOrInlineDv": encode_z85(data), **size}


def vector_file(root: Path, sets: Sequence[Sequence[int]], prefix: str = "") -> list[dict[str, Any]]:
    """One file of several vectors; returns their descriptors, of storage type u."""
    name = uuid.UUID(int=random.Random(len(sets)).getrandbits(128))
    folder = root / prefix
    folder.mkdir(exist_ok=True)
    out, found = b"\1", []
    for positions in sets:
        data = vector(positions)
        descriptor = {"storageType": "u", "pathOrInlineDv": prefix + encode_z85(name.bytes), "offset": len(out)}
        found.append(descriptor | {"sizeInBytes": len(data), "cardinality": len(set(positions))})
        out += struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    (folder / f"deletion_vector_{name}.bin").write_bytes(out)
    return found


def delete_by_vectors(
    root: Path, version: int, rng: random.Random, adds: Sequence[Mapping[str, Any]]
) -> list[list[int]]:
    """Commit vectors for files that are given by their add actions, which may have one; returns all they delete."""
    wanted = []
    actions: list[dict[str, Any]] = []
    for add in adds:
        rows = json.loads(add["stats"])["numRecords"]
        more = set(rng.sample(range(rows), rng.randint(0, rows)))
        wanted.append(sorted({*more, *add.get("gone", ())}))
    stored = vector_file(root, wanted, f"v{version}")
    for add, positions, in_file in zip(adds, wanted, stored, strict=True):
        old = {name: value for name, value in add.items() if name != "gone" and value is not None}
        remove = {name: old[name] for name in ("path", "deletionVector") if name in old}
        told = json.loads(old["stats"]) | {"tightBounds": False}
        grew = positions != sorted(add.get("gone", ()))
        vector = rng.choice([in_file, inline(positions)]) if grew else in_file  # the same name again is no commit
        actions += [
            {"remove": remove | {"dataChange": True}},
            {"add": old | {"deletionVector": vector, "stats": json.dumps(told)}},
        ]
    commit(root, version, *actions)
    return wanted


# --- random tables --------------------------------------------------------------------------------

INSTANTS = [-(10**15), -1500, -1, 0, 1, 999, 1000, 1_234_567, 1_767_225_600_123_456]
TEXTS = [
    "",
    "a",
    "ab",
    "é" * 40,
    "a" * 31,
    "a" * 32,
    "a" * 33 + "z",
    "z" * 100,
    "\U0001f600" * 33,
    "中" * 64,
    "\x7f" * 40,
]
WIDE_DECIMALS = ("12345678901234567890.1234567891", "99999999999999999999.0000000001", "-99999999999999999999.9")
DECIMALS = [Decimal(text) for text in ("0", "1.5", "-0.0000000001", *WIDE_DECIMALS)]
DOUBLES = [0.0, -0.0, 0.1, -1.5, 1e300, 5e-324, 2.0**53, float("inf"), float("-inf"), float("nan")]
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "long": (pa.int64(), [-(2**63), 2**63 - 1, 0, 1, 2**53 + 1]),
    "int": (pa.int32(), [-(2**31), 2**31 - 1, 0, 5]),
    "byte": (pa.int8(), [-128, 127, 0]),
    "single": (pa.float32(), [0.1, -0.0, 1.5, 3e38, float("nan"), float("inf")]),
    "double": (pa.float64(), DOUBLES),
    "dec": (pa.decimal128(38, 10), DECIMALS),
    "small dec": (pa.decimal128(5, 2), [Decimal("1.50"), Decimal("-999.99"), Decimal("0")]),
    "ts": (pa.timestamp("us", "UTC"), INSTANTS),
    "ntz": (pa.timestamp("us"), INSTANTS),
    "day": (pa.date32(), [0, -1, 20000, dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "text": (pa.string(), TEXTS),
    "bytes": (pa.binary(), [b"", b"\xff", b"a" * 70]),
    "flag": (pa.bool_(), [True, False]),
    "st": (pa.struct([("x", pa.int64()), ("y", pa.string())]), [{"x": 1, "y": "a"}, {"x": None, "y": "b" * 40}]),
    "li": (pa.list_(pa.int64()), [[1, None], []]),
}  # fmt: skip
PARTITIONS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "p text": (pa.string(), ["", "a b/%=é", "x", "__HIVE", "100%25"]),
    "p_day": (pa.date32(), [0, 20000]),
    "p_ts": (pa.timestamp("us", "UTC"), [1, -1500, 1_767_225_600_123_456]),
    "p_dec": (pa.decimal128(5, 2), [Decimal("1.50"), Decimal("-2.00")]),
    "p_double": (pa.float64(), [0.1, 1e17, float("nan")]),
    "p_flag": (pa.bool_(), [True, False]),
    "p_long": (pa.int64(), [-(2**63), 7]),
}  # fmt: skip


def some_table(rng: random.Random, kinds: Mapping[str, tuple[pa.DataType, list[Any]]], first: int) -> pa.Table:
    """A few rows; a column has some of its values, perhaps NULL too, perhaps nothing else."""
    known = {name: [*some, *[None] * rng.randint(0, 2)]
             for name, some in few_of(rng, {name: values for name, (_, values) in kinds.items()}).items()}  # fmt: skip
    known |= {name: [None] for name in known if rng.random() < 0.15}
    rows = random_rows(rng, known, rng.randint(1, 12), nulls=0)
    columns = {name: pa.array([row[name] for row in rows], kind) for name, (kind, _) in kinds.items()}
    return pa.table({"row": pa.array(range(first, first + len(rows)), pa.int64()), **columns})


def random_table(root: Path, rng: random.Random, steps: int) -> None:
    """Appends, deletes, new columns, compaction, checkpoints, in random order."""
    parts = dict(rng.sample(list(PARTITIONS.items()), rng.randint(0, 2)))
    names = rng.sample(list(KINDS), 6)
    known, later = names[:4], names[4:]
    rows = 0
    for step in range(steps):
        what = rng.choice(["append"] * 5 + ["delete", "compact", "checkpoint", "grow"]) if step else "append"
        if what == "grow" and later:
            known.append(later.pop())
        if what in ("append", "grow"):
            table = some_table(rng, {name: KINDS[name] for name in known} | parts, rows)
            rows += table.num_rows
            write_deltalake(
                str(root), table, mode="append", schema_mode="merge" if step else None, partition_by=[*parts] or None
            )
            continue
        table = DeltaTable(str(root))
        if what == "delete":
            table.delete(f"row % {rng.randint(2, 9)} = 0")
        elif what == "compact":
            table.optimize.compact()
        else:
            table.create_checkpoint()
