"""What `add` says of columns whose filters an engine will not use, or breaks on: one line an engine and reason."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from parquet_bloom.errors import RequestError, parameter
from parquet_bloom.facts.known import (
    DICTIONARY,
    ELEMENT,
    FIELD,
    NOT_USED,
    OURS,
    READS,
    SOURCES,
    UNKNOWN,
    USED,
    EngineFacts,
    Hazard,
    facts_of,
    hazards,
    kind_of,
    known,
    range_text,
    release,
    release_number,
    same_release,
    stored_as,
)
from parquet_bloom.format.schema import Leaf

# --- installed ------------------------------------------------------------------------------------
#
# The engines that can be asked, and which of them are installed here, in which version. Imports none of them.


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine that is asked in a process of its own.

    name     as --engine and JSON have it; title as people write it
    package  the distribution that has its version; module, what is imported
    adapter  module and class in worth.adapters
    seconds  that one question may take; the first one starts the engine
    counted  whether it reads files by read calls of its own process: the JVM's and mapped memory are not counted
    """

    name: str
    title: str
    package: str
    module: str
    adapter: str
    seconds: int = 60
    counted: bool = True


ENGINES = {
    engine.name: engine
    for engine in (
        Engine("duckdb", "DuckDB", "duckdb", "duckdb", "in_duckdb:DuckDB"),
        Engine("datafusion", "DataFusion", "datafusion", "datafusion", "in_datafusion:DataFusion"),
        Engine("spark", "Spark", "pyspark", "pyspark", "in_spark:Spark", 240, counted=False),
        Engine("clickhouse", "ClickHouse", "chdb-core", "chdb", "in_chdb:ClickHouse", counted=False),
        Engine("polars", "Polars", "polars", "polars", "in_polars:Polars"),
        Engine("pyarrow", "pyarrow", "pyarrow", "pyarrow", "in_pyarrow:PyArrow"),
        Engine("daft", "Daft", "daft", "daft", "in_daft:Daft"),
        Engine("fastparquet", "fastparquet", "fastparquet", "fastparquet", "in_fastparquet:FastParquet"),
        Engine("parquet_bloom", "parquet_bloom", "parquet-bloom", "parquet_bloom", "in_parquet_bloom:ParquetBloom"),
    )
}


def version_of(engine: Engine) -> str | None:
    """The version that is installed; None if it is not, or cannot run (Spark without Java)."""
    from importlib import metadata
    from importlib.util import find_spec

    if engine.name == "parquet_bloom":
        from parquet_bloom._version import __version__

        return __version__
    try:
        if find_spec(engine.module) is None:
            return None
        version = metadata.version(engine.package)
    except (ImportError, ValueError, metadata.PackageNotFoundError):
        return None
    java = shutil.which("java") is not None or "JAVA_HOME" in os.environ
    return version if engine.name != "spark" or java else None


# --- advice ---------------------------------------------------------------------------------------

_WHERE = {ELEMENT: "elements of lists of ", FIELD: "fields of structs of "}


@cache
def check_engine(name: str) -> tuple[EngineFacts, str]:
    """(what is known of the engine, the version that is meant) of a text as people give it: "duckdb", "duckdb@1.4".

    A space does for the @. Without a version it is the one that is installed here, or else the one of the facts.
    Raises RequestError for an engine that nothing is known of, and for a version that is none.
    """
    first, at, version = re.sub(r"\s*[@\s]\s*", "@", name.strip(), count=1).partition("@")
    facts = facts_of(first.lower())
    if facts is None:
        there = ", ".join(each.name for each in known())
        raise RequestError(parameter("engine") + f" {name!r}: nothing is known of it; there are {there}")
    if at and release_number(version) is None:
        spoken = ", ".join(_versions_known(facts)) or "none"
        raise RequestError(
            parameter("engine") + f" {name!r}: {version!r} is no version such as 2.0 or 26.3.9.1; "
            f"of {facts.title} something is known of: {spoken}"
        )
    installed = version_of(ENGINES[facts.name]) if facts.name in ENGINES else None
    return facts, version or installed or facts.version


def _versions_known(facts: EngineFacts) -> list[str]:
    """The version that was measured, and the ranges that hazards speak of."""
    ranges = [one for hazard in hazards() if hazard.engine == facts.name for one in hazard.versions]
    return [*filter(None, [facts.version]), *dict.fromkeys(map(range_text, ranges))]


# --- hazards --------------------------------------------------------------------------------------


