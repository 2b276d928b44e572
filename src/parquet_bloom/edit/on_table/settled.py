"""Files of a table that need no filter more: most of them, where `add` runs again and again.

    by the log      an `add` of ours says that each file of it is complete; the file is as it was then   not opened
    by its footer   of files in a store, many side by side                                               opened
    otherwise       each file is opened when its turn comes, as always

Where no columns are named, which ones a filter helps is found in the data, file by file: then only the log can say that
an `add` which was asked for the same brought a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from parquet_bloom.edit.on_table.files import check_size
from parquet_bloom.edit.on_table.names import TableNames
from parquet_bloom.edit.plan import HAS_FILTER, Request, SkippedColumn, plan
from parquet_bloom.edit.reports import AddedFile
from parquet_bloom.errors import ParquetBloomError
from parquet_bloom.formats.metadata.schema import select_leaves
from parquet_bloom.storage.remote import AHEAD, in_order
from parquet_bloom.storage.source import Source
from parquet_bloom.tables.snapshot import Snapshot, Table, TableFile


class Settled:
    """What one call knows of files that it need not work on."""

    def __init__(self, table: Table, request: Request) -> None:
        self._table, self._request = table, request
        self._by_log: dict[tuple[str, int], AddedFile] | None = None  # by path and size
        self._looked: dict[tuple[str, int], AddedFile | None] = {}

    @property
    def unopened(self) -> int:
        """How many files were not opened."""
        return len(self._by_log or ())

    def of(self, snapshot: Snapshot, names: TableNames) -> Mapping[str, AddedFile]:
        """The path of each such file of a snapshot, whose columns' names these are -> its report: nothing is added."""
        if self._request.replace or not snapshot.files:
            return {}
        if self._by_log is None:  # once: a file that keeps its path and its size stays as it is
            self._by_log = self._told(snapshot, names)
        by_log = self._by_log
        if self._request.columns is not None:
            stored = [file for file in snapshot.files if not file.is_local and (file.path, file.size) not in by_log]
            self._look_at(names, stored)
        keys = {file.path: (file.path, file.size) for file in snapshot.files}
        known = {path: by_log.get(key) or self._looked.get(key) for path, key in keys.items()}
        return {path: report for path, report in known.items() if report is not None}

    def _told(self, snapshot: Snapshot, names: TableNames) -> dict[tuple[str, int], AddedFile]:
        try:
            history = self._table.history(snapshot)
        except ParquetBloomError:  # of what is older than the snapshot: then the files tell
            return {}
        promised = history.promised()
        files = [file for file in snapshot.files if file.size and file.path in promised]
        skipped: list[SkippedColumn] = []
        if choice := self._request.choice:
            whole = [file for file in files if promised[file.path].choice == choice]
        else:
            wanted = [leaf.name for leaf in select_leaves(names.leaves, self._request.columns, self._request.exclude)]
            skipped = [SkippedColumn(name, None, HAS_FILTER) for name in wanted]
            whole = [file for file in files if promised[file.path].complete.issuperset(wanted)]
        return {(file.path, file.size): self._nothing(file, file.size, skipped) for file in whole}

    def _look_at(self, names: TableNames, files: Sequence[TableFile]) -> None:
        """Read the footers of files in a store, side by side; what cannot be read is left for its turn.

        Where none of the first has all it needs, as in a table that is new to us, the others are left for theirs.
        """
        unseen = {(file.path, file.size): file for file in files if (file.path, file.size) not in self._looked}
        looks = in_order(lambda file: self._look(names, file), unseen.values())
        for n, (key, look) in enumerate(zip(unseen, looks, strict=True), 1):
            try:
                self._looked[key] = look()
            except ParquetBloomError:
                self._looked[key] = None
            if n == AHEAD and not any(self._looked[key] for key in unseen if key in self._looked):
                self._looked |= dict.fromkeys(unseen.keys() - self._looked.keys())
                return

    def _look(self, names: TableNames, file: TableFile) -> AddedFile | None:
        with Source(file) as source:
            if check_size(file, source):
                return None  # a tail lies behind what the log has
            here = names.of(file, source.footer())
            request, skipped = names.request_for(self._request, file, here)
            found = plan(source.footer(), request)
            if found.sizings:
                return None
            skipped += [replace(one, column=here.shown.get(one.column, one.column)) for one in found.skipped]
            report = self._nothing(file, source.size, skipped, source.footer().n_row_groups)
            report.bytes_travelled = source.bytes_read
            return report

    def _nothing(self, file: TableFile, size: int, skipped: Sequence[SkippedColumn], row_groups: int = 0) -> AddedFile:
        report = AddedFile(source=str(file), output=str(file), row_groups=row_groups, columns=[], bytes_before=size)
        report.bytes_after = 0 if self._request.dry_run else size
        report.skipped, report.dry_run, report.remote = list(skipped), self._request.dry_run, not file.is_local
        return report
