"""A file whose bytes are in memory, as a file system of pyarrow's that holds this one file and nothing else."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import fs


class OneFile(fs.FileSystemHandler):
    """Read only. It may be pickled, with its bytes."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OneFile) and (self.path, self.data) == (other.path, other.data)

    __hash__ = None  # type: ignore[assignment]

    def get_type_name(self) -> str:
        """As pyarrow's file systems call themselves."""
        return "memory"

    def normalize_path(self, path: str) -> str:
        """The path as it is."""
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        """Of the file its size; of all else that it is not there."""
        there = fs.FileInfo(self.path, fs.FileType.File, size=len(self.data))
        return [there if path == self.path else fs.FileInfo(path, fs.FileType.NotFound) for path in paths]

    def get_file_info_selector(self, selector: Any) -> list[fs.FileInfo]:
        """No folder is there."""
        if not selector.allow_not_found:
            raise FileNotFoundError(selector.base_dir)
        return []

    def open_input_file(self, path: str) -> Any:
        """The file, for reads anywhere in it."""
        if path != self.path:
            raise FileNotFoundError(path)
        return pa.BufferReader(self.data)

    open_input_stream = open_input_file

    def _refused(self, *_: Any) -> Any:
        raise OSError("is held in memory, and is not written to")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refused
    move = copy_file = open_output_stream = open_append_stream = _refused
