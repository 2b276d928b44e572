"""Tables of Delta, Iceberg and Hudi: which one files lie in, and what is said about it.

A table's folder keeps files and rows that were deleted, and only the table's log tells them from live
ones; the log holds the sizes of files too. So rows are not read, and files not changed, without a word.

    folder above, or the named one     each asked for _delta_log/, .hoodie/ and metadata/
    folder below                       a listing that is made anyway tells
    local folder beside                an Iceberg table whose metadata say that its data lie here
    footer                             what the writers of tables leave in it: a note, never a refusal
"""

from __future__ import annotations

import io
import json
import logging
import os
import posixpath
import re
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from parquet_bloom.errors import StorageError, TableFormatError, TableWarning, parameter
from parquet_bloom.format.footer import Footer
from parquet_bloom.format.outline import Outline
from parquet_bloom.format.schema import Leaf
from parquet_bloom.storage.remote import Location, side_by_side, storage_error
from parquet_bloom.storage.store import GLOB
from parquet_bloom.storage.stores import store_of

# --- table signs ----------------------------------------------------------------------------------
#
# What makes a folder a table of Delta, Iceberg or Hudi, and what writers of tables leave in a file's footer.
#
#    _delta_log/   00000000000000000000.json, checkpoints
#    .hoodie/      hoodie.properties
#    metadata/     v3.metadata.json, 00003-UUID.metadata.json (.gz before or behind), version-hint.text
#
# A name without a log in it is none: `metadata` with other JSON, an empty `_delta_log`.

SIGNS = ("_delta_log", ".hoodie", "metadata")
# Delta protocol: commits, log compactions, checkpoints of all kinds, and the pointer to the last one.
_DELTA = re.compile(r"\d+(\.\d+)?(\.compacted)?\.json|\d+\.checkpoint(\..+)?\.(parquet|json)|_last_checkpoint")
# Iceberg: metadata of file-system tables (v3) and of catalogs' tables (00003-UUID); groups 1 and 2 are the version.
_ICEBERG = re.compile(r"(?:v(\d+)|(\d+)-[^/]+)(?:\.gz)?\.metadata\.json(?:\.gz)?|version-hint\.text")
_METADATA_BYTES = 16 << 20  # of one metadata file of an Iceberg table, at most
# Properties that may put the data elsewhere, in the order in which they count; the last two are of older versions.
_DATA_PATHS = ("write.data.path", "write.object-storage.path", "write.folder-storage.path")


def table_in(folder: Location, below: Sequence[str]) -> str | None:
    """The kind of the table that a folder is, by the names of the folders in it and the files of logs."""
    contents = ((sign, names_in((folder, sign))) for sign in SIGNS if sign in below)
    kinds = (kind_of(folder, sign, names) for sign, names in contents if isinstance(names, list))
    return next(filter(None, kinds), None)


def names_in(one: tuple[Location, str]) -> list[str] | Exception:
    """The names in a log's folder, on a storage by one request; none where there is no such folder."""
    folder, sign = one
    try:
        return store_of(folder).names_in(posixpath.join(folder.path, sign))
    except Exception as error:
        return error


def kind_of(folder: Location, sign: str, names: Sequence[str]) -> str | None:
    """The kind of the table that a folder is, by the names in a log's folder. A folder's name alone is no log."""
    if sign == "_delta_log":
        return "Delta" if any(map(_DELTA.fullmatch, names)) else None
    if sign == ".hoodie":
        return "Hudi" if any(name.startswith("hoodie.properties") for name in names) else None
    if any(map(_ICEBERG.fullmatch, names)):
        return "Iceberg"
    odd = [name for name in names if name.endswith((".metadata.json", ".metadata.json.gz"))]
    return "Iceberg" if odd and _metadata(folder, max(odd)) is not None else None


def data_path(folder: Location) -> str | None:
    """The folder of an Iceberg table's data outside of its own; None if they are inside, or there is no table."""
    names = names_in((folder, "metadata"))
    named = [name for name in names if ".metadata.json" in name] if isinstance(names, list) else []
    metadata = _metadata(folder, max(named, key=_version)) if named else None
    if metadata is None:
        return None
    properties = metadata.get("properties")
    settings = [properties.get(name) for name in _DATA_PATHS] if isinstance(properties, dict) else []
    location = str(metadata["location"]).rstrip("/")
    data_folder = next((str(path) for path in settings if path), f"{location}/data").rstrip("/")
    inside = data_folder.startswith(f"{location}/") and posixpath.basename(location) == posixpath.basename(folder.path)
    return None if inside else data_folder


