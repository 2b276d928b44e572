"""Files that `add` writes, byte for byte the same over numba's loops and over numpy's, in every form there is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.both_loops import forced

import parquet_bloom
from parquet_bloom import Draft2015
from parquet_bloom.kernels import block

ROWS = 3_000
STYLES = [
    {"spec": "final"},
    {"spec": "final", "fpp": "auto"},
    {"spec": "final", "max_bytes": 1024},  # every bit is set many times over
    {"spec": "parquet-41"},
    {"spec": "parquet-41-early"},
    {"spec": "parquet-41-raw"},
    {"spec": "statistics"},
    {"form": Draft2015("hive")},
    {"form": Draft2015("guava", "MURMUR128_32")},
    {"form": Draft2015("guava", "MURMUR128_64")},
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Columns of every width and encoding that is hashed in a way of its own."""
    random = np.random.default_rng(3)
    path = tmp_path_factory.mktemp("loops") / "source.parquet"
    numbers = random.integers(-(1 << 40), 1 << 40, ROWS)
    floats = np.where(numbers % 9 == 0, np.nan, random.standard_normal(ROWS))
    floats[::11] = 0.0
    floats[5::11] = -0.0
    texts = [f"{n:x}" * (1 + n % 5) for n in numbers]
    columns = {
        "int32": pa.array(numbers.astype(np.int32)),
        "int64": pa.array(numbers, mask=numbers % 7 == 0),
        "float": pa.array(floats.astype(np.float32)),
        "double": pa.array(floats),
        "half": pa.array(floats.astype(np.float16)),
        "decimal": pa.array([int(n) for n in numbers], pa.decimal128(38, 4)),
        "fixed": pa.array([random.bytes(16) for _ in range(ROWS)], pa.binary(16)),
        "text": pa.array(texts, mask=numbers % 13 == 0),
        "few": pa.array([texts[i % 50] for i in range(ROWS)]),
        "list": pa.array([[int(n), None] for n in numbers]),
        "at": pa.array(numbers, pa.timestamp("us")),
    }
    pq.write_table(pa.table(columns), path, row_group_size=ROWS // 2)
    return path


@pytest.mark.parametrize("style", STYLES, ids=lambda style: " ".join(map(str, style.values())))
def test_add_verify_and_remove(
    style: dict[str, object], source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block, "_AT_ONCE", ROWS // 5)  # a row group takes numpy's loops several steps
    written = {}
    for numba in (True, False):
        path = tmp_path / f"{numba}.parquet"
        with forced(numba):
            added = parquet_bloom.add_filters(source, path, columns=["*"], **style)
            assert sum(len(file.filters) for file in added.files) == 22
            verified = parquet_bloom.verify(path)
            statuses = {one.status for file in verified.files for one in file.filters}
            assert statuses <= {"right", "unknown"}
            parquet_bloom.remove_filters(path, tmp_path / f"{numba}-removed.parquet")
        written[numba] = path.read_bytes()
        assert (tmp_path / f"{numba}-removed.parquet").read_bytes() == source.read_bytes()
    assert written[True] == written[False]


def test_many_small_row_groups(tmp_path: Path) -> None:
    """Their filters, of one block pair each, are built together."""
    path = tmp_path / "small.parquet"
    pq.write_table(pa.table({"id": pa.array(np.arange(3000))}), path, row_group_size=20)
    written = []
    for numba in (True, False):
        out = tmp_path / f"{numba}.parquet"
        with forced(numba):
            parquet_bloom.add_filters(path, out, columns=["id"])
            assert parquet_bloom.check(out, "id = 1234").skipped == 149
        written.append(out.read_bytes())
    assert written[0] == written[1]
