"""A file whose append was cut short."""

from __future__ import annotations

import zlib
from pathlib import Path

import parquet_bloom
from parquet_bloom.format.journal import Journal
from support.samples import write_keys

# A program: an append to the file that is its argument, killed in the middle.
KILLED = """
import os, sys
import parquet_bloom
from parquet_bloom.output import append

copy = append.copy_range
def killed(source, target, source_at, target_at, length):
    copy(source, target, source_at, target_at, length // 2)
    os.kill(os.getpid(), 9)
append.copy_range = killed
parquet_bloom.add_filters(sys.argv[1], in_place=True, columns=["id", "name"], placement="tail", append=True)
"""


_new: list[bytes] = []


class Torn:
    """A file with some of a tail behind it, and the journal of that append."""

    def __init__(self, folder: Path) -> None:
        self.path = write_keys(folder / "keys.parquet")
        self.old = self.path.read_bytes()
        if not _new:  # the same bytes for all tests
            parquet_bloom.add_filters(self.path, folder / "new", columns=["id", "name"], placement="tail", sync=False)
            _new.append((folder / "new").read_bytes())
            (folder / "new").unlink()
        [self.new] = _new
        self.tail = self.new[len(self.old) :]
        self.journal = folder / ".keys.parquet.parquet-bloom-journal"

    def tear(self, behind: bytes, **wrong: int) -> None:
        """`behind` lies behind the old file; `wrong` are facts of the journal that are others."""
        with self.path.open("r+b") as file:  # the inode stays
            file.truncate(0)
            file.write(self.old + behind)
        found, length = self.path.stat(), int.from_bytes(self.old[-8:-4], "little")
        facts = {
            "device": found.st_dev, "inode": found.st_ino, "old_size": len(self.old), "mtime_ns": found.st_mtime_ns,
            "ctime_ns": found.st_ctime_ns, "footer_crc32": zlib.crc32(self.old[-8 - length : -8]),
            "tail_length": len(self.tail), "tail_crc32": zlib.crc32(self.tail), **wrong,
        }  # fmt: skip
        self.journal.write_bytes(Journal(**facts).encode() + self.tail)

    def add(self, **options: object) -> None:
        parquet_bloom.add_filters(
            self.path, in_place=True, columns=["id", "name"], placement="tail", sync=False, **options
        )