def _version(name: str) -> tuple[int, str]:
    numbers = _ICEBERG.fullmatch(name)
    return (int(numbers[1] or numbers[2] or -1) if numbers is not None else -1), name


def _metadata(folder: Location, name: str) -> dict[str, Any] | None:
    """The metadata of an Iceberg table; None where a file is something else, or cannot be read."""
    path = posixpath.join(folder.path, "metadata", name)
    try:
        data = store_of(folder).start_of(path, _METADATA_BYTES)
        if data[:2] == b"\x1f\x8b":  # gzip's magic, RFC 1952
            from gzip import GzipFile

            data = GzipFile(fileobj=io.BytesIO(data)).read(_METADATA_BYTES)
        metadata = json.loads(data)
    except Exception:
        return None
    return metadata if isinstance(metadata, dict) and {"format-version", "location"} <= set(metadata) else None


# --- footers --------------------------------------------------------------------------------------


def footer_note(path: object, metadata: Any, leaves: Iterable[Leaf]) -> tuple[str, str] | None:
    """The kind of table that a file was written for, by its footer, and a note about it; or None.

    metadata  FileMetaData with key-values and writer
    leaves    its columns
    """
    keys = {pair.key for pair in metadata.key_value_metadata or ()}
    if "iceberg.schema" in keys:
        kind, why = "Iceberg", "its footer has iceberg.schema"
    elif (metadata.created_by or "").startswith("delta-rs"):
        kind, why = "Delta", f"its writer is {metadata.created_by}"
    elif any(str(key).startswith(("org.apache.hudi.", "hoodie_")) for key in keys):
        kind, why = "Hudi", "its footer has Hudi's keys"
    elif any(leaf.path[0] == "_hoodie_commit_time" for leaf in leaves):
        kind, why = "Hudi", "it has a column _hoodie_commit_time"
    else:
        return None
    article = "an" if kind == "Iceberg" else "a"
    return kind, f"{path} was written for {article} {kind} table ({why}) that is not in sight: it may hold dead rows"


def may_be_noted(pairs: bytes) -> bool:
    """Whether `footer_note` may say something because of a footer's key-values; pairs: their bytes."""
    return b"iceberg.schema" in pairs or b"org.apache.hudi." in pairs or b"hoodie_" in pairs


# --- table folders --------------------------------------------------------------------------------

logger = logging.getLogger("parquet_bloom")

# Local folders that are looked at beside what was named, among so many names, and Iceberg tables whose metadata are
# read, on each of so many levels, for so many names.
_BESIDE, _LISTED, _READ, _LEVELS, _NAMES = 100, 10_000, 8, 4, 16
# What to name instead, so that the log is asked; with the folder of the log.
_ADVICE = {
    "Delta": "name the table, delta:{folder}",
    "Iceberg": "name the table in its catalog, iceberg:CATALOG/NAMESPACE.TABLE",
    "Hudi": "read it with Spark and Hudi's bundle",
}
# Who takes a file's size from the table's log and so looks for the footer at the old end; as tests show it.
_TRUSTING = {
    "Delta": 'deltalake and Polars\' scan_delta fail on them ("magic bytes not found"), DuckDB does not',
    "Iceberg": 'Polars\' scan_iceberg fails on them ("magic bytes not found"), pyiceberg and DuckDB do not',
    "Hudi": "readers that take sizes from the log may fail on them",
}
_Key = tuple[int, str]  # a file system and a path
RAW_FILES = parameter("raw_files", True)


@dataclass(frozen=True, slots=True)
class Table:
    """A table that what was named has to do with.

    kind      "Delta", "Iceberg" or "Hudi"
    folder    of its log, as people are told it
    named     what was named
    relation  of what was named to the table: "is", "in", "holds" (a folder that has the table below it),
              "data" (holds its data, and the log lies elsewhere)
    """

    kind: str
    folder: str
    named: str
    relation: str

    def __str__(self) -> str:
        kind = f"{'an' if self.kind == 'Iceberg' else 'a'} {self.kind} table"
        match self.relation:
            case "is":
                return f"is {kind}"
            case "in":
                return f"lies in the {self.kind} table {self.folder}"
            case "data":
                return f"holds data of the {self.kind} table {self.folder}"
        return f"holds the {self.kind} table {self.folder}"


