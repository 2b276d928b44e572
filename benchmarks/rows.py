"""Rows of large row groups: keys and a range of time, in files as programs write them by default.

    python benchmarks/rows.py [--rows 4194304] [--keys 100] [--runs 7] [--folder DIR] [--only ..] [--cpu] [--table]

12 columns, zstd, filters on `id`, in files of four kinds: by pyarrow's default (row groups of 1,048,576 rows) without
and with a page index (pyarrow, indexed), by DuckDB's (122,880 rows), and of row groups of 128 MB. Measured: one key
(the median over random keys, each of which all engines look up in turn), 20 and 1,000 keys, one key and two columns,
101 rows of a range of time, most rows; a first query of a process; and one key of an object on a store of 30 ms, in
bytes and requests. Warm cache; all in one run, each engine with its best settings; the ratios count. It takes some five
minutes.

--cpu    processor time, all threads together, which other programs disturb less
--table  a table in Markdown at the end, for README.md and benchmarks/README.md
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq

import parquet_bloom

GROUPS = {"pyarrow": 1_048_576, "indexed": 1_048_576, "DuckDB": 122_880, "128 MB": 1_572_864}
OURS = "read_table"
Way = Callable[[str, str], int]  # columns and a predicate as SQL text -> how many rows were found
Results = dict[tuple[str, str], dict[str, float]]  # (file, question) -> ms by engine


def events(rows: int) -> pa.Table:
    """12 columns: random ids, times in order, users, texts, random numbers."""
    rng = np.random.default_rng(1)
    return pa.table(
        {
            "id": rng.integers(0, 2**62, rows),
            "ts": np.arange(rows),
            "user": rng.integers(0, 10**6, rows),
            "msg": pa.array([f"request {i % 977} of {i % 13} took {i % 1009} ms" for i in range(rows)]),
            **{f"f{i}": rng.normal(size=rows) for i in range(8)},
        }
    )


def make(folder: Path, rows: int) -> dict[str, Path]:
    """The files, with filters on id."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{rows}-{n}.parquet" for n, name in enumerate(GROUPS)}
    if all(path.exists() for path in paths.values()):
        return paths
    table = events(rows)
    for name, path in paths.items():
        made = path.with_suffix(".made")
        if name == "DuckDB":
            options = f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {GROUPS[name]})"
            duckdb.connect().execute(f"COPY (SELECT * FROM \"table\") TO '{made}' {options}")
        else:
            index = name != "pyarrow"
            pq.write_table(table, made, compression="zstd", row_group_size=GROUPS[name], write_page_index=index)
        parquet_bloom.add_filters(made, path, columns=["id"])
        made.unlink()
    return paths


def ways_of(path: Path) -> dict[str, Way]:
    """Each engine with its best settings."""
    connection = duckdb.connect()
    config = datafusion.SessionConfig().set("datafusion.execution.parquet.pushdown_filters", "true")
    context = datafusion.SessionContext(config)
    context.register_parquet("t", str(path))

    def by_polars(frame: polars.LazyFrame, columns: str, where: str) -> int:
        found = frame.filter(polars.sql_expr(where))
        return (found if columns == "*" else found.select(columns.split(", "))).collect().height

    return {
        OURS: lambda columns, where: (
            parquet_bloom.read_table(path, where, None if columns == "*" else columns.split(", ")).num_rows
        ),
        "scan_polars": lambda columns, where: by_polars(parquet_bloom.scan_polars(path), columns, where),
        "DuckDB": lambda columns, where: (
            connection.sql(f"SELECT {columns} FROM '{path}' WHERE {where}").to_arrow_table().num_rows
        ),
        "DataFusion": lambda columns, where: sum(
            b.num_rows for b in context.sql(f"SELECT {columns} FROM t WHERE {where}").collect()
        ),
        "Polars": lambda columns, where: by_polars(polars.scan_parquet(path), columns, where),
    }


