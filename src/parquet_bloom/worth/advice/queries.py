"""A log of queries: how often each column is asked for values, which is where a filter can answer."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from parquet_bloom.errors import RequestError, StorageError, TextError, first_line
from parquet_bloom.formats.metadata.schema import join_path
from parquet_bloom.predicates.text import parse
from parquet_bloom.predicates.tree import And, Compare, Contains, IsIn, Not, Or, Predicate


@dataclass(slots=True)
class QueryLog:
    """What a log of queries asks for.

    queries  how many were understood; `lost` how many were not
    asked    a column's name -> how many queries could be answered by a filter on it
    """

    queries: int = 0
    lost: int = 0
    asked: Counter[str] = field(default_factory=Counter)


def read_queries(path: str | os.PathLike[str]) -> QueryLog:
    """Read a text file of WHERE clauses or SQL statements, one a line or ended by `;`. Lines of `--` are comments.

    Raises StorageError where it cannot be read, RequestError where nothing in it is a query.
    """
    try:
        with open(path, encoding="utf-8") as lines:
            text = lines.read()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(path, f"cannot be read as text: {first_line(error)}") from error
    log = QueryLog()
    for query in _queries(text):
        predicate = _predicate(query)
        if predicate is None:
            log.lost += 1
            continue
        log.queries += 1
        log.asked.update(answered_by(predicate))
    if not log.queries:
        raise RequestError(f"{os.fspath(path)}: no line of it is a WHERE clause or a SQL statement with one")
    return log


def _queries(text: str) -> Iterator[str]:
    plain = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    parts = plain.split(";") if ";" in plain else plain.splitlines()
    yield from (part.strip() for part in parts if part.strip())


def _predicate(query: str) -> Predicate | None:
    """The predicate of a clause or a statement; None where there is none that is understood."""
    first, *rest = query.split(None, 1)
    clause: str | None = query
    if first.lower() == "where":
        clause = "".join(rest)
    elif first.lower() in ("select", "with"):
        clause = _where_of(query)
    try:
        return None if clause is None else parse(clause)
    except TextError:
        return None


def _where_of(statement: str) -> str | None:
    import sqlglot
    from sqlglot import exp

    try:
        tree = sqlglot.parse_one(statement)
    except sqlglot.errors.SqlglotError:
        return None
    where = tree.find(exp.Where)
    if where is None:
        return None
    for column in where.find_all(exp.Column):  # t.id of FROM events t is the column id
        if column.table and not column.args.get("db"):
            column.set("table", None)
    return str(where.this.sql())


def answered_by(predicate: Predicate) -> set[str]:
    """The columns of which a filter's no decides: those that are compared by =, IN or list_contains.

    Under an OR each part has to be decided, so all of its columns are needed; they count together.
    """
    if isinstance(predicate, And):
        return set().union(*(answered_by(part) for part in predicate.parts))
    if isinstance(predicate, Or):
        parts = [answered_by(part) for part in predicate.parts]
        return set().union(*parts) if all(parts) else set()
    if isinstance(predicate, Not):
        return set()
    if isinstance(predicate, IsIn | Contains) or (isinstance(predicate, Compare) and predicate.op == "="):
        return {join_path(predicate.path)}
    return set()
