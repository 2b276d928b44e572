"""What stands out among many filters: row groups that lack one, and filters that are much fuller than the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from parquet_bloom.report.tables import plural, ranges, share, size

_SHOWN = 3  # of a kind
_FULL = 0.05  # an fpp below it is no one's trouble
_TIMES = 4  # the column's median


def outlier_lines(files: Sequence[Any]) -> list[str]:
    """One line a column that row groups lack, and one each for the fullest filters.

    files  FileInfos of which some have filters
    """
    columns: dict[str, list[tuple[Any, Any]]] = {}
    for file in files:
        for f in file.filters:
            columns.setdefault(f.column, []).append((file, f))
    without = [line for name, found in columns.items() for line in _without(name, found, files)]
    if len(without) > _SHOWN:
        without[_SHOWN:] = [f"  ... and {plural(len(without) - _SHOWN, 'column')} more that some row groups lack"]
    return without + _fullest(columns, files)


def _without(column: str, found: Sequence[tuple[Any, Any]], files: Sequence[Any]) -> Iterator[str]:
    """Which row groups lack a filter on a column that others have."""
    there: dict[str, set[int]] = {}
    for file, f in found:
        there.setdefault(file.path, set()).add(f.row_group)
    lacking = {
        file.path: [n for n in range(file.row_groups) if n not in there.get(file.path, ())]
        for file in files
        if file.row_groups > len(there.get(file.path, ()))
    }
    count = sum(map(len, lacking.values()))
    if not 0 < 2 * count < sum(file.row_groups for file in files):  # where most lack one, the table says enough
        return
    groups = plural(count, "row group")
    if len(files) == 1:
        yield f"  without a filter on {column}: {groups}, {ranges(next(iter(lacking.values())), _SHOWN)}"
        return
    # Files with some filters are odder than those that nobody has touched.
    paths = sorted(lacking, key=lambda path: path not in there)
    more = f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
    where = plural(len(paths), "file")
    yield f"  without a filter on {column}: {groups} in {where}, {', '.join(paths[:_SHOWN])}{more}"


def _fullest(columns: dict[str, list[tuple[Any, Any]]], files: Sequence[Any]) -> list[str]:
    """The fullest filters, where they are much fuller than the others of their column."""
    full = []
    for name, found in columns.items():
        filled = [(file, f) for file, f in found if f.num_bytes]
        usual = sorted(f.fpp for _, f in filled)[len(filled) // 2] if filled else 0.0
        full += [(f.fpp, name, usual, file, f) for file, f in filled if f.fpp >= max(_FULL, _TIMES * usual)]
    full.sort(key=lambda one: -one[0])
    lines = []
    for fpp, name, usual, file, f in full[:_SHOWN]:
        path = f"{file.path}, " if len(files) > 1 else ""
        bits = share(f.bits_set / (8 * f.num_bytes))
        lines.append(f"  very full: {path}row group {f.row_group}, {name}: fpp {share(fpp)} by {bits} of the bits of "
                     f"{size(f.num_bytes)}, where {share(usual)} is usual")  # fmt: skip
    if len(full) > _SHOWN:
        lines.append(f"  ... and {plural(len(full) - _SHOWN, 'filter')} more as full; --all has all")
    return lines
