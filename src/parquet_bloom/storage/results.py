"""One result a file, of calls that work on many: what failed is told beside what was done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from parquet_bloom.errors import ParquetBloomError, RequestError, UnknownColumnError
from parquet_bloom.storage.paths import Failed
from parquet_bloom.storage.progress import Meter

R = TypeVar("R")
T = TypeVar("T")


class Results(list[R], Generic[R]):
    """One result a file, in order, and `failed`: the files among many that gave an error instead."""

    def __init__(self, failed: Iterable[Failed] = ()) -> None:
        super().__init__()
        self.failed: list[Failed] = list(failed)


def each(
    files: Sequence[T],
    work: Callable[[T], R],
    single: bool,
    failed: Iterable[Failed] = (),
    meter: Meter | None = None,
) -> Results[R]:
    """Work on every file; one bad file among many does not stop the others.

    work    raises RequestError for what was asked of a file before it changes anything
    failed  names that gave no file at all
    meter   is told of every file

    Raises what `work` raises where one file was named alone, and UnknownColumnError where the first file that
    can be opened lacks a column: a wrong name is a mistake of the whole call.
    """
    results: Results[R] = Results(failed)
    meter = meter or Meter(None)
    names_known = False  # some file has the columns that were named
    for file in files:
        meter.start()
        try:
            results.append(work(file))
            names_known = True
        except RequestError as error:  # a column that this file lacks, a type that it has
            told = type(error)(f"{file}: " + error.message)
            if single or (isinstance(error, UnknownColumnError) and not names_known):
                raise told from error
            names_known = True
            told.__cause__ = error
            results.failed.append(Failed(str(file), told))
        except ParquetBloomError as error:
            if single:
                raise
            results.failed.append(Failed(str(file), error))
        meter.finish()
    return results
