"""The documents that `--json` prints: a head with name and version, and a JSON Schema of each, made from its types.

`docs/generate` writes them to src/parquet_bloom/schemas; the commands need no schema. Names may be added without a new
version, so the schemas allow names that they do not have. Source: JSON Schema 2020-12.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from parquet_bloom.cli.common import DOCUMENT_VERSION

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TEXTS = {"type": "array", "items": {"type": "string"}}
_COUNT = {"type": "integer", "minimum": 0}
_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    NoneType: {"type": "null"},
    float: {"type": ["number", "null"]},  # what is not finite is null
}


def documents() -> dict[str, dict[str, Any]]:
    """Name of a document -> its JSON Schema."""
    from parquet_bloom.advice.advise import Advice
    from parquet_bloom.advice.status import StatusReport
    from parquet_bloom.changes.values import KeyChanges
    from parquet_bloom.edit.repair import RepairReport
    from parquet_bloom.edit.reports import AddReport, RemoveReport
    from parquet_bloom.facts.report import EnginesReport
    from parquet_bloom.filters.inspect import InspectReport
    from parquet_bloom.filters.verify import VerifyReport
    from parquet_bloom.keys.plan import KeyIndexReport
    from parquet_bloom.keys.update import UpdateReport
    from parquet_bloom.keys.verify import KeyIndexInfo, VerifiedKeyIndex
    from parquet_bloom.report.page.page import ReportPage
    from parquet_bloom.zones.build import BuildReport
    from parquet_bloom.zones.query import Matches
    from parquet_bloom.zones.verify import IndexInfo, VerifiedIndex

    kinds = {
        "add": AddReport,
        "remove": RemoveReport,
        "repair": RepairReport,
        "delete": KeyChanges,
        "upsert": KeyChanges,
        "inspect": InspectReport,
        "verify": VerifyReport,
        "advise": Advice,
        "engines": EnginesReport,
        "index-build": BuildReport,
        "index-build-keys": KeyIndexReport,
        "index-inspect-keys": KeyIndexInfo,
        "index-query": Matches,
        "index-rebuild": KeyIndexReport,
        "index-update": UpdateReport,
        "index-verify-keys": VerifiedKeyIndex,
        "report": ReportPage,
        "status": StatusReport,
    }
    found = {name: _Maker().document(name, kind) for name, kind in kinds.items()}
    for name in ("inspect", "status", "verify"):
        found[name]["properties"]["gates"] = _GATES
    for name, kind in {"inspect": IndexInfo, "verify": VerifiedIndex}.items():
        maker = _Maker()
        several = {"indexes": {"type": "array", "items": maker.of(kind)}}
        found[f"index-{name}"] = maker.wrapped(f"index-{name}", f"What `index {name}` found.", several)
    found |= {"check": _check(), "locate": _locate(), "error": _error(), **_of_spark()}
    return dict(sorted(found.items()))


_GATES = {
    "description": "What the call was asked to hold, as by --min-skipped; of verify, that nothing is wrong.",
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "gate": {"type": "string"},
            "holds": {"type": "boolean"},
            "reason": {"type": "string", "description": "why it does not hold, else empty"},
        },
        "required": ["gate", "holds", "reason"],
    },
}


def _check() -> dict[str, Any]:
    """Of Verdicts, whose document is no class's fields."""
    from parquet_bloom.search.check import ColumnFilters, ExcludedFile, RowGroupVerdict
    from parquet_bloom.storage.paths import FailedFile

    maker = _Maker()
    counts = ("row_groups", "row_groups_skipped", "bytes", "bytes_skipped", "files_excluded", "files_excluded_bytes")
    totals = dict.fromkeys((*counts, "bytes_read_to_decide", "index_requests", "index_bytes"), _COUNT)
    text = {"type": ["string", "null"]}
    by = {"type": "object", "additionalProperties": _COUNT, "description": "what decided -> how many skipped by it"}
    part = {"part": {"type": "string"}, "reason": {"type": "string"}}
    return maker.wrapped(
        "check",
        "What `check` found: a verdict a row group.",
        {
            "verdicts": {"type": "array", "items": maker.of(RowGroupVerdict)},
            "totals": _object({**totals, "by": by, "files_excluded_by": by}),
            "excluded": {"type": "array", "items": maker.of(ExcludedFile)},
            "table": text,
            "version": text,
            "unused": {"type": "array", "items": _object(part)},
            "columns": {"type": "array", "items": maker.of(ColumnFilters)},
            "failed": {"type": "array", "items": maker.of(FailedFile)},
            "notes": _TEXTS,
        },
        gates=_GATES,
    )


def _locate() -> dict[str, Any]:
    """Of a table, whose keys have the type of the column."""
    place = {
        "key": {"description": "as a JSON value: dates, decimals and bytes are texts"},
        "file": {"type": "string"},
        **dict.fromkeys(("row_group", "first_row", "rows"), _COUNT),
        "deletes": {"type": "boolean", "description": "whether a table has deleted rows of the file"},
        "row_numbers": {
            "description": "in the file, of rows that hold the key; with --verify",
            "type": "array",
            "items": _COUNT,
        },
    }
    return _Maker().wrapped(
        "locate",
        "The row groups that may hold each key; with --verify those that do.",
        {
            **dict.fromkeys(("places", "files"), _COUNT),
            "covered": {**_COUNT, "description": "files that the index answered for"},
            "searched": {**_COUNT, "description": "files that were opened"},
            "absent": {**_COUNT, "description": "of these, files without the column"},
            "expected_false": {"type": "number", "description": "places that are expected to be there by chance"},
            "note": {"type": ["string", "null"], "description": "what the index could not be asked for"},
            **dict.fromkeys(("index_requests", "index_bytes"), _COUNT),
            "found": {"type": "array", "items": _object(place, ("row_numbers",))},
        },
    )


