"""Names of tables are refused on Spark in one line: reading rows and building indexes list folders on executors."""

from __future__ import annotations

import pytest

from parquet_bloom.errors import RequestError
from parquet_bloom.spark.storages import refuse_tables


@pytest.mark.parametrize("name", ["delta:lake/events", "iceberg:prod/web.events@5", "ducklake:l.ducklake/main.t"])
def test_a_table_is_refused(name: str) -> None:
    with pytest.raises(
        RequestError, match=r"is read through its log by check, .* on Spark, .*; name files or folders here"
    ) as error:
        refuse_tables(["lake/plain", name])
    assert str(error.value).startswith(name)


def test_files_are_not() -> None:
    refuse_tables(["lake/plain", "./delta:lake", "s3a://bucket/delta:lake"])
