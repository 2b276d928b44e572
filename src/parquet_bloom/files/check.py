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
from typing import Any

from parquet_bloom.errors import FilterFormatError, FilterWarning, UnknownFilterError
from parquet_bloom.files.inspect import readable
from parquet_bloom.files.locate import Place, Places, probe
from parquet_bloom.files.paths import Failed, each
from parquet_bloom.files.storage import PathLike, Source
from parquet_bloom.formats.schema import find_leaf
from parquet_bloom.formats.values import Encoded, encode_literal
from parquet_bloom.predicates.outcomes import Outcomes
from parquet_bloom.predicates.text import parse_equality
from parquet_bloom.predicates.tree import Compare

logger = logging.getLogger("parquet_bloom")


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
    for i, group in enumerate(footer.metadata.row_groups):
        before = source.bytes_read
        outcome, decided_by, reason = Outcomes.ANY, None, "no filter"
        if group.num_rows == 0:
            outcome, decided_by, reason = Outcomes.NONE, "no rows", "the row group has no rows"
        elif encoded.probes is None:
            reason = encoded.reason
        elif not encoded.probes:
            outcome, decided_by, reason = Outcomes.FALSE | Outcomes.NULL, "literal", encoded.reason
        elif (place := places[i, leaf.index]) is not None:
            outcome, decided_by, reason = _ask(source, place, encoded, f"row group {i}, column {leaf.name}")
        skipped = Outcomes.TRUE not in outcome
        verdicts.append(
            RowGroupVerdict(source.path, i, outcome, skipped, decided_by, reason, source.bytes_read - before)
        )
    return verdicts


def _ask(source: Source, place: Place, encoded: Encoded, where: str) -> tuple[Outcomes, str | None, str]:
    assert encoded.probes is not None
    try:
        if any(probe(source, place, plain) for plain in encoded.probes):
            return Outcomes.ANY, None, "the filter admits the value"
    except UnknownFilterError as error:
        return Outcomes.ANY, None, f"filter not used: {error}"
    except FilterFormatError as error:
        message = f"{source.path}: {where}: filter ignored: {error}"
        logger.warning(message)
        warnings.warn(message, FilterWarning, stacklevel=2)
        return Outcomes.ANY, None, f"filter ignored: {error}"
    return Outcomes.FALSE | Outcomes.NULL, "filter", "the filter denies the value"
