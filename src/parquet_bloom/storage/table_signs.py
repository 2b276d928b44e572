"""What makes a folder a table of Delta, Iceberg or Hudi, and what writers of tables leave in a file's footer.

    _delta_log/   00000000000000000000.json, checkpoints
    .hoodie/      hoodie.properties
    metadata/     v3.metadata.json, 00003-UUID.metadata.json (.gz before or behind), version-hint.text

A name without a log in it is none: `metadata` with other JSON, an empty `_delta_log`.
"""

from __future__ import annotations

import gzip
import io
import json
import posixpath
import re
from collections.abc import Iterable, Sequence
from typing import Any

from parquet_bloom.formats.metadata.schema import Leaf
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.stores import store_of

SIGNS = ("_delta_log", ".hoodie", "metadata")
_DELTA = re.compile(r"\d+(\.\d+)?(\.compacted)?\.json|\d+\.checkpoint(\..+)?\.(parquet|json)|_last_checkpoint")
_ICEBERG = re.compile(r"(?:v(\d+)|(\d+)-[^/]+)(?:\.gz)?\.metadata\.json(?:\.gz)?|version-hint\.text")
_METADATA_BYTES = 16 << 20  # of one metadata file of an Iceberg table, at most
_DATA_PATHS = ("write.data.path", "write.object-storage.path", "write.folder-storage.path")


def table_in(folder: Location, below: Sequence[str]) -> str | None:
    """The kind of the table that a folder is, by the names of the folders in it; those of logs are looked into."""
    contents = ((sign, names_in((folder, sign))) for sign in SIGNS if sign in below)
    kinds = (kind_of(folder, sign, names) for sign, names in contents if isinstance(names, list))
    return next(filter(None, kinds), None)


def names_in(one: tuple[Location, str]) -> list[str] | Exception:
    """The names in a log's folder, on a storage by one request; none where there is no such folder."""
    folder, sign = one
    try:
        return store_of(folder).names_in(posixpath.join(folder.path, sign))
    except Exception as error:
        return error


def kind_of(folder: Location, sign: str, names: Sequence[str]) -> str | None:
    """What table a folder is, by a log's folder in it and what that holds. A name alone is no log."""
    if sign == "_delta_log":
        return "Delta" if any(map(_DELTA.fullmatch, names)) else None
    if sign == ".hoodie":
        return "Hudi" if any(name.startswith("hoodie.properties") for name in names) else None
    if any(map(_ICEBERG.fullmatch, names)):
        return "Iceberg"
    odd = [name for name in names if name.endswith((".metadata.json", ".metadata.json.gz"))]
    return "Iceberg" if odd and _metadata(folder, max(odd)) is not None else None


def data_path(folder: Location) -> str | None:
    """Where the data of an Iceberg table lie that are not in its folder; None if they are, or there is no table."""
    names = names_in((folder, "metadata"))
    named = [name for name in names if ".metadata.json" in name] if isinstance(names, list) else []
    metadata = _metadata(folder, max(named, key=_version)) if named else None
    if metadata is None:
        return None
    properties = metadata.get("properties")
    settings = [properties.get(name) for name in _DATA_PATHS] if isinstance(properties, dict) else []
    location = str(metadata["location"]).rstrip("/")
    data_folder = next((str(path) for path in settings if path), f"{location}/data").rstrip("/")
    inside = data_folder.startswith(f"{location}/") and posixpath.basename(location) == posixpath.basename(folder.path)
    return None if inside else data_folder


def _version(name: str) -> tuple[int, str]:
    numbers = _ICEBERG.fullmatch(name)
    return (int(numbers[1] or numbers[2] or -1) if numbers is not None else -1), name


def _metadata(folder: Location, name: str) -> dict[str, Any] | None:
    """The metadata of an Iceberg table; None where a file is something else, or cannot be read."""
    path = posixpath.join(folder.path, "metadata", name)
    try:
        data = store_of(folder).start_of(path, _METADATA_BYTES)
        if data[:2] == b"\x1f\x8b":
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(_METADATA_BYTES)
        metadata = json.loads(data)
    except Exception:
        return None
    return metadata if isinstance(metadata, dict) and {"format-version", "location"} <= set(metadata) else None


# --- footers --------------------------------------------------------------------------------------


def footer_note(path: object, metadata: Any, leaves: Iterable[Leaf]) -> tuple[str, str] | None:
    """The kind of table that a file was written for, by its footer, and a note about it; or None.

    metadata  FileMetaData with key-values and writer
    leaves    its columns
    """
    keys = {pair.key for pair in metadata.key_value_metadata or ()}
    if "iceberg.schema" in keys:
        kind, why = "Iceberg", "its footer has iceberg.schema"
    elif (metadata.created_by or "").startswith("delta-rs"):
        kind, why = "Delta", f"its writer is {metadata.created_by}"
    elif any(str(key).startswith(("org.apache.hudi.", "hoodie_")) for key in keys):
        kind, why = "Hudi", "its footer has Hudi's keys"
    elif any(leaf.path[0] == "_hoodie_commit_time" for leaf in leaves):
        kind, why = "Hudi", "it has a column _hoodie_commit_time"
    else:
        return None
    article = "an" if kind == "Iceberg" else "a"
    return kind, f"{path} was written for {article} {kind} table ({why}) that is not in sight: it may hold dead rows"
