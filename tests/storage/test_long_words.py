"""Words from outside may be long: what is done with them takes time by their length, and not by its square."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from support.commands import in_this_process

from parquet_bloom.errors import visible
from parquet_bloom.format.schema import split_path
from parquet_bloom.spark.failures import one_line
from parquet_bloom.storage.display import brief, may_be_secret, without_secret

SHORT, LONG = 1 << 15, 1 << 17  # characters
PIECES = [
    "a", "a.", "a1+", ":", "://", "a://", "a://b:", "a://b:c", "://@", "a://b:8020/", "@", " ", "\n", '"', '""', "'",
    "b'", "b'\\'", "(TID 1) (", "A ", "a.A", "SQLSTATE: ", "\\", "é", "\x1b", "/", "..", "[", "Caused by: a.A",
]  # fmt: skip


class Py4JError(Exception):
    """As Spark raises it."""

    __module__ = "py4j.protocol"


def split(text: str) -> object:
    try:
        return split_path(text)
    except ValueError as error:
        return error


FUNCTIONS: list[Callable[[str], object]] = [
    without_secret, may_be_secret, visible, brief, split, lambda text: one_line(Py4JError(text)),
]  # fmt: skip


def seconds(function: Callable[[str], object], text: str) -> float:
    started = time.process_time()
    function(text)
    return time.process_time() - started


def test_a_long_word_takes_time_by_its_length() -> None:
    """Four times the text takes four times as long, where the square would take sixteen times."""
    for function in FUNCTIONS:
        for piece in PIECES:
            longer = seconds(function, piece * (LONG // len(piece)) + "@x")
            if longer > 0.5:  # else it is quick whatever it grows by
                shorter = seconds(function, piece * (SHORT // len(piece)) + "@x")
                assert longer < 9 * shorter, (function, piece)


SHOWN = [
    ("s3://KEY:SECRET@bucket/path", "s3://bucket/path"), ("s3://KEY:SE/CR/ET@bucket/path", "s3://bucket/path"),
    ("a s3://K:S@b and s3a://K:S@c", "a s3://b and s3a://c"), ("s3://bucket:8020/user@home", "s3://home"),
    ("hdfs://host:8020/user@home/x", "hdfs://host:8020/user@home/x"),
    ("hdfs://user:word@host:8020/x", "hdfs://host:8020/x"), ("x=1 file:///a:b@c", "x=1 file:///a:b@c"),
    ("'s3://K:S@b'", "'s3://b'"), ("1s3://K:S@b", "1s3://b"), ("12://K:S@b", "12://K:S@b"), ("a://b://c@d", "a://d"),
    ("a://?b://c:d@e", "a://?b://e"), ("s3://K:S:T@b", "s3://b"), ("s3://K@b", "s3://K@b"), ("", ""),
    ("s3://K:S@b@c", "s3://b@c"), ("a@b://K:S@c", "a@b://c"),
]  # fmt: skip


def test_secrets_are_taken_out() -> None:
    for text, shown in SHOWN:
        assert without_secret(text) == shown, text


def test_commands_over_a_file_whose_column_has_a_long_name(tmp_path: Path) -> None:
    name = "a" * 200_000
    pq.write_table(pa.table({name: range(100), "id": range(100)}), tmp_path / "a.parquet")
    source, target = str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")
    started = time.process_time()
    for words in (
        ["add", source, "-o", target, "-c", "id"], ["add", source, "-o", str(tmp_path / "c.parquet")],
        ["inspect", target],
        ["check", target, "id = 5", "--explain"], ["check", target, "x = 5"], ["status", source], ["advise", source],
        ["verify", target], ["report", target, "-o", str(tmp_path / "page.html")],
        ["read", target, "--where", "id = 5"],
    ):  # fmt: skip
        done = in_this_process(*words)
        assert done.returncode in (0, 1, 2)
        assert "Traceback" not in done.stderr
    assert time.process_time() - started < 60, "a minute for what takes some seconds"
