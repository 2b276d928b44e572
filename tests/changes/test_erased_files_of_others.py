"""Rows deleted from files that released programs wrote, and from damaged ones: an error of ours, or the right rows."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from changes.erased import erase, read, rows_of, without
from changes.test_erased_files_property import add_some_filters, write
from support.corpus import FIXTURES, others, others_files
from support.repeats import first_then_more

from parquet_bloom import delete_keys
from parquet_bloom.errors import ParquetBloomError, RequestError

MOST_BYTES, SEEDS, DAMAGES = 20_000_000, 12, 20


def files() -> list[Path]:
    """Flat files of fixtures/, and of other projects where they are."""
    folder = others()
    found = sorted(FIXTURES.rglob("*.parquet"))
    found += [folder / name for name in others_files()] if folder is not None else []
    return [path for path in found if path.stat().st_size < MOST_BYTES and _is_flat(path)]


def _is_flat(path: Path) -> bool:
    try:
        schema = pq.ParquetFile(path).schema
        leaves = [schema.column(number) for number in range(len(schema))]
        return all(leaf.path == leaf.name and not leaf.max_repetition_level for leaf in leaves)
    except (pa.ArrowException, OSError):
        return False


def a_ninth_then_more(paths: list[Path]) -> list[Any]:
    """By lot and always the same; random files have what these have, and CI's larger run takes all."""
    quick = set(random.Random(0).sample(range(len(paths)), -(-len(paths) // 9)))
    return [one if at in quick else pytest.param(one, marks=pytest.mark.more) for at, one in enumerate(paths)]


def keys_in(path: Path) -> Iterator[tuple[str, pa.Array]]:
    """Columns in a random order, and two values of each."""
    rng = random.Random(path.name)
    table = read(path)
    for name in rng.sample(table.column_names, table.num_columns):
        kind = table.schema.field(name).type
        if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind) or pa.types.is_binary(kind):
            stored = table[name].combine_chunks().drop_null().unique()
            if len(stored) and "." not in name:
                yield name, stored.take(pa.array(rng.sample(range(len(stored)), min(2, len(stored))), pa.int64()))


@pytest.mark.parametrize("path", a_ninth_then_more(files()), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_files_of_released_programs(path: Path, tmp_path: Path) -> None:
    try:
        columns = list(keys_in(path))[:2]
    except (pa.ArrowException, OSError) as error:
        pytest.skip(f"pyarrow does not read it: {error}")
    for number, (name, keys) in enumerate(columns):
        copy = tmp_path / str(number) / "a.parquet"
        copy.parent.mkdir()
        shutil.copyfile(path, copy)
        try:
            erase(copy, name, keys)
        except RequestError as error:  # a type that no key is compared with
            assert "write such a key" in str(error) or "no order" in str(error)  # noqa: PT017
        except ParquetBloomError as error:
            assert "CRC" in str(error)  # noqa: PT017
            assert copy.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("seed", first_then_more(range(SEEDS), 2))
def test_damaged_files(seed: int, tmp_path: Path) -> None:
    """A file whose rows pyarrow reads has the right rows afterwards, or stays as it is, with an error of ours."""
    rng = random.Random(seed)
    path = tmp_path / "a.parquet"
    key = write(rng, path)
    add_some_filters(rng, path, key)
    sound = path.read_bytes()
    start = len(sound) - 8 - int.from_bytes(sound[-8:-4], "little")
    keys = read(path)[key].combine_chunks().drop_null().unique().slice(0, 2)
    for _ in range(DAMAGES):
        data = bytearray(sound)
        for _ in range(rng.choice([1, 1, 2, 5])):
            at = rng.choice([rng.randrange(start, len(data) - 8), rng.randrange(4, start)])
            data[at] = rng.choice([rng.randrange(256), data[at] ^ (1 << rng.randrange(8))])
        path.write_bytes(data)
        try:
            rest = rows_of(without(read(path), key, keys))
        except (pa.ArrowException, OSError, ValueError, KeyError, OverflowError):
            rest = None
        try:
            report = delete_keys(path, key, keys, in_place=True, sync=False)
        except ParquetBloomError:
            assert path.read_bytes() == data
        else:
            assert rest is None or not report.deleted or rows_of(read(path)) == rest
        assert [one.name for one in tmp_path.iterdir()] == ["a.parquet"]