def _error() -> dict[str, Any]:
    return _Maker().wrapped(
        "error",
        "Why a command could not do what it was asked to.",
        {
            "error": {"type": "string", "description": "as it is told on stderr"},
            "kind": {"type": "string", "description": "the class of the error: UnknownColumnError, StorageError, ..."},
            "path": {"type": ["string", "null"], "description": "the file, where it is the file's doing"},
            "column": {"type": ["integer", "null"], "description": "where a predicate's text stops making sense"},
            "status": {"type": "integer", "description": "the exit status"},
        },
    )


def _of_spark() -> dict[str, dict[str, Any]]:
    """Of the `spark` commands: sums, and rows."""
    errors = {"failed": _COUNT, "files": _COUNT, "errors": _TEXTS, "report": {"type": ["string", "null"]}}
    rows = {**errors, "rows": {"type": "array", "items": {"type": "object"}}}
    skipped = [f"skipped by {stage}" for stage in ("no rows", "literal", "partition", "bounds", "filter", "index")]
    indexes = ("offset_indexes", "column_indexes", "index_bytes")
    sums = {
        "spark-add": (errors, ("done", "unchanged", "filters", "filter_bytes", *indexes, "bytes")),
        "spark-repair": (errors, ("done", "unchanged", "wrong", "mended", "mended_log", "bytes")),
        "spark-inspect": (rows, ("filters", "with problems")),
        "spark-verify": (rows, ("right", "wrong", "unknown")),
        "spark-check": (rows, ("row groups", "kept", *skipped, "files not opened")),
        "spark-prune": (rows, ("left", "bytes")),
        "spark-locate": (rows, ("places",)),
    }
    about = "Sums of a job on Spark, and the first rows and errors of it."
    return {
        name: _Maker().wrapped(name, about, {**dict.fromkeys(names, _COUNT), **parts})
        for name, (parts, names) in sums.items()
    }


def _object(properties: Mapping[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": dict(properties), "required": required}


class _Maker:
    """Schemas of types; those of classes are kept in $defs."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}

    def document(self, name: str, kind: type) -> dict[str, Any]:
        """The schema of a document that is one result."""
        properties = {field: self.of(hint) for field, hint in _fields(kind).items()}
        return self.wrapped(name, _about(kind), properties)

    def wrapped(self, name: str, about: str, properties: Mapping[str, Any], **optional: Any) -> dict[str, Any]:
        """The schema of a document with these properties behind its head."""
        of_keys = name.endswith("-keys")
        command = name.removesuffix("-keys").replace("-", " ")
        head = {"document": {"const": name}, "document_version": {"const": DOCUMENT_VERSION}}
        schema = _object({**head, **properties, **optional}, tuple(optional))
        if self.definitions:
            schema["$defs"] = dict(sorted(self.definitions.items()))
        return {
            "$schema": _DRAFT,
            "title": f"parquet-bloom {command} --json{', of a key index' if of_keys else ''}",
            "description": about,
            **schema,
        }

    def of(self, hint: Any) -> dict[str, Any]:
        """The schema of a type as `source.results.plain` writes it. Raises TypeError for one that it cannot write."""
        if hint in _PLAIN:
            return _PLAIN[hint]
        origin, arguments = get_origin(hint), get_args(hint)
        if hint is Any:
            return {}
        if origin in (Union, UnionType):
            return {"anyOf": [self.of(each) for each in arguments]}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        if origin is tuple and Ellipsis not in arguments:
            items = [self.of(each) for each in arguments]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        if origin in (list, tuple):
            return {"type": "array", "items": self.of(arguments[0])}
        if isinstance(hint, type) and issubclass(hint, enum.Flag):
            return _TEXTS
        if isinstance(hint, type) and issubclass(hint, BaseException):
            return {"type": "string"}
        return self._of_class(hint)

    def _of_class(self, kind: Any) -> dict[str, Any]:
        if not (dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")):
            raise TypeError(f"{kind} has no place in a document")
        name = kind.__name__
        if name not in self.definitions:
            self.definitions[name] = {}  # of a class that holds itself
            properties = {field: self.of(hint) for field, hint in _fields(kind).items()}
            self.definitions[name] = {"description": _about(kind), **_object(properties)}
        return {"$ref": f"#/$defs/{name}"}


def _fields(kind: Any) -> dict[str, Any]:
    """What to_dict gives of a class: its fields and the properties that it names, with their types."""
    hints = get_type_hints(kind)
    names = kind._fields if hasattr(kind, "_fields") else [f.name for f in dataclasses.fields(kind)]
    more = getattr(kind, "_more", ())
    return {name: hints[name] for name in names} | {
        name: get_type_hints(getattr(kind, name).fget)["return"] for name in more
    }


def _about(kind: Any) -> str:
    """The first paragraph of a class's docstring."""
    return " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
