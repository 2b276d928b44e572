"""`write_report`: a page about files and their filters, as a new file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from parquet_bloom.report.page.gather import Content, Request, gather
from parquet_bloom.report.page.page import page_of
from parquet_bloom.report.written import ReportPage
from parquet_bloom.storage.progress import ProgressCallback
from parquet_bloom.storage.source import PathLike
from parquet_bloom.storage.writing.new_file import new_output, new_target
from parquet_bloom.tables.roots import TableAccess


def write_report(
    source: PathLike | Sequence[PathLike],
    output: PathLike,
    *,
    where: Any = None,
    count_rows: bool = False,
    overwrite: bool = False,
    filesystem: Any = None,
    raw_files: bool = False,
    catalog_properties: Mapping[str, str] | None = None,
    allow_roots: PathLike | Sequence[PathLike] = (),
    progress: ProgressCallback | None = None,
) -> ReportPage:
    """Write one HTML page about a data set and its filters: what to do, what it gains and costs, and pictures.

    source      a file, a folder, a glob, a URI, or a list of them; or one table, as `advise` takes it
    output      a local file; it takes its place when all of it is written
    where       a predicate as `check` takes it: the page shows what partitions, bounds and filters leave of it
    count_rows  read the row groups that are left, and count the rows for which it is TRUE
    overwrite   replace an output that exists
    filesystem  any pyarrow or fsspec file system; source then names files on it
    raw_files   also files of an Iceberg, Delta or Hudi table, whatever its log says of them
    catalog_properties  of Iceberg's or DuckLake's catalog, beside those of its own configuration
    progress    is called with a Progress for each part of the work

    The page needs no network and loads nothing, and stays below 2 MB whatever the files hold. It shows the filters of
    the largest file, all of which are read; the rest is from footers and samples, as `advise` and `check` take them.
    The data behind its pictures is in it as JSON, in the script element `data`.

    Raises StorageError if output exists and overwrite is not given, RequestError if it is one of the files; else as
    `advise` and `check` do.
    """
    path = new_target(output, overwrite)
    access = TableAccess.of(catalog_properties, allow_roots)
    asked = Request(source, where, filesystem, raw_files, count_rows, progress, access)
    content = gather(asked, path)
    text = page_of(content).encode("utf-8")
    with new_output(path, overwrite) as out:
        out.write(text)
    return _told(path, len(text), content)


def _told(path: str, size: int, content: Content) -> ReportPage:
    advice, verdicts = content.advice, content.verdicts
    page = ReportPage(path, size, advice.files, content.file.path, advice.advised)
    failed = list(advice.failed)
    if verdicts is not None:
        page.row_groups, page.skipped = len(verdicts), verdicts.skipped
        failed += verdicts.failed
    page.failed = list({one.path: one for one in failed}.values())
    return page
