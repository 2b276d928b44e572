"""delete_keys and upsert against deltalake and pyiceberg: python benchmarks/upserts.py [FILES ROWS [KEYS...]]

Tables of FILES files with ROWS rows each, and random INT64 keys, whose bounds exclude no file. KEYS are the sizes of
changes. Keys are chosen in two ways: `few` lie in one file of twenty, as those of rows that came lately do; `all` are
scattered over all files. An upsert has a tenth of new keys. Each change begins with the same table; ours and theirs
must leave the same rows. Prints seconds, the median of some turns, ratios, and how many files were rewritten.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import In

import parquet_bloom

TURNS = 3
LONG = 10  # seconds: of what takes more there is one turn
Change = Callable[[], int]  # returns how many files were rewritten


def rows_of(ids: np.ndarray, rng: np.random.Generator) -> pa.Table:
    """Rows with some more columns."""
    n = len(ids)
    texts = pa.array([f"agent {i}" for i in range(1000)]).take(pa.array(rng.integers(0, 1000, n)))
    return pa.table({"id": ids, "at": rng.integers(0, 1 << 40, n), "amount": rng.random(n), "agent": texts})


def fingerprint(table: pa.Table) -> tuple[int, int, float]:
    """Of rows in whatever order."""
    mixed = pc.bit_wise_xor(table["id"], table["at"])
    return (
        table.num_rows,
        pc.sum(pc.bit_wise_and(mixed, (1 << 40) - 1)).as_py(),
        round(pc.sum(table["amount"]).as_py(), 3),
    )


def ours(source: str, deletes: Any, upserts: Any, index: Path, **options: Any) -> Change:
    """A change by this package, with an index that knows the table as it is; the change updates the index."""
    kept = index.with_name("kept-index")
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(index, kept)

    def work() -> int:
        if upserts is None:
            report = parquet_bloom.delete_keys(source, "id", deletes, index=kept, **options)
        else:
            report = parquet_bloom.upsert(source, upserts, "id", index=kept, **options)
        assert not report.notes, report.notes
        return len(report.rewritten)

    return work


class Bench:
    """Both tables, and an index of each."""

    def __init__(self, base: Path, files: int, rows: int) -> None:
        self.base, self.rng = base, np.random.default_rng(1)
        self.original, self.copy = base / "original", base / "delta"
        uri = {"type": "sql", "uri": f"sqlite:///{base}/catalog.db", "warehouse": f"file://{base}/warehouse"}
        self.catalog = SqlCatalog("cat", **uri)
        self.catalog.create_namespace("ns")
        self.ids = [self.rng.integers(0, 1 << 62, rows) for _ in range(files)]
        table = None
        for ids in self.ids:
            part = rows_of(ids, self.rng)
            write_deltalake(self.original, part, mode="append")
            table = table or self.catalog.create_table("ns.t", part.schema)
            table.append(part)
        assert table is not None
        self.first = table.metadata.current_snapshot_id
        self.delta()  # an index knows the folder of its table
        begun = time.perf_counter()
        parquet_bloom.build_index(f"delta:{self.copy}", "id", base / "delta-index")
        print(f"{files} files, {files * rows:,} rows; index built in {time.perf_counter() - begun:.1f} s")
        options = {"catalog_properties": dict(self.catalog.properties)}
        parquet_bloom.build_index("iceberg:cat/ns.t", "id", base / "iceberg-index", **options)

    def keys(self, n: int, some: bool) -> np.ndarray:
        """Keys of rows: of one file of twenty, or of all."""
        among = np.concatenate(self.ids[-max(1, len(self.ids) // 20) :] if some else self.ids)
        return self.rng.choice(among, n, replace=False)

    def delta(self) -> None:
        """The table as it was at first; data files are shared by hard links."""
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.original, self.copy, copy_function=lambda one, to: Path(to).hardlink_to(one))

    def iceberg(self) -> None:
        """The same of the other table: its first snapshot is the current one again."""
        self.catalog.load_table("ns.t").manage_snapshots().set_current_snapshot(self.first).commit()

    def ours_delta(self, deletes: Any, upserts: Any) -> Change:
        self.delta()

        return ours(f"delta:{self.copy}", deletes, upserts, self.base / "delta-index")

    def their_delta(self, deletes: Any, upserts: Any) -> Change:
        self.delta()

        def delete() -> int:
            done = DeltaTable(self.copy).delete(f"id IN ({', '.join(map(str, deletes.tolist()))})")
            return int(done["num_removed_files"])

        def merge() -> int:
            merger = DeltaTable(self.copy).merge(upserts, "s.id = t.id", "s", "t")
            done = merger.when_matched_update_all().when_not_matched_insert_all().execute()
            return int(done["num_target_files_removed"])

        return delete if upserts is None else merge

    def ours_iceberg(self, deletes: Any, upserts: Any) -> Change:
        self.iceberg()

        options = {"catalog_properties": dict(self.catalog.properties)}
        return ours("iceberg:cat/ns.t", deletes, upserts, self.base / "iceberg-index", **options)

    def their_iceberg(self, deletes: Any, upserts: Any) -> Change:
        self.iceberg()

        def work() -> int:
            table = self.catalog.load_table("ns.t")
            before = {one.snapshot_id for one in table.snapshots()}
            if upserts is None:
                table.delete(In("id", deletes.tolist()))
            else:
                table.upsert(upserts, ["id"])
            summaries = [one.summary for one in table.snapshots() if one.snapshot_id not in before]
            return sum(int(one["deleted-data-files"] or 0) for one in summaries if one)

        return work

    def compare(self, kind: str, name: str, deletes: Any, upserts: Any) -> None:
        """Time one change, ours and theirs."""
        read: dict[str, Callable[[], pa.Table]] = {
            "delta": lambda: DeltaTable(self.copy).to_pyarrow_table(),
            "iceberg": lambda: self.catalog.load_table("ns.t").scan().to_arrow(),
        }
        took: dict[str, list[tuple[float, float]]] = {"ours": [], "their": []}
        files, left = {}, {}
        for turn in range(TURNS):
            for whose, times in took.items():
                work = getattr(self, f"{whose}_{kind}")(deletes, upserts)
                begun, processor = time.perf_counter(), time.process_time()
                files[whose] = work()
                times.append((time.perf_counter() - begun, time.process_time() - processor))
                if turn == 0:
                    left[whose] = fingerprint(read[kind]())
            if took["their"][-1][0] > LONG:
                break
        assert left["ours"] == left["their"], f"{kind} {name}: {left}"
        mine, our_work = np.median(took["ours"], axis=0)
        theirs, their_work = np.median(took["their"], axis=0)
        figures = f"{mine:.2f} | {theirs:.2f} | {theirs / mine:.1f} | {their_work / our_work:.1f}"
        print(f"| {kind} | {name} | {figures} | {files['ours']} | {files['their']} |", flush=True)


def main() -> None:
    """Make the tables and change them."""
    files, rows, *sizes = [int(one) for one in sys.argv[1:]] or [100, 60_000]
    with tempfile.TemporaryDirectory(prefix="parquet-bloom-upserts-") as folder:
        bench = Bench(Path(folder), files, rows)
        titles = ["table", "change", "seconds, ours", "its own", "its own / ours", "the same of processor time"]
        titles += ["files rewritten, ours", "its own"]
        print(f"| {' | '.join(titles)} |\n|{' --- |' * len(titles)}")
        for n in sizes or (10, 1000, 10_000):
            for some in (True, False):
                keys = bench.keys(n, some)
                where = "few" if some else "all"
                new = np.concatenate([keys[n // 10 :], bench.rng.integers(0, 1 << 62, n // 10)])
                upserts = rows_of(new, bench.rng)
                for kind in ("delta", "iceberg"):
                    bench.compare(kind, f"delete {n:,}, {where}", keys, None)
                    bench.compare(kind, f"upsert {n:,}, {where}", None, upserts)


if __name__ == "__main__":
    main()
