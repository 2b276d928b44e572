"""Runs operations in forked processes, each with one fault; started under LD_PRELOAD by `faulty.Forks`.

A request a line on stdin, JSON; an answer a line on stdout. Everything is imported and compiled before the
first fork, so that a case is milliseconds and its system calls are those of the work alone.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from support.samples import flat_table, keys_table

import parquet_bloom
import parquet_bloom.lance
from parquet_bloom import delete_keys
from parquet_bloom.cli import run
from parquet_bloom.errors import ParquetBloomError
from parquet_bloom.kernels.hashes import hash_array
from parquet_bloom.kernels.split_block import insert_hashes

KINDS = (
    "open", "read", "pread", "write", "pwrite", "copy", "sendfile", "fsync", "rename", "link", "unlink", "truncate",
    "flock", "chmod", "chown", "mkdir", "look",
)  # fmt: skip
ACTIONS = {"fail": 1, "kill": 2, "short": 3, "kill after": 4}
LIMIT_S = 20
SPILLING = "32KiB"  # a build of keys sorts 1,024 entries at a time, fewer than a file has


def _table() -> pa.Table:
    return keys_table()


def _write(folder: str, overwrite: bool) -> int:
    return _library(
        lambda: parquet_bloom.write_table(
            _table(), f"{folder}/out.parquet", bloom_filters=["id"], overwrite=overwrite, row_group_size=400
        )
    )


def _writer(folder: str, filters: bool) -> int:
    def work() -> None:
        table = _table()
        with parquet_bloom.FilterWriter(
            f"{folder}/out.parquet", table.schema, bloom_filters=["id", "name"] if filters else False, overwrite=True
        ) as writer:
            for batch in table.to_batches(max_chunksize=500):
                writer.write_batch(batch)

    return _library(work)


def _library(work: Any) -> int:
    """A library call as the commands end: one line, status 2."""
    try:
        work()
    except ParquetBloomError as error:
        print(f"parquet-bloom: {error}", file=sys.stderr)
        return 2
    return 0


def _add(folder: str, *more: str) -> int:
    return run(["add", f"{folder}/in.parquet", "-c", "id", "-c", "name", *more])


def _delete(folder: str, **where: Any) -> int:
    keys = [one.as_py() for one in flat_table()["id"].take([5, 7, 900])]
    return _library(lambda: delete_keys(f"{folder}/in.parquet", "id", keys, **where))


def _index(folder: str, *more: str) -> int:
    return run(["index", "build", f"{folder}/data", "-c", "id", "-o", f"{folder}/index", "--overwrite", *more])


OPERATIONS = {
    "add -o": lambda f, again: _add(f, "-o", f"{f}/out.parquet", *(["--overwrite"] if again else [])),
    "add -o over one": lambda f, _: _add(f, "-o", f"{f}/out.parquet", "--overwrite"),
    "add -o new folder": lambda f, _: _add(f, "-o", f"{f}/a/b/out.parquet", "--overwrite"),
    "add --in-place": lambda f, _: _add(f, "--in-place"),
    "add --in-place --read-back": lambda f, _: _add(f, "--in-place", "--read-back"),
    "add --in-place, chunk starts": lambda f, _: _add(f, "--in-place", "--placement", "chunk-start"),
    "add --in-place, tail": lambda f, _: _add(f, "--in-place", "--placement", "tail"),
    "add --append": lambda f, _: _add(f, "--in-place", "--placement", "tail", "--append"),
    "remove --append": lambda f, _: run(["remove", f"{f}/in.parquet", "--in-place", "--append"]),
    "remove --in-place": lambda f, _: run(["remove", f"{f}/in.parquet", "--in-place"]),
    "remove -o": lambda f, _: run(["remove", f"{f}/in.parquet", "-o", f"{f}/out.parquet", "--overwrite"]),
    "delete --in-place": lambda f, _: _delete(f, in_place=True),
    "delete -o": lambda f, _: _delete(f, output=f"{f}/out.parquet", overwrite=True),
    "write_table": lambda f, again: _write(f, again),
    "write_table over one": lambda f, _: _write(f, True),
    "FilterWriter": lambda f, _: _writer(f, True),
    "FilterWriter, no filters": lambda f, _: _writer(f, False),
    "read -o": lambda f, _: run(["read", f"{f}/in.parquet", "-o", f"{f}/out.csv", "--overwrite"]),
    "index build --kind lance": lambda f, _: _index(f, "--kind", "lance", "--items", "256"),
    "index build": lambda f, _: _index(f, "--max-memory", SPILLING),
    "index build over one": lambda f, _: _index(f, "--max-memory", SPILLING),
    "index update": lambda f, _: run(["index", "update", f"{f}/index", f"{f}/data"]),
}  # fmt: skip


def _warm(folder: str) -> None:
    """Import and compile what the operations use. Lance's own threads must not begin before a fork."""
    for name, operation in OPERATIONS.items():
        if name != "index build --kind lance":
            table = flat_table() if name.startswith("delete") else _table()
            pq.write_table(table, f"{folder}/in.parquet", row_group_size=400)
            if name.startswith("remove"):
                _add(folder, "--in-place", *(["--placement", "tail"] if "append" in name else []))
            Path(f"{folder}/out.parquet").unlink(missing_ok=True)
            Path(f"{folder}/data").mkdir(exist_ok=True)
            for number in range(2):
                shutil.copy(f"{folder}/in.parquet", f"{folder}/data/{number}.parquet")
            assert operation(folder, False) == 0, name
    hashes = hash_array(pa.array([1, 2]), "xxh64", 0, np.empty(2, np.uint64))
    insert_hashes(np.zeros((1, 8), np.uint32), hashes)


def _case(libc: Any, ask: dict[str, Any]) -> dict[str, Any]:
    begun = time.monotonic()
    said = f"{ask['folder']}.said"
    child = os.fork()
    if not child:
        status = 99
        try:
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            os.dup2(0, 1)
            os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            kind = KINDS.index(ask["kind"]) if ask.get("kind") else -1
            action = ACTIONS[ask["action"]] if ask.get("action") else 0
            code = ask.get("errno", 0)
            libc.fault_older(ask.get("older", 0))
            libc.fault_begin(ask["folder"].encode(), kind, ask.get("nth", 0), action, code, ask.get("on", 0))
            status = OPERATIONS[ask["name"]](ask["folder"], ask["again"])
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    while True:
        pid, code = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        if time.monotonic() - begun > LIMIT_S:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return {"status": "hangs", "hits": 0, "counts": {}, "said": ""}
        time.sleep(0.0005)
    return {
        "status": os.waitstatus_to_exitcode(code),
        "hits": libc.fault_hits(),
        "counts": {kind: libc.fault_count(i) for i, kind in enumerate(KINDS)},
        "said": Path(said).read_text(errors="replace"),
    }


def main(folder: str) -> None:
    libc = ctypes.CDLL(None)
    libc.fault_begin.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_long, ctypes.c_int, ctypes.c_int, ctypes.c_int]
    libc.fault_count.restype = libc.fault_hits.restype = ctypes.c_long
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _warm(folder)
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(_case(libc, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
