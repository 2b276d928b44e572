"""Plans the column chunks that get a filter, and gives the reason for each that does not."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Unpack

from parquet_bloom._version import __version__
from parquet_bloom.edit.page_indexes import IndexPlan, plan_indexes
from parquet_bloom.edit.rewrite import insert_events
from parquet_bloom.errors import RefusedTypeError, RequestError, parameter
from parquet_bloom.facts.known import check_engine, danger_of
from parquet_bloom.format.footer import ChunkKey, Footer
from parquet_bloom.format.footer_filters import footer_filters
from parquet_bloom.format.forms import FORMATS, Format, Rate, Sizing, form_of, requested_form, sizes_from
from parquet_bloom.format.repairs import statistics_writer
from parquet_bloom.format.schema import Leaf, choose_leaves, find_leaf, is_pattern, match_leaves, select_leaves
from parquet_bloom.format.statistics import believed_nulls
from parquet_bloom.kernels import split_block
from parquet_bloom.options import (
    Draft2015,
    Form,
    Placement,
    ReplaceOption,
    RequestOptions,
    WriteOptions,
    check_threads,
    column_names,
    part,
)
from parquet_bloom.output.target import Writing
from parquet_bloom.source.snapshot import Snapshot, TableFile
from parquet_bloom.source.view import FileNames, TableNames
from parquet_bloom.storage.display import Brief
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.table_folders import Tables
from parquet_bloom.storage.workers import Workers

HAS_FILTER = "has a filter"  # why there is none more
NO_VALUE = "no value is stored"
FilterProgress = Callable[[str, int, int], None]  # (path, filters done, filters in all)


@dataclass(frozen=True, slots=True, repr=False)
class SkippedColumn(Brief):
    """Column chunks that get no filter; row_group None means all of them."""

    column: str
    row_group: int | None
    reason: str


@dataclass(slots=True)
class Plan:
    """The filters that `add` will build for one file, and the page indexes."""

    sizings: dict[ChunkKey, Sizing] = field(default_factory=dict)
    skipped: list[SkippedColumn] = field(default_factory=list)
    indexes: IndexPlan = field(default_factory=IndexPlan)

    def __bool__(self) -> bool:
        return bool(self.sizings or self.indexes.pages)

    @property
    def columns(self) -> list[int]:
        """The leaves that get a filter in any row group, ascending."""
        return sorted({column for _, column in self.sizings})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The request for every file: made and checked once, by `checked`, and sent to executors as it is.

    columns ... page_bounds  as add_filters has them
    form       of the filters
    max_bytes  a power of two; None: whatever the form allows
    copies     a file that gets no filter is copied to its output
    how        its new version is written
    """

    columns: tuple[str, ...] | None
    exclude: tuple[str, ...] | None
    form: Format
    placement: Placement
    fpp: Rate | Mapping[str, Rate] | None
    ndv: int | None = None
    max_bytes: int | None = None
    threads: int | None = None
    engine: str | None = None
    replace: bool = False
    page_index: bool = False
    page_bounds: tuple[str, ...] = ()
    copies: bool = True
    how: Writing = field(default_factory=Writing)

    @property
    def bitset_bytes(self) -> int:
        """The most that a bitset may take."""
        return self.form.max_bytes if self.max_bytes is None else self.max_bytes

    @property
    def at_chunk_start(self) -> bool:
        """Whether filters go before the pages of their chunk."""
        return self.placement == "chunk-start"

    @property
    def as_tail(self) -> bool:
        """Whether filters and a second footer go behind the old footer."""
        return self.placement == "tail"

    @property
    def choice(self) -> str:
        """If no columns are named: a text that is equal for requests that choose the same ones; else ""."""
        if self.columns is not None:
            return ""
        rates = dict(sorted(self.fpp.items())) if isinstance(self.fpp, Mapping) else self.fpp
        form = [self.form.name, dict(self.form.described)]
        asked = [__version__, form, self.exclude, rates, self.ndv, self.bitset_bytes, self.engine]
        return json.dumps(asked, sort_keys=True, default=str)

    @classmethod
    def checked(
        cls,
        *,
        columns: str | Sequence[str] | None = None,
        exclude: str | Sequence[str] | None = None,
        form: Form | None = None,
        fpp: Rate | Mapping[str, Rate] | None = None,
        cached: bool = True,
        **options: Unpack[RequestOptions],
    ) -> Request:
        """A request of add_filters' arguments. Raises RequestError for what makes no sense, whatever a file holds.

        cached  as output.atomic_file.AtomicFile has it
        """
        asked = requested_form(form, options.get("spec"))
        asked, fpp, ndv = with_properties(asked, fpp, options.get("ndv"))
        built_as = form_of(asked)
        threads, engine = options.get("threads"), options.get("engine")
        page_index = options.get("page_index", False)
        page_bounds = tuple(column_names(options.get("page_bounds"), "page_bounds") or ())
        if page_bounds and not page_index:
            raise RequestError(parameter("page_bounds") + " is for " + parameter("page_index", True))
        at = _checked_placement(built_as, options.get("placement"))
        check_threads(threads)
        check_fpp(fpp, built_as)
        columns, exclude = column_names(columns, "columns"), column_names(exclude, "exclude")
        how = replace(Writing.of(part(WriteOptions, options)), cached=cached)
        _check_append(at, how)
        if engine is not None:
            check_engine(engine)
        return cls(
            columns=None if columns is None else tuple(columns),
            exclude=None if exclude is None else tuple(exclude),
            form=built_as,
            placement=at,
            fpp=dict(fpp) if isinstance(fpp, Mapping) else fpp,
            ndv=ndv,
            max_bytes=check_sizes(ndv, options.get("max_bytes"), built_as),
            threads=threads,
            engine=engine,
            page_index=page_index,
            page_bounds=page_bounds,
            how=how,
            **part(ReplaceOption, options),
        )

    def with_settings(
        self, columns: Sequence[str], fpp: Rate | Mapping[str, Rate] | None, max_bytes: int | None
    ) -> Request:
        """The same for a table whose properties name columns, with their rates and size where the caller names none.

        Raises RequestError for what is no rate, or no size.
        """
        check_fpp(fpp, self.form)
        return replace(
            self,
            columns=tuple(columns),
            fpp=fpp if self.fpp is None else self.fpp,
            max_bytes=check_sizes(None, max_bytes, self.form) if self.max_bytes is None else self.max_bytes,
        )

    def written(self, **changes: Unpack[WriteOptions]) -> Request:
        """The same, with other options for writing."""
        return replace(self, how=replace(self.how, **changes))


