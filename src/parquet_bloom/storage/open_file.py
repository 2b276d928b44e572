"""Byte ranges of one file, local or on any pyarrow or fsspec file system, and what reading them cost.

Data files are opened by stores (storage.store, storage.remote). No memory map: another program may truncate the
file while we look at it, and that must be an error, not a crash.
"""

from __future__ import annotations

import os
import sys
import threading
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from parquet_bloom.errors import (
    ConflictError,
    DamagedFileError,
    EncryptedFileError,
    EncryptedFooterError,
    FileChangedError,
    FileError,
    FooterError,
    FooterLimitError,
    LimitError,
    NotParquetError,
    ParquetBloomError,
    StorageError,
)
from parquet_bloom.format.footer import MAGIC, TAIL_BYTES, Footer, decode_footer, footer_length
from parquet_bloom.format.outline import Outline, outline_of
from parquet_bloom.format.outlines import walk_outline
from parquet_bloom.format.walked import WalkedFooter
from parquet_bloom.options import PathLike
from parquet_bloom.storage.remote import Beginning, Location, arrow_filesystem, arrow_of, side_by_side, storage_error
from parquet_bloom.storage.stores import store_of
from parquet_bloom.storage.version_token import Kept, LocalToken, proves

# --- outlines of footers --------------------------------------------------------------------------
#
# Which reader a footer gets: the compiled walk, or the bindings. The walk is many times faster, but needs numba, which
# takes as long to load as some 20,000 row groups take through the bindings. A process that has read the first thousand
# will mostly read many more.
#
#    outline()   walks if numba is loaded, or once this process has read _WALK_AFTER_ROW_GROUPS by the bindings
#    footer()    walks if the footer has _WALK_BYTES; without numba loaded only from _LOAD_BYTES on

_WALK_AFTER_ROW_GROUPS = 1000
_WALK_BYTES, _LOAD_BYTES = 1 << 20, 8 << 20


class _ReadByBindings:
    """How many row groups this process has read through the bindings. Two threads may lose a count: no harm."""

    row_groups = 0


def walks() -> bool:
    """Whether this process reads footers by the compiled walk."""
    return "numba" in sys.modules or _ReadByBindings.row_groups > _WALK_AFTER_ROW_GROUPS


def _least_walked() -> int:
    """Bytes of a footer from which on the walk reads it."""
    return _WALK_BYTES if "numba" in sys.modules else _LOAD_BYTES


def decode_outline(data: bytes, start: int) -> Outline:
    """Read footer bytes. Raises FooterError and EncryptedFooterError, as format.footer.decode_footer does.

    data   FileMetaData as it lies in the file, without length and magic
    start  of the footer, bytes from the start of the file
    """
    if walks():
        outline = walk_outline(data, start)
        if outline is not None:
            return outline
    outline = outline_of(decode_footer(data, start))
    _ReadByBindings.row_groups += outline.n_row_groups
    return outline


# --- an open file ---------------------------------------------------------------------------------

TAIL_GUESS = 64 << 10  # most footers are shorter; then one request brings all of it
# Ranges that lie closer are read at once. A local read costs a microsecond, a remote one many.
_LOCAL_GAP, REMOTE_GAP = 64, 64 << 10
REMOTE_MOST = 8 << 20  # what is joined or longer is asked for in pieces, side by side

CHANGED_WHILE_READ = "was changed by another program while it was read; read it again"
_RENEWALS = 10  # of a file that is written to again and again

Range = tuple[int, int]  # offset, length


