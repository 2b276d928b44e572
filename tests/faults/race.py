"""Many processes at one file; what came of it as JSON. Run by test_writers, as forks want a process of their own.

race.py writers FOLDER WRITERS ROUNDS   add and remove, each of its own column, with readers beside
race.py stranger FOLDER VERSIONS        a program that knows no lock renames new versions over the file
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import parquet_bloom
from parquet_bloom.errors import ConflictError, StorageError

ROWS, READERS = 2000, 2
DONE, CONFLICT, WRONG = 0, 3, 9


def table(columns: int) -> pa.Table:
    rng = np.random.default_rng(1)
    return pa.table({f"c{i}": rng.choice(2**62, ROWS, replace=False) for i in range(columns)})


def together(works: list[Callable[[], None]]) -> list[int]:
    """Do all at once, each in a fork; their exit statuses."""
    wait, go = os.pipe()
    children = []
    for work in works:
        children.append(os.fork())
        if not children[-1]:
            status = WRONG
            try:
                os.close(go)
                os.read(wait, 1)  # until the parent has started all
                work()
                status = DONE
            except ConflictError:
                status = CONFLICT
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
    os.close(go)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    os.close(wait)
    return statuses


def filters(path: Path) -> set[str]:
    return {f.column for f in parquet_bloom.inspect(path).files[0].filters}


def reading(path: Path, wanted: pa.Table, done: Path) -> None:
    """Read until all is done: there is always a file, and always all of its rows."""
    key = wanted.column("c0")[17].as_py()
    while not done.exists():
        assert pq.read_table(path).equals(wanted)
        try:
            assert parquet_bloom.count(path, f"c0 = {key}") == 1
        except StorageError as error:
            assert "changed" in str(error)  # noqa: PT017


def writers(folder: Path, n: int, rounds: int) -> dict[str, Any]:
    """Half of the columns have filters, which go; the others get some. In any order, that is the same."""
    wanted = table(n)
    plain, start, path, done = folder / "plain", folder / "start", folder / "x.parquet", folder / "done"
    pq.write_table(wanted, plain, row_group_size=ROWS // 2, use_dictionary=False)
    names = wanted.column_names
    had, get = names[1::2], names[::2]
    parquet_bloom.add_filters(plain, start, columns=had)
    parquet_bloom.remove_filters(start, folder / "warm.parquet", columns=had)
    statuses: Counter[int] = Counter()
    lost = []
    for one in range(rounds):
        path.write_bytes(start.read_bytes())
        done.unlink(missing_ok=True)
        works = [lambda c=c: parquet_bloom.add_filters(path, in_place=True, columns=[c]) for c in get]
        works += [lambda c=c: parquet_bloom.remove_filters(path, in_place=True, columns=[c]) for c in had]
        works[-1] = then(works[-1], done)
        found = together([*works, *[lambda: reading(path, wanted, done)] * READERS])
        statuses.update(found)
        told = dict(zip([*get, *had], found[:n], strict=True))
        now = filters(path)
        lost += [f"{one}: {c} was added" for c in get if told[c] == DONE and c not in now]
        lost += [f"{one}: {c} was removed" for c in had if told[c] == DONE and c in now]
        lost += [f"{one}: a filter is wrong"] * bool(parquet_bloom.verify(path).files[0].wrong)
        parquet_bloom.remove_filters(path, in_place=True, sync=False)
        lost += [f"{one}: is not the file it was"] * (path.read_bytes() != plain.read_bytes())
    litter = [name for name in os.listdir(folder) if name.endswith(".parquet-bloom")]
    return {"statuses": statuses, "lost": lost, "litter": litter}


def then(work: Callable[[], Any], done: Path) -> Callable[[], Any]:
    def both() -> None:
        try:
            work()
        finally:
            done.touch()

    return both


def stranger(folder: Path, versions: int) -> dict[str, Any]:
    """One process renames version after version, two add filters all the time. No older version comes back to stay."""
    path, done = folder / "x.parquet", folder / "done"
    data = table(2)

    def make(number: int) -> None:
        pq.write_table(data.replace_schema_metadata({"version": str(number)}), folder / "next")
        os.rename(folder / "next", path)

    def version() -> int:
        return int(pq.read_schema(path).metadata[b"version"])

    def renaming() -> None:
        try:
            for number in range(1, versions + 1):
                make(number)
                stop = time.monotonic() + number % 7 * 0.003
                while time.monotonic() < stop:
                    for _ in range(1000):  # between a swap and the look after it, the older one is there for a moment
                        if version() == number:
                            break
                        time.sleep(0.002)
                    else:
                        raise AssertionError("an older version came back")
        finally:
            done.touch()

    def adding(column: str) -> None:
        tries: Counter[str] = Counter()
        while not done.exists():
            try:
                parquet_bloom.add_filters(path, in_place=True, columns=[column], sync=False)
                tries["done"] += 1
            except ConflictError:
                tries["conflict"] += 1
        (folder / f"{column}.json").write_text(json.dumps(tries))

    make(0)
    parquet_bloom.add_filters(path, folder / "warm.parquet", columns=["c0"])
    statuses = together([renaming, lambda: adding("c0"), lambda: adding("c1")])
    parquet_bloom.add_filters(path, in_place=True, columns=["c0", "c1"])
    litter = [name for name in os.listdir(folder) if name.endswith(".parquet-bloom")]
    tries = [json.loads((folder / f"{c}.json").read_text()) for c in ("c0", "c1")]
    return {"statuses": statuses, "version": version(), "litter": litter, "tries": tries}


if __name__ == "__main__":
    what, where, *numbers = sys.argv[1:]
    print(json.dumps({"writers": writers, "stranger": stranger}[what](Path(where), *map(int, numbers))))
