"""Bytes of manifests whose lengths are lies: nothing behind them is read."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.avro.decoder import StreamingBinaryDecoder
from pyiceberg.avro.encoder import BinaryEncoder
from support.iceberg_tables import Warehouse, rows_of

import parquet_bloom as pb
from parquet_bloom.errors import ParquetBloomError
from parquet_bloom.tables.iceberg.entries import BoundedDecoder

READS: list[Callable[[Any], Any]] = [
    lambda d: d.read_int(),
    lambda d: d.read_bytes(),
    lambda d: d.read_utf8(),
    lambda d: d.read_boolean(),
    lambda d: d.read_float(),
    lambda d: d.read_double(),
    lambda d: d.read_ints(3),
    lambda d: d.read(5),
    lambda d: d.skip(5),
    lambda d: d.skip_int(),
    lambda d: d.skip_bytes(),
    lambda d: d.skip_utf8(),
    lambda d: d.skip_double(),
    lambda d: d.skip_boolean(),
    lambda d: d.skip_float(),
    lambda d: d.read_int_bytes_dict(2, {}),
]


def said(read: Callable[[Any], Any], decoder: Any) -> Any:
    return read(decoder), decoder.tell()


def test_it_reads_what_pyicebergs_own_reads_and_nothing_behind_the_bytes() -> None:
    rng = random.Random(7)
    ends = 0
    for _ in range(5000):
        data = bytes(rng.choice((0, 1, 2, 3, 4, 6, 0x80, 0xFF, rng.randrange(256))) for _ in range(rng.randrange(20)))
        read = rng.choice(READS)
        try:
            found = said(read, BoundedDecoder(data))
        except UnicodeDecodeError:
            continue
        except (EOFError, ValueError):
            ends += 1
            continue
        assert found[1] <= len(data)
        wanted = said(read, StreamingBinaryDecoder(data))
        assert repr(found) == repr(wanted) or abs(wanted[0]) >= 2**63  # longer numbers than an Avro long
    assert 1000 < ends < 4500


def test_a_length_that_is_a_lie_shows_no_memory() -> None:
    for claimed in (1, 100, 2**31, 2**62, -1, -(2**62)):
        stream = BytesIO()
        BinaryEncoder(stream).write_int(claimed)  # type: ignore[arg-type]
        for read in ("read_bytes", "read_utf8", "skip_bytes", "skip_utf8"):
            with pytest.raises(ValueError, match="a value claims"):
                getattr(BoundedDecoder(stream.getvalue()), read)()


def test_cut_and_changed_manifests_end_no_process(warehouse: Warehouse) -> None:
    """One byte of a manifest or of their list is another, or its block is cut: rows as before, or one line of ours."""
    warehouse.filled(rows_of(*range(20)), properties={"write.avro.compression-codec": "null"})
    folder = Path(re.sub("^file://", "", warehouse.load().location())) / "metadata"
    rng = random.Random(3)
    for path in sorted(folder.glob("*.avro")):
        good = path.read_bytes()
        for _ in range(60):
            at = rng.randrange(len(good) // 2, len(good))
            lie = bytes([rng.choice((0xFF, 0xFE, 0x7F, 0x80))]) * rng.choice((1, 5))
            path.write_bytes(good[:at] + lie + good[at + len(lie) :])
            with suppress(ParquetBloomError):
                pb.count("iceberg:cat/ns.t", "id < 7", catalog_properties=warehouse.properties)
        path.write_bytes(good)
    assert pb.count("iceberg:cat/ns.t", catalog_properties=warehouse.properties) == 20
