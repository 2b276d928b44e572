"""Whether columns of a file are, byte for byte, those that something was made of: an index, or filters built elsewhere.

Footers answer this for nobody: a program that corrects one value writes, with the same settings, a file of equal size
and equal footer, times can be set back, and bytes can be written in place. Two things do answer:

    an equal token    what the storage says of the file's version, where that is proof (storage.version_token)
    equal hashes      XXH3 of 128 bits for each column chunk, of its pages as they lie in the file, after what the
                      footer says of how to read them: bytes, values, codec, type, writer

The hashes hold wherever the chunks lie: in a copy, and in a file that got or lost filters of ours, tails and a
footer, as `add` and `remove` move chunks and change nothing in them. The number of rows in each row group is compared
as well, since it says which rows a chunk is of. Taking hashes reads the column, so tokens are compared first.

A CRC-32 would not do: GZIP ends with the CRC-32 of its plain bytes, and where deflate stores these as they are the
CRC-32 of the whole is the same whatever they are. Elsewhere here a CRC-32 finds bytes that were torn or lost in what
this package itself wrote (journals, provenance, indexes, deletion vectors), and recognises no data. XXH3 is no
signature either: who can write to the file can lose its rows in simpler ways.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import xxhash

from parquet_bloom.errors import CHANGED, ConflictError, UnknownColumnError
from parquet_bloom.format.footer import Footer
from parquet_bloom.format.schema import Leaf, find_leaf
from parquet_bloom.format.walked import elements_to
from parquet_bloom.process import ForkSafe, Recent
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.version_token import Kept

_STEP = 4 << 20
_AT_ONCE = 64 << 20  # of a remote chunk, side by side; a chunk up to this size stays in memory until it is decoded
HASH_BYTES = 16
_FILES = 10_000  # whose hashes are remembered


@dataclass(frozen=True, slots=True)
class Content:
    """The recorded hashes of one column of a file.

    rows    of each row group
    hashes  of the column's chunk in each: XXH3, 128 bits, as 32 hexadecimal digits
    token   of the file; None where nothing that its storage says is proof
    """

    rows: Sequence[int]
    hashes: Sequence[str]
    token: Kept | None = None


def chunk_hash(source: OpenFile, footer: Footer, leaf: Leaf, row_group: int) -> str:
    """XXH3 of a chunk, 128 bits: first of what the footer says of its pages, then of their bytes. Raises FileError.

    On another storage the last _AT_ONCE bytes of it are kept for `OpenFile.read`.
    """
    found = xxhash.xxh3_128(_description(footer, leaf, row_group))
    start, stop = footer.column_chunks(leaf.index).extents[row_group]
    for first in range(start, stop, _AT_ONCE):
        last = min(first + _AT_ONCE, stop)
        source.prefetch([(first, last - first)])
        for at in range(first, last, _STEP):
            found.update(source.read(at, min(_STEP, last - at)))
    return found.hexdigest()


def _description(footer: Footer, leaf: Leaf, row_group: int) -> bytes:
    """Without offsets from the start of the file, which filters in front of the chunk change."""
    chunks = footer.column_chunks(leaf.index)
    start, stop = chunks.extents[row_group]
    facts = [
        stop - start,
        chunks.num_values[row_group],
        chunks.codecs[row_group],
        footer.created_by,
        leaf.path,
        [element.repetition_type for element in elements_to(footer, leaf)],
        leaf.physical,
        leaf.type_length,
        leaf.logical,
        leaf.bits,
        leaf.signed,
        leaf.scale,
        leaf.precision,
        leaf.unit_ns,
        leaf.utc,
    ]
    return json.dumps(facts).encode()


class Recording:
    """Columns of an open file while they are decoded, so that what is kept of them is of the decoded bytes.

    With a token that lasts it is enough that the file has it still when all is read. Where there is none, a chunk's
    hash is taken before and after it is decoded; on another storage it is decoded out of the bytes that
    the hash is of.
    """

    def __init__(self, source: OpenFile) -> None:
        self._source = source
        self._token = source.lasting_token(wait=True)
        self._hashes: dict[int, list[str]] = {}

    @contextmanager
    def decoding(self, leaf: Leaf, row_group: int) -> Iterator[None]:
        """While one chunk is decoded; row groups ascending. Raises ConflictError where its bytes changed."""
        source, footer = self._source, self._source.footer()
        start, stop = footer.column_chunks(leaf.index).extents[row_group]
        kept_in_memory = source.is_remote and stop - start <= _AT_ONCE
        before = chunk_hash(source, footer, leaf, row_group) if kept_in_memory or self._token is None else None
        yield
        found = before if before is not None and kept_in_memory else chunk_hash(source, footer, leaf, row_group)
        if before is not None and found != before:
            raise ConflictError(source.path, CHANGED)
        self._hashes.setdefault(leaf.index, []).append(found)

    def content(self, leaf: Leaf) -> Content:
        """Of a column of which every chunk was decoded. Raises ConflictError where the file changed meanwhile."""
        pinned = self._source.is_of_one_version  # each read would have been an error
        if not pinned and (self._token is not None or not self._source.is_remote):
            self._source.check_unchanged()
        return Content(self._source.footer().rows, self._hashes.get(leaf.index, []), self._token)


# --- is it the same still -------------------------------------------------------------------------


_Remembered = Recent[tuple[str, str], dict[tuple[int, int], str]]  # path, token -> (column, row group) -> hash
_remembered: ForkSafe[_Remembered] = ForkSafe(lambda: Recent(_FILES))


def difference(
    kept: Content, source: OpenFile, path: tuple[str, ...], row_groups: Iterable[int] | None = None
) -> str | None:
    """The difference in a column's bytes, in words; None where token or hashes are equal.

    path        of the column
    row_groups  whose chunks matter; None: all. The rows of each row group are compared in any case
    Raises FileError where the file cannot be read. Hashes are taken once in a process for each version of a file
    that a token can tell.
    """
    if source.is_known_by(kept.token):
        return None
    footer = source.footer()
    try:
        leaf = find_leaf(footer.leaves, path)
    except UnknownColumnError:
        return f"it has no column {'.'.join(path)}"
    rows = list(footer.rows)
    if rows != list(kept.rows) or len(rows) != len(kept.hashes):
        return f"its {len(rows)} row groups have other rows than the {len(kept.rows)} before"
    token = source.lasting_token()
    known = _known_of(source, token)
    for group in range(len(rows)) if row_groups is None else row_groups:
        found = known.get((leaf.index, group))
        if found is None:
            found = known[leaf.index, group] = chunk_hash(source, footer, leaf, group)
            if token is not None and source.lasting_token() != token:
                _forget(source, token)
        if found != kept.hashes[group]:
            return f"column {leaf.name} of row group {group} has other bytes"
    return None


def _known_of(source: OpenFile, token: Mapping[str, Any] | None) -> dict[tuple[int, int], str]:
    """(column, row group) -> the hash of a file's chunk, as far as this process has taken them."""
    if token is None:
        return {}
    key = source.path, json.dumps(token, sort_keys=True)
    remembered = _remembered.own
    with remembered.lock:
        known = remembered.find(key)
        if known is None:
            known = {}
            remembered.keep(key, known)
        return known


def _forget(source: OpenFile, token: Mapping[str, Any]) -> None:
    remembered = _remembered.own
    with remembered.lock:
        remembered.drop((source.path, json.dumps(token, sort_keys=True)))
