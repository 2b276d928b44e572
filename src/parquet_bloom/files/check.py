"""Which row groups can hold a value: the header and one block of each filter, no data.

True of every verdict: a row group is skipped only if no row in it can match. Where a filter is of
a kind we do not know, or its bytes contradict each other, the row group is kept; the second is
worth a warning (FilterWarning).
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from parquet_bloom.errors import FilterFormatError, FilterWarning, UnknownFilterError
from parquet_bloom.files.inspect import readable
from parquet_bloom.files.locate import Place, Places, probe
from parquet_bloom.files.paths import Failed, each
from parquet_bloom.files.storage import PathLike, Source
from parquet_bloom.formats.schema import find_leaf
from parquet_bloom.formats.values import encode_literal
from parquet_bloom.predicates.outcomes import Outcomes
from parquet_bloom.predicates.text import parse_equality
from parquet_bloom.predicates.tree import Compare

logger = logging.getLogger("parquet_bloom")
logger.addHandler(logging.NullHandler())  # whoever wants the lines adds a handler; the warning is enough


@dataclass(frozen=True, slots=True)
class RowGroupVerdict:
    """What is known of one row group without reading its data.

    outcome     what the predicate may give over its rows
    skipped     no row can match
    decided_by  "filter", "literal" (no value of the type equals it), "no rows", or None: not decided
    reason      in words
    bytes_read  of the file, to decide; the footer not counted
    """

    path: str
    row_group: int
    outcome: Outcomes
    skipped: bool
    decided_by: str | None
    reason: str
    bytes_read: int


class Verdicts(list[RowGroupVerdict]):
    """Verdicts in the order of files and row groups; `failed` are the files that could not be read."""

    def __init__(self, verdicts: Sequence[RowGroupVerdict] = (), failed: Sequence[Failed] = ()) -> None:
        super().__init__(verdicts)
        self.failed = list(failed)


def check(source: PathLike | Sequence[PathLike], predicate: str, *, filesystem: Any = None) -> Verdicts:
    """Say for every row group of one Parquet file, or several, whether a row can match.

    predicate   one equality as SQL text, "id = 5" or "user.name = 'Ada'"; on a repeated column it
                speaks of elements: some element equals the literal
    filesystem  any pyarrow file system; source then names files on it

    Raises TextError with the spot marked, UnknownColumnError; FileError for one file alone.
    """
    compare = parse_equality(predicate)

    def work(path: str) -> list[RowGroupVerdict]:
        with Source(path, filesystem) as opened:
            return _check(opened, compare)

    paths, single = readable(source, filesystem)
    results = each(paths, work, single)
    return Verdicts([verdict for file in results for verdict in file], results.failed)


def _check(source: Source, compare: Compare) -> list[RowGroupVerdict]:
    footer = source.footer()
    leaf = find_leaf(footer.leaves, compare.path)
    encoded = encode_literal(compare.value, leaf)
    places = Places(footer)
    verdicts = []
    ignored: list[str] = []
    for i, group in enumerate(footer.metadata.row_groups):
        before = source.bytes_read
        answer = _Answer(Outcomes.ANY, None, "no filter")
        if group.num_rows == 0:
            answer = _Answer(Outcomes.NONE, "no rows", "the row group has no rows")
        elif encoded.probes is None:
            answer = _Answer(Outcomes.ANY, None, encoded.reason)
        elif not encoded.probes:
            answer = _Answer(Outcomes.FALSE | Outcomes.NULL, "literal", encoded.reason)
        elif (place := places[i, leaf.index]) is not None:
            try:
                answer = _ask(source, place, encoded.probes)
            except FilterFormatError as error:
                answer = _Answer(Outcomes.ANY, None, f"filter ignored: {error}")
                ignored.append(f"row group {i}, column {leaf.name}: {error}")
        skipped = Outcomes.TRUE not in answer.outcome
        read = source.bytes_read - before
        verdicts.append(
            RowGroupVerdict(source.path, i, answer.outcome, skipped, answer.decided_by, answer.reason, read)
        )
    if ignored:
        message = f"{source.path}: {len(ignored)} damaged filters ignored, the first: {ignored[0]}"
        logger.warning(message)
        warnings.warn(message, FilterWarning, stacklevel=2)
    return verdicts


class _Answer(NamedTuple):
    outcome: Outcomes
    decided_by: str | None
    reason: str


def _ask(source: Source, place: Place, probes: Sequence[bytes]) -> _Answer:
    try:
        if any(probe(source, place, plain) for plain in probes):
            return _Answer(Outcomes.ANY, None, "the filter admits the value")
    except UnknownFilterError as error:
        return _Answer(Outcomes.ANY, None, f"filter not used: {error}")
    return _Answer(Outcomes.FALSE | Outcomes.NULL, "filter", "the filter denies the value")
