"""Holds a log to the folders that its user trusts: no file elsewhere is opened or written.

    the user's words   the table's name, a catalog's properties, --allow-root     open file systems, with all options
    a catalog's answer where an Iceberg table lies                                the same
    the log's words    paths of files, data_path, location                        choose files on these file systems

A log may come from anywhere, like the files that it names. Its words say a scheme, a bucket and a key. They never bring
options behind a "?", a user or a secret before an "@", a host, or a scheme that no root has. A ".." is refused, and so
is a link that leads out of the roots.

What a log says of the place of all its data (`location`, `write.data.path`, `data_path`) is a root too: else no table
could be read whose catalog and data lie apart. It counts as a bare folder or scheme://bucket/prefix, which the user's
own settings open. SECURITY.md says what follows from it.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from parquet_bloom.errors import Message, TableFormatError, on_one_line, parameter
from parquet_bloom.source.names import ORDINARY, TableAccess
from parquet_bloom.storage.display import without_secret
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.store import Store
from parquet_bloom.storage.stores import LOCAL, Stores, on_file_system, store_of

_WORD = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(/.*)?", re.DOTALL)
_FILE = re.compile(r"file:(?://)?(/(?!/).*)", re.DOTALL)
_BUCKETS = frozenset({"s3", "s3a", "gs", "gcs"})  # schemes whose URIs name no host
_AZURE = frozenset({"abfs", "abfss"})
# Hosts of Azure's clouds; a log that names another one would be sent the user's credentials.
AZURE_HOST = re.compile(
    r"[^@:/]+@[a-z0-9-]+\.(?:dfs|blob)\.(?:core\.(?:windows\.net|chinacloudapi\.cn|usgovcloudapi\.net)|fabric\.microsoft\.com)",
    re.IGNORECASE,
)
_SHOWN = 200  # characters of a name of a log in a message
_ADVISED = 3  # folders that a refusal names


@dataclass(frozen=True, slots=True)
class _Root:
    """A folder on a store. names: its path, without a closing "/"; of a local one also the path that links lead to."""

    store: Store
    names: tuple[str, ...]
    writable: bool

    def holds(self, path: str) -> bool:
        return any(path.startswith(f"{name}/") or not name for name in self.names)


class Roots:
    """The folders below which the log of one table may name files.

    table   as people know it, for messages
    access  what the user says of it
    stores  of this call
    """

    def __init__(self, table: object, access: TableAccess = ORDINARY, stores: Stores | None = None) -> None:
        self._table = str(table)
        self._access = access
        self._stores = stores or Stores()
        self._roots: list[_Root] = []
        self._allowed = False
        self._folders: dict[tuple[str, bool], str | None] = {}

    @property
    def allowed(self) -> Sequence[str]:
        """The roots that the user allows beside those of the table, as text."""
        return self._access.allow_roots

    # --- roots --------------------------------------------------------------------------------

    def add(self, store: Store, path: str, writable: bool = True) -> None:
        """Trust a folder on a store: the user, or a catalog that the user configured, named it."""
        names = dict.fromkeys((store.absolute(path), store.real(path)))
        self._roots.append(_Root(store, tuple(name.rstrip("/") for name in names), writable))
        self._folders.clear()

    def declare(self, word: str) -> tuple[Store, str]:
        """Trust the folder where the log says that all data of the table lie; gives its store, and the path there.

        It is a path of this machine, or a bare URI. Raises TableFormatError for a URI with options or a user, of a host
        or a scheme that its user did not name, and for the whole of this machine's files; StorageError.
        """
        try:
            store, path = self._on_roots(word, False)
        except TableFormatError:
            store, path = self._opened(word)
        self.add_declared(word, store, path)
        return store, path

    def add_declared(self, word: str, store: Store, path: str) -> None:
        """Trust such a folder where it was opened already. Raises TableFormatError for all of this machine's files."""
        if store.is_local and os.path.realpath(path) == "/":
            raise self.refused(word, "is all of this machine, which no table is trusted with")
        self.add(store, path)

    def _opened(self, word: str) -> tuple[Store, str]:
        scheme, authority, rest = self._split(word)
        if scheme == "file":
            return LOCAL, self._plain(word, rest)
        if scheme not in _BUCKETS | _AZURE or (scheme in _AZURE and AZURE_HOST.fullmatch(authority) is None):
            raise self.refused(word, "is on a storage that its log may not choose")
        if not authority:
            raise self.refused(word, "names no bucket")
        if set("?#") & set(rest):
            raise self.refused(word, "has options, which only your own words may have")
        self._plain(word, rest)
        return self._stores.locate(word)

    def _all(self) -> list[_Root]:
        """The roots, with those that the user allows: on the file system of a root where they are of its scheme."""
        if not self._allowed:
            self._allowed = True
            for text in self._access.allow_roots:
                text = os.path.expanduser(text) if text.startswith("~/") else text
                found = None
                if _WORD.fullmatch(text) and not set("?@") & set(text):
                    found = next((at for at in self._placed(text) if at is not None), None)
                self.add(*(found or self._stores.locate(text)), writable=self._access.force)
        return self._roots

    # --- words of the log ---------------------------------------------------------------------

    def place(self, word: str, encoded: bool = False) -> Location:
        """The file that an absolute path or URI of a log means, on the file system of a root; `check` sees if it may.

        encoded  %20 in it is a blank
        Raises TableFormatError for what no root can hold: another file system, options, a user, "..".
        """
        store, path = self._on_roots(word, encoded)
        return store.location(path)

    def _on_roots(self, word: str, encoded: bool) -> tuple[Store, str]:
        scheme, authority, rest = self._split(word)
        rest = self._plain(word, unquote(rest) if encoded else rest)
        for root in self._all():
            if scheme == "file":
                if root.store.is_local:
                    return root.store, rest
            elif (found := on_file_system(root.store, scheme, authority, rest)) is not None:
                return found
        raise self.refused(word, "is on another storage than the table")

    def _placed(self, text: str) -> Iterable[tuple[Store, str] | None]:
        scheme, authority, rest = self._split(text)
        return [on_file_system(root.store, scheme, authority, rest) for root in self._roots if not root.store.is_local]

    def _split(self, word: str) -> tuple[str, str, str]:
        """Scheme, authority and path; of a local path, the scheme "file"."""
        local = _FILE.fullmatch(word)
        if local is not None:
            return "file", "", local[1]
        uri = _WORD.fullmatch(word)
        if uri is None:
            return "file", "", word
        scheme, authority = uri[1].lower(), uri[2]
        if scheme == "file" and authority not in ("", "localhost"):
            raise self.refused(word, "is on another machine")
        container, sign, account = authority.rpartition("@")
        if sign and (scheme not in _AZURE or ":" in container or not account):
            raise self.refused(without_secret(word), "has a user before its @, which only your own words may have")
        if set("?#") & set(authority):
            raise self.refused(word, "has options, which only your own words may have")
        return scheme, authority, uri[3] or "/"

    def _plain(self, word: str, path: str) -> str:
        reason = no_plain_path(path)
        if reason:
            raise self.refused(word, reason)
        return path

    # --- files --------------------------------------------------------------------------------

    def holds(self, at: Location, writing: bool = False) -> bool:
        """Whether a file lies below a root, by its name and by where links lead; for writing, one of the table's."""
        if at.filesystem is not None:
            store = store_of(at)
            roots = (root for root in self._all() if not root.store.is_local and (root.writable or not writing))
            return any(root.holds(at.path) and root.store.same(store) for root in roots)
        folder, slash, name = at.path.rpartition("/")
        if name in ("", ".", ".."):
            folder, slash, name = _absolute(at.path).rpartition("/")
        real = self._folder(folder + slash, writing)
        if real is None:
            return False
        path = f"{real}/{name}"
        return (
            not os.path.islink(path)
            or self._folder(os.path.realpath(path).rpartition("/")[0] + "/", writing) is not None
        )

    def _folder(self, folder: str, writing: bool) -> str | None:
        """The real path of a local folder; None where it lies below no root, by its name or by its links."""
        key = folder, writing
        if (known := self._folders.get(key, "")) == "":
            roots = [root for root in self._all() if root.store.is_local and (root.writable or not writing)]
            real = os.path.realpath(folder).rstrip("/")
            both = (any(root.holds(f"{one.rstrip('/')}/") for root in roots) for one in (_absolute(folder), real))
            self._folders[key] = known = real if all(both) else None
        return known

    def forget_links(self) -> None:
        """Follow links of folders again: a later call finds them as they are by then."""
        self._folders.clear()

    def check(self, places: Iterable[Location]) -> None:
        """Raise TableFormatError unless all files lie below the roots; it says which roots to allow."""
        outside = [at for at in places if not self.holds(at)]
        if outside:
            raise self.outside(outside)

    def no_change(self, at: Location) -> str:
        """Why a file may not be changed; "" where it may: it lies in the table's folders, or the user forces it."""
        if self._access.force or self.holds(at, writing=True):
            return ""
        return "it lies outside of the table's folders; " + parameter("force", True) + " changes it all the same"

    # --- errors -------------------------------------------------------------------------------

    def outside(self, outside: Sequence[Location]) -> TableFormatError:
        """The error for files of the log that lie below no root; it says which roots to allow."""
        first = _short(str(outside[0]))
        more = f" and {len(outside) - 1:,} more files" if len(outside) > 1 else ""
        below = next((str(root.store.location(root.names[0] or "/")) for root in self._roots), "the table")
        folders = _folders([self._shown(at) for at in outside])
        advice = Message()
        for i, folder in enumerate(folders):
            advice = advice + (" and " if i else "") + parameter("allow_roots", on_one_line(folder))
        reason = Message(f"its log names {first}{more}, outside of {below}; if you trust it, give ")
        return TableFormatError(self._table, reason + advice)

    def _shown(self, at: Location) -> str:
        return os.path.realpath(_absolute(at.path)) if at.is_local else str(at)

    def refused(self, word: str, reason: str) -> TableFormatError:
        """The error for a name in the log; `reason` goes on after "which"."""
        return TableFormatError(self._table, f"its log names {_short(without_secret(word))!r}, which {reason}")


