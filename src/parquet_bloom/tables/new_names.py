"""Names of new versions of a table's files: events.parquet -> events-bloom-UUID.parquet, beside the old one."""

from __future__ import annotations

import posixpath
import re
import uuid

from parquet_bloom.storage.remote import Location

_OURS = re.compile(r"(-bloom-[0-9a-f]{32})?(\.parquet)?$")


def new_name(name: str) -> str:
    """A name that no file of any table has or had; a version of a version is named by the first."""
    return f"{_OURS.sub('', name, count=1)}-bloom-{uuid.uuid4().hex}.parquet"


def new_place(file: Location) -> Location:
    """A place beside a file, with a new name."""
    folder, name = posixpath.split(file.path)
    new = new_name(name)
    shown = posixpath.join(posixpath.dirname(file.shown), new) if file.shown else ""
    return Location(posixpath.join(folder, new), file.filesystem, shown)
