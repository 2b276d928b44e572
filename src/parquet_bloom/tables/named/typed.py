"""The command that adds filters, as a shell takes it and as Python does: results advise it, and people paste it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from parquet_bloom.storage.secrets import may_be_secret


class Typed(str):
    """A command for a shell; `python` is the call that does the same."""

    __slots__ = ("python",)
    python: str

    def __new__(cls, command: str, python: str) -> Typed:
        """Both as they are pasted."""
        made = super().__new__(cls, command)
        made.python = python
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Typed, (str(self), self.python)


def add_command(
    sources: Sequence[str],
    columns: Sequence[str],
    *,
    in_place: bool = True,
    replace: bool = False,
    spec: str | None = None,
    rate: float | str | None = None,
    rates: Mapping[str, float | str] | None = None,
    max_bytes: int | None = None,
    catalog_properties: Mapping[str, str] | None = None,
    allow_roots: Sequence[str] = (),
) -> Typed:
    """`parquet-bloom add` of these columns, quoted; a source that begins with a dash is no option there.

    rate   of all columns but those of `rates`
    catalog_properties  of those that may be secrets the name alone is shown
    """
    shown = {key: "..." if may_be_secret(f"{key}={text}") else text for key, text in (catalog_properties or {}).items()}
    options = [word for name in columns for word in ("--column", name)]
    options += [*(["--replace"] if replace else []), *(["--in-place"] if in_place else [])]
    options += ["--spec", spec] if spec is not None else []
    options += ["--max-bytes", str(max_bytes)] if max_bytes is not None else []
    options += ["--fpp", str(rate)] if rate is not None else []
    options += [word for name, one in (rates or {}).items() for word in ("--column-fpp", f"{name}={one}")]
    options += [word for key, text in shown.items() for word in ("--catalog-property", f"{key}={text}")]
    options += [word for root in allow_roots for word in ("--allow-root", root)]
    behind = any(one.startswith("-") for one in sources)
    words = [*options, "--", *sources] if behind else [*sources, *options]
    fpp = {**({"*": rate} if rate is not None else {}), **rates} if rates else rate
    python = _call(
        "add_filters",
        _one_or_all(sources),
        {
            "columns": list(columns),
            "in_place": in_place or None,
            "replace": replace or None,
            "spec": spec,
            "fpp": fpp,
            "max_bytes": max_bytes,
            "catalog_properties": shown or None,
            "allow_roots": list(allow_roots) or None,
        },
    )
    return Typed(shlex.join(["parquet-bloom", "add", *words]), python)


def check_command(sources: Sequence[str], predicate: str) -> Typed:
    """`parquet-bloom check` of a predicate."""
    python = _call("check", _one_or_all(sources), {}, predicate)
    return Typed(shlex.join(["parquet-bloom", "check", *sources, predicate]), python)


def _one_or_all(sources: Sequence[str]) -> str | list[str]:
    return sources[0] if len(sources) == 1 else list(sources)


def _call(function: str, source: Any, keywords: Mapping[str, Any], *more: Any) -> str:
    shown = [*map(repr, (source, *more)), *(f"{key}={value!r}" for key, value in keywords.items() if value is not None)]
    return f"parquet_bloom.{function}({', '.join(shown)})"