def no_plain_path(path: str) -> str:
    """Why a path of a log cannot be a file's: it leads upwards, or no system has such names. "" where it can."""
    if ".." in path and ".." in path.split("/"):
        return "leads upwards by '..'"
    if not path.isascii():
        try:
            path.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return "is no path: it has half a character"
    return "is no path: it has a NUL" if "\0" in path else ""


def _absolute(path: str) -> str:
    """A path from the root; POSIX leaves two slashes in front as they are, which Linux and macOS take for one."""
    return "/" + os.path.abspath(path).lstrip("/")


def _short(text: str) -> str:
    return on_one_line(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def _folders(names: Sequence[str]) -> list[str]:
    """A few folders that hold all of these files: one of each bucket or disk, or where that says nothing, the first."""
    by_top = defaultdict(list)
    for name in names:
        folder = name.rpartition("/")[0] or "/"
        scheme, sign, rest = folder.partition("://")
        top = f"{scheme}://{rest.split('/')[0]}" if sign else ""
        by_top[top].append(folder)
    found: list[str] = []
    for top, folders in by_top.items():
        common = _common([folder.split("/") for folder in folders])
        found += [common] if len(common) > len(top) + bool(top) or top else list(dict.fromkeys(folders))[:_ADVISED]
    return found


def _common(folders: Sequence[Sequence[str]]) -> str:
    """The folder that holds all of these, which are the parts of their names."""
    same = itertools.takewhile(lambda names: len(set(names)) == 1, zip(*folders, strict=False))
    return "/".join(names[0] for names in same)