@dataclass(frozen=True, slots=True)
class Run:
    """A request, and what this process works on it with.

    tables    that files must not be changed in
    progress  is told of every filter
    whole     the one file that is worked on, where what is read of it is only its beginning: a tail goes behind all of
              it, as other versions of a table may name what lies there
    """

    request: Request
    workers: Workers
    tables: Tables
    progress: FilterProgress | None = None
    whole: OpenFile | None = None


def _check_append(at: Placement, how: Writing) -> None:
    if not how.append:
        return
    if at != "tail" or not how.in_place:
        both = parameter("placement", "tail") + " and " + parameter("in_place", True)
        raise RequestError(parameter("append", True) + " is for " + both)
    if how.read_back:
        which = parameter("append", True) + " and " + parameter("read_back", True)
        raise RequestError(which + " exclude each other: what is behind the file counts at once")


def check_fpp(fpp: Rate | Mapping[str, Rate] | None, form: Format = FORMATS["final"]) -> None:
    """Refuse a rate that is none, before any file is opened."""
    for rate in fpp.values() if isinstance(fpp, Mapping) else [fpp]:
        if rate == "auto":
            if not form.placements:
                raise RequestError(parameter("fpp", "auto") + f" is not for {form.name}")
        elif rate is not None and (isinstance(rate, str) or not 0 < rate < 1):
            raise RequestError(f"fpp {rate} is not between 0 and 1")


def check_sizes(ndv: int | None, max_bytes: int | None, form: Format = FORMATS["final"]) -> int | None:
    """Refuse impossible sizes; return the largest power of two of bytes that a filter may take, None as it is."""
    if ndv is not None and ndv < 1:
        raise RequestError(f"ndv {ndv} is not positive")
    if max_bytes is None:
        return None
    if max_bytes < split_block.MIN_BYTES:
        given = parameter("max_bytes") + f" {max_bytes}"
        raise RequestError(given + f" is less than the smallest filter, {split_block.MIN_BYTES} bytes")
    return min(1 << (max_bytes.bit_length() - 1), form.max_bytes)


