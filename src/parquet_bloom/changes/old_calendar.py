"""Old dates of Spark: days that count by another calendar, as a key-value of the file says, which a new file has not.

Spark 2, and later ones with spark.sql.parquet.datetimeRebaseModeInWrite=LEGACY, wrote days of the Julian calendar
before 1582-10-15, and times before 1900 by local mean times. Spark reads such files by these rules, and no others.
Source: Spark's DataSourceUtils.datetimeRebaseSpec.
"""

from __future__ import annotations

import re
from datetime import date, datetime

import pyarrow as pa
import pyarrow.compute as pc

from parquet_bloom.format.arrow_types import leaf_arrays
from parquet_bloom.format.footer import Footer

_MARKS = ("org.apache.spark.legacyDateTime", "org.apache.spark.legacyINT96")
_VERSION = "org.apache.spark.version"
_OLD = re.compile(r"[12]\.|3\.0\.")  # 3.0 wrote INT96 by the old calendar
_FIRST_DAY, _FIRST_TIME = date(1582, 10, 15), datetime(1900, 1, 1)  # that both calendars count alike


def has_old_calendar(footer: Footer) -> bool:
    """Whether Spark takes old dates of a file for those of the Julian calendar."""
    pairs = {pair.key: pair.value for pair in footer.key_values or ()}
    return any(mark in pairs for mark in _MARKS) or _OLD.match(pairs.get(_VERSION) or "") is not None


def old_dates(rows: pa.Table) -> list[str]:
    """The columns with a date or a time that the two calendars count differently."""
    return [
        name
        for name, column in zip(rows.column_names, rows.columns, strict=True)
        if any(_is_old(part) for chunk in column.chunks for part in leaf_arrays(chunk))
    ]


def _is_old(array: pa.Array) -> bool:
    if pa.types.is_date(array.type):
        first = pa.scalar(_FIRST_DAY, array.type)
    elif pa.types.is_timestamp(array.type):
        first = pa.scalar(_FIRST_TIME, pa.timestamp(array.type.unit)).cast(pa.int64()).cast(array.type)
    else:
        return False
    return bool(pc.any(pc.less(array, first)).as_py())
