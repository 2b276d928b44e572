"""One result a file, of calls that work on many, and the files that failed.

What results have in common stands here too: values for programs (to_dict), a table (to_arrow), and how they print.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from types import UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from parquet_bloom.errors import ParquetBloomError, RequestError, UnknownColumnError
from parquet_bloom.storage.display import Brief, html_of, names_of
from parquet_bloom.storage.paths import FailedFile
from parquet_bloom.storage.remote import in_order
from parquet_bloom.storage.workers import Meter

if TYPE_CHECKING:
    import pyarrow as pa


R = TypeVar("R")
T = TypeVar("T")


class Results(list[R], Generic[R]):
    """One result a file, in order, and `failed`: the files among many that gave an error instead."""

    def __init__(self, failed: Iterable[FailedFile] = ()) -> None:
        super().__init__()
        self.failed: list[FailedFile] = list(failed)


def map_files(
    files: Sequence[T],
    work: Callable[[T], R],
    single: bool,
    failed: Iterable[FailedFile] = (),
    meter: Meter | None = None,
    ahead: int = 0,
    names_first: bool = False,
) -> Results[R]:
    """Work on every file; one bad file among many does not stop the others.

    work    raises RequestError for what was asked of a file before it changes anything
    failed  names that gave no file at all
    meter   is told of every file
    ahead   so many files are worked on at a time, for files on another storage; 0: one after the other, in this thread
    names_first  files are worked on alone until one has the columns that were named: where work changes files, a wrong
            name must change none

    Raises what `work` raises where one file was named alone, and UnknownColumnError where the first file that
    can be opened lacks a column: a wrong name is a mistake of the whole call.
    """
    results: Results[R] = Results(failed)
    meter = meter or Meter(None)
    names_known = False  # some file has the columns that were named
    rest = iter(files)

    def done() -> Generator[Callable[[], R], None, None]:
        if names_first:
            for file in rest:
                yield partial(work, file)
                if names_known:
                    break
        yield from in_order(work, rest, ahead, settle=names_first)

    with closing(done()) as calls:  # on an error, what has begun to change a file ends first
        for file, result in zip(files, calls, strict=True):
            meter.start()
            try:
                results.append(result())
                names_known = True
            except RequestError as error:  # a column that this file lacks, a type that it has
                named = type(error)(f"{file}: " + error.message)
                if single or (isinstance(error, UnknownColumnError) and not names_known):
                    raise named from error
                names_known = True
                named.__cause__ = error
                results.failed.append(FailedFile(str(file), named))
            except ParquetBloomError as error:
                if single:
                    raise
                results.failed.append(FailedFile(str(file), error))
            meter.finish()
    return results


# --- what results have in common ----------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value as JSON has it: results as objects, errors as their texts, what is no finite number as null."""
    if isinstance(value, Result):
        return value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Flag):
        return list(getattr(value, "names", []))
    if isinstance(value, BaseException):
        return value.message if isinstance(value, ParquetBloomError) else str(value)
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def filters_table(kind: type, files: Sequence[Any]) -> pa.Table:
    """An Arrow table of the filters of several files, each with the path of its file."""
    paths = [file.path for file in files for _ in file.filters]
    return table_of(kind, [one for file in files for one in file.filters], path=paths)


def table_of(kind: type, rows: Sequence[Any], **more: Sequence[Any]) -> pa.Table:
    """An Arrow table of results of one kind: a column for each field of a plain type, or of a list of such.

    more  columns that come before these, by their names
    """
    import pyarrow as pa

    columns = {name: pa.array(values, pa.string()) for name, values in more.items()}
    hints = get_type_hints(kind)
    for name in names_of(kind):
        arrow = _arrow_type(hints[name])
        if arrow is not None and name not in columns:
            columns[name] = pa.array([plain(getattr(row, name)) for row in rows], arrow)
    return pa.table(columns)


def _arrow_type(hint: Any) -> pa.DataType | None:
    """The Arrow type of a field; None for one that has no place in a table."""
    import pyarrow as pa

    if get_origin(hint) is list:
        item = _arrow_type(get_args(hint)[0])
        return None if item is None else pa.list_(item)
    if isinstance(hint, type) and issubclass(hint, enum.Flag):
        return pa.list_(pa.string())
    plain_types = {str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    some = [arg for arg in get_args(hint) if arg is not type(None)]
    if len(some) == 1 and get_origin(hint) in (Union, UnionType):
        return _arrow_type(some[0])
    return plain_types.get(hint)


class Result(Brief):
    """A result that prints in one line, as a summary in notebooks, and becomes plain values."""

    __slots__ = ()
    _more: ClassVar[tuple[str, ...]] = ()  # properties that to_dict has beside the fields

    def to_dict(self) -> dict[str, Any]:
        """The result in values that JSON has; the same names as `--json` prints."""
        return {name: plain(getattr(self, name)) for name in (*names_of(self), *self._more)}

    def to_arrow(self) -> pa.Table:
        """The result as a pyarrow Table: here, of one row."""
        return table_of(type(self), [self])

    def _repr_html_(self) -> str:
        """For notebooks: what the command line prints of it. Names and texts come from files, so all are escaped."""
        return html_of(self)
