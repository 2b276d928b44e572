"""Kinds of columns, made at random, and what exact filters would spare lookups in them, counted over all row groups.

A data set is a list of files, a file a list of row groups, a row group an array of one column's values.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from support.samples import random_bytes

Rng = np.random.Generator
Files = list[list[pa.Array]]
N = 24  # of row groups, where nothing else is said


class Truth(NamedTuple):
    """Shares of all row groups that exact filters spare, and the first as a share of those that hold a value."""

    present: float
    absent: float
    benefit: float


def made(kind: str, seed: int) -> Files:
    """A data set of a kind."""
    return KINDS[kind](np.random.default_rng([seed, list(KINDS).index(kind)]))


def write(files: Files, folder: Path, payload: int = 50) -> Path:
    """Write it, a file a file and a row group a row group, with a second column of so many random bytes a row."""
    folder.mkdir(parents=True)
    schema = pa.schema([("c", files[0][0].type), ("payload", pa.binary(payload))])
    rng = np.random.default_rng(1)
    for at, groups in enumerate(files):
        with pq.ParquetWriter(folder / f"{at:03}.parquet", schema, compression="zstd") as writer:
            for values in groups:
                noise = pa.FixedSizeBinaryArray.from_buffers(
                    schema.field(1).type, len(values), [None, pa.py_buffer(rng.bytes(payload * len(values)))]
                )
                table = pa.Table.from_arrays([values, noise], schema=schema)
                writer.write_table(table, row_group_size=len(values))
    return folder


def truth_of(files: Files) -> Truth:
    """What a lookup is spared: of a distinct value of a row group; of the next one above it that no row group holds."""
    groups = [np.unique(_comparable(group)) for file in files for group in file]
    stored = [group for group in groups if len(group)]
    values, times = np.unique(np.concatenate(stored), return_counts=True)
    lows, highs = np.sort([group[0] for group in stored]), np.sort([group[-1] for group in stored])
    admitted = np.searchsorted(lows, values, "right") - np.searchsorted(highs, values, "left")
    if values.dtype.kind == "i":
        last = np.append(np.diff(values) != 1, True)  # of a run without a gap
        following = values[np.flatnonzero(last)[np.cumsum(last) - last]] + 1
        above = np.searchsorted(lows, following, "right") - np.searchsorted(highs, following, "left")
    else:
        above = np.searchsorted(lows, values, "right") - np.searchsorted(highs, values, "right")
    at = [np.searchsorted(values, group) for group in stored]
    present = float(np.mean([(admitted[one] - times[one]).mean() for one in at]))
    absent = float(np.mean([above[one].mean() for one in at]))
    return Truth(present / len(groups), absent / len(groups), present / len(stored))


def _comparable(array: pa.Array) -> np.ndarray[Any, Any]:
    """Values as numpy compares them in the order of the column."""
    array = array.drop_null()
    kind = array.type
    if pa.types.is_decimal(kind):
        return np.array([int(v.scaleb(kind.scale)) for v in array.to_pylist()], np.int64)
    if pa.types.is_temporal(kind):
        return array.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_numpy().astype(np.int64)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return array.to_numpy(zero_copy_only=False)
    texts = [v.encode() if isinstance(v, str) else v for v in array.to_pylist()]
    return np.array(texts, dtype=object) if texts else np.empty(0, object)


# --- kinds ----------------------------------------------------------------------------------------


def _split(values: Any, files: int = 1, groups: int = N) -> Files:
    """The values in their order, in files of row groups of about the same size."""
    array = values if isinstance(values, pa.Array) else pa.array(values)
    edges = np.linspace(0, len(array), groups + 1).astype(int)
    parts = [array[start:stop] for start, stop in pairwise(edges.tolist())]
    return [parts[at * groups // files : (at + 1) * groups // files] for at in range(files)]


def _rows(rng: Rng) -> int:
    return N * int(rng.integers(200, 3000))


def _universe(rng: Rng) -> int:
    return int(10 ** rng.uniform(2, 6))


def _zipf(rng: Rng, n: int, power: float) -> np.ndarray[Any, Any]:
    return np.minimum(rng.zipf(power, n), 10**6) * 2654435761 % 2**31


def _hexes(numbers: np.ndarray[Any, Any]) -> pa.Array:
    return pa.array([f"{one:016x}" for one in numbers.tolist()])


def _uuids(rng: Rng) -> Files:
    return _split(random_bytes(rng, N * 800, 16).cast(pa.binary(16)), 3)


def _jitter(rng: Rng, share: float) -> Files:
    n = _rows(rng)
    return _split((np.arange(n) + rng.integers(0, max(2, int(n * share)), n)) * 1000, int(rng.integers(1, 4)))


def _mixed(rng: Rng, of_constants: float) -> Files:
    """Row groups of one value, among others of many."""
    n = int(rng.integers(200, 2000))
    groups = [
        np.full(n, 10**8 * int(rng.integers(1, 4))) if rng.random() < of_constants else rng.integers(0, 10**9, n)
        for _ in range(int(rng.integers(8, 60)))
    ]
    return [[pa.array(group) for group in groups]]


def _by_file(rng: Rng, *makers: Callable[[int], Any]) -> Files:
    """Files of several natures, in turns."""
    files = []
    for at in range(int(rng.integers(2, 9))):
        n = int(rng.integers(300, 2500))
        files.append([pa.array(makers[at % len(makers)](n)) for _ in range(int(rng.integers(1, 7)))])
    return files


def _clustered(rng: Rng) -> Files:
    """Row groups that each have tenants of their own, some of them in several."""
    tenants = int(rng.integers(200, 20_000))
    own = int(rng.integers(10, 400))
    return [[pa.array(rng.choice(rng.integers(0, tenants, own) * 997 % 100_003, 1500)) for _ in range(N)]]


def _sessions(rng: Rng) -> Files:
    """Random ids that come a few times soon after each other."""
    n, each = _rows(rng), int(rng.integers(2, 60))
    ids = rng.integers(0, 2**60, n // each + 2)
    late = rng.integers(0, each * 4, n)
    return _split(_hexes(ids[np.minimum((np.arange(n) + late) // each, len(ids) - 1)]), 2)


def _nulls(rng: Rng, of_rows: float, of_groups: float) -> Files:
    files = _split(rng.integers(0, _universe(rng) * 10, _rows(rng)) * 17, 2)
    return [
        [
            pa.array(group.to_numpy(), mask=(rng.random(len(group)) < (1.0 if rng.random() < of_groups else of_rows)))
            for group in file
        ]
        for file in files
    ]


def _doubling(rng: Rng) -> Files:
    """Each row group has twice as many distinct values as the one before."""
    return [[pa.array(rng.integers(0, 4 << at, 2000) * 7919 % 10**6) for at in range(int(rng.integers(6, 17)))]]


def _large(rng: Rng, values: Callable[[int], Any]) -> Files:
    """Row groups of which a sample does not see all."""
    return _split(values(8 * int(rng.integers(150_000, 300_000))), 4, 8)


def _sorted_files(rng: Rng) -> Files:
    """Each file sorted by a random key; files overlap."""
    return [
        _split(np.sort(rng.integers(0, 2**40, 5000)), 1, int(rng.integers(1, 8)))[0] for _ in range(rng.integers(2, 9))
    ]


def _decimals(rng: Rng) -> Files:
    cents = rng.integers(0, _universe(rng), N * 400)
    return _split(pa.array([Decimal(v).scaleb(-2) for v in cents.tolist()], pa.decimal128(12, 2)))


KINDS: dict[str, Callable[[Rng], Files]] = {
    # of the report that this file answers
    "zipf 1.3": lambda rng: _split(_zipf(rng, 40_000, 1.3), 1, 10),
    "zipf 2.0": lambda rng: _split(_zipf(rng, 80_000, 2.0), 1, 10),
    "one value a file": lambda rng: [[pa.array(np.full(6000, f * 1000 + 17))] * 4 for f in range(3)],
    "time, jittered": lambda rng: _split(np.arange(80_000) + rng.integers(0, 8000, 80_000), 1, 10),
    "5,000 rows a day": lambda rng: _split(18_000 + np.arange(40_000) // 5000, 1, 10),
    # random keys
    "random integers": lambda rng: _split(rng.integers(-(2**62), 2**62, _rows(rng)), 3),
    "random texts": lambda rng: _split(_hexes(rng.integers(0, 2**62, _rows(rng))), 2),
    "uuids": _uuids,
    "ids of a universe": lambda rng: _split(rng.integers(0, _universe(rng), _rows(rng)) * 7919, 3),
    "texts of a universe": lambda rng: _split(_hexes(rng.integers(0, _universe(rng), _rows(rng)) * 7919), 3),
    "dense ids, shuffled": lambda rng: _split(rng.permutation(_rows(rng)), 2),
    "unsigned": lambda rng: _split(pa.array(rng.integers(0, 2**64 - 1, _rows(rng), np.uint64), pa.uint64()), 2),
    "ids as floats": lambda rng: _split(rng.integers(0, 2**50, _rows(rng)).astype(float), 2),
    "decimals": _decimals,
    # frequent and rare ones
    "zipf 1.1": lambda rng: _split(_zipf(rng, _rows(rng), 1.1), 2),
    "zipf 1.6": lambda rng: _split(_zipf(rng, _rows(rng), 1.6), 3),
    "zipf 3.0": lambda rng: _split(_zipf(rng, _rows(rng), 3.0), 1),
    "counts": lambda rng: _split(np.minimum(rng.zipf(1.8, _rows(rng)), 10**6), 2),
    "mostly one id": lambda rng: _split(np.where(rng.random(48_000) < 0.95, 0, rng.integers(0, 2**50, 48_000)), 2),
    # few
    "status": lambda rng: _split(rng.integers(0, 5, _rows(rng)), 2),
    "categories": lambda rng: _split(pa.array([f"c{i}" for i in rng.integers(0, 200, _rows(rng))]), 2),
    "dates": lambda rng: _split(pa.array(rng.integers(18_000, 18_365, _rows(rng), np.int32), pa.date32()), 2),
    "one value": lambda rng: _split(np.full(_rows(rng), 7), 2),
    "one value a row group": lambda rng: [[pa.array(np.full(1000, v)) for v in rng.integers(0, 50, N)]],
    # in order
    "sequence": lambda rng: _split(np.arange(_rows(rng)) * 3, 3),
    "sequence with a little jitter": lambda rng: _jitter(rng, 0.01),
    "sequence with much jitter": lambda rng: _jitter(rng, rng.uniform(0.2, 2)),
    "timestamps": lambda rng: _split(
        pa.array(np.arange(48_000) * 10**6 + rng.integers(0, 6 * 10**7, 48_000), pa.timestamp("us")), 2
    ),
    "sorted texts": lambda rng: _split(pa.array(sorted(_hexes(rng.integers(0, 2**62, _rows(rng))).to_pylist())), 3),
    "sorted files that overlap": _sorted_files,
    "days in order": lambda rng: _split(np.sort(rng.integers(0, 60, _rows(rng))), 2),
    # mixtures
    "half of the row groups one value": lambda rng: _mixed(rng, 0.5),
    "most row groups one value": lambda rng: _mixed(rng, 0.85),
    "tenants by row group": _clustered,
    "sessions": _sessions,
    "mostly null": lambda rng: _nulls(rng, 0.97, 0.0),
    "null row groups": lambda rng: _nulls(rng, 0.3, 0.5),
    "doubling": _doubling,
    "files of random ids and of few values": lambda rng: _by_file(
        rng, lambda n: rng.integers(0, 10**9, n), lambda n: rng.integers(0, 30, n) * 10**7
    ),
    "files of a sequence and of random ids": lambda rng: _by_file(
        rng, lambda n: np.arange(n), lambda n: rng.integers(0, 10**6, n), lambda n: rng.integers(0, 500, n) * 3
    ),
    "few row groups": lambda rng: _split(rng.integers(0, _universe(rng), 6000), 1, int(rng.integers(2, 5))),
    "one row group": lambda rng: _split(rng.integers(0, _universe(rng) * 100, 5000), 1, 1),
    # that are sampled
    "large, of a universe": lambda rng: _large(rng, lambda n: rng.integers(0, int(10 ** rng.uniform(3, 8)), n)),
    "large, zipf": lambda rng: _large(rng, lambda n: _zipf(rng, n, rng.uniform(1.1, 2))),
    "large, jittered": lambda rng: _large(rng, lambda n: np.arange(n) * 2 + rng.integers(0, n, n)),
    "many row groups": lambda rng: _split(rng.integers(0, int(10 ** rng.uniform(4, 6)), 400_000), 4, 400),
    "many row groups, drifting": lambda rng: _split(
        np.arange(400_000) // 20 + rng.zipf(1.5, 400_000) % 10_007, 4, 400
    ),
}  # fmt: skip
