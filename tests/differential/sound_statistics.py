"""Random files of other writers at their default settings: `verify --statistics` finds nothing wrong in them.

    PYTHONPATH=tests python tests/differential/sound_statistics.py [FILES] [SEED] [WRITER ..]

What it finds all the same is compared by brute force with the values, as pyarrow reads them: a fault that is not
confirmed is a false alarm, and the end status is 1. Known faults of writers are named in KNOWN.

fastparquet, DuckDB, Polars, DataFusion and pyarrow are those of this environment; Spark needs Java. hyparquet-writer
and ClickHouse run where HYPARQUET names a folder with its node_modules, and CHDB one with chdb.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from engines.mixed import WRITE

import parquet_bloom as pb

Write = Callable[[pa.Table, Path, random.Random], None]
KNOWN = {  # writer, statistic -> what is wrong about it
    ("datafusion", "column_index.null_pages"): "lists: a page with as many NULLs as rows counts as all NULL",
    ("datafusion", "null_count"): "lists: null_count of lists, not of elements",
    ("hyparquet", "min_value"): "DECIMAL: of the unscaled number",
    ("hyparquet", "max_value"): "DECIMAL: of the unscaled number",
}
_WORDS = ("", "a", "ab", "é", "zz" * 20, "\U0001f600", "\x7f", "~" * 70, "ÿ")


def random_table(rng: random.Random, nested: bool = True) -> pa.Table:
    """A few columns of random types; values repeat, or are edges of their type, or are NULL."""
    rows = rng.choice((0, 1, 7, 100, 1000, 3000))
    kinds: list[tuple[pa.DataType, Callable[[], Any]]] = [
        (pa.int64(), lambda: rng.choice((rng.randint(-9, 9), -(1 << 63), (1 << 63) - 1, rng.getrandbits(40)))),
        (pa.int32(), lambda: rng.choice((rng.randint(-9, 9), -(1 << 31), (1 << 31) - 1))),
        (pa.float64(), lambda: rng.choice((rng.random(), -0.0, 0.0, 1e300, float("inf"), float("nan"), -5.5))),
        (pa.float32(), lambda: rng.choice((1.5, -0.0, 0.0, -2.25, float("nan")))),
        (pa.string(), lambda: rng.choice((rng.choice(_WORDS), f"k{rng.randint(0, 500)}"))),
        (pa.binary(), lambda: rng.randbytes(rng.randint(0, 40))),
        (pa.decimal128(12, 2), lambda: Decimal(rng.randint(-(10**11), 10**11)).scaleb(-2)),
        (pa.decimal128(30, 3), lambda: Decimal(rng.randint(-(10**20), 10**20)).scaleb(-3)),
        (pa.date32(), lambda: dt.date(1960, 1, 1) + dt.timedelta(days=rng.randint(0, 40_000))),
        (pa.timestamp("us"), lambda: dt.datetime(1960, 1, 1) + dt.timedelta(microseconds=rng.getrandbits(50))),
        (pa.bool_(), lambda: rng.random() < 0.5),
    ]
    if nested:
        kinds += [
            (pa.list_(pa.int64()), lambda: [rng.choice((None, rng.randint(-5, 5))) for _ in range(rng.randint(0, 3))]),
            (pa.struct({"x": pa.int32(), "y": pa.string()}),
             lambda: {"x": rng.choice((None, rng.randint(-5, 5))), "y": rng.choice((None, "a", "zé"))}),
        ]  # fmt: skip
    columns = {}
    for number, (kind, value) in enumerate(rng.sample(kinds, rng.randint(1, 5))):
        nulls, few = rng.choice((0, 0, 0.1, 0.9, 1)), [value() for _ in range(5)] if rng.random() < 0.4 else None
        pick = value if few is None else lambda few=few: rng.choice(few)
        columns[f"c{number}"] = pa.array([None if rng.random() < nulls else pick() for _ in range(rows)], kind)
    return pa.table(columns)


# --- writers --------------------------------------------------------------------------------------


def by_pyarrow(table: pa.Table, path: Path, rng: random.Random) -> None:
    more = {"row_group_size": rng.choice((50, 1000, 1 << 20))} if rng.random() < 0.5 else {}
    pq.write_table(table, path, write_page_index=rng.random() < 0.3, **more)


def by_duckdb(table: pa.Table, path: Path, rng: random.Random) -> None:
    import duckdb

    with duckdb.connect() as connection:
        connection.register("t", table)
        connection.execute(f"COPY t TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")


def by_polars(table: pa.Table, path: Path, rng: random.Random) -> None:
    import polars as pl

    pl.DataFrame(table).write_parquet(path, row_group_size=rng.choice((None, 300)))


def by_datafusion(table: pa.Table, path: Path, rng: random.Random) -> None:
    WRITE["datafusion"](table, path)


def by_fastparquet(table: pa.Table, path: Path, rng: random.Random) -> None:
    import fastparquet

    fastparquet.write(str(path), table.to_pandas(), row_group_offsets=rng.choice((300, 50_000_000)))


class BySpark:
    """parquet-java; many files in one session."""

    def __init__(self) -> None:
        from pyspark.sql import SparkSession

        made = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        self._spark = made.config("spark.sql.session.timeZone", "UTC").getOrCreate()

    def __call__(self, table: pa.Table, path: Path, rng: random.Random) -> None:
        source, folder = path.with_suffix(".source"), path.with_suffix(".spark")
        pq.write_table(table, source)
        self._spark.read.parquet(str(source)).coalesce(1).write.parquet(str(folder))
        [part] = folder.glob("*.parquet")
        part.rename(path)


def by_hyparquet(table: pa.Table, path: Path, rng: random.Random) -> None:
    kinds = {"int64": "INT64", "int32": "INT32", "double": "DOUBLE", "string": "STRING", "bool": "BOOLEAN"}
    columns = [
        {"name": name, "type": kinds[str(table[name].type)], "data": [str(v) if k == "int64" and v is not None else
         "NaN" if v != v else "Infinity" if v == float("inf") else v for v in table[name].to_pylist()]}
        for name, k in ((name, str(table[name].type)) for name in table.column_names) if k in kinds
    ]  # fmt: skip
    if not columns:
        columns = [{"name": "c", "type": "INT32", "data": [1, None, 3]}]
    code = """
      import { parquetWriteFile } from 'hyparquet-writer'; import fs from 'fs';
      const [, , source, target] = process.argv;
      const columnData = JSON.parse(fs.readFileSync(source)).map(c => ({ ...c, data: c.data.map(v => v === null ? null
        : c.type === 'INT64' ? BigInt(v) : c.type === 'DOUBLE' ? Number(v) : v) }));
      parquetWriteFile({ filename: target, columnData });
    """
    source = path.with_suffix(".json")
    source.write_text(json.dumps(columns))
    script = Path(os.environ["HYPARQUET"]) / "write.mjs"
    script.write_text(code)
    subprocess.run(["node", str(script), str(source), str(path)], check=True, cwd=os.environ["HYPARQUET"])


def by_clickhouse(table: pa.Table, path: Path, rng: random.Random) -> None:
    sys.path.append(os.environ["CHDB"])
    import chdb

    source = path.with_suffix(".source")
    pq.write_table(table, source)
    result = chdb.query(f"SELECT * FROM file('{source}', Parquet) INTO OUTFILE '{path}' FORMAT Parquet")
    assert result is not None


WRITERS: dict[str, Callable[[], Write]] = {
    "pyarrow": lambda: by_pyarrow, "duckdb": lambda: by_duckdb, "polars": lambda: by_polars,
    "datafusion": lambda: by_datafusion, "fastparquet": lambda: by_fastparquet, "spark": BySpark,
    "hyparquet": lambda: by_hyparquet, "clickhouse": lambda: by_clickhouse,
}  # fmt: skip
FLAT = {"fastparquet", "hyparquet", "clickhouse"}


# --- the verdict ----------------------------------------------------------------------------------


def is_confirmed(path: Path, one: pb.WrongStatistic) -> bool:
    """Whether the values contradict a statistic of the footer, as pyarrow reads both, value by value."""
    file = pq.ParquetFile(path)
    if one.row_group is None:
        return False
    names = [file.schema.column(i).path for i in range(len(file.schema))]
    if one.column not in names or file.schema.column(names.index(one.column)).max_repetition_level:
        return False
    stated = file.metadata.row_group(one.row_group).column(names.index(one.column)).statistics
    values: Any = file.read_row_group(one.row_group).combine_chunks().to_pylist()
    for part in one.column.split("."):
        values = [None if value is None else value[part] for value in values]
    there = [value for value in values if value is not None and value == value]
    if one.statistic == "null_count":
        return bool(stated.null_count != values.count(None))
    if one.statistic in ("min_value", "min"):
        return bool(stated.min > min(there))
    return bool(one.statistic in ("max_value", "max") and stated.max < max(there))


def run(files: int, seed: int, names: list[str], folder: Path) -> tuple[Counter[str], Counter[str], list[str]]:
    """Files by writer, confirmed and known faults by what they are, and false alarms."""
    written: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    alarms: list[str] = []
    made = {name: WRITERS[name]() for name in names}
    for number in range(files):
        name = names[number % len(names)]
        rng = random.Random(seed * 1_000_003 + number)
        path = folder / f"{number}.parquet"
        try:
            made[name](random_table(rng, name not in FLAT), path, rng)
        except Exception as error:  # a type that the writer does not take
            written[f"{name}, not written: {type(error).__name__}"] += 1
            continue
        if not path.exists() or not path.stat().st_size:
            written[f"{name}, no file"] += 1
            continue
        written[name] += 1
        statistics = pb.verify(path, statistics=True).files[0].statistics
        assert statistics is not None
        for one in statistics.wrong:
            if (name, one.statistic) in KNOWN:
                faults[f"{name}: {one.statistic}: {KNOWN[name, one.statistic]}"] += 1
            elif is_confirmed(path, one):
                faults[f"{name}: {one.statistic} of {one.column}, confirmed"] += 1
            else:
                alarms.append(f"{name}, seed {seed}, file {number}: {one.text}")
        if not statistics.wrong:
            path.unlink()
    return written, faults, alarms


def main(arguments: list[str]) -> int:
    files, seed = int((arguments or ["2000"])[0]), int((arguments[1:] or ["1"])[0])
    names = arguments[2:] or list(WRITERS)
    with tempfile.TemporaryDirectory() as folder:
        written, faults, alarms = run(files, seed, names, Path(folder))
    for counts in (written, faults):
        for what, count in sorted(counts.items()):
            print(f"{count:6,} {what}")
    print(f"{len(alarms):,} false alarms", *alarms[:20], sep="\n")
    return int(bool(alarms))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
