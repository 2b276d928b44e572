"""Sources: names become files, of one table through its log, or of a listing.

delta:..., iceberg:..., ducklake:...     the adapter of that kind of table opens it
a folder with a Delta log, alone         as if delta:FOLDER was named
all else                                 storage.paths: a listing is the snapshot of a table without a log

Each gives a ResolvedSource: a snapshot, the names of its columns, and notes on tables that its files lie in.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from parquet_bloom.errors import FileError, Message, ParquetBloomError, RequestError, TableFormatError, parameter
from parquet_bloom.extras import to_install
from parquet_bloom.options import PathLike, ReadOptions, TableOptions, part
from parquet_bloom.source.names import ORDINARY, NamedSource, TableAccess, TableName, named_table
from parquet_bloom.source.snapshot import Snapshot, Table, TableFile
from parquet_bloom.source.view import Names, names_of
from parquet_bloom.storage.display import line, quantity, without_secret
from parquet_bloom.storage.paths import DataFile, FailedFile, FileSet, locate
from parquet_bloom.storage.store import GLOB
from parquet_bloom.storage.table_folders import RAW_FILES, Tables

if TYPE_CHECKING:
    from parquet_bloom.format.footer import Footer
    from parquet_bloom.format.outline import Outline
    from parquet_bloom.source.history import History

_LIBRARIES = {"delta": ("deltalake",), "iceberg": ("pyiceberg",), "ducklake": ("duckdb",)}


class ResolvedSource(NamedTuple):
    """The files of a source.

    snapshot  its files, at one version; of files without a log their listing
    table     the log that it was read from; None: there is none, or it was read before
    single    whether one plain file was named: its error is then the caller's, not one line among many
    failed    names among several that gave no file
    tables    that files without a log lie in; None: nobody looks
    """

    snapshot: Snapshot
    table: Table | None = None
    single: bool = False
    failed: Sequence[FailedFile] = ()
    tables: Tables | None = None

    @property
    def files(self) -> Sequence[DataFile]:
        """The data files, in the order of the log, or of their paths."""
        return self.snapshot.files

    @property
    def has_log(self) -> bool:
        """Whether it is a table, whose log names these files."""
        return self.snapshot.has_log

    @property
    def names(self) -> Names:
        """The names of columns in each of the files."""
        return names_of(self.snapshot)

    def history(self) -> History:
        """The history in the log. Raises StorageError, TableFormatError."""
        from parquet_bloom.source.history import History  # for those alone who look back

        return History() if self.table is None else self.table.history(self.snapshot)

    def see(self, path: str, footer: Footer | Outline) -> str | None:
        """Notice what a file's footer says of a table that no log shows; a note for the first of each kind."""
        return None if self.tables is None else self.tables.see(path, footer)

    @property
    def notes(self) -> list[str]:
        """Notes on tables that the files have to do with, though they are not read through a log."""
        return [] if self.tables is None else self.tables.notes()

    def raise_failed(self) -> None:
        """Raise the error of the first name that gave no file: nothing may be missing in silence."""
        if self.failed:
            raise self.failed[0].error


def resolved_files(files: Sequence[DataFile]) -> ResolvedSource:
    """Files that were found before, as files without a log."""
    return _listing(FileSet(files[0].filesystem if files else None, list(files), len(files) == 1, []))


def _listing(files: FileSet, tables: Tables | None = None) -> ResolvedSource:
    listed = cast("list[TableFile]", files.files)
    listing = Snapshot("", "", (), False, listed, filesystem=files.filesystem, has_log=False)
    return ResolvedSource(listing, None, files.single, files.failed, tables)


def open_table(name: TableName, access: TableAccess = ORDINARY, filesystem: Any = None) -> Table:
    """Open a table by its name.

    access      what the user says of it beside that
    filesystem  of Delta's files; None: the one that the name says
    Raises RequestError for a library that is not installed, StorageError, TableFormatError.
    """
    if filesystem is not None and name.kind != "delta":
        raise RequestError(f"filesystem= is for files and delta:, {name.kind}: has its catalog's")
    if access.properties and name.kind == "delta":
        raise RequestError(parameter("catalog_properties") + " are for iceberg: and ducklake:, delta: has no catalog")
    try:
        adapter = importlib.import_module(f"parquet_bloom.tables.{name.kind}.table")
        opened = getattr(adapter, f"open_{name.kind}")
        more = (filesystem,) if name.kind == "delta" else ()
        return cast(Table, opened(name.where, name.version, *more, access))
    except ImportError as error:
        if (error.name or "").split(".")[0] not in _LIBRARIES[name.kind]:
            raise
        [library] = _LIBRARIES[name.kind]
        raise RequestError(f"{name.kind}: needs {library}; {to_install(name.kind)}") from error


