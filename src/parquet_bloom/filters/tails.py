"""Tails: filters and a second footer that an `add` of ours put behind a whole file, or a footer that a `repair` did.

    [ PAR1 | body | footer | PAR1 ][ filters | footer' | PAR1 ]
                                  ^ size of the file without its tail

An entry of the provenance tells that size and the CRC-32 of the footer before it. It is believed if a footer with
that CRC ends exactly there, and the new footer says nothing that the old one does not but of filters: then all that
it names beyond lies among filters, and cutting the tail off loses nothing else. The footer of a repair may differ in
statistics, too, and name no page index where the old one did.

That says where a tail begins, and nothing of the values in front of it: another program may have written other ones
into the body, in place, with size and footer as they were. Taking the tail off is right all the same. It keeps every
byte of the body as that program wrote it, and takes away filters that no longer fit. Whoever needs to know that the
values are the old ones, as a zone index does, compares the chunks themselves (filters.content), tail or none.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar

from parquet_bloom.errors import DamagedFileError, EncryptedFileError, FooterError, LimitError, NotParquetError
from parquet_bloom.format.edits import FooterEdit, edit_footer, index_changes
from parquet_bloom.format.footer import ChunkKey, Footer, IndexKind
from parquet_bloom.format.footer_filters import changes_of, footer_filters
from parquet_bloom.format.provenance import all_ranges, our_indexes, read_entries, recorded_tails, repair_tails
from parquet_bloom.format.repairs import KEY
from parquet_bloom.format.schema import Leaf
from parquet_bloom.options import limits
from parquet_bloom.source.results import Results, map_files
from parquet_bloom.source.source import ResolvedSource
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.workers import Meter

_NO_FOOTER = (DamagedFileError, EncryptedFileError, LimitError, NotParquetError)


@dataclass(frozen=True, slots=True)
class Tail:
    """A tail that is ours.

    size     bytes of the file without it
    footer   the footer of that file
    chunks   whose filters its own entries speak of
    changed  the chunks for which the two footers name different filters, or one of them names none
    repairs  whether it is one of `repair`: the statistics before it are wrong
    indexes  how many page indexes the new footer names and the old one does not
    """

    size: int
    footer: Footer
    chunks: frozenset[ChunkKey]
    changed: frozenset[ChunkKey]
    repairs: bool
    indexes: int


def tails_of(source: OpenFile) -> Iterator[tuple[Tail, OpenFile]]:
    """The tails of a file that can be cut off, the newest first, each with the file as it was before it."""
    while (tail := tail_of(source)) is not None:
        source = source.until(tail.size)
        yield tail, source


def as_it_was(source: OpenFile, size: int) -> OpenFile | None:
    """The file when it had so many bytes: itself, or before its newest tails; None where none of them begins there."""
    source.footer()  # what an append left half written is no part of the file, and its size tells so from here on
    if source.size == size:
        return source
    before = next((before for _, before in tails_of(source) if before.size <= size), None)
    if before is None or before.size == size:
        return before
    return _passed_over(source, before, size)


def _passed_over(source: OpenFile, before: OpenFile, size: int) -> OpenFile | None:
    """The file when it ended with a tail behind `before`, over which a later one passes to the same footer."""
    part = source.until(size)
    with suppress(*_NO_FOOTER):
        if any(at.size == before.size for _, at in tails_of(part)):
            return part
    return None


def tail_of(source: OpenFile) -> Tail | None:
    """The newest tail of a file, if it is ours. Raises as OpenFile.footer, of the file itself."""
    footer = source.footer()
    of_repairs = repair_tails(footer)
    for size, crc in recorded_tails(footer):
        old, repairs = footer_before(source, size, crc), (size, crc) in of_repairs
        if old is None or not _same_but_filters(old, footer, repairs):
            continue  # a program that wrote the file anew may have carried an entry along
        had, has = all_ranges(old), all_ranges(footer)
        chunks = [key for entry in read_entries(footer) if entry.tail == (size, crc) for key in entry.chunks]
        changed = {key for key in had.keys() | has.keys() if had.get(key) != has.get(key)}
        more = sum(len(footer.index_ranges(kind).keys() - old.index_ranges(kind).keys()) for kind in IndexKind)
        return Tail(size, old, frozenset(chunks), frozenset(changed), repairs, more)
    return None


def footer_before(source: OpenFile, size: int, crc: int) -> Footer | None:
    """The footer of CRC-32 `crc` that ends, with its length and magic, at byte `size` of a file; None for any other."""
    if not 0 < size <= source.footer().start:
        return None
    with suppress(*_NO_FOOTER):
        footer = source.until(size).footer()
        return footer if zlib.crc32(footer.data) == crc else None
    return None


def older_footers(source: OpenFile) -> list[tuple[int, int]]:
    """(offset, bytes) of the older footers before our tails in a file, lengths and magics included.

    Also those of tails under somebody else's later footer, as long as the filters are where our entries say.
    """
    found: list[tuple[int, int]] = []
    at = source
    while True:
        told = ((size, footer_before(at, size, crc)) for size, crc in recorded_tails(at.footer()))
        size, old = next(((size, old) for size, old in told if old is not None), (0, None))
        if old is None:
            return found
        found.append((old.start, size - old.start))
        at = at.until(size)


def _same_but_filters(old: Footer, new: Footer, repairs: bool) -> bool:
    empty = old.key_values == []
    try:
        return _without_filters(old, empty, repairs) == _without_filters(new, empty, repairs)
    except FooterError:
        return False


def _without_filters(footer: Footer, keep_empty: bool, bare: bool) -> bytes:
    """A footer without any filter, our page indexes, and what we say of them; bare: as FooterEdit has it."""
    ours = {at: None for at, pair in enumerate(footer.key_values or []) if pair.key == KEY}
    if not bare and not ours and not footer.filter_fields and not footer_filters(footer):
        return footer.data  # as an edit of nothing would give it
    edit = FooterEdit(
        indexes=index_changes({kind: dict.fromkeys(keys) for kind, keys in our_indexes(footer).items()}),
        filter_ranges=dict.fromkeys(footer.filter_fields),
        key_values=ours,
        keep_empty=keep_empty,
        texts=changes_of(footer, footer_filters(footer)),
        bare=bare,
    )
    return edit_footer(footer.data, edit)


# --- each of many files as its source has it: the frame of inspect, verify, status -----------------
#
# ResolvedSource -> each file, at the size that the log says -> footer -> columns under their names -> a result a file

R = TypeVar("R")


@contextmanager
def open_logged(file: DataFile, pin: bool = False) -> Iterator[OpenFile]:
    """Open what a version of a table has of a file: without tails of ours that this version does not name.

    pin  of a file of another storage: it is an error where another program changes it meanwhile, which may cost two
         requests
    A file whose size is another one for another reason, or that is of no table, is taken as it is. Raises as OpenFile,
    and of a table's file as OpenFile.footer.
    """
    pin = pin and not file.is_local  # a local file that is replaced is read to its end
    with OpenFile(file, pin=pin) as source, source.as_one_version() if pin else nullcontext():
        yield (as_it_was(source, file.size) or source) if file.size else source


def each_file(
    found: ResolvedSource,
    work: Callable[[OpenFile, tuple[Leaf, ...]], R],
    meter: Meter,
    most: int | None = None,
    pin: bool = False,
) -> Results[R]:
    """The result of every file; one bad file among many does not stop the others.

    Files on other storages are worked on side by side, where a part of a file is no progress that anybody hears of.

    work   of an open file and its columns, as people name them
    meter  as source.results.map_files has it
    most   files of other storages at a time, where each needs much memory; limits().concurrency unless given
    pin    as open_logged has it
    Raises as source.results.map_files.
    """
    names, turn = found.names, Lock()

    def one(file: DataFile) -> R:
        with open_logged(file, pin) as opened:
            opened.footer_bytes()
            # Of a small object no request is left, and what is done in memory gains nothing by threads that take
            # Python's lock from each other at each call of a kernel.
            with turn if opened.is_remote and opened.is_whole_in_memory else nullcontext():
                footer = opened.footer()
                found.see(opened.path, footer)
                return work(opened, names.display_leaves(footer, file))

    return map_files(found.files, one, found.single, found.failed, meter, files_at_once(found.files, most))


def files_at_once(files: Sequence[DataFile], most: int | None = None) -> int:
    """The number of these files to read at a time; 0 for local files, which then need no other threads."""
    if len(files) < 2 or any(file.is_local for file in files):
        return 0
    return limits().concurrency if most is None else min(most, limits().concurrency)
