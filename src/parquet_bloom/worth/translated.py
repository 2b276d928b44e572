"""A predicate in our SQL -> the same in an engine's: quoted names, fields of structs, what a list holds."""

from __future__ import annotations

from sqlglot import ErrorLevel, exp
from sqlglot.errors import SqlglotError

from parquet_bloom.errors import first_line
from parquet_bloom.predicates.long_texts import ShortenedText
from parquet_bloom.predicates.sql import parsed, split
from parquet_bloom.worth.process import EngineError

# Engines that take our text as it is are not here.
_DIALECTS = {"duckdb": "duckdb", "datafusion": "postgres", "polars": "postgres", "daft": "postgres", "spark": "spark",
             "clickhouse": "clickhouse"}  # fmt: skip
_CONTAINS = {"spark": "array_contains", "polars": "array_contains", "clickhouse": "has"}


def translated(text: str, engine: str) -> str:
    """The predicate as an engine reads it. Raises TextError; EngineError where its SQL cannot say it."""
    dialect = _DIALECTS.get(engine)
    if dialect is None:
        return text
    whole = ShortenedText(text, {})
    tree = parsed(text, split(text, whole))
    for node in list(tree.find_all(exp.Anonymous)):
        if node.name.lower() == "list_contains" and engine in _CONTAINS:
            node.set("this", _CONTAINS[engine])
    if engine == "datafusion":  # which takes "s"."f" for a table's column
        tree = tree.transform(_field)
    try:
        # Daft takes quotes for a part of the name.
        return tree.sql(dialect=dialect, identify=engine != "daft", unsupported_level=ErrorLevel.RAISE)
    except SqlglotError as error:
        raise EngineError(f"its SQL cannot say this predicate: {first_line(error)}") from None


def _field(node: exp.Expression) -> exp.Expression:
    """A field of a struct in brackets."""
    if not isinstance(node, exp.Column) or len(node.parts) == 1:
        return node
    first, *fields = node.parts
    found: exp.Expression = exp.Column(this=first)
    for part in fields:
        found = exp.Bracket(this=found, expressions=[exp.Literal.string(part.name)], offset=0)
    return found
