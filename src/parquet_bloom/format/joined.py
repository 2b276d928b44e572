"""The outlines of several files as one, so that one pass over arrays decides about all of them.

    file 0   row groups 0 to 9     its byte x is byte x of the joined file
    file 1   row groups 10 to 12   its byte x is byte FAR + x
    file 2   ...                   2 FAR + x

A joined file has one schema, one writer and one set of column orders. Its offsets never leave the FAR bytes of their
own file: files whose offsets would are not joined (`is_joinable`), and neither are those of FAR bytes or more. So what
filters.locate finds between neighbours, it finds between those of one file.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.format.footer import MAGIC
from parquet_bloom.format.outline import NONE, Outline, Slot, extents_in
from parquet_bloom.records import dataclass

FILE_BITS = 42
FAR = 1 << FILE_BITS  # bytes; no file of 4 TiB is joined
_OFFSETS = (Slot.DATA_PAGE, Slot.DICTIONARY_PAGE, Slot.FILTER_OFFSET, Slot.OFFSET_INDEX, Slot.COLUMN_INDEX)
_SPANS = (Slot.OLD_MAX, Slot.OLD_MIN, Slot.MAX_VALUE, Slot.MIN_VALUE, Slot.KEY_VALUES, Slot.DRAFT_FILTER)


@dataclass
class JoinedOutline(Outline):
    """An outline of several files, see the module.

    firsts   int64[files + 1]: the first row group of each file, and the number of all
    file_of  int64[row groups]
    starts   int64[files]: where each footer starts, in the joined file
    """

    firsts: NDArray[np.int64] = None  # type: ignore[assignment]
    file_of: NDArray[np.int64] = None  # type: ignore[assignment]
    starts: NDArray[np.int64] = None  # type: ignore[assignment]

    @property
    def footers(self) -> NDArray[np.int64]:
        """As Outline has it."""
        return self.starts

    @property
    def footer_of(self) -> NDArray[np.int64]:
        """As Outline has it."""
        return self.starts[self.file_of]

    def in_some_of_file(self, flags: NDArray[np.bool_]) -> NDArray[np.bool_] | bool:
        """As Outline has it."""
        found = np.bincount(self.file_of[flags], minlength=len(self.starts)) > 0
        return True if found.all() else found[self.file_of]


def is_joinable(slots: NDArray[np.int64], end: NDArray[np.int64] | int) -> NDArray[np.bool_]:
    """Find the row groups without an offset outside of their file's body: bool[row groups].

    end  where the footers of their files start: a number, or int64[row groups]
    """
    end = end[:, None] if isinstance(end, np.ndarray) else end
    start, stop = extents_in(slots)
    # A chunk without values may have no pages.
    has_pages = (start >= len(MAGIC)) | ((slots[Slot.NUM_VALUES] == 0) & (start == stop) & (start >= 0))
    sound = has_pages & (stop >= start) & (stop <= end)
    dictionary = slots[Slot.DICTIONARY_PAGE]
    sound &= (dictionary == NONE) | ((dictionary >= 0) & (dictionary <= end))
    for slot in (Slot.FILTER_OFFSET, Slot.OFFSET_INDEX, Slot.COLUMN_INDEX):
        offset = slots[slot]
        sound &= (offset == NONE) | (offset == 0) | ((offset >= len(MAGIC)) & (offset <= end))
    found: NDArray[np.bool_] = sound.all(axis=1)
    return found


def join(outlines: Sequence[Outline]) -> tuple[JoinedOutline | None, list[int]]:
    """Join outlines of one schema, writer and column orders; and the numbers of those that are joinable."""
    counts = np.array([len(one.rows) for one in outlines], np.int64)
    file_of = np.repeat(np.arange(len(outlines)), counts)
    slots = np.concatenate([one.slots for one in outlines], axis=1)
    starts = np.array([one.start for one in outlines], np.int64)
    joinable = is_joinable(slots, starts[file_of])
    if not joinable.all():
        odd = set(file_of[~joinable].tolist())
        numbers = [i for i in range(len(outlines)) if i not in odd]
        joined, kept = join([outlines[i] for i in numbers]) if numbers else (None, [])
        return joined, [numbers[i] for i in kept]
    sizes = np.array([len(one.data) for one in outlines], np.int64)
    shift(slots, file_of, (np.cumsum(sizes) - sizes)[file_of])
    first = outlines[0]
    joined = JoinedOutline(
        b"".join([one.data for one in outlines]),
        len(outlines) << FILE_BITS,
        first.leaves,
        first.metadata,
        np.concatenate([one.rows for one in outlines]),
        slots,
        firsts=np.concatenate([[0], np.cumsum(counts)]),
        file_of=file_of,
        starts=starts + (np.arange(len(outlines)) << FILE_BITS),
    )
    return joined, list(range(len(outlines)))


def shift(slots: NDArray[np.int64], file_of: NDArray[np.int64], places: NDArray[np.int64]) -> None:
    """Move offsets to those of the joined file, and spans by the places of their files' bytes, in place."""
    far = (file_of << FILE_BITS)[:, None]
    for slot in _OFFSETS:  # 0 and NONE stay what they are, as nothing is there
        slots[slot] += np.where(slots[slot] >= len(MAGIC), far, 0)
    for slot in _SPANS:
        slots[slot] += np.where(slots[slot] != NONE, places[:, None], 0)