def _checked_placement(form: Format, placement: Placement | None) -> Placement:
    """The placement of a form's filters. Raises RequestError for one that the form does not allow."""
    at = next((one for one in form.placements if placement in (one, None)), None)
    if placement is not None and at is None:
        allowed = ", ".join(form.placements) or "none, its filters lie in the footer itself"
        raise RequestError(parameter("placement", placement) + f" is not for {form.name}, which allows: {allowed}")
    return at or "footer"


def with_properties(
    form: Form, fpp: Rate | Mapping[str, Rate] | None, ndv: int | None
) -> tuple[Form, Rate | Mapping[str, Rate] | None, int | None]:
    """Take fpp and ndv from the draft's Hadoop properties: the form without these, and the two.

    Raises RequestError where a property and an argument say the same thing.
    """
    if not isinstance(form, Draft2015) or not form.properties:
        return form, fpp, ndv
    rate, entries = sizes_from(form.properties)
    if (rate is not None and fpp is not None) or (entries is not None and ndv is not None):
        ways = parameter("fpp") + " and " + parameter("ndv") + " or in " + parameter("properties")
        raise RequestError("give a rate and a number of values as " + ways + ", not as both")
    return (
        replace(form, properties=None),
        fpp if rate is None else rate,
        ndv if entries is None else entries,
    )


def plan_columns(footer: Footer, request: Request) -> Plan:
    """Decide for every column chunk of one file.

    Raises UnknownColumnError, and RefusedTypeError where a column that was asked for by its name
    has a type that is refused (one that only a pattern fits is skipped, with the reason). A column over whose
    filters the request's engine breaks, or the newest release of any, is skipped likewise, unless it was asked for by
    its name.
    """
    form, columns = request.form, request.columns
    leaves = footer.leaves
    # A refused type is an error for a column that is named, and a reason to skip one that a pattern, or no name at all,
    # chose.
    wanted = select_leaves(leaves, columns, request.exclude)
    names = [c for c in columns or () if not is_pattern(leaves, c)]
    named = {leaf.index for leaf in choose_leaves(leaves, names)}
    rates = rates_of(leaves, request.fpp, form.fpp)
    stored = footer_filters(footer)
    file_plan = Plan()
    for leaf in wanted:
        refusal = form.refusal(leaf)
        if refusal is not None:
            if leaf.index in named:
                raise RefusedTypeError(f"column {leaf.name} ({leaf.type_name}): {refusal}")
            file_plan.skipped.append(SkippedColumn(leaf.name, None, f"{leaf.type_name}: {refusal}"))
            continue
        if leaf.index not in named:  # one that is named gets a filter, and a warning
            danger = danger_of(leaf, request.engine, form.name, request.placement)
            if danger is not None:
                file_plan.skipped.append(SkippedColumn(leaf.name, None, danger))
                continue
        # The column can have filters. Its chunks are decided one by one: values, an old filter, what the form refuses.
        sizing = _sizing(footer, rates.get(leaf.index, rates[-1]), request)
        reasons: dict[int, str] = {}
        chunks = footer.column_chunks(leaf.index)
        for group, (values, nulls) in enumerate(zip(chunks.num_values, chunks.null_counts, strict=True)):
            key = (group, leaf.index)
            here = key in footer.filter_ranges or key in stored
            if nulls is not None and nulls >= values:  # some writers say so of chunks that hold values
                nulls = believed_nulls(statistics_writer(footer, leaf), leaf, values, nulls)
            reason = _skip_reason(values, nulls, here, request.replace) or form.chunk_refusal(footer, key)
            if reason:
                reasons[group] = reason
            else:
                file_plan.sizings[key] = sizing
        file_plan.skipped += _skipped_columns(leaf, reasons, footer.n_row_groups)
    return file_plan