class OpenFile:
    """A file that is open for reading; its reads may come from several threads.

    path, fd              as people are told it; the descriptor of a local file, else None
    requests, bytes_read  what has been asked of the storage since it was opened
    """

    def __init__(self, path: PathLike | Location, filesystem: Any = None, pin: bool = False) -> None:
        """Open a file.

        filesystem  pyarrow's or fsspec's object; None: the one that `path` says, or the local one
        pin         so that check_unchanged works on every storage; may cost a request
        Raises StorageError.
        """
        self.location = path if isinstance(path, Location) else Location(os.fspath(path), arrow_filesystem(filesystem))
        self.path = str(self.location)
        self.requests = 0
        self.bytes_read = 0
        self._footer: Footer | None = None
        self._outline: Outline | None = None
        self._footer_data: tuple[bytes, int] | None = None
        self._renewals = 0
        self._counting = threading.Lock()
        self._held: dict[int, list[tuple[int, bytes]]] = {}  # by thread: each drops its own alone
        self._tail: list[tuple[int, bytes]] = []
        self._store = store_of(self.location)
        pins: dict[str, object] | None = getattr(self.location, "pins", None)
        try:
            self._file = self._store.open(self.location, pin or pins is not None)
        except StorageError:
            raise
        except Exception as error:  # fsspec's file systems raise whatever their libraries do
            raise storage_error(self.path, error) from error
        self.size = self._file.size
        if pins is not None:
            self._hold_to(pins)

    def _hold_to(self, pins: dict[str, object]) -> None:
        """Remember a file's version token, or compare it with the one that was remembered. Raises FileChangedError.

        A store may spell one ETag or time in two ways. So tokens that differ count as equal if their facts prove equal
        bytes.
        """
        token = self.version_token
        if token is None:
            return
        facts = self._file.facts()
        before: Any = pins.setdefault(self.path, (token, facts))
        if before[0] != token and not proves(before[1], facts):
            self.close()
            raise FileChangedError(self.path, "was changed by another program since this source opened it; refresh it")

    @property
    def fd(self) -> int | None:
        """The descriptor of a local file, else None."""
        return self._file.fd

    @property
    def is_remote(self) -> bool:
        """Whether the file lies on another storage than the local disks."""
        return not self.location.is_local

    def arrow_file(self, span: tuple[int, int] | None = None) -> Any:
        """Open the same file once more, for pyarrow: the very file, whatever its path names by now.

        span  where reading will be in order, from start to end: a remote file is read ahead there
        pyarrow would take "~" and "s3:" in a path for more than a name.
        """
        import pyarrow as pa

        if self.is_whole_in_memory:  # a copy, as Python's bytes are read through the interpreter, one read at a time
            from parquet_bloom.format.arrow_types import arrows_own  # where pyarrow is there anyway

            return pa.BufferReader(arrows_own(self._tail[0][1]))
        if self.fd is None or self.is_cut:
            from parquet_bloom.storage.file_objects import ReadAhead  # for pyarrow alone

            return pa.PythonFile(ReadAhead(self.read, self.size, span), mode="r")
        return self.native_file()

    def native_file(self) -> Any:
        """Open the same local file once more, as one that outlives this object."""
        import pyarrow as pa

        same = f"/proc/self/fd/{self.fd}"
        path = same if os.path.exists(same) else os.path.abspath(self.location.path)
        whole = pa.OSFile(path, "r")
        if not self.is_cut:
            return whole
        from parquet_bloom.storage.file_objects import ReadAhead

        return pa.PythonFile(ReadAhead(lambda at, n: whole.read_at(n, at), self.size, None), mode="r")

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file. May be called twice."""
        self._file.close()

    def until(self, size: int) -> OpenFile:
        """The same file as if it ended after so many bytes. It is open as long as this one is, and costs nothing."""
        part = Beginning(self._file, self.read, size)
        return OpenFile(Location(self.location.path, self.location.filesystem, self.path, [part]))

    @property
    def is_cut(self) -> bool:
        """Whether the file is longer by now than what is read of it, as one is whose append was cut short."""
        return self.fd is not None and os.fstat(self.fd).st_size > self.size

    @property
    def stays_open(self) -> bool:
        """Whether it costs the storage nothing that this file is open: each read is a request of its own."""
        return self._file.stays

    @property
    def is_of_one_version(self) -> bool:
        """Whether each read is of the version that was opened, or an error: its requests name the ETag."""
        return self._file.one_version

    @property
    def bytes_kept(self) -> int:
        """Bytes of the file that are in memory."""
        return sum(len(data) for kept in (self._tail, *list(self._held.values())) for _, data in kept)

    @property
    def is_whole_in_memory(self) -> bool:
        """Whether one answer of the storage brought all of the file, and no read needs another."""
        return any(offset == 0 and len(data) == self.size for offset, data in self._tail)

    def check_unchanged(self) -> None:
        """Raise ConflictError if the path has another file by now, or this one was written to since it was opened."""
        if self._store.version(self.location) != self._file.version():
            raise ConflictError(self.path, "was changed by another program meanwhile; nothing was written")

    def is_one_answer(self, by_token: bool = False) -> bool:
        """Whether all that was read of a file of another storage is of one version, without a request.

        by_token  its version token counts as read: something was known of the file by that
        """
        if self._file.one_version or not self._file.pinned or self.requests == 0:
            return True
        return not by_token and self._footer_data is not None and (self.requests == 1 or self.is_whole_in_memory)

    def check_read(self, by_token: bool = False) -> None:
        """Raise FileChangedError if what was read may be of several versions of the file, or StorageError.

        One fstat of a local file. Of others one request, but none where that is sure without: see is_one_answer. An
        append of ours changes nothing that was there before.
        """
        file = self._file
        if file.fd is None:
            if self.is_one_answer(by_token) or self._store.version(self.location) == file.version():
                return
        elif not file.pinned or LocalToken.of(os.fstat(file.fd)) == file.version():
            return
        else:
            before = self._store.size_before_append(self.location, file)
            if before is not None and before[0] == self.size:
                return
        raise FileChangedError(self.path, CHANGED_WHILE_READ)

    @contextmanager
    def as_one_version(self, by_token: bool = False) -> Iterator[None]:
        """Check at the end what was read inside, as check_read; an error that a change caused is FileChangedError."""
        try:
            yield
        except FileError as error:
            try:
                self.check_read(True)
            except FileChangedError as changed:
                raise changed from error
            except StorageError:  # the first error says more
                pass
            raise
        self.check_read(by_token)

    @property
    def version_token(self) -> object:
        """The version token: it changes when the file is replaced or written to. None where the storage has none.

        Of a local file size, mtime, ctime, inode and device. Programs set the mtime back (rsync -t, touch -r), but
        nobody the ctime. A chmod, a chown or a new hard link changes it too: such a file counts as changed.
        """
        return self._file.version() if self._file.pinned else None

    def lasting_token(self, wait: bool = False) -> Kept | None:
        """The version token as JSON, to be kept: a file with an equal one has equal bytes (storage.version_token).

        wait     up to a tenth of a second, where the file changed too shortly before
        returns  None where the storage tells nothing that proves so much
        """
        return self._file.lasting(wait)

    def is_known_by(self, kept: object) -> bool:
        """Whether a token that was kept proves that the file has the bytes that it had then. False is "not known"."""
        return proves(kept, self._file.facts())

    @property
    def etag(self) -> str | None:
        """The ETag with which S3 answered when the file was opened; None on other storages."""
        return self._file.etag()

    def read(self, offset: int, length: int) -> bytes:
        """Read exactly `length` bytes at `offset`.

        Raises DamagedFileError where the file has fewer, StorageError for the system's errors.
        """
        if offset < 0 or length < 0 or offset + length > self.size:
            raise DamagedFileError(self.path, f"bytes {offset} to {offset + length} lie outside its {self.size}")
        if (held := self._from_memory(offset, length)) is not None:
            return held
        self.count(1, length)
        data = self._fetch(offset, length)
        if len(data) != length:
            at = offset + len(data)
            raise DamagedFileError(self.path, f"ends at byte {at}, it had {self.size} when it was opened")
        return data

    def count(self, requests: int, bytes_read: int) -> None:
        """Count bytes of this file that were read without `read`."""
        with self._counting:
            self.requests += requests
            self.bytes_read += bytes_read

    def _fetch(self, offset: int, length: int) -> bytes:
        """Read from the storage; fewer bytes only where the file ends."""
        try:
            return self._file.read(offset, length) if length else b""
        except ParquetBloomError:  # a file that is made of others
            raise
        except Exception as error:
            raise storage_error(self.path, error) from error

    def read_up_to(self, offset: int, length: int) -> bytes:
        """Read `length` bytes at `offset`, or as many as there are before the file's end."""
        return self.read(offset, max(0, min(length, self.size - offset)))

    def read_ranges(self, ranges: Sequence[Range]) -> list[bytes]:
        """Read (offset, length) ranges: those that lie close together at once, the others side by side."""
        if not self.is_remote:
            blocks = joined(sorted(set(ranges)), _LOCAL_GAP, self.size)
            answers = dict(answer for block in blocks for answer in self._read_block(block))
            return [answers[one] for one in ranges]
        pieces = {one: pieces_of(*one) for one in set(ranges)}
        blocks = joined(sorted({piece for parts in pieces.values() for piece in parts}), REMOTE_GAP, REMOTE_MOST)
        answers = dict(answer for block in side_by_side(self._read_block, blocks) for answer in block)
        return [
            answers[one] if len(pieces[one]) == 1 else b"".join(answers[piece] for piece in pieces[one])
            for one in ranges
        ]

    def _read_block(self, block: list[Range]) -> list[tuple[Range, bytes]]:
        start, stop = block[0][0], max(offset + length for offset, length in block)
        data = self.read(start, stop - start)
        return [
            ((o, n), data if (o, n) == (start, stop - start) else data[o - start : o - start + n]) for o, n in block
        ]

    def prefetch(self, ranges: Iterable[Range]) -> None:
        """Read ranges of a remote file side by side, and keep them for `read` until this thread calls for others."""
        if not self.is_remote:
            return
        inside = sorted({(o, n) for o, n in ranges if o >= 0 and n > 0 and o + n <= self.size})
        if inside and all(self._from_memory(o, n) is not None for o, n in inside):
            return
        mine = threading.get_ident()
        self._held.pop(mine, None)
        inside = [(o, n) for o, n in inside if self._from_memory(o, n) is None]  # not in its end
        whole = [(b[0][0], max(o + n for o, n in b) - b[0][0]) for b in joined(inside, REMOTE_GAP, REMOTE_MOST)]
        if whole:
            self._held[mine] = [(o, data) for (o, _), data in zip(whole, self.read_ranges(whole), strict=True)]

    def forget(self) -> None:
        """Give up what any thread prefetched."""
        self._held.clear()

    def _from_memory(self, offset: int, length: int) -> bytes | None:
        footer, start = self._footer_data or (b"", self.size)
        if offset < start and not (self._tail or self._held):
            return None  # as of most reads of local files, some of which are short
        for held in (self._tail, *list(self._held.values()), [(start, footer)]):
            at = bisect_right(held, offset, key=lambda block: block[0]) - 1
            if at >= 0 and offset + length <= held[at][0] + len(held[at][1]):
                start = offset - held[at][0]
                return held[at][1][start : start + length]
        return None

    def footer(self) -> Footer:
        """Read and decode the footer, once. Raises NotParquetError, DamagedFileError, EncryptedFileError.

        Of a large one Thrift objects are decoded when somebody asks for one; that raises the same.
        """
        if self._footer is None:
            with self._footer_errors():
                data, start = self._footer_bytes()
                found = walk_outline(data, start) if len(data) >= _least_walked() else None
            if found is None:
                self._footer = self._read_footer()
            else:
                self._outline, self._footer = found, WalkedFooter(found, lambda: self._read_footer().metadata)
        return self._footer

    def outline(self) -> Outline:
        """Read the footer, once, as what deciding about row groups needs of it. Raises as `footer`."""
        if self._outline is None:
            with self._footer_errors():
                self._outline = decode_outline(*self._footer_bytes())
        return self._outline

    def adopt(self, outline: Outline) -> None:
        """Take an outline that was read before from a file of the same version token."""
        self._outline = outline

    def footer_bytes(self) -> tuple[bytes, int]:
        """Read the footer's bytes, once, and where they start. Raises as `footer`, of what it does not decode."""
        with self._footer_errors():
            return self._footer_bytes()

    @property
    def end(self) -> tuple[int, bytes]:
        """Offset and bytes of the end that is in memory since a remote footer was read; (size, b"") without one."""
        return self._tail[0] if self._tail else (self.size, b"")

    def _read_footer(self) -> Footer:
        with self._footer_errors():
            return decode_footer(*self._footer_bytes())

    def _footer_bytes(self) -> tuple[bytes, int]:
        """The footer's bytes and where they lie."""
        if self._footer_data is None:
            try:
                tail = self.read(max(0, self.size - TAIL_GUESS), min(self.size, TAIL_GUESS))
                length = footer_length(tail, self.size)
            except EncryptedFooterError:
                raise
            except DamagedFileError:  # shorter than it was
                if self._renew():
                    return self._footer_bytes()
                raise
            except FooterError as error:
                before = self._store.size_before_append(self.location, self._file)
                if before is not None and before[0] < self.size:
                    return self._footer_before(*before)
                if self._renew():
                    return self._footer_bytes()
                # The magic is right and the length is not: damage. Without the magic: something else.
                kind = DamagedFileError if tail[-4:] == MAGIC and self.size >= 12 else NotParquetError
                raise kind(self.path, str(error)) from error
            if self.is_remote:
                self._tail = [(self.size - len(tail), tail)]  # its end is asked for again by checks
            start = self.size - TAIL_BYTES - length
            held = len(tail) - TAIL_BYTES
            data = tail[held - length : held] if length <= held else self.read(start, length)
            self._footer_data = data, start
        return self._footer_data

    def _renew(self) -> bool:
        """Whether the file was written to since it was opened, as by an append whose journal went with its end."""
        self._renewals += 1
        if self._renewals > _RENEWALS or not self._store.renew(self._file):
            return False
        self.size = self._file.size
        return True

    def _footer_before(self, size: int, crc: int) -> tuple[bytes, int]:
        """Of a file at whose end an append is not finished: it is read as it was before, whose footer had that CRC."""
        whole, self.size = self.size, size
        with self._footer_errors():
            data, start = self._footer_bytes()
        if zlib.crc32(data) != crc:
            self.size, self._footer_data = whole, None
            raise DamagedFileError(
                self.path, f"an append to it was cut short at {whole:,} bytes, and before it is damage"
            )
        return data, start

    @contextmanager
    def _footer_errors(self) -> Iterator[None]:
        try:
            yield
        except EncryptedFooterError as error:
            raise EncryptedFileError(self.path, f"{error}; encrypted files are not supported") from error
        except FooterLimitError as error:
            raise LimitError(self.path, error.message + "; raise it for a file that you trust") from error
        except FooterError as error:
            raise DamagedFileError(self.path, str(error)) from error


def arrow_input(at: Location) -> Any:
    """Open a file for pyarrow, which waits for a pipe. Raises StorageError for a local one of another kind, OSError."""
    if not at.is_local:
        return arrow_of(at.filesystem).open_input_file(at.path)
    with OpenFile(at) as file:
        return file.native_file()


def joined(ranges: Sequence[Range], gap: int, most: int) -> list[list[Range]]:
    """Sorted ranges in blocks: those no further apart than `gap`, while they take `most` bytes together."""
    blocks: list[list[Range]] = []
    start = stop = 0
    for offset, length in ranges:
        if blocks and offset <= stop + gap and max(stop, offset + length) - start <= most:
            blocks[-1].append((offset, length))
            stop = max(stop, offset + length)
        else:
            blocks.append([(offset, length)])
            start, stop = offset, offset + length
    return blocks


def pieces_of(offset: int, length: int) -> list[Range]:
    """A range in pieces of REMOTE_MOST bytes, which are requested side by side."""
    return [(at, min(REMOTE_MOST, offset + length - at)) for at in range(offset, offset + length, REMOTE_MOST)] or [
        (offset, length)
    ]
