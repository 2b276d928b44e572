"""Many small objects of an S3 API that takes its time: requests, most in flight, rounds, kB of answers, seconds.

    python benchmarks/store.py                  200 objects, 30 ms a request
    python benchmarks/store.py 1000 0.03        1,000 of them
    python benchmarks/store.py --large 200 0.03 200 objects of 10 to 50 MB, with filters of 8 and 32 KiB
    python benchmarks/store.py --pyarrow ...    read by pyarrow, as without the extra `stores`
    python benchmarks/store.py --serve ...      the server alone, which this program starts for itself

The server sleeps before each answer and counts. It compares If-Match and If-None-Match, and knows no
multipart uploads: objects are small. It checks no signature. Rounds are the most requests of which each began when the
one before it had ended: what no requests side by side make shorter. Numbers of requests are exact; seconds are of one
run. The first run in an installation also compiles loops, a second or so each: the next one shows what users wait for.

Large objects are six bodies under many names, 180 MB, so that memory is enough for the server: each name is an object
of its own to every request, but has the bytes and the ETag of its body. So an id is in one object of six, or in none.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.utils import formatdate
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote
from xml.sax.saxutils import escape

BUCKET, ROWS, GROUPS = "bucket", 2000, 10

# --- the store ------------------------------------------------------------------------------------

Answer = tuple[int, dict[str, str], bytes]


class Store:
    """Objects of one bucket in memory, and what was asked of them."""

    def __init__(self, folder: Path) -> None:
        bodies: dict[int, bytes] = {}  # names of one inode share theirs
        self.objects: dict[str, bytes] = {}
        for path in (p for p in folder.rglob("*") if p.is_file()):
            inode = path.stat().st_ino
            if inode not in bodies:
                bodies[inode] = path.read_bytes()
            self.objects[str(path.relative_to(folder))] = bodies[inode]
        self.seconds = 0.0
        self.reset()

    def reset(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.now = self.most = self.bytes = 0
        self.spans: list[tuple[float, float]] = []  # end and beginning of each request

    @property
    def counts(self) -> dict[str, Any]:
        """What was asked since the last time."""
        return {"kinds": self.kinds, "most": self.most, "rounds": self.rounds, "bytes": self.bytes}

    @property
    def rounds(self) -> int:
        """The most requests of which none began before another one ended."""
        found, last = 0, 0.0
        for end, begin in sorted(self.spans):
            if begin >= last:
                found, last = found + 1, end
        return found

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        path, _, query = target.partition("?")
        asked = parse_qs(query, keep_blank_values=True)
        _, _, key = unquote(path).lstrip("/").partition("/")
        kind = "LIST" if method == "GET" and not key else "TAGS" if "tagging" in asked else method
        self.kinds[kind] += 1
        if kind == "LIST":
            return self._list(asked)
        if kind == "PUT":
            return self._put(key, headers, body)
        if key not in self.objects:
            return _error(404, "NoSuchKey", method)
        if kind == "TAGS":
            return 200, {}, b"<Tagging><TagSet></TagSet></Tagging>"
        if method not in ("HEAD", "GET"):
            return _error(405, "MethodNotAllowed", method)
        return self._read(method, key, headers)

    def _read(self, method: str, key: str, headers: dict[str, str]) -> Answer:
        data = self.objects[key]
        told = {"ETag": _etag(data), "Last-Modified": formatdate(1e9, usegmt=True), "Content-Length": str(len(data))}
        if method == "HEAD":
            return 200, told, b""
        if headers.get("if-match", told["ETag"]) != told["ETag"]:
            return _error(412, "PreconditionFailed", method)
        first, _, last = headers.get("range", "bytes=0-").removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, len(data) - int(last))
        stop = min(int(last) + 1, len(data)) if first and last else len(data)
        part = data[start:stop]
        told |= {"Content-Length": str(len(part)), "Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}
        return 206 if "range" in headers else 200, told, part

    def _put(self, key: str, headers: dict[str, str], body: bytes) -> Answer:
        there = self.objects.get(key)
        wanted = headers.get("if-match")
        if (wanted and (there is None or wanted != _etag(there))) or ("if-none-match" in headers and there is not None):
            return _error(412, "PreconditionFailed", "PUT")
        self.objects[key] = body
        return 200, {"ETag": _etag(body)}, b""

    def _list(self, asked: dict[str, list[str]]) -> Answer:
        names, prefix = sorted(self.objects), asked.get("prefix", [""])[0]
        most = min(1000, int(asked.get("max-keys", ["1000"])[0]))
        after = asked.get("continuation-token", asked.get("start-after", [""]))[0]
        start = max(bisect_left(names, prefix), bisect_right(names, after) if after else 0)
        found = [name for name in names[start:] if name.startswith(prefix)]
        if asked.get("delimiter"):
            deeper = sorted(
                {prefix + name.removeprefix(prefix).split("/")[0] for name in found if "/" in name[len(prefix) :]}
            )
            found = [name for name in found if "/" not in name[len(prefix) :]]
            folders = "".join(f"<CommonPrefixes><Prefix>{escape(d)}/</Prefix></CommonPrefixes>" for d in deeper)
        else:
            folders = ""
        page, more = found[:most], len(found) > most
        items = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>2001-09-09T01:46:40.000Z</LastModified>"
            f"<ETag>{escape(_etag(self.objects[name]))}</ETag><Size>{len(self.objects[name])}</Size></Contents>"
            for name in page
        )
        rest = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        text = (
            f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>{BUCKET}</Name>'
            f"<KeyCount>{len(page)}</KeyCount><IsTruncated>{str(more).lower()}</IsTruncated>{rest}{items}{folders}"
            "</ListBucketResult>"
        )
        return 200, {"Content-Type": "application/xml"}, text.encode()


@lru_cache(100_000)
def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _error(status: int, code: str, method: str) -> Answer:
    text = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
    return status, {"Content-Type": "application/xml"}, b"" if method == "HEAD" else text


async def connection(store: Store, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one client, one after the other."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            line, *rest = head.decode("latin1").split("\r\n")
            method, target, _ = line.split(" ", 2)
            headers = {k.lower(): v.strip() for k, _, v in (one.partition(":") for one in rest if one)}
            if "100-continue" in headers.get("expect", ""):
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            if target.startswith("/__counts"):
                status, told, data = 200, {}, json.dumps(store.counts).encode()
                store.reset()
                store.seconds = float(target.partition("=")[2])
            else:
                store.now += 1
                store.most = max(store.most, store.now)
                begin = time.perf_counter()
                await asyncio.sleep(store.seconds)
                store.now -= 1
                status, told, data = store.answer(method, target, headers, body)
                store.bytes += len(data)
                store.spans.append((time.perf_counter(), begin))
            told.setdefault("Content-Length", str(len(data)))
            lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
            writer.write(f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode() + data)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def serve(folder: Path) -> None:
    store = Store(folder)
    server = await asyncio.start_server(lambda r, w: connection(store, r, w), "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def serving(folder: Path, seconds: float) -> Iterator[tuple[int, Callable[[], Any]]]:
    """A server of the files of a folder, in a process of its own: its port, and what was asked since the last time."""
    server = subprocess.Popen([sys.executable, __file__, "--serve", str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())

        def counts() -> Any:
            return json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/__counts?seconds={seconds}"))

        counts()
        yield port, counts
    finally:
        server.terminate()
        server.wait()


# --- the calls ------------------------------------------------------------------------------------


def write_files(folder: Path, n: int) -> list[int]:
    """n files with filters in data/, 20 without in plain/; returns ids of some of the first."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    import parquet_bloom

    rng = np.random.default_rng(1)
    some: list[int] = []
    for number in range(n + 20):
        name = f"data/{number:05}.parquet" if number < n else f"plain/{number:05}.parquet"
        (folder / name).parent.mkdir(exist_ok=True)
        ids = rng.integers(0, 2**62, ROWS)
        table = pa.table({"id": ids, "v": rng.random(ROWS)})
        pq.write_table(table, folder / name, row_group_size=ROWS // GROUPS, use_dictionary=False, compression="none")
        if number < n:
            parquet_bloom.add_filters(folder / name, in_place=True, columns=["id"], sync=False)
            some += ids[:2].tolist() if number % (n // 5) == 0 else []
    return [*some, *rng.integers(0, 2**62, 100 - len(some)).tolist()]


LARGE_MB, FILTER_KIB = (10, 30, 50), (8, 32)
_PAYLOAD = 92  # random bytes in a row, beside an id


def write_large_files(folder: Path, n: int) -> list[int]:
    """n names of objects in data/, of one body for each size and each filter; returns ids, some of the first body."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    import parquet_bloom

    rng = np.random.default_rng(1)
    some: list[int] = []
    bodies = []
    (folder / "data").mkdir()
    for megabytes in LARGE_MB:
        for kib in FILTER_KIB:
            path = folder / f"data/{len(bodies):05}.parquet"
            rows, group = megabytes * 10_000, 700 * kib  # so many need just these filters, at one false positive in 100
            ids = rng.integers(0, 2**62, rows)
            payload = pa.Array.from_buffers(pa.binary(_PAYLOAD), rows, [None, pa.py_buffer(rng.bytes(_PAYLOAD * rows))])
            table = pa.table({"id": ids, "payload": payload})
            pq.write_table(table, path, row_group_size=group, use_dictionary=False, compression="none")
            parquet_bloom.add_filters(path, in_place=True, columns=["id"], sync=False)
            found = Counter(one.num_bytes for one in parquet_bloom.inspect(path).files[0].filters)
            assert found.most_common(1)[0][0] == kib << 10, found
            print(f"{path.stat().st_size / 1e6:5.1f} MB, {sum(found.values())} filters of {kib} KiB", flush=True)
            some = some or ids[:10].tolist()
            bodies.append(path)
    for number in range(len(bodies), n):
        (folder / f"data/{number:05}.parquet").hardlink_to(bodies[number % len(bodies)])
    return [*some, *rng.integers(0, 2**62, 90).tolist()]


def calls_of_large(port: int, ids: list[int]) -> dict[str, Callable[[], Any]]:
    import parquet_bloom as pb

    many = at(port, "data")
    return {
        "check": lambda: pb.check(many, f"id = {ids[0]}"),
        "check, of no file": lambda: pb.check(many, f"id = {ids[-1]}"),
        "prune": lambda: pb.prune(many, f"id = {ids[0]}"),
        "prune(values=), 100 keys": lambda: pb.prune(many, column="id", values=ids),
    }


def at(port: int, name: str) -> str:
    """The URI of an object or a folder."""
    return f"s3://k:s@{BUCKET}/{name}?scheme=http&region=us-east-1&endpoint_override=127.0.0.1:{port}"


def calls(port: int, ids: list[int]) -> dict[str, Callable[[], Any]]:
    import parquet_bloom as pb

    many, one, plain = at(port, "data"), at(port, "data/00000.parquet"), at(port, "plain")
    listed = f"id IN ({', '.join(map(str, ids))})"
    index, one_id = at(port, "index"), f"id = {ids[0]}"

    def cold(call: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            from parquet_bloom.keys import index

            index._opened.clear()  # as in a process that has not asked it yet
            return call()

        return run

    return {
        "check": lambda: pb.check(many, f"id = {ids[0]}"),
        "build_index": lambda: pb.build_index(many, "id", index),
        "check, index, cold": cold(lambda: pb.check(many, one_id, index=index)),
        "check, index, warm": lambda: pb.check(many, one_id, index=index),
        "the same, another key": lambda: pb.check(many, f"id = {ids[5]}", index=index),
        "the same, no listing, cold": cold(lambda: pb.check(many, one_id, index=index, listing=False)),
        "the same, no listing, warm": lambda: pb.check(many, one_id, index=index, listing=False),
        "locate 100 keys, no listing": lambda: pb.locate(many, "id", ids, index, listing=False),
        "prune": lambda: pb.prune(many, f"id = {ids[0]}"),
        "prune(values=), 100 keys": lambda: pb.prune(many, column="id", values=ids),
        "count, IN of 100": lambda: pb.count(many, listed),
        "read_table, IN of 100": lambda: pb.read_table(many, listed),
        "count, half of all rows": lambda: pb.count(many, "v > 0.5"),
        "read_table of one object": lambda: pb.read_table(one, f"id = {ids[0]}"),
        "inspect": lambda: pb.inspect(many),
        "verify": lambda: pb.verify(many),
        "add, dry run, 20 objects": lambda: pb.add_filters(plain, columns=["id"], in_place=True, dry_run=True),
        "add in place, 20 objects": lambda: pb.add_filters(plain, columns=["id"], in_place=True),
        "remove, 20 objects": lambda: pb.remove_filters(plain, in_place=True),
    }


def peers(port: int, ids: list[int]) -> dict[str, Callable[[], Any]]:
    """The same question to other programs; those that are not installed, or lack their S3 part, are left out."""
    found: dict[str, Callable[[], Any]] = {}
    with suppress(Exception):
        import polars as pl

        options = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "aws_region": "us-east-1",
                   "aws_endpoint_url": f"http://127.0.0.1:{port}", "aws_allow_http": "true"}  # fmt: skip
        scan = pl.scan_parquet(f"s3://{BUCKET}/data/*.parquet", storage_options=options)
        found["Polars, rows of one id"] = lambda: scan.filter(pl.col("id") == ids[0]).collect()
    with suppress(Exception):
        import duckdb

        connection = duckdb.connect()
        connection.execute("INSTALL httpfs; LOAD httpfs")
        connection.execute(
            "CREATE SECRET (TYPE s3, KEY_ID 'k', SECRET 's', REGION 'us-east-1', URL_STYLE 'path', USE_SSL false, "
            f"ENDPOINT '127.0.0.1:{port}')"
        )
        read = f"SELECT * FROM read_parquet('s3://{BUCKET}/data/*.parquet') WHERE id = {ids[0]}"
        found["DuckDB, rows of one id"] = lambda: connection.execute(read).fetchall()
    return found


def main() -> None:
    if "--pyarrow" in sys.argv:
        from parquet_bloom.storage import object_reader

        sys.argv.remove("--pyarrow")
        object_reader._process.own.forked = True  # as in a child of a process that has obstore
    is_large = "--large" in sys.argv
    if is_large:
        sys.argv.remove("--large")
    numbers = [float(word) for word in sys.argv[1:]]
    n, seconds = int(numbers[0]) if numbers else 200, numbers[1] if len(numbers) > 1 else 0.03
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        ids = (write_large_files if is_large else write_files)(folder, n)
        with serving(folder, seconds) as (port, counts):
            sizes = [path.stat().st_size // 1000 for path in (folder / "data").iterdir()]
            print(f"{n} objects of {sum(sizes) // len(sizes)} kB, {1000 * seconds:g} ms a request")
            print(f"{'':26}{'requests':>9}{'most':>6}{'rounds':>8}{'kB':>8}{'seconds':>9}{'of work':>9}")
            asked = calls_of_large(port, ids) if is_large else {**calls(port, ids), **peers(port, ids)}
            for name, call in asked.items():
                clock, work = time.perf_counter(), time.process_time()
                call()
                clock, work = time.perf_counter() - clock, time.process_time() - work
                told = counts()
                kinds = " ".join(f"{kind} {count}" for kind, count in sorted(told["kinds"].items()))
                total = sum(told["kinds"].values())
                counted = f"{name:26}{total:9,}{told['most']:6}{told['rounds']:8,}{told['bytes'] // 1000:8,}"
                print(f"{counted}{clock:9.2f}{work:9.2f}  {kinds}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        asyncio.run(serve(Path(sys.argv[2])))
    else:
        main()
