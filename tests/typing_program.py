"""A program of somebody who has type checkers on: each public function once. test_typing.py only checks it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import assert_type

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds

import parquet_bloom
from parquet_bloom import (
    AddedFile,
    AddedFilter,
    AddOptions,
    AddReport,
    ColumnAdvice,
    ColumnFilters,
    Draft2015,
    EngineAnswer,
    EngineInfo,
    EnginesReport,
    FailedFile,
    FileInfo,
    FilterInfo,
    FilterWriter,
    FooterCache,
    Gain,
    InspectReport,
    Interval,
    Limits,
    Outcomes,
    ParquetBloomError,
    Progress,
    PrunedFiles,
    RemovedFile,
    RemoveOptions,
    RemoveReport,
    ReportPage,
    RequestError,
    RowGroupVerdict,
    Scan,
    SearchOptions,
    SkippedColumn,
    StatusReport,
    TextError,
    Verdicts,
    VerifiedFile,
    VerifiedFilter,
    VerifyReport,
    WriterOptions,
    lance,
    spark,
)


def watch(progress: Progress) -> None:
    print(progress.stage, progress.files_done, progress.files, progress.share)


def advice() -> None:
    found = parquet_bloom.advise("events/", queries="queries.sql", engine="duckdb")
    assert_type(found.columns, list[ColumnAdvice])
    assert_type(found.advised, list[str])
    gain: Gain | None = found.columns[0].absent
    share: Interval | None = gain.row_groups if gain is not None else None
    print(found.flags, found.commands, share)


def engines() -> None:
    report = parquet_bloom.engines(["duckdb"], kinds=["int64"])
    assert_type(report, EnginesReport)
    assert_type(report.engines, list[EngineInfo])
    assert_type(report.answers, list[EngineAnswer])
    page = parquet_bloom.write_report("events/", "report.html", where="id = 5", overwrite=True, progress=print)
    assert_type(page, ReportPage)


def add(path: Path, rates: Mapping[str, float]) -> None:
    report = parquet_bloom.add_filters(
        path, "out.parquet", columns=["id"], exclude=None, form="final", placement="footer", fpp=rates, ndv=1000,
        max_bytes=1 << 20, overwrite=True, replace=False, sync=True, read_back=False, force=False, raw_files=False,
        threads=2, engine="duckdb", filesystem=None, dry_run=False, progress=watch,
    )  # fmt: skip
    assert_type(report, AddReport)
    options: AddOptions = {"spec": "statistics", "replace": True, "commit": "new-path", "allow_roots": [path]}
    parquet_bloom.add_filters("delta:events", **options)
    guava = Draft2015("guava", properties={"parquet.expected.entries": "5"})
    parquet_bloom.add_filters(path, in_place=True, form=guava)
    for file in report.files:
        assert_type(file, AddedFile)
        for one in file.filters:
            assert_type(one, AddedFilter)
            print(one.column, one.fpp, one.offset is None)
        for skipped in file.skipped:
            assert_type(skipped, SkippedColumn)
            print(skipped.reason)
    for failed in report.failed:
        assert_type(failed, FailedFile)
        assert_type(failed.error, ParquetBloomError)
    table: pa.Table = report.to_arrow()
    print(table, report.to_dict()["files"])


def remove(path: Path) -> RemovedFile:
    options: RemoveOptions = {"in_place": True, "last": False}
    parquet_bloom.remove_filters([path, path], **options)
    report = parquet_bloom.remove_filters([path], columns=["id"], in_place=True, read_back=True)
    assert_type(report, RemoveReport)
    return report.files[0]


def look(path: Path) -> None:
    inspected = parquet_bloom.inspect(path, columns=["id"], assert_filters=["id"], progress=watch)
    assert_type(inspected, InspectReport)
    info: FileInfo = inspected.files[0]
    found: FilterInfo = info.filters[0]
    print(found.fpp, found.num_bytes, info.to_dict())
    told = parquet_bloom.status(path, columns=["id"], assert_filters=["id"], progress=watch)
    assert_type(told, StatusReport)
    assert_type(told.columns[0].fpp, float | None)
    verified = parquet_bloom.verify(path, sample=3, statistics=True)
    wrong: list[parquet_bloom.WrongStatistic] = verified.files[0].wrong_statistics
    repaired: parquet_bloom.RepairReport = parquet_bloom.repair([path], in_place=True, undo=not wrong, dry_run=True)
    assert repaired.files[0].wrong == wrong
    assert_type(verified, VerifyReport)
    file: VerifiedFile = verified.files[0]
    verdict: VerifiedFilter = file.filters[0]
    print(verdict.measured_fpp, verdict.status, file.wrong)


def search(path: Path) -> None:
    options: SearchOptions = {"nan": "largest", "use_filters": True, "range_values": 10, "cache": FooterCache()}
    verdicts = parquet_bloom.check(path, "id = 5", filesystem=None, raw_files=True, progress=watch)
    assert_type(verdicts, Verdicts)
    for verdict in verdicts:
        assert_type(verdict, RowGroupVerdict)
        assert_type(verdict.outcome, Outcomes)
        print(verdict.skipped, verdict.decided_by, Outcomes.TRUE in verdict.outcome)
    columns: list[ColumnFilters] = verdicts.columns
    print(columns, verdicts.to_dict())
    pruned = parquet_bloom.prune(path, column="id", values=[1, 2], count_hits=True, **options)
    assert_type(pruned, PrunedFiles)
    print(pruned.hits, pruned.row_groups)
    try:
        print(parquet_bloom.count(path, [("id", "=", 5)], **options))
    except TextError as error:
        print(error.column, error.reason)
    except RequestError as error:
        print(error)


def read(path: Path) -> Iterator[pa.RecordBatch]:
    table: pa.Table = parquet_bloom.read_table(path, predicate="id = 5", columns=["id"], index="index/")
    print(table.num_rows, parquet_bloom.read_table(path, filters=[("id", "=", 5)], nan="ieee").num_rows)
    rows: ds.Dataset = parquet_bloom.dataset(path, "id = 5")
    assert_type(parquet_bloom.scan_polars("events/").filter(pl.col("id") == 5), pl.LazyFrame)
    print(rows.count_rows())
    print(Scan(path, "id = 5", nan="ieee").kept)
    yield from parquet_bloom.read_batches(path, "id = 5", batch_rows=100)


def write(table: pa.Table) -> AddedFile | None:
    with FilterWriter("new.parquet", table.schema, bloom_filters=["id"], threads=1, compression="zstd") as writer:
        writer.write_table(table)
    before: Limits = parquet_bloom.set_limits(max_memory=1 << 30)
    print(before.max_memory, parquet_bloom.__version__)
    options: WriterOptions = {"compression": {"id": "zstd"}, "use_dictionary": ["id"], "write_page_index": True}
    return parquet_bloom.write_table(table, "other.parquet", bloom_filters=["id"], overwrite=True, **options)


def zones(path: Path) -> None:
    built = lance.build_index(path, ["id"], "index/", raw_files=True)
    assert_type(built, lance.BuildReport)
    found = lance.query_index("index/", "id = 5", nan="largest")
    assert_type(found, lance.Matches)
    info: lance.IndexInfo = lance.inspect_index(built.indexes[0].path)
    checked: list[lance.VerifiedIndex] = lance.verify_index("index/")
    lance.register_index("data.lance", built.indexes[0].path)
    print(found.rows, found.zones[0].start, info.zones[0].fpp, checked[0].status)


def keys(path: Path, table: pa.Table) -> None:
    built = parquet_bloom.build_index(path, "id", "index/", false_places=0.01, raw_files=True)
    assert_type(built, parquet_bloom.KeyIndexReport)
    column: parquet_bloom.IndexedColumn = built.columns[0]
    updated: parquet_bloom.UpdateReport = parquet_bloom.update_index("index/", path)
    assert_type(parquet_bloom.rebuild_index("index/", path, false_places=1), parquet_bloom.KeyIndexReport)
    found: pa.Table = parquet_bloom.locate(path, "id", table["id"], "index/", verify=True, nan="largest")
    changed = parquet_bloom.delete_keys("delta:lake", ["id"], {"id": [5]}, index="index/", dry_run=True, threads=2)
    assert_type(changed, parquet_bloom.KeyChanges)
    rewritten: parquet_bloom.RewrittenFile = parquet_bloom.upsert("delta:lake", table, "id", deletes=[7]).rewritten[0]
    print(changed.commit, rewritten.bytes_after)
    print(column.false_places, updated.index.files, found.num_rows, parquet_bloom.check(path, "id = 5", index="index/"))


def jobs(session: object, paths: list[str]) -> None:
    spark.add_filters(session, paths, columns=["id"], in_place=True, task_bytes=1 << 20, fpp=0.01).show()
    spark.inspect_filters(session, paths, columns=["id"]).show()
    spark.verify_filters(session, paths, sample=1).show()
    spark.repair(session, paths, in_place=True, dry_run=True).show()
    spark.check(session, paths, "id = 5", nan="largest").show()
    spark.prune(session, paths, "id = 5").show()
    spark.read(session, paths, "id = 5", columns=["id"]).show()
    print(spark.build_index(session, paths, ["id"], "index/", false_places=1, raw_files=True).columns[0].entries)
    spark.locate(session, paths, "id", [5, 7], index="index/", raw_files=True).show()
    spark.build_zone_index(session, paths, ["id"], "index/").show()
    spark.register(session)
    print(spark.ParquetBloomSource.name())
