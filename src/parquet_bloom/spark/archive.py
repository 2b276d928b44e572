"""This package as a zip for executors that do not have it: spark-submit --py-files parquet_bloom.zip.

It holds the modules alone; what they import (pyarrow, numba, ...) has machine code and must be installed there.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

from parquet_bloom.errors import RequestError
from parquet_bloom.storage.writing.new_file import new_output

_WANTED = (".py", ".json", ".properties", ".typed")
_DATE = (1980, 1, 1, 0, 0, 0)  # the same zip for the same package


def write_archive(path: str, overwrite: bool = False) -> tuple[int, int]:
    """Write the zip; returns how many files are in it and its bytes.

    Raises RequestError for a name that is not *.zip, which PySpark would not put on the path; StorageError.
    """
    if not path.endswith(".zip"):
        raise RequestError(f"{path}: the name must end with .zip, else PySpark does not import from it")
    n = 0
    with new_output(path, overwrite=overwrite) as out, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for n, (name, module) in enumerate(_modules(files("parquet_bloom"), "parquet_bloom"), 1):  # noqa: B007
            archive.writestr(zipfile.ZipInfo(name, _DATE), module.read_bytes(), zipfile.ZIP_DEFLATED)
    return n, os.path.getsize(path)


def _modules(folder: Traversable, name: str) -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _modules(entry, f"{name}/{entry.name}")
        elif entry.name.endswith(_WANTED):
            yield f"{name}/{entry.name}", entry