def questions(ids: Any, keys: int, runs: int) -> dict[str, tuple[str, list[str]]]:
    """Columns and predicates by name."""
    rng = np.random.default_rng(2)
    one = [f"id = {key}" for key in rng.choice(ids, keys)]

    def many(n: int, times: int) -> list[str]:
        return [f"id IN ({', '.join(map(str, rng.choice(ids, n, replace=False)))})" for _ in range(times)]

    starts = rng.integers(0, len(ids) - 101, runs).tolist()
    return {
        "1 key": ("*", one),
        "1 key, two columns": ("id, msg", one[: max(1, keys // 5)]),
        "20 keys": ("*", many(20, runs)),
        "1,000 keys": ("*", many(1000, max(1, runs // 3))),
        "101 rows of a range": ("*", [f"ts BETWEEN {start} AND {start + 100}" for start in starts]),
        "most rows": ("*", ['"user" < 900000'] * max(1, runs // 3)),
    }


def measured(ways: dict[str, Way], columns: str, predicates: list[str], clock: Callable[[], float]) -> dict[str, float]:
    """The median time of each way, ms; all ways take a predicate before the next one comes."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for run, where in enumerate([predicates[0], *predicates]):
        found = {}
        for name in [*ways][run % len(ways) :] + [*ways][: run % len(ways)]:
            start = clock()
            found[name] = ways[name](columns, where)
            if run:  # the first round warms up
                times[name].append(1000 * (clock() - start))
        assert len(set(found.values())) == 1, (where, found)
    return {name: statistics.median(some) for name, some in times.items()}


def least(path: Path) -> float:
    """What pyarrow takes for the least there is to decode, ms: the key's column of one row group, a page of each other.

    A page is so much of a row group as 20,000 rows are.
    """
    file = pq.ParquetFile(path)
    times = []
    share = min(1.0, 20_000 / file.metadata.row_group(0).num_rows)
    others = [name for name in file.schema_arrow.names if name != "id"]
    for _ in range(5):
        start = time.perf_counter()
        file.read_row_group(0, columns=["id"], use_threads=False)
        own = time.perf_counter() - start
        start = time.perf_counter()
        file.read_row_group(0, columns=others, use_threads=False)
        times.append(own + share * (time.perf_counter() - start))
    return 1000 * statistics.median(times)


FIRST = {  # a process each; imports are apart
    OURS: "import parquet_bloom, pyarrow.dataset, pyarrow.compute, parquet_bloom.read, parquet_bloom.rows.scan|"
    "parquet_bloom.read_table(path, where)",
    "DuckDB": "import duckdb, pyarrow|duckdb.sql(f\"SELECT * FROM '{path}' WHERE {where}\").to_arrow_table()",
    "DataFusion": "import datafusion|c = datafusion.SessionContext(datafusion.SessionConfig().set("
    "'datafusion.execution.parquet.pushdown_filters', 'true')); c.register_parquet('t', path); "
    "c.sql(f'SELECT * FROM t WHERE {where}').collect()",
}


def first_queries(path: Path, predicates: list[str]) -> dict[str, float]:
    """The median time of the first query of a process, imports apart, ms."""
    times: dict[str, list[float]] = {name: [] for name in FIRST}
    for where in predicates:
        for name, texts in FIRST.items():
            imports, query = texts.split("|")
            code = f"import time\n{imports}\npath, where = {str(path)!r}, {where!r}\nstart = time.perf_counter()\n"
            code += f"{query}\nprint(time.perf_counter() - start)"
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            times[name].append(1000 * float(done.stdout))
    return {name: statistics.median(some) for name, some in times.items()}


# --- a store --------------------------------------------------------------------------------------


class _Store(BaseHTTPRequestHandler):
    """One object, in ranges; each answer comes 30 ms later."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    path_of: Path
    travelled: list[int]

    def do_GET(self) -> None:
        """Answer a range."""
        size = self.path_of.stat().st_size
        if "Range" not in self.headers:
            self.send_error(404)
            return
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, size - int(last))
        stop = min(int(last) + 1, size) if first and last else size
        time.sleep(0.03)
        with self.path_of.open("rb") as file:
            file.seek(start)
            data = file.read(stop - start)
        self.travelled.append(len(data))
        self.send_response(206)
        for name, value in (
            ("Content-Length", str(len(data))),
            ("Content-Range", f"bytes {start}-{stop - 1}/{size}"),
            ("ETag", '"one"'),
            ("Last-Modified", "Sun, 09 Sep 2001 01:46:40 GMT"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def store_of(path: Path) -> Iterator[tuple[str, list[int]]]:
    """A store with this file: its URI, and the bytes of the store's answers."""
    travelled: list[int] = []
    handler = type("Handler", (_Store,), {"path_of": path, "travelled": travelled})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        options = f"region=us-east-1&scheme=http&endpoint_override=127.0.0.1:{server.server_port}"
        yield f"s3://key:secret@data/x.parquet?{options}", travelled
    finally:
        server.shutdown()


def of_a_store(path: Path, predicates: list[str]) -> str:
    """The median bytes, requests and time of one key."""
    found = []
    with store_of(path) as (uri, travelled):
        for where in [predicates[0], *predicates]:
            travelled.clear()
            start = time.perf_counter()
            parquet_bloom.read_table(uri, where)
            found.append((sum(travelled) / 1e6, len(travelled), 1000 * (time.perf_counter() - start)))
    size, requests, ms = (statistics.median(column) for column in zip(*found[1:], strict=True))
    return f"{size:.1f} MB, {requests:.0f} requests, {ms:,.0f} ms"


# --- what is printed ------------------------------------------------------------------------------


def markdown(results: Results) -> str:
    """Milliseconds of read_table, and the ratios of the others to it."""
    engines = [name for name in next(iter(results.values())) if name != OURS]
    lines = [f"| file, asked for | `{OURS}` | {', '.join(engines)} / it |", "| --- | --- | --- |"]
    for (file, question), found in results.items():
        ratios = ", ".join(f"{found[name] / found[OURS]:.1f}" if name in found else "-" for name in engines)
        lines.append(f"| {file}: {question} | {found[OURS]:,.0f} ms | {ratios} |")
    return "\n".join(lines)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_194_304)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/parquet-bloom-bench/rows"))
    parser.add_argument("--keys", type=int, default=100)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--only", default=",".join(GROUPS), help="kinds of file: " + ", ".join(GROUPS))
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    clock = time.process_time if options.cpu else time.perf_counter
    results: Results = {}
    for name, path in make(options.folder, options.rows).items():
        if name not in options.only.split(","):
            continue
        path.read_bytes()  # into the page cache, which may have lost it to the other files
        ids = pq.read_table(path, columns=["id"])["id"].to_numpy()
        default = name in ("pyarrow", "indexed")
        keys = options.keys if default else max(1, options.keys // 5)
        asked = questions(ids, keys, options.runs)
        for question, (columns, predicates) in asked.items():
            found = results[name, question] = measured(ways_of(path), columns, predicates, clock)
            figures = ", ".join(f"{way} {ms:,.1f} ms ({ms / found[OURS]:.2f})" for way, ms in found.items())
            print(f"{name}, {question}: {figures}", flush=True)
        one = asked["1 key"][1]
        if default:
            results[name, "first query of a process"] = first = first_queries(path, one[: options.runs])
            figures = ", ".join(f"{way} {ms:,.1f} ms ({ms / first[OURS]:.2f})" for way, ms in first.items())
            print(f"{name}, first query of a process: {figures}", flush=True)
            limit, ours = least(path), results[name, "1 key"][OURS]
            print(f"{name}, the least to decode for one key: {limit:,.1f} ms, {limit / ours:.0%} of {OURS}", flush=True)
            print(f"{name}, one key of an object: {of_a_store(path, one[: options.runs])}", flush=True)
    if options.table:
        print(markdown(results))


if __name__ == "__main__":
    main()