# --- one call -------------------------------------------------------------------------------------


class CallSource(NamedSource):
    """The source of one call: each `resolve` reads the listing or the log.

    paths      a file, a folder, a glob, a URI, or a list of them; one table by its name; or files or a Snapshot that
               were found before, which open nothing
    filesystem, raw_files, access  as the functions have them
    """

    def __init__(
        self, paths: Any, filesystem: Any = None, raw_files: bool = False, access: TableAccess = ORDINARY
    ) -> None:
        self.paths, self.filesystem, self.raw_files, self.access = paths, filesystem, raw_files, access

    @cached_property
    def table_name(self) -> TableName | None:
        """The one table that is named; None where they are files. Raises RequestError for a table among several."""
        return named_table(self.paths)

    def resolve(self, stored_only: bool = False, refuses: str = "") -> ResolvedSource:
        """Find the files, or those of the one table that is named.

        stored_only  as source.snapshot.Table.snapshot has it
        refuses      how to ask for the files of a table as they are, where they are refused without its log; "": they
                     are only noted
        Raises as storage.paths.locate and `open_table`; RequestError for a table among several sources.
        """
        if isinstance(self.paths, Snapshot):
            return ResolvedSource(self.paths)
        tables = None if self.raw_files else Tables(refuses)
        if (name := self.table_name) is not None:
            if tables is None:
                raise RequestError(RAW_FILES + " reads what lies in a folder; name that, or leave it away")
            return _through_log(open_table(name, self.access, self.filesystem), stored_only)
        refused: TableFormatError | None = None
        try:
            files = locate(self.paths, self.filesystem, tables)
        except TableFormatError as error:
            refused = error
        if (folder := _delta_folder(self.paths, tables)) is not None:
            return self._delta_or_advice(folder)
        if refused is not None:
            raise refused
        self.access.refuse_files()
        # With raw_files only footers give notes, and only if `refuses` is empty: then the caller reads no rows.
        return _listing(files, Tables() if tables is None and not refuses else tables)

    def _delta_or_advice(self, named: str) -> ResolvedSource:
        """The files of a Delta table's folder through its log; errors say how the folder is read without it."""
        [folder] = self.paths if isinstance(self.paths, list | tuple) else [self.paths]
        try:
            return _through_log(open_table(TableName("delta", os.fspath(folder), None), self.access, self.filesystem))
        except ParquetBloomError as error:
            reason = error.reason if isinstance(error, FileError) else error.message
            advice = "; every file in it, dead ones too, is read as it is with " + RAW_FILES
            raise TableFormatError(named, Message("is a Delta table, but ", reason) + advice) from error


def source_of(source: Any, filesystem: Any, options: TableOptions) -> CallSource:
    """The source of a function, of its arguments; a Source stays what it is.

    Raises RequestError for what a Source has itself, and roots that are no names.
    """
    access = TableAccess.from_options(options)
    if not isinstance(source, CallSource):
        return CallSource(source, filesystem, bool(options.get("raw_files")), access)
    if filesystem is not None or access.properties or access.allow_roots:
        both = parameter("catalog_properties") + " and " + parameter("allow_roots")
        raise RequestError(f"a Source has its file system, {both} itself; give them to Source(...)")
    if options.get("raw_files") and not source.raw_files:
        raise RequestError("a Source has " + RAW_FILES + " itself; give it to Source(...)")
    return source


def _delta_folder(sources: Any, tables: Tables | None) -> str | None:
    """The Delta table that was named alone, by its folder, as messages name it."""
    many = sources if isinstance(sources, list | tuple) else [sources]
    if tables is None or len(many) != 1 or not isinstance(many[0], str | os.PathLike):
        return None
    text = os.fspath(many[0])
    path = text.partition("?")[0] if "://" in text else text
    if set(path) & GLOB and not os.path.lexists(path):
        return None
    return next((t.named for t in tables.found.values() if t.relation == "is" and t.kind == "Delta"), None)


def _through_log(table: Table, stored_only: bool = False) -> ResolvedSource:
    return ResolvedSource(table.snapshot(stored_only), table)


