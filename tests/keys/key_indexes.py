"""Key indexes as tests look at them: entries read back, values hashed by another library, builds in child processes."""

from __future__ import annotations

import json
import os
import signal
import time
import zlib
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

import parquet_bloom
from parquet_bloom.errors import ParquetBloomError
from parquet_bloom.keys import index as key_index
from parquet_bloom.keys.entries import part_of
from parquet_bloom.keys.manifest import Manifest, from_json, to_json
from parquet_bloom.storage.open_file import OpenFile

Entries = dict[tuple[str, int], set[int]]  # (file below the root, row group) -> hashes


def manifest_of(index: Path) -> Manifest:
    """The manifest of an index."""
    return from_json((index / "manifest.json").read_bytes(), index)


def rewrite_manifest(index: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change what a manifest says, with a checksum that fits: whoever forges can do that too."""
    words = json.loads((index / "manifest.json").read_text())
    change(words["index"])
    plain = json.dumps(words["index"], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    words["crc32"] = zlib.crc32(plain.encode(errors="surrogatepass"))
    (index / "manifest.json").write_text(json.dumps(words))


def parts_of(index: Path, number: int = 0) -> list[Path]:
    """The Parquet files of a column, by name."""
    return sorted((index / "columns" / str(number)).glob("*.parquet"))


def content_of(index: Path) -> dict[str, bytes]:
    """Every file of an index but its manifest, which has a time."""
    return {
        str(path.relative_to(index)): path.read_bytes()
        for path in sorted(index.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }


def said_of(index: Path) -> bytes:
    """The manifest of an index as if it had been written in 1970."""
    return to_json(replace(manifest_of(index), created=0))


def read_entries(index: Path, number: int = 0, read: Callable[[Path], list[tuple[int, int]]] | None = None) -> Entries:
    """The entries of a column, by file and row group; the hashes as they are kept, of `bits` bits.

    read  a Parquet file of (hash, place) -> rows
    """
    found: Entries = defaultdict(set)
    for segment in manifest_of(index).segments:
        column = segment.column(number)
        if column is None:
            continue
        places = pq.read_table(index / segment.listing_name).select(["path", "row_group"]).to_pylist()
        for partition in range(len(column.parts)):
            path = index / segment.part_name(number, partition)
            for one, place in (read or by_pyarrow)(path):
                found[places[place]["path"], places[place]["row_group"]].add(one)
    return dict(found)


def by_pyarrow(path: Path) -> list[tuple[int, int]]:
    """The entries of one file."""
    table = pq.ParquetFile(path, page_checksum_verification=True).read()
    return list(zip(table["hash"].to_pylist(), table["place"].to_pylist(), strict=True))


def hashed(plain: bytes, bits: int) -> int:
    """What an entry keeps of a value."""
    return int(xxhash.xxh64(plain).intdigest()) >> (64 - bits)


def assert_same(index: Path, other: Path) -> None:
    """Two indexes have the same bytes and, but for its time, the same manifest."""
    assert content_of(index) == content_of(other)
    assert said_of(index) == said_of(other)


def write_ids(path: Path, seed: int, rows: int = 300, **options: Any) -> list[int]:
    """A file of random ids in three row groups; returns them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ids = np.random.default_rng(seed).integers(0, 1 << 60, rows)
    pq.write_table(pa.table({"id": ids}), path, row_group_size=max(1, rows // 3), **options)
    return [int(one) for one in ids]


def kept_of(verdicts: Any) -> list[tuple[str, int]]:
    """The row groups that verdicts leave, by the name of the file, as also a URI ends with it."""
    return [(Path(one.path.partition("?")[0]).name, one.row_group) for one in verdicts if not one.skipped]


def in_a_child(work: Callable[[], object], killed_after: float | None = None) -> int:
    """Run in a forked process; returns its wait status.

    killed_after  seconds until SIGKILL
    """
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    if killed_after is not None:
        time.sleep(killed_after)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def rows_of(table: pa.Table) -> list[str]:
    """Rows as texts, in their order; NaN equals itself, and the two zeros are two values."""
    return [repr(row) for row in table.to_pylist()]


def same_rows(source: Any, predicate: Any, index: Any, **options: Any) -> int:
    """Hold rows and counts with an index against those without one; returns how many rows match."""
    wanted = parquet_bloom.read_table(source, predicate, **options)
    found = parquet_bloom.read_table(source, predicate, index=index, **options)
    assert found.schema == wanted.schema, predicate
    assert rows_of(found) == rows_of(wanted), predicate
    assert parquet_bloom.count(source, predicate, index=index, **options) == wanted.num_rows, predicate
    return int(wanted.num_rows)


# --- damaged ones -----------------------------------------------------------------------------------


@cache
def questions(data: Path) -> list[tuple[str, list[str]]]:
    """Predicates, with the rows that match; of data that nobody changes."""
    table = pq.read_table(data)
    asked = [f"a = {table['a'][i]} AND s = '{table['s'][i]}'" for i in (0, 70, 150)]
    asked += ["a = 5 OR s = 'nope'", f"a IN ({table['a'][9]}, {table['a'][99]})", "a IS NULL", "a > 999000"]
    return [(one, rows_of(parquet_bloom.read_table(data, one))) for one in asked]


def ask(data: Path, index: Path, asked: list[tuple[str, list[str]]]) -> tuple[int, list[str]]:
    """Ask all, and hold the rows against those that match; returns how many were answered, and errors and notes."""
    key_index._opened.renew()
    answered, told = 0, []
    for predicate, wanted in asked:
        try:
            found = parquet_bloom.read_table(data, predicate, index=index)
        except ParquetBloomError as error:
            told.append(str(error))
            continue
        assert rows_of(found) == wanted, predicate
        answered += 1
        told += parquet_bloom.check(data, predicate, index=index).notes
    assert all("\n" not in one and len(one) < 1000 for one in told)
    return answered, told


def files_of(index: Path) -> list[Path]:
    """The files of an index that have bytes."""
    return sorted(path for path in index.rglob("*") if path.is_file() and path.stat().st_size)


def said_anew(index: Path, path: Path, rows: int) -> None:
    """Have the manifest speak of a file as it is now."""
    with OpenFile(path) as source:
        said = part_of(source, rows)
    words = [said.rows, said.size, said.footer_crc32]
    if "segments" in path.parts:
        rewrite_manifest(index, lambda old: old["segments"][0].update(listing=words))
    else:
        number = int(path.parent.name)
        rewrite_manifest(index, lambda old: old["segments"][0]["columns"][number].update(parts=[words]))