def danger_of(leaf: Leaf, engine: str, form: str = "final", placement: str = "footer") -> str | None:
    """Why an engine gives wrong answers over a right filter on a column; None where it is not known to.

    engine  as check_engine takes it; form and placement of the filter
    """
    facts, version = check_engine(engine)
    found = _hazards_on(leaf, facts, version, form, placement)
    return next((_sentence(facts, version, hazard, "its filters") for hazard in found if not hazard.when), None)


def warnings_of(
    leaves: Iterable[Leaf], engine: str, form: str, placement: str, *, conditional: bool = False
) -> list[str]:
    """Lines on columns over whose right filters an engine gives wrong answers: one line a hazard.

    conditional  those that need a condition which no file shows; otherwise those that need none
    """
    facts, version = check_engine(engine)
    hit: dict[Hazard, list[str]] = {}
    for leaf in leaves:
        for hazard in _hazards_on(leaf, facts, version, form, placement):
            if bool(hazard.when) == conditional:
                hit.setdefault(hazard, []).append(leaf.name)
    return [_sentence(facts, version, hazard, f"filters on {', '.join(names)}") for hazard, names in hit.items()]


def _hazards_on(leaf: Leaf, facts: EngineFacts, version: str, form: str, placement: str) -> list[Hazard]:
    kind = kind_of(leaf)
    return [
        hazard
        for hazard in hazards()
        if hazard.engine == facts.name
        and hazard.role == READS
        and hazard.ours
        and hazard.hits_version(version)
        and hazard.hits(kind, form, placement)
    ]


def _sentence(facts: EngineFacts, version: str, hazard: Hazard, over: str) -> str:
    where = f" where {hazard.when}" if hazard.when else ""
    return f"{facts.title} {version}".strip() + f" {hazard.effect} over {over}{where}: {hazard.avoid} ({hazard.source})"


# --- use ------------------------------------------------------------------------------------------


def notes_of(leaves: Iterable[Leaf], engine: str | None = None) -> list[str]:
    """Lines on those columns whose filters the engine, or any engine that is known, does not use.

    engine  as check_engine takes it; None: a column is told of only if no engine but this package uses its filter
    """
    kinds: dict[tuple[str, str], list[str]] = {}
    for leaf in leaves:
        kind = kind_of(leaf)
        if kind is not None:
            kinds.setdefault((kind, stored_as(leaf)), []).append(leaf.name)
    if engine is not None:
        return _of_engine(*check_engine(engine), kinds)
    nobody = {key: names for key, names in kinds.items() if not any(_uses(facts, *key) for facts in known())}
    return [f"no engine that is known uses filters on {_listed(nobody)}; this package does"] if nobody else []


def engines_for(leaf: Leaf) -> list[str]:
    """The engines, with their versions, that are known to use filters on such a column."""
    kind = kind_of(leaf)
    if kind is None:
        return []
    return [
        f"{facts.title} {release(facts.version)}".strip() for facts in known() if _uses(facts, kind, stored_as(leaf))
    ]


def _uses(facts: EngineFacts, kind: str, stored: str) -> bool:
    return facts.name != OURS and facts.uses(kind, stored) in (USED, DICTIONARY)


def _of_engine(facts: EngineFacts, version: str, kinds: dict[tuple[str, str], list[str]]) -> list[str]:
    told = f"{facts.title} {release(version)}".strip()
    if facts.version and not same_release(version, facts.version):
        unused = {key: names for key, names in kinds.items() if facts.uses(*key) == NOT_USED}
        other = (
            f"; {release(facts.version)} does not on {_listed(unused)}"
            if unused
            else f"; {release(facts.version)} does"
        )
        return [f"whether {told} uses filters on {_listed(kinds)} is not known{other}"] if kinds else []
    source = ", as its source or documents say" if facts.how == SOURCES else ""
    if facts.uses_none:
        return [f"{told} uses no Bloom filters{source}"]
    lines = []
    for answer, before, after in (
        (NOT_USED, f"{told} does not use filters on ", source),
        (UNKNOWN, f"whether {told} uses filters on ", " is not known"),
        (DICTIONARY, f"{told} uses filters on ", " only where the values have no dictionary"),
    ):
        such = {key: names for key, names in kinds.items() if facts.uses(*key) == answer}
        if such:
            lines.append(f"{before}{_listed(such)}{after}")
    return lines


def _listed(kinds: dict[tuple[str, str], list[str]]) -> str:
    return ", ".join(f"{_WHERE.get(stored, '')}{kind} ({', '.join(names)})" for (kind, stored), names in kinds.items())
