"""Page indexes for files that exist: what engines gain by `add --page-index`, and what it costs.

    python benchmarks/page_index.py [--rows 4194304] [--runs 5] [--folder DIR] [--table] [--store]

A file as pyarrow writes it by default (row groups of 1,048,576 rows, no page index) and 12 columns, with filters on
`id`; the same with offset indexes; and with a column index of `ts`, too. Measured, in ms: 101 rows of a range of time,
and one id, by DataFusion with its default settings and with filters pushed down, and by DuckDB; files in turn, the
median. Then `add --page-index --page-bounds ts` over `add`, both into new files, in turn. Warm cache; ratios count.

--table  a table in Markdown at the end, for docs/page-indexes.md
--store  in place of times: requests and bytes of DataFusion's own reader, of an S3 API on loopback (store.py)
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datafusion
import datafusion.object_store
import duckdb
import pyarrow.parquet as pq
from rows import events
from store import BUCKET, serving

import parquet_bloom

FILES = {
    "as pyarrow wrote it": {},
    "+ offset indexes": {"page_index": True},
    "+ a column index of ts": {"page_index": True, "page_bounds": ["ts"]},
}
_PUSHED = "datafusion.execution.parquet.pushdown_filters"


def make(folder: Path, rows: int) -> dict[str, Path]:
    """The file without anything of ours, under "", and those that are compared."""
    folder.mkdir(parents=True, exist_ok=True)
    plain = folder / f"{rows}.parquet"
    if not plain.exists():
        made = plain.with_suffix(".made")
        pq.write_table(events(rows), made, compression="zstd")
        made.rename(plain)
    paths = {name: folder / f"{rows}-{n}.parquet" for n, name in enumerate(FILES)}
    for name, options in FILES.items():
        parquet_bloom.add_filters(plain, paths[name], columns=["id"], overwrite=True, sync=False, **options)
    return {"": plain, **paths}


def ways_of(path: Path) -> dict[str, Callable[[str], int]]:
    """Each engine: a predicate -> how many rows were found."""
    connection = duckdb.connect()
    ways: dict[str, Callable[[str], int]] = {}
    for name, pushed in (("DataFusion", "false"), ("DataFusion, pushed down", "true")):
        context = datafusion.SessionContext(datafusion.SessionConfig().set(_PUSHED, pushed))
        context.register_parquet("t", str(path))
        ways[name] = lambda where, c=context: sum(b.num_rows for b in c.sql(f"SELECT * FROM t WHERE {where}").collect())  # type: ignore[misc]
    ways["DuckDB"] = lambda where: len(connection.execute(f"SELECT * FROM '{path}' WHERE {where}").fetchall())
    return ways


def ask_store(folder: Path, paths: dict[str, Path], questions: dict[str, tuple[str, int]]) -> list[list[str]]:
    """Requests and bytes of each question, by DataFusion: a line each."""
    lines = {(pushed, question): [] for pushed in ("false", "true") for question in questions}
    for name in FILES:
        one = folder / "store" / paths[name].stem
        one.mkdir(parents=True, exist_ok=True)
        (one / "t.parquet").unlink(missing_ok=True)
        (one / "t.parquet").hardlink_to(paths[name])
        with serving(one, 0.0) as (port, counts):
            at = {"endpoint": f"http://127.0.0.1:{port}", "access_key_id": "k", "secret_access_key": "s"}
            objects = datafusion.object_store.AmazonS3(BUCKET, region="us-east-1", allow_http=True, **at)
            for (pushed, question), cells in lines.items():
                where, rows = questions[question]
                context = datafusion.SessionContext(datafusion.SessionConfig().set(_PUSHED, pushed))
                context.register_object_store("s3://", objects, BUCKET)
                context.register_parquet("t", f"s3://{BUCKET}/t.parquet")
                counts()
                assert sum(b.num_rows for b in context.sql(f"SELECT * FROM t WHERE {where}").collect()) == rows
                told = counts()
                cells.append(f"{told['bytes'] / 1e6:.1f} MB, {sum(told['kinds'].values())} requests")
    names = {"false": "DataFusion", "true": "DataFusion, pushed down"}
    return [[f"{names[pushed]}: {question}", *cells] for (pushed, question), cells in lines.items()]


def in_turn(runs: int, ways: dict[Any, Callable[[], object]]) -> dict[Any, float]:
    """The median of each in ms; all of them once, run by run, the first of which does not count."""
    found: dict[Any, list[float]] = {name: [] for name in ways}
    for _ in range(runs + 1):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            found[name].append(time.perf_counter() - start)
    return {name: 1000 * statistics.median(times[1:]) for name, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=4_194_304)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/parquet-bloom-page-index"))
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--store", action="store_true")
    given = parser.parse_args()
    paths = make(given.folder, given.rows)
    at = given.rows * 5 // 8
    key = pq.ParquetFile(paths[""]).read(columns=["id"])["id"][at].as_py()
    questions = {"a range of ts": (f"ts BETWEEN {at} AND {at + 100}", 101), "one id": (f"id = {key}", 1)}
    if given.store:
        for line in ask_store(given.folder, paths, questions):
            print(*line, sep=" | ")
        return
    lines = [["", *FILES]]
    every = {name: ways_of(paths[name]) for name in FILES}
    for question, (where, rows) in questions.items():
        for engine in every["as pyarrow wrote it"]:

            def ask(name: str, engine: str = engine, where: str = where, rows: int = rows) -> None:
                assert every[name][engine](where) == rows, (name, engine)

            found = in_turn(given.runs, {name: lambda name=name: ask(name) for name in FILES})  # type: ignore[misc]
            first = found["as pyarrow wrote it"]
            cells = [f"{ms:.0f}" if ms == first else f"{ms:.0f} ({first / ms:.1f} x)" for ms in found.values()]
            lines.append([f"{engine}: {question}", *cells])
            print(*lines[-1], sep="  ", flush=True)
    size = {name: path.stat().st_size for name, path in paths.items()}
    for name in list(FILES)[1:]:
        more = size[name] - size["as pyarrow wrote it"]
        print(f"{name}: {more:,} bytes more, {more / size['as pyarrow wrote it']:.4%}")
    out = given.folder / "out.parquet"
    options = {"plain": {}, "indexed": FILES["+ a column index of ts"]}
    costs = in_turn(
        given.runs,
        {
            name: lambda more=more: parquet_bloom.add_filters(  # type: ignore[misc]
                paths[""], out, columns=["id"], overwrite=True, sync=False, **more
            )
            for name, more in {**options, "offsets": FILES["+ offset indexes"]}.items()
        },
    )
    for name in ("offsets", "indexed"):
        print(f"add of {name} / add: {costs[name] / costs['plain']:.2f} ({costs[name]:.0f} of {costs['plain']:.0f} ms)")
    if given.table:
        print(*("| " + " | ".join(line) + " |" for line in (lines[0], ["---"] * len(lines[0]), *lines[1:])), sep="\n")


if __name__ == "__main__":
    main()
