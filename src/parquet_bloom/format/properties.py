"""The Hadoop properties of the 2015 draft, as options of ours.

    parquet.enable.bloom.filter        default false: the draft wrote none unless told to
    parquet.expected.entries           distinct values per row group; the data decide without it
    parquet.bloom.filter.fpp.provided  whether the next one counts, default: if it is there
    parquet.bloom.filter.fpp.value     false positive rate, 0.05 without it; the draft's code said
    parquet.bloom.filter.value         this for the same

Source: parquet-java PR #215, ParquetOutputFormat; docs/formats.md section 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parquet_bloom.errors import RequestError, parameter

ENABLE = "parquet.enable.bloom.filter"
ENTRIES = "parquet.expected.entries"
PROVIDED = "parquet.bloom.filter.fpp.provided"
VALUE = "parquet.bloom.filter.fpp.value"
VALUE_IN_CODE = "parquet.bloom.filter.value"
PROPERTIES = (ENABLE, ENTRIES, PROVIDED, VALUE, VALUE_IN_CODE)


def parse_properties(texts: Sequence[str]) -> dict[str, str]:
    """Read "name=value" texts. Raises RequestError for any other, and for a name that comes twice."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise RequestError(parameter("properties") + f" {text}: expected PROPERTY=VALUE, as in {VALUE}=0.01")
        if found.setdefault(name, value) != value:
            raise RequestError(parameter("properties") + f" {name} stands there twice, as {found[name]} and as {value}")
    return found


def sizes_from(properties: Mapping[str, str]) -> tuple[float | None, int | None]:
    """The false positive rate and the number of entries in properties; None: not set.

    Raises RequestError for a property that the draft does not know, a value that is none, and where the
    properties ask for no filter.
    """
    for name in properties:
        if name not in PROPERTIES:
            raise RequestError(f"property {name} is unknown; there are: {', '.join(PROPERTIES)}")
    if not _boolean(properties, ENABLE, True):
        raise RequestError(f"{ENABLE} is false, so there is nothing to add")
    rates = {properties[name] for name in (VALUE, VALUE_IN_CODE) if name in properties}
    if len(rates) > 1:
        raise RequestError(f"{VALUE} and {VALUE_IN_CODE} differ")
    if not _boolean(properties, PROVIDED, bool(rates)):
        rates = set()
    elif not rates:
        raise RequestError(f"{PROVIDED} is true, but {VALUE} is not given")
    return (_rate(rates.pop()) if rates else None), _entries(properties.get(ENTRIES))


def _boolean(properties: Mapping[str, str], name: str, default: bool) -> bool:
    text = properties.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise RequestError(f"{name}={text}: expected true or false")
    return text.lower() == "true"


def _rate(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise RequestError(f"{VALUE}={text}: expected a rate between 0 and 1") from None


def _entries(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        raise RequestError(f"{ENTRIES}={text}: expected a number") from None