def _sizing(footer: Footer, rate: Rate, request: Request) -> Sizing:
    if rate != "auto":
        return Sizing(rate, request.ndv, request.bitset_bytes)
    # "auto": a false positive makes a reader read a row group for nothing, so the median size of one is the price of
    # an error (kernels.split_block.least_size). One price a column, because small chunks are built together.
    groups = footer.metadata.row_groups or ()
    sizes = sorted(sum(max(c.meta_data.total_compressed_size or 0, 0) for c in group.columns) for group in groups)
    return Sizing(0.0, request.ndv, request.bitset_bytes, in_vain=sizes[len(sizes) // 2] if sizes else 0)


def rates_of(leaves: Sequence[Leaf], fpp: Rate | Mapping[str, Rate] | None, default: float) -> dict[int, Rate]:
    """Column -> target rate; -1 -> that of all others. A mapping's key "*" is such a default too."""
    if not isinstance(fpp, Mapping):
        return {-1: default if fpp is None else fpp}
    rates = {-1: fpp.get("*", default)}
    for name, rate in fpp.items():
        if name != "*":
            rates.update((leaf.index, rate) for leaf in match_leaves(leaves, name))
    return rates


def _skip_reason(values: int, nulls: int | None, here: bool, replace: bool) -> str | None:
    if here:
        return None if replace else HAS_FILTER  # whatever is found, the old one goes
    if values <= 0 or (nulls is not None and nulls >= values):
        return NO_VALUE
    return None


def _skipped_columns(leaf: Leaf, reasons: dict[int, str], n_row_groups: int) -> list[SkippedColumn]:
    if len(reasons) == n_row_groups and len(set(reasons.values())) == 1:
        return [SkippedColumn(leaf.name, None, next(iter(reasons.values())))]
    return [SkippedColumn(leaf.name, group, reason) for group, reason in reasons.items()]


def upper_bound(footer: Footer, file_plan: Plan, form: Format = FORMATS["final"]) -> int:
    """Bytes that the planned filters take at most, headers included."""
    num_values = {column: footer.column_chunks(column).num_values for column in file_plan.columns}
    return sum(
        form.most_bytes(max(1, num_values[column][group]), sizing)
        for (group, column), sizing in file_plan.sizings.items()
    )


def plan_file(source: OpenFile, run: Run, chosen: Collection[int] | None = None) -> Plan:
    """Plan the chunks of a file that get a filter, with the reason for each other one; and its page indexes.

    chosen  the columns that an earlier call chose for this very file, by their index; None: choose now, which
            reads a sample of the columns if the request names none
    """
    file_plan = _plan_filters(source, run, chosen)
    if run.request.page_index:
        file_plan.indexes = plan_indexes(source, run.request.page_bounds, file_plan.sizings)
    return file_plan


def _plan_filters(source: OpenFile, run: Run, chosen: Collection[int] | None) -> Plan:
    footer = source.footer()
    file_plan = plan_columns(footer, run.request)
    if run.request.columns is not None or not file_plan.sizings:
        return file_plan
    if chosen is None:
        from parquet_bloom.edit.gain import columns_without_gain  # nothing else of `add` needs it

        groups: dict[int, list[int]] = {}
        sizings = {}
        for (group, column), sizing in file_plan.sizings.items():
            groups.setdefault(column, []).append(group)
            sizings[column] = sizing
        left_out = columns_without_gain(source, footer, groups, sizings, run.workers)
        file_plan.skipped += [
            SkippedColumn(footer.leaves[column].name, None, reason) for column, reason in left_out.items()
        ]
        chosen = groups.keys() - left_out.keys()
    file_plan.sizings = {key: sizing for key, sizing in file_plan.sizings.items() if key[1] in chosen}
    return file_plan


def writing_order(footer: Footer, file_plan: Plan, at_chunk_start: bool) -> list[ChunkKey]:
    """The planned chunks in the order in which their filters are built and written."""
    if not at_chunk_start:
        return sorted(file_plan.sizings)
    return [event.key for event in sorted(insert_events(footer, list(file_plan.sizings)))]


# --- columns by the names that the table has today, as each of its files calls them; and back ------

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
        select_leaves(self.leaves, request.page_bounds, None)
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
        bounds = self.chunks_of(request.page_bounds, None, names) or ()
        request = replace(request, page_bounds=tuple(bounds))
        if request.columns is None:  # those that the table dropped get none either
            chosen = {names.here[leaf.path].name for leaf in wanted if leaf.path in names.here}
            others = tuple(name for name in names.all if name not in chosen)
            return replace(request, exclude=others, fpp=rates), []
        refusals = {leaf: self._refusal(leaf, request, file, names) for leaf in wanted}
        columns = tuple(names.here[leaf.path].name for leaf, refusal in refusals.items() if refusal is None)
        skipped = [SkippedColumn(leaf.name, None, refusal) for leaf, refusal in refusals.items() if refusal is not None]
        return replace(request, columns=columns, exclude=None, fpp=rates), skipped

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
