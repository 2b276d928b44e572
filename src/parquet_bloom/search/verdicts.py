"""What a search found out, as values: a verdict a row group, files that were not opened, parts that told nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from parquet_bloom.formats.metadata.derived import derived
from parquet_bloom.formats.metadata.outline import Outline, Slot
from parquet_bloom.predicates.bind import Bound, Members, Opaque, terms_of
from parquet_bloom.predicates.outcomes import TRUE, Outcomes
from parquet_bloom.predicates.tree import Predicate
from parquet_bloom.search.evidence import STAGES, Decision
from parquet_bloom.search.search import FileResult
from parquet_bloom.storage.results import Printed
from parquet_bloom.storage.shown import line_of
from parquet_bloom.tables.snapshot import TableFile

logger = logging.getLogger("parquet_bloom")


class RowGroupVerdict(NamedTuple):
    """What is known of one row group without reading its data.

    outcome     what the predicate may give over its rows
    skipped     no row can match
    decided_by  what made a match impossible: "no rows", "literal" (no value of the type can match),
                "partition" (the folder's name), "bounds" (min, max and null counts), "filter",
                "index" (a zone index that was given); or None
    bytes_read  of the file, to decide; the footer not counted
    reason      in words
    rows, size  of the row group; size is that of its column chunks, compressed bytes
    """

    path: str
    row_group: int
    outcome: Outcomes
    skipped: bool
    decided_by: str | None
    bytes_read: int
    reason: str
    rows: int
    size: int

    def __repr__(self) -> str:
        return line_of(self)


@dataclass(frozen=True, slots=True, repr=False)
class ExcludedFile(Printed):
    """A file that was not opened, as what is known of it before excludes every row.

    decided_by  "partition", "bounds" (both: the log of its table), "literal", or "partition" by its folder's name
    reason      in words
    rows, size  as the log has them; None: not known
    """

    path: str
    decided_by: str
    reason: str
    rows: int | None = None
    size: int | None = None


def excluded_file(searched: FileResult) -> ExcludedFile | None:
    """What is told of a file that was not opened; None of one that was."""
    why, file = searched.excluded, searched.file
    if why is None:
        return None
    rows, size = (file.rows, file.size) if isinstance(file, TableFile) else (None, None)
    return ExcludedFile(str(file), why.decided_by, why.reason, rows, size)


class UnusedParts:
    """The parts of a predicate that no evidence could answer; each reason once, with the number of files."""

    def __init__(self, files: Iterable[FileResult] = ()) -> None:
        self._files = 0
        self._last: tuple[Bound | None, list[tuple[str, str]]] = (None, [])
        self._found: dict[tuple[str, str], tuple[str, int]] = {}
        for file in files:
            self.add(file)

    def add(self, file: FileResult) -> None:
        """Take one file's parts over; of a file that its folder's name excludes there are none."""
        if file.bound is None:
            return
        self._files += 1
        if file.bound is not self._last[0]:  # files of one schema share it
            opaque = [term for term in terms_of(file.bound) if isinstance(term, Opaque)]
            self._last = file.bound, list({(str(term.part), term.reason): None for term in opaque})
        for key in self._last[1]:
            first, count = self._found.get(key, (str(file.file), 0))
            self._found[key] = first, count + 1

    @property
    def parts(self) -> list[tuple[str, str]]:
        """(part, reason); the reason names a file, and how many there are, where others do use the part."""
        parts = []
        for (part, reason), (first, count) in self._found.items():
            if count < self._files:
                such = ", such as" if count > 1 else ":"
                reason = f"{reason} (in {count:,} of {self._files:,} files{such} {first})"
            parts.append((part, reason))
        return parts


_OUTCOMES = [Outcomes(bits) for bits in range(8)]
_REASONS = {
    "no rows": "the row group has no rows",
    "literal": "no value of the column's type can match",
    "partition": "the folder's name excludes it",
    "bounds": "min, max and null counts exclude it",
    "filter": "the filter denies the value",
    "index": "the index denies the value in all of its zones",
}


def verdicts_of(searched: FileResult) -> Iterable[RowGroupVerdict]:
    """A verdict for every row group of a file."""
    decision, outline, bound = searched.decision, searched.outline, searched.bound
    assert decision is not None
    assert outline is not None
    assert bound is not None
    n = outline.n_row_groups
    stages = [STAGES[i] for i in decision.stage.tolist()]
    skipped = [stage is not None for stage in stages]
    columns = zip(
        repeat(str(searched.file)),
        range(n),
        map(_OUTCOMES.__getitem__, decision.outcomes.tolist()),
        skipped,
        stages,
        decision.bytes_read.tolist(),
        _reasons(decision, bound, stages),
        outline.rows.tolist(),
        sizes_of(outline).tolist(),
        strict=False,
    )
    return map(partial(tuple.__new__, RowGroupVerdict), columns)


@derived
def sizes_of(outline: Outline) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Compressed bytes of each row group: int64[row groups]."""
    sizes: np.ndarray[Any, np.dtype[np.int64]] = outline.slots[Slot.COMPRESSED_SIZE].sum(axis=1)
    return sizes


def _reasons(decision: Decision, bound: Bound, stages: list[str | None]) -> list[str]:
    skips: dict[str | None, str] = {None: ""}
    skips.update(_REASONS)
    if "literal" in stages:
        skips["literal"] = _literal_reason(bound)
    reasons = [skips[stage] for stage in stages]
    kept = np.flatnonzero(decision.stage == 0).tolist()
    if kept:
        opaque = next((term.reason for term in terms_of(bound) if isinstance(term, Opaque)), None)
        for i in kept:
            if decision.outcomes[i] == TRUE:
                reasons[i] = "every row matches"
            elif i in decision.notes:
                reasons[i] = decision.notes[i]
            elif decision.asked[i]:
                reasons[i] = "the filter admits the value"
            else:
                reasons[i] = opaque or "nothing excludes it"
    return reasons


def _literal_reason(bound: Bound) -> str:
    for term in terms_of(bound):
        if isinstance(term, Members):
            if term.null and not term.operands:
                return "nothing equals NULL"
            for operand in term.operands:
                if operand.never and operand.reason:
                    return operand.reason
    return _REASONS["literal"]


def log_search(predicate: Predicate, files: Sequence[FileResult]) -> None:
    """Log what was skipped, and which parts of the predicate told nothing."""
    groups = sum(file.decision is not None and len(file.decision.stage) for file in files)
    kept = sum(int(file.decision.open.sum()) for file in files if file.decision is not None)
    size = sum(int(sizes_of(file.outline).sum()) for file in files if file.outline is not None)
    left = sum(int(sizes_of(f.outline)[f.decision.open].sum()) for f in files if f.outline is not None and f.decision)
    closed = sum(file.decision is None for file in files)
    logger.info(
        "%s: %d of %d row groups and %d of %d bytes skipped, %d of %d files not opened",
        predicate, groups - kept, groups, size - left, size, closed, len(files),
    )  # fmt: skip
    for part, reason in UnusedParts(files).parts:
        logger.info("not used to skip: %s: %s", part, reason)