class Tables:
    """The tables that contain files of a call, or lie below its folders. Each folder is read once.

    found    folder -> its table
    refuses  set where rows will be read: `check_paths` and `join` raise TableFormatError for a table, and say that its
             files are read all the same with this
    """

    def __init__(self, refuses: str = "") -> None:
        self.refuses = refuses
        self.found: dict[str, Table] = {}
        self._footers: dict[str, str] = {}
        self._kinds: dict[_Key, str | Exception | None] = {}  # of a folder itself
        self._near: dict[_Key, tuple[str, str] | Exception | None] = {}  # at or above a folder
        self._real: dict[str, str] = {}  # where a local folder's name leads
        self._inside: dict[str, list[str]] = {}  # the Iceberg tables in a local folder

    # --- looks ------------------------------------------------------------------------------------

    def enclosing_table(self, at: Location) -> Table | None:
        """The nearest table that a file lies in. Raises StorageError where that is unknown."""
        near = self._nearest(store_of(at).folders(at))
        if isinstance(near, Exception):
            forced = parameter("force", True) + " goes on"
            reason = "it is not known whether it lies in a table (" + forced + f"): {storage_error(at, near).reason}"
            raise StorageError(at, reason) from near
        return None if near is None else Table(*near, str(at), "in")

    def ask_above(self, at: Location) -> None:
        """Ask for tables above a name early, while its file is opened: one round less."""
        self._ask(step for folder in store_of(at).folders(at) for step in store_of(folder).chain(folder))

    def check_paths(self, named: Iterable[tuple[Location, Sequence[Location]]]) -> None:
        """Search folders and all above them for tables. Folders that may not be read are skipped.

        named  (what was named, folders: it, or those it lies in)
        """
        # 1. Ask all folders and those above them, in one round. 2. Of each name the nearest table counts. 3. Only if no
        # name has one, search for Iceberg tables whose data lie apart from their metadata: that reads metadata files.
        named = list(named)
        starts = {_key(folder): folder for _, folders in named for folder in folders}
        self._ask(step for folder in starts.values() for step in store_of(folder).chain(folder))
        for at, folders in named:
            near = self._nearest(folders)
            if isinstance(near, Exception):
                logger.info("it is not known whether %s lies in a table: %s", at, near)
            elif near is not None:
                self.add(Table(*near, str(at), "is" if near[1] in store_of(at).names(at) else "in"))
        for at, folders in named[: 0 if self.found else _NAMES]:
            if at.is_local:
                for start in [at] if os.path.lexists(at.path) else folders[:_NAMES]:
                    self._beside(at, start.path)
        if self.refuses:
            self._refuse_reading()

    def parents_of(self, at: Location, files: Iterable[Location]) -> tuple[Location, list[Location]]:
        """A name, and the folders it lies in: of a pattern those of the files that fit, or its fixed part."""
        fits = set(at.path) & GLOB and not (at.is_local and os.path.lexists(at.path))
        if at.is_local and (fits or not os.path.islink(at.path)):
            inside = {os.path.dirname(os.path.abspath(one.path)) for one in (files if fits else [at])}
            for folder in inside - set(self._real):
                self._real[folder] = os.path.realpath(folder)
            return at, [Location(folder) for folder in sorted(inside | {self._real[folder] for folder in inside})]
        folders = store_of(at).folders(at)
        while fits and folders and set(folders[0].path) & GLOB:
            folders = store_of(at).folders(folders[0])
        return at, folders

    def note_folder(self, named: Location, folder: str, below: Sequence[str]) -> None:
        """Notice a table in a local folder, at `named` or below it, by the names of the folders in it."""
        kind = table_in(Location(folder), below)
        if kind is not None:
            is_named = folder.rstrip(os.sep) == named.path.rstrip(os.sep)
            self.add(Table(kind, os.path.abspath(folder), str(named), "is" if is_named else "holds"))

    def note_listing(self, named: Location, entries: Iterable[tuple[str, bool]], recursive: bool = True) -> None:
        """Notice tables in a listing of a storage: (path, whether it is a file) of all below `named`."""
        inside: dict[str, list[str]] = {}
        for path, is_file in entries:
            log, _, name = path.rpartition("/")
            if is_file and log.endswith(SIGNS) and log.rpartition("/")[2] in SIGNS:
                inside.setdefault(log, []).append(name)
            elif not is_file and not recursive and name in SIGNS:
                inside.setdefault(path, [])
        base = named.path.rstrip("/")
        for log, names in sorted(inside.items()):
            folder, _, sign = log.rpartition("/")
            at = Location(folder, named.filesystem, str(named).rstrip("/") + folder.removeprefix(base))
            kind = kind_of(at, sign, names) if names else table_in(at, [sign])
            if kind is not None:
                self.add(Table(kind, str(at), str(named), "is" if folder == base else "holds"))

    def see(self, path: str, footer: Footer | Outline) -> str | None:
        """Notice what a footer says of a table; a note for the first of each kind."""
        note = footer_note(path, footer.metadata, footer.leaves)
        return note[1] if note is not None and self._footers.setdefault(*note) is note[1] else None

    def add(self, table: Table) -> None:
        """Remember a table, once for its folder."""
        self.found.setdefault(table.folder, table)

    def join(self, tables: Iterable[Table]) -> None:
        """Take over tables that were found elsewhere, such as by executors. Raises as `around`."""
        for table in tables:
            self.add(table)
        if self.refuses:
            self._refuse_reading()

    def _nearest(self, folders: Sequence[Location]) -> tuple[str, str] | Exception | None:
        """Kind and folder of the nearest table at or above these folders, or else the first error in asking."""
        # A table that is found counts more than an error at another folder: the error says only that it is not known.
        error = None
        for folder in folders:
            key = _key(folder)
            if key not in self._near:
                self._near[key] = self._first_in(store_of(folder).chain(folder))
            near = self._near[key]
            if isinstance(near, tuple):
                return near
            error = error or near
        return error

    def _first_in(self, chain: Sequence[Location]) -> tuple[str, str] | Exception | None:
        self._ask(chain)
        kinds = [(self._kinds[_key(step)], str(step)) for step in chain]
        tables = ((kind, folder) for kind, folder in kinds if isinstance(kind, str))
        return next(tables, None) or next((kind for kind, _ in kinds if isinstance(kind, Exception)), None)

    def _ask(self, folders: Iterable[Location]) -> None:
        # Requests to a storage run side by side, one for each folder and sign. `answers` has them in that order.
        new = {key: folder for folder in folders if (key := _key(folder)) not in self._kinds}
        remote = [folder for folder in new.values() if not folder.is_local]
        answers = iter(side_by_side(names_in, [(folder, sign) for folder in remote for sign in SIGNS]))
        for key, folder in new.items():
            listings = [names_in((folder, s)) if folder.is_local else next(answers) for s in SIGNS]
            kinds = [
                kind_of(folder, s, names) for s, names in zip(SIGNS, listings, strict=True) if isinstance(names, list)
            ]
            errors = [names for names in listings if isinstance(names, Exception)]
            self._kinds[key] = next(filter(None, kinds), None) or next(iter(errors), None)

    def _beside(self, at: Location, start: str) -> None:
        """Find an Iceberg table in a folder beside a file or folder, or beside the next ones above it."""
        # Up from the start, level by level, the folders beside it are candidates: of lake/data/x.parquet lake/table,
        # with its metadata. Every loop is bounded, as a folder can have any number of neighbours.
        here = beside = os.path.realpath(start)
        for _ in range(_LEVELS):
            beside, last = os.path.dirname(beside), beside
            if beside == last:
                return
            with suppress(OSError):
                tables = [path for path in self._tables_in(beside) if path != last]
                for path in tables[:_READ]:
                    from urllib.parse import unquote  # most folders have no table beside them

                    location = re.fullmatch(r"(?:file:(?://)?)?(/.*)", data_path(Location(path)) or "")
                    names = (location[1], unquote(location[1])) if location is not None else ()
                    if any(_nested(os.path.realpath(name), here) for name in names):
                        self.add(Table("Iceberg", path, str(at), "data"))
                        return

    def _tables_in(self, folder: str) -> list[str]:
        """The folders in a local folder that are Iceberg tables, by path, each folder searched once. Raises OSError."""
        if folder not in self._inside:
            inside = []
            with os.scandir(folder) as entries:
                for entry in islice(entries, _LISTED):
                    if entry.is_dir():
                        inside.append(entry.path)
                        if len(inside) > _BESIDE:
                            break
            logs = [path for path in inside if os.access(os.path.join(path, "metadata"), os.F_OK)]
            self._inside[folder] = [path for path in logs if table_in(Location(path), ["metadata"])]
        return self._inside[folder]

    # --- what follows -----------------------------------------------------------------------------

    def _refuse_reading(self) -> None:
        if not self.found:
            return
        table, text = self._first()
        raise TableFormatError(
            table.named,
            f"{text}, whose files also hold dead and deleted rows: {_ADVICE[table.kind].format(folder=table.folder)}; "
            "or read every file as it is with " + self.refuses,
        )

    def check_target(self, at: Location, target: Location, force: bool) -> None:
        """Raise TableFormatError if writing `target` would change a file of a table, unless forced."""
        table = None if force else self.enclosing_table(target)
        if table is not None:
            raise TableFormatError(at, _sizes(table))

    def notes(self) -> list[str]:
        """Notes for functions that read filters only: on the tables, or else on tables that footers name."""
        if not self.found:
            return list(self._footers.values())
        table, text = self._first()
        return [f"{table.named} {text}: files that its log no longer names may be among these"]

    def change(self, force: bool) -> list[str]:
        """Files are to be changed in place, where `refuse` sees no table whose log lies elsewhere.

        Raises TableFormatError for such a table. With force: TableWarning, once a kind of table, of what
        breaks; and its texts.
        """
        for table in self.found.values():
            if table.relation == "data" and not force:
                raise TableFormatError(table.named, _sizes(table))
        if not force:
            return []
        texts = {
            table.kind: f"{table.named} {table}, whose log holds file sizes: "
            f"where files grow, {_TRUSTING[table.kind]}; `remove` in place undoes what `add` did"
            for table in self.found.values()
        }
        for text in texts.values():
            warnings.warn(text, TableWarning, stacklevel=4)
        return list(texts.values())

    def _first(self) -> tuple[Table, str]:
        """The table for a message, and its words; the others are counted."""
        tables = sorted(self.found.values(), key=lambda table: (table.relation == "holds", table.folder))
        if len(tables) == 1 or tables[0].relation != "holds":
            return tables[0], str(tables[0])
        return tables[0], f"holds {len(tables):,} tables, such as the {tables[0].kind} table {tables[0].folder}"