# --- several calls --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Resolution:
    """A resolved source, kept until `refresh`.

    version  of the table; None: they are files
    pins     path -> version token of each file that was opened since
    found    with and without the rows that a table's log holds itself
    """

    version: str | None
    pins: dict[str, object]
    found: dict[bool, ResolvedSource]


class Pinned(CallSource):
    """The source of several calls: a listing, or one version of a table, kept until `refresh`.

    Nothing is looked up before the first question. A file that was replaced or written to after a question opened it
    is a FileChangedError for the next one, as far as its storage tells versions apart: a chmod, a new hard link and
    filters that a commit put behind it on the same path count too. Threads may share it; it needs no lock, so a process
    that is forked meanwhile goes on. A copy that was pickled looks again: for files, since tokens of one machine mean
    nothing on another; for the same version of a Delta or DuckLake table; for the latest snapshot of an Iceberg table
    that was named without one.
    """

    def __init__(self, paths: PathLike | Sequence[PathLike], filesystem: Any, options: ReadOptions) -> None:
        """Raises RequestError for names that cannot be meant, such as two tables."""
        self.options = part(ReadOptions, options)
        many: Any = list(paths) if isinstance(paths, list | tuple) else paths
        super().__init__(many, filesystem, options.get("raw_files", False), TableAccess.from_options(options))
        self._kind = None if self.table_name is None else self.table_name.kind
        self._kept_version: str | None = None  # of a copy that was pickled

    @property
    def version(self) -> str | None:
        """The version of the table that answers are of; None before the first one, and of files."""
        looked = self._resolution()
        return looked.version if looked is not None else self._kept_version

    def refresh(self) -> None:
        """Resolve again on the next use: files that came, went or changed, the table's latest version."""
        self.__dict__.pop("_look", None)
        self._kept_version = None

    def resolve(self, stored_only: bool = False, refuses: str = "") -> ResolvedSource:
        """The files as they were on the first use. Arguments and errors as CallSource has them."""
        looked = self._resolution()
        if looked is None:
            pins: dict[str, object] = {}
            first = self._find(stored_only, self._kept_version, pins)
            new = _Resolution(first.snapshot.version or None, pins, {stored_only: first})
            # `setdefault` is one step: threads that resolve at once all take the first result.
            looked = cast(_Resolution, self.__dict__.setdefault("_look", new))
        if stored_only not in looked.found:
            # Only DuckLake's log holds rows itself. Elsewhere a version that is named may have an older schema.
            other = looked.found[not stored_only]
            again = self._find(stored_only, looked.version, looked.pins) if self._kind == "ducklake" else other
            looked.found.setdefault(stored_only, again)
        found = looked.found[stored_only]
        if found.tables is None:
            return found
        if self.raw_files and refuses:
            return found._replace(tables=None)
        tables = Tables(refuses)  # of this question: footers tell each one of tables anew
        tables.join(found.tables.found.values())
        return found._replace(tables=tables)

    def _resolution(self) -> _Resolution | None:
        return self.__dict__.get("_look")

    def _find(self, stored_only: bool, version: str | None, pins: dict[str, object]) -> ResolvedSource:
        names, name = self.paths, self.table_name
        if version and name is None:  # a Delta table's folder
            names = f"delta:{os.fspath(names[0] if isinstance(names, list) else names)}@{version}"
        elif version and name is not None and name.version is None:
            names = f"{name.unversioned}@{version}"
        found = CallSource(names, self.filesystem, self.raw_files, self.access).resolve(stored_only)
        files = [replace(file, pins=pins) for file in found.snapshot.files]
        return found._replace(snapshot=replace(found.snapshot, files=files))

    def __repr__(self) -> str:
        many = self.paths if isinstance(self.paths, list) else [self.paths]
        named = ", ".join(without_secret(os.fspath(one)) for one in many[:2])
        parts = [named + (f" and {len(many) - 2:,} more" if len(many) > 2 else "")]
        if self.version:
            parts.append(f"version {self.version}")
        if (looked := self._resolution()) is not None:
            parts.append(quantity(len(next(iter(looked.found.values())).files), "files"))
        return line(type(self).__name__, parts)

    def __getstate__(self) -> dict[str, Any]:
        # Iceberg's schema may be newer than the snapshot that is named.
        kept = None if self._kind == "iceberg" else self.version
        return {**{key: value for key, value in self.__dict__.items() if key != "_look"}, "_kept_version": kept}
