"""Names of new versions of a table's files: events.parquet -> events-bloom-UUID.parquet, beside the old one."""

from __future__ import annotations

import re
import uuid

from parquet_bloom.storage.remote import Location

_OURS = re.compile(r"(-bloom-[0-9a-f]{32})?(\.parquet)?$")


def new_name(name: str) -> str:
    """A name that no file of any table has or had; a version of a version is named by the first."""
    return f"{first_name(name)}-bloom-{uuid.uuid4().hex}.parquet"


def first_name(name: str) -> str:
    """What all versions of a file have in common: the first one's name, or path, without its ending."""
    return _OURS.sub("", name, count=1)


def new_place(file: Location) -> Location:
    """A place beside a file, with a new name."""
    name = new_name(file.path.rpartition("/")[2])
    return Location(beside(file.path, name), file.filesystem, beside(file.shown, name) if file.shown else "")


def beside(path: str, new: str) -> str:
    """The last part of one path in the folder of another, whose text stays as it is: relative, or not normalised."""
    return path[: path.rfind("/") + 1] + new[new.rfind("/") + 1 :]
