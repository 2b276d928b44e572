"""Version tokens: what a storage says of a file's version, and when that proves which bytes the file has.

    compared in one process    any difference is a change
    kept, and compared later   equal tokens prove equal bytes, if they are of a kind that can (`lasting`)

Two tokens that differ prove nothing: a copy, a move, a chmod or another mount changes a token, and no byte. Then the
bytes are read, as filters.content does.

**Local files**: device, inode, size, mtime and ctime. Programs set the mtime back (rsync -t, touch -r, pyarrow's
copies); a ctime is set by the kernel alone, from its clock. It is believed where these hold:

* the file system keeps it itself (_KEEP_CTIME). Network and FUSE file systems (NFS, sshfs, s3fs) give times of another
  machine's clock, or the mtime for the ctime, and squashfs and ISO images what their maker wished;
* it is no whole second. Such a ctime is of a file system that counts no finer, or of an image made with fixed times;
* it was _SETTLED_S old when the token was taken. The kernel's clock goes in ticks of up to 10 ms, and a second write
  within a tick gives an equal ctime: git has the same rule for its index ("racy git").

What is left: who sets the machine's clock back to the tick, writes to the disk below the file system, or keeps the file
mapped for writing and changes a page that is still dirty.

**Objects of stores**: size, and an ETag or a generation; the time too where both sides know it. S3 gives other bytes
another ETag, Google's storage each write another generation, Azure each write another ETag. Size and time
alone are no proof: HTTP tells whole seconds. Nor is an ETag of another kind of server (nginx makes it of size and
time), a weak one (W/), or the one of zeros that MinIO gives what it has not hashed.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from parquet_bloom.storage.operating_system import file_system_of

_SETTLED_S = 0.1
_KEEP_CTIME = {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "jfs", "tmpfs", "overlay"}
_NO_HASH = re.compile(r"0+(-\d+)?")
# fsspec's protocols of stores whose ETag or generation changes with the bytes
_S3, _GOOGLE, _AZURE = {"s3", "s3a"}, {"gs", "gcs"}, {"abfs", "abfss", "az", "adl"}
# What tells one version of a file from the next, by the names that fsspec's file systems give it.
_TOLD = (
    "ETag",
    "etag",
    "generation",
    "md5Hash",
    "content_md5",
    "mtime",
    "LastModified",
    "last_modified",
    "updated",
    "created",
    "ino",
)

Kept = dict[str, Any]  # a token as JSON: whole numbers and texts


class LocalToken(NamedTuple):
    """Of a file of this machine: times in nanoseconds, device and inode as stat(2) has them."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int

    @classmethod
    def of(cls, found: os.stat_result) -> LocalToken:
        """Of a stat."""
        return cls(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev)

    def facts(self, fd: int) -> Kept:
        """As JSON, to compare a kept one with; whether it may be kept itself, `lasting` says.

        fd  the file. The number of its file system takes the place of the device where there is one, as many disks get
            another device number with every mount
        """
        return {
            "device": os.fstatvfs(fd).f_fsid or self.device,
            "inode": self.inode,
            "size": self.size,
            "mtime_ns": self.mtime_ns,
            "ctime_ns": self.ctime_ns,
        }

    def lasting(self, fd: int, wait: bool) -> Kept | None:
        """As JSON, so that an equal one proves equal bytes; None where that cannot be.

        fd    the file; None too if it changed since the token was taken
        wait  the tenth of a second after which a change of this moment can be told from the next one
        """
        if self.ctime_ns % 1_000_000_000 == 0 or file_system_of(fd) not in _KEEP_CTIME:
            return None
        age = (time.time_ns() - self.ctime_ns) / 1e9
        if wait and 0 <= age < _SETTLED_S:
            time.sleep(_SETTLED_S - age)
            age = (time.time_ns() - self.ctime_ns) / 1e9
        return self.facts(fd) if age >= _SETTLED_S and LocalToken.of(os.fstat(fd)) == self else None


class StoreToken(NamedTuple):
    """Of a file on another storage.

    etag        without quotes; None where the store has none that stands for the bytes
    generation  Google's number of the version
    modified    seconds since 1970
    told        all that was told, to compare within a process
    """

    size: int
    etag: str | None = None
    generation: str | None = None
    modified: int | None = None
    told: tuple[str | None, ...] = ()

    @classmethod
    def of_headers(cls, size: int, etag: str | None, modified: str | datetime | None) -> StoreToken:
        """Of the headers of an answer of S3; pyarrow and obstore write times in two forms, which become one here."""
        seconds = _seconds(modified)
        told = modified if seconds is None else seconds
        return cls(size, _strong(etag), None, seconds, (etag, None if told is None else str(told)))

    @classmethod
    def of_generation(cls, size: int, generation: str | None) -> StoreToken:
        """Of Google's storage: each version has its own number. ETags there differ between its two APIs."""
        return cls(size, None, generation, None, (generation,))

    @classmethod
    def of_info(cls, protocol: str | tuple[str, ...], info: Mapping[str, Any]) -> StoreToken:
        """Of what an fsspec file system says of a file."""
        spoken = {protocol} if isinstance(protocol, str) else set(protocol)
        etag = info.get("ETag", info.get("etag")) if spoken & (_S3 | _AZURE) else None
        generation = info.get("generation") if spoken & _GOOGLE else None
        modified = info.get("LastModified", info.get("last_modified", info.get("updated")))
        told = tuple(str(info.get(key)) for key in _TOLD)
        return cls(
            int(info["size"]),
            _strong(etag),
            str(generation) if generation is not None else None,
            _seconds(modified) if etag is not None or generation is not None else None,
            told,
        )

    def facts(self) -> Kept | None:
        """As JSON, so that an equal one proves equal bytes; None without ETag and generation."""
        if self.etag is None and self.generation is None:
            return None
        facts = {"size": self.size, "etag": self.etag, "generation": self.generation, "modified": self.modified}
        return {name: value for name, value in facts.items() if value is not None}


_LOCAL = set(LocalToken._fields)
_OF_BYTES = {"etag", "generation"}


def proves(kept: object, now: Mapping[str, Any] | None) -> bool:
    """Whether a token that was kept shows that a file has the bytes that it had then. False is "not known".

    kept  what `lasting` gave, or None; as others may have written it, anything
    now   the `facts` of the file at this moment
    """
    if not isinstance(kept, Mapping) or now is None or kept.get("size") != now.get("size"):
        return False
    if "inode" in kept or "inode" in now:
        return set(kept) == set(now) == _LOCAL and all(kept[name] == now[name] for name in _LOCAL)
    both = kept.keys() & now.keys()
    return bool(both & _OF_BYTES) and all(kept[name] == now[name] for name in both)


def _strong(etag: object) -> str | None:
    """An ETag that stands for the bytes, without its quotes."""
    if not isinstance(etag, str) or etag.startswith("W/"):
        return None
    etag = etag.strip('"')
    return etag if etag and not _NO_HASH.fullmatch(etag) else None


def _seconds(when: object) -> int | None:
    """A store's time in whole seconds, as some have no finer."""
    with suppress(ValueError, TypeError, OverflowError):
        if isinstance(when, str):
            if when[:1].isdigit():
                when = datetime.fromisoformat(when)
            else:
                from email.utils import parsedate_to_datetime  # for those alone who ask stores

                when = parsedate_to_datetime(when)
        if isinstance(when, datetime) and when.tzinfo is not None:
            return int(when.timestamp())
    return None
