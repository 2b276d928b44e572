"""What is asked of a file system, by one set of methods: storage.local_store and storage.remote_store answer.

It opens, looks, lists and names; writing is output.target's. `stores.store_of` chooses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote

from parquet_bloom.errors import ParquetBloomError
from parquet_bloom.storage.remote import Handle, Location

_SAFE = "/=:,+@!$&'()*;~"  # as they are in a URI's path
SUFFIXES = (".parquet", ".parq", ".pq")
GLOB = set("*?[")
Kind = bool | ParquetBloomError | None  # a file, a folder (False), nothing, or the error in asking
Seen = Callable[["Store", str, Sequence[tuple[str, bool]], bool], None]


@dataclass(frozen=True)
class Store(ABC):
    """A file system, and how people name its paths.

    filesystem  pyarrow's object; None: the local one
    base        what stands before every path of people's on the file system
    root        what people see in its place
    quoted      whether people's paths are those of URIs
    is_local    whether files have descriptors, locks and links
    """

    filesystem: Any = None
    base: str = ""
    root: str = ""
    quoted: bool = False

    is_local: ClassVar[bool]

    def location(self, path: str) -> Location:
        """A path on the file system, with the name people know it by."""
        rest = path.removeprefix(self.base)
        return Location(path, self.filesystem, self.root + (quote(rest, _SAFE) if self.quoted else rest))

    @abstractmethod
    def same(self, other: Store) -> bool:
        """Whether it is the file system of another store."""

    # --- names ------------------------------------------------------------------------------------

    @abstractmethod
    def real(self, path: str) -> str:
        """One path for one file, however it was named."""

    @abstractmethod
    def absolute(self, path: str) -> str:
        """The path from any working folder."""

    @abstractmethod
    def names(self, at: Location) -> tuple[str, ...]:
        """What a file or folder may be called, from any working folder; the first is what people call it."""

    @abstractmethod
    def folders(self, at: Location) -> list[Location]:
        """The folders that a file or folder lies in: of a local one by its name, and by where links lead."""

    @abstractmethod
    def chain(self, folder: Location) -> list[Location]:
        """A folder and all above it."""

    # --- looks ------------------------------------------------------------------------------------

    @abstractmethod
    def open(self, at: Location, pin: bool) -> Handle:
        """Open a file for reading; `pin` as OpenFile has it. Raises StorageError, and what the file system raises."""

    @abstractmethod
    def version(self, at: Location) -> object:
        """The version token of what has this path by now, as that of an open file. Raises StorageError, OSError."""

    def size_before_append(self, at: Location, file: Handle) -> tuple[int, int] | None:
        """Of a file at whose end an append of ours is not finished: the size before it, and its footer's CRC-32."""
        return None

    def renew(self, file: Handle) -> bool:
        """Take an open file as it is by now, where it was written to since; whether it was."""
        return False

    @abstractmethod
    def kinds(self, paths: Sequence[str]) -> list[Kind]:
        """For each path: True a file, False a folder, None nothing there, or the error in asking."""

    @abstractmethod
    def names_in(self, folder: str) -> list[str]:
        """The names in a folder, on a storage of files alone; none where there is no such folder. Raises Exception."""

    @abstractmethod
    def start_of(self, path: str, most: int) -> bytes:
        """A file's first bytes; none of what is no regular file. Raises Exception."""

    @abstractmethod
    def size(self, path: str) -> int | None:
        """Bytes of a file, -1 for a folder, None for nothing. Raises Exception."""

    @abstractmethod
    def entries(self, folder: str) -> Iterator[tuple[str, int]]:
        """(name, bytes) of what lies in a folder, by name, -1 for folders. Raises Exception."""

    def is_folder(self, path: str) -> bool:
        """Whether a path is a folder. Raises StorageError."""
        return self._kind(path.rstrip("/") or path) is False

    def exists(self, path: str) -> bool:
        """Whether something is there. Raises StorageError."""
        return self._kind(path) is not None

    def _kind(self, path: str) -> bool | None:
        [kind] = self.kinds([path])
        if isinstance(kind, ParquetBloomError):
            raise kind
        return kind


def is_data(relative: str) -> bool:
    """Whether a file of a folder is Parquet by its name, and it and its folders are not hidden."""
    return relative.lower().endswith(SUFFIXES) and not any(p.startswith((".", "_")) for p in relative.split("/"))
