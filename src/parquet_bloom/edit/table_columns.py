"""Columns by the names that the table has today, as each of its files calls them; and back, in reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from parquet_bloom.edit.plan import Request, SkippedColumn
from parquet_bloom.errors import RefusedTypeError, RequestError
from parquet_bloom.format.forms.form import Rate
from parquet_bloom.format.schema import Leaf, find_leaf, is_pattern, match_leaves, select_leaves
from parquet_bloom.source.snapshot import Snapshot, TableFile
from parquet_bloom.source.view import FileNames, TableNames

LACKS = "the file was written before the column was added"
CONSTANT = "one value for all rows of the file, which the table's log has"
_LEVELS = {"list", "element", "key_value", "item"}  # names between a list and its elements that people leave out


class TableColumns(TableNames):
    """The columns of a table, as requests name them."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._wanted: tuple[Request, list[Leaf]] | None = None

    def check(self, request: Request) -> None:
        """Raise UnknownColumnError, RefusedTypeError for a column that no file of the table can have a filter on."""
        select_leaves(self.leaves, request.columns, request.exclude)
        for name in request.columns or ():
            for leaf in [] if is_pattern(self.leaves, name) else [find_leaf(self.leaves, name)]:
                if (refusal := request.form.refusal(leaf)) is not None:
                    raise RefusedTypeError(f"column {leaf.name} ({leaf.type_name}): {refusal}")
        for name in request.fpp if isinstance(request.fpp, Mapping) else ():
            if name != "*":
                match_leaves(self.leaves, name)

    def request_for(self, request: Request, file: TableFile, names: FileNames) -> tuple[Request, list[SkippedColumn]]:
        """A request over one file's own names, and the columns that were named and cannot have a filter there."""
        if self._wanted is None or self._wanted[0] is not request:  # the same for all files of a call
            self._wanted = request, select_leaves(self.leaves, request.columns, request.exclude)
        wanted = self._wanted[1]
        rates = self._rates(request, names)
        if request.columns is None:  # those that the table dropped get none either
            chosen = {names.here[leaf.path].name for leaf in wanted if leaf.path in names.here}
            others = tuple(name for name in names.all if name not in chosen)
            return dataclasses.replace(request, exclude=others, fpp=rates), []
        refusals = {leaf: self._refusal(leaf, request, file, names) for leaf in wanted}
        columns = tuple(names.here[leaf.path].name for leaf, refusal in refusals.items() if refusal is None)
        skipped = [SkippedColumn(leaf.name, None, refusal) for leaf, refusal in refusals.items() if refusal is not None]
        return dataclasses.replace(request, columns=columns, exclude=None, fpp=rates), skipped

    def _refusal(self, leaf: Leaf, request: Request, file: TableFile, names: FileNames) -> str | None:
        there = names.here.get(leaf.path)
        if there is None:
            return CONSTANT if leaf.path[0] in file.constants else LACKS
        refusal = request.form.refusal(there)
        return None if refusal is None else f"{there.type_name}: {refusal}"

    def _rates(self, request: Request, names: FileNames) -> Rate | Mapping[str, Rate] | None:
        if not isinstance(request.fpp, Mapping):
            return request.fpp
        rates: dict[str, Rate] = {"*": request.fpp["*"]} if "*" in request.fpp else {}
        for name, rate in request.fpp.items():
            for leaf in match_leaves(self.leaves, name) if name != "*" else ():
                if leaf.path in names.here:
                    rates[names.here[leaf.path].name] = rate
        return rates

    def chunks_of(
        self, columns: Sequence[str] | None, exclude: Sequence[str] | None, names: FileNames
    ) -> Sequence[str] | None:
        """Columns that are to lose their filters, as one file calls them; None: all, also those that were dropped."""
        if columns is None and exclude is None:
            return None
        wanted = select_leaves(self.leaves, columns, exclude)
        return [names.here[leaf.path].name for leaf in wanted if leaf.path in names.here]

    def leaf_of_setting(self, name: str) -> Leaf | None:
        """The leaf that a name in the table's properties means; these leave out names between list and element."""
        try:
            return find_leaf(self.leaves, name)
        except RequestError:
            plain = _without_levels(name.split("."))
            return next((leaf for leaf in self.leaves if _without_levels(leaf.path) == plain), None)


def _without_levels(path: Sequence[str]) -> list[str]:
    return [part for part in path if part not in _LEVELS]
