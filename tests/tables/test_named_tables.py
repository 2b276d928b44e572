"""Names of tables: what is a version, what is none, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import parquet_bloom
from parquet_bloom.errors import RequestError
from parquet_bloom.source.names import parse

NAMES = {
    "delta:lake/events": ("delta", "lake/events", None),
    "delta:lake/events@17": ("delta", "lake/events", "17"),
    "delta:a@b/events@17": ("delta", "a@b/events", "17"),
    "delta:lake/me@home": ("delta", "lake/me@home", None),
    "delta:lake@17/events": ("delta", "lake@17/events", None),
    "delta:lake@2026-01-31": ("delta", "lake", "2026-01-31"),
    "delta:lake@2026-01-31T12:00:00.5Z": ("delta", "lake", "2026-01-31T12:00:00.5Z"),
    "delta:lake@2026-01-31 12:00+01:00": ("delta", "lake", "2026-01-31 12:00+01:00"),
    "delta:lake@2026-01": ("delta", "lake@2026-01", None),
    "delta:lake@-1": ("delta", "lake@-1", None),
    "delta:s3://key:secret@123": ("delta", "s3://key:secret@123", None),
    "delta:s3://key:secret@123/t@4": ("delta", "s3://key:secret@123/t", "4"),
    "iceberg:prod/web.raw.events@7051729674891": ("iceberg", "prod/web.raw.events", "7051729674891"),
    "ducklake:meta.ducklake/main.events": ("ducklake", "meta.ducklake/main.events", None),
    "./delta:lake": None, "Delta:lake": None, "s3://bucket/delta:lake": None, "hudi:lake": None,
}  # fmt: skip


def test_a_name() -> None:
    assert {text: parse(text) for text in NAMES} == NAMES


def test_a_name_in_the_users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse("delta:~/lake@17") == ("delta", f"{tmp_path}/lake", "17")
    assert parse("ducklake:~/meta.ducklake/main.t") == ("ducklake", f"{tmp_path}/meta.ducklake/main.t", None)
    assert parse("delta:./~/lake") == ("delta", "./~/lake", None)


def test_a_name_without_a_place() -> None:
    for text in ("delta:", "delta:@5", "iceberg:", "ducklake:@2026-01-01"):
        with pytest.raises(RequestError, match=f"^{text} names no table; write {text.split(':')[0]}:"):
            parse(text)


def test_what_makes_no_sense_together(tmp_path: Path) -> None:
    sql: dict[str, Any] = {"catalog_properties": {"type": "sql"}}
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (["delta:a", "delta:b"], {}, "delta:a and delta:b: a table is read alone"),
        (["plain", "iceberg:c/d.e"], {}, "plain and iceberg:c/d.e: a table is read alone"),
        ("delta:a", {"raw_files": True}, "raw_files=True reads what lies in a folder"),
        ("delta:a", sql, "catalog_properties are for iceberg: and ducklake:"),
        (parquet_file(tmp_path), sql, "not for files"),
        ("iceberg:prod/web.events", {"filesystem": fs.LocalFileSystem()}, "filesystem= is for files and delta:, iceb"),
    ]
    for sources, options, said in cases:
        with pytest.raises(RequestError, match=said):
            parquet_bloom.count(sources, **options)


def test_a_path_is_always_a_file_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    parquet_file(tmp_path).rename(tmp_path / "delta:lake")
    assert parquet_bloom.count(Path("delta:lake")) == 2
    assert parquet_bloom.count("./delta:lake") == 2


def parquet_file(folder: Path) -> Path:
    pq.write_table(pa.table({"id": [1, 2]}), folder / "x.parquet")
    return folder / "x.parquet"