def read_guard(raw_files: bool, how: str = RAW_FILES) -> Tables | None:
    """The check for reading rows; None where files are read as they are, by the option that `how` names."""
    return None if raw_files else Tables(refuses=how)


def write_guard(copies: bool, raw_files: bool, force: bool) -> Tables | None:
    """The check before writing: copies of dead files are refused, for changes see `change`."""
    return read_guard(raw_files or force) if copies else Tables()


def named_as_files(named: Sequence[Location]) -> str | None:
    """That what is to be changed belongs to a table, and what to name instead; None where it does not."""
    tables = Tables()
    tables.check_paths((at, [_fixed_part(at)]) for at in named)
    if not tables.found:
        return None
    table, text = tables._first()
    copies = parameter("output") + " with " + parameter("raw_files", True)
    files = ". For its files as they are give " + copies + ", or " + parameter("in_place", True) + " with "
    return f"{table.named} {text}; {_reading_advice(table)}" + files + parameter("force", True)


def _fixed_part(at: Location) -> Location:
    """A file or folder; of a pattern the folder above it."""
    if at.is_local and os.path.lexists(at.path):
        return at
    path = at.path
    while set(path) & GLOB:
        path = os.path.dirname(path)
    return at if path == at.path else Location(path or ".", at.filesystem)


def _sizes(table: Table) -> str:
    return f"{table}, whose log holds file sizes; {_reading_advice(table)}, or give " + parameter("force", True)


def _reading_advice(table: Table) -> str:
    return "rewrite it through the table" if table.kind == "Hudi" else _ADVICE[table.kind].format(folder=table.folder)


def without_data(folder: Location) -> str | None:
    """The message on a folder without a Parquet file, if it is a table's."""
    kind = table_in(folder, SIGNS)
    if kind is None:
        return None
    location = data_path(folder) if kind == "Iceberg" else None
    where = f"whose data lie at {location}" if location is not None else "with no Parquet file in its folder"
    return f"is {'an' if kind == 'Iceberg' else 'a'} {kind} table {where}; {_ADVICE[kind].format(folder=folder)}"


# --- folders --------------------------------------------------------------------------------------


def _key(folder: Location) -> _Key:
    return id(folder.filesystem), folder.path


def _nested(one: str, other: str) -> bool:
    return os.path.commonpath([one, other]) in (one, other)
