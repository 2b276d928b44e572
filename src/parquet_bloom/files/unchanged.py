"""While pyarrow reads rows of files that were searched: its errors become ours, and a changed file is one."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from parquet_bloom.errors import DamagedFileError, ParquetBloomError, StorageError
from parquet_bloom.files.remote import side_by_side
from parquet_bloom.files.search import Searched
from parquet_bloom.files.storage import Source

PYARROW_ERRORS = (pa.ArrowException, OSError, UnicodeDecodeError)  # the last: names that are no UTF-8


class Reading:
    """Turns pyarrow's errors into ours, and notices files that changed between verdict and reading."""

    def __init__(self, files: Sequence[Searched]) -> None:
        self._files = files

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if kind is not None and not issubclass(kind, PYARROW_ERRORS):
            return
        for file, same in zip(self._files, side_by_side(_is_same, self._files), strict=True):
            if not same:
                reason = "was changed by another program while it was read; read it again"
                raise StorageError(file.found, reason) from error
        if isinstance(error, PYARROW_ERRORS):
            where = str(self._files[0].found) if len(self._files) == 1 else "one of the files"
            raise read_error(where, error) from error


def _is_same(file: Searched) -> bool:
    try:
        with Source(file.found) as now:
            return now.stamp == file.stamp and now.size == file.size
    except StorageError:
        return False


def read_error(path: str, error: Exception) -> ParquetBloomError:
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return DamagedFileError(path, f"cannot be read: {first}")
