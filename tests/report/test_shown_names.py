"""What files and people name never does anything to a terminal, and no message has a secret."""

from __future__ import annotations

import ast
import csv
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands import command, on_terminal
from support.parsed import parsed
from support.recording_store import recording

import parquet_bloom
from parquet_bloom import cli
from parquet_bloom.errors import ParquetBloomError
from parquet_bloom.report.text import visible
from parquet_bloom.storage.display import without_secret

EVIL = "\x1b]0;title\x07\x1b[31mred\x1b[2K\x9b31m\u202egnp\u2066.\u200b"
MARKUP = "[b]m[/x]"
CODES = [c for c in EVIL if not c.isprintable()]
SECRET = "wJalr/XUt+nFEMI/K7MDENG"
CLI = Path(cli.__file__).parent


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evil")
    inside = folder / f"k={EVIL}"
    inside.mkdir()
    table = pa.table({EVIL: [1, 2, 3], "id": ["v1", "v2", EVIL], MARKUP: [1, 2, 3], "nl\nname": [3, 4, 5]})
    plain = folder / "plain.parquet"
    pq.write_table(table, plain, use_dictionary=False)
    parquet_bloom.add_filters(plain, folder / "names.parquet", columns=["*"], sync=False)
    parquet_bloom.add_filters(plain, inside / f"{EVIL}.parquet", columns=["*"], sync=False)
    data = bytearray(plain.read_bytes())
    data[4:150] = b"\xff" * 146
    (folder / "damaged.parquet").write_bytes(data)
    return folder


COLUMN = '"' + EVIL.replace('"', '""') + '"'
WAYS = [
    ["add", "plain.parquet", "-o", "out.parquet", "--overwrite", "-c", "*"],
    ["inspect", "names.parquet", "--all"],
    ["inspect", "names.parquet", "--json"],
    ["inspect", "names.parquet", "--output-format", "github", "--assert-filters", "*"],
    ["add", "plain.parquet", "-o", "out.parquet", "--overwrite", "-c", "*", "--engine", "polars"],
    ["engines", "--engine", EVIL],
    ["verify", f"k={EVIL}"],
    ["check", "names.parquet", f"{COLUMN} = 9 AND other({COLUMN})", "--explain"],
    ["check", ".", f"{COLUMN} = 2", "--explain"],
    ["read", "names.parquet"],
    ["read", "names.parquet", "--format", "csv"],
    ["read", "names.parquet", "--format", "ndjson"],
    ["add", "names.parquet", "-c", EVIL + "?", "-o", "x.parquet"],
    ["inspect", f"{EVIL}.parquet"],
    [EVIL],
    ["add", "damaged.parquet", "-c", "*", "-o", "x.parquet"],
    ["remove", f"k={EVIL}", "--dry-run"],
]


def test_a_terminal_gets_no_code_of_a_name(evil: Path) -> None:
    for words in WAYS:
        out = on_terminal(evil, *words)
        own = out.replace("\r", "").replace("\x1b[K", "")  # the bar's own
        own = re.sub(r"\x1b\[(?:1|2|31|32|35)m([^\x1b]*)\x1b\[0m", r"\1", own)  # our colours
        assert not [c for c in CODES if c in own], (words, own)
        assert "Traceback" not in own, words
        assert "unexpected error" not in own, words


def test_programs_get_values_as_they_are(evil: Path) -> None:
    done = command("read", evil / "names.parquet", "--format", "csv")
    rows = list(csv.reader(done.stdout.splitlines()))
    assert (rows[0][0], rows[3][1]) == (EVIL, EVIL)
    done = command("read", evil / "names.parquet", "--format", "ndjson")
    assert json.loads(done.stdout.splitlines()[2])["id"] == EVIL
    assert not [c for c in CODES if c in done.stdout], "JSON escapes them, and means the same"


def test_markup_is_a_name(evil: Path) -> None:
    for words in (["read", "names.parquet", "--columns", MARKUP], ["inspect", "names.parquet"]):
        done = command(*words, cwd=evil)
        assert (done.returncode, MARKUP in done.stdout) == (0, True)
    assert "nl\\nname" in done.stdout


def test_visible() -> None:
    shown = {"a\x1bb": "a\\x1bb", "\u202e": "\\u202e", "\udcff": "\\udcff", "é 漢": "é 漢", "\x9b": "\\x9b"}
    assert {text: visible(text) for text in shown} == shown


def test_output_in_ascii(evil: Path) -> None:
    for words in (["read"], ["read", "--format", "csv"], ["inspect"]):
        done = command(*words, "names.parquet", cwd=evil, PYTHONIOENCODING="ascii")
        assert done.returncode == 0, (words, done.stderr)


def test_commands_print_through_one_door() -> None:
    """Whoever prints what a file says goes through say, aside, complain, print_table or print_json."""
    doors = {"common.py": 2, "__init__.py": 1}  # for people, for programs; the help page
    for module in sorted(CLI.glob("*.py")):
        names = [ast.unparse(n.func) for n in ast.walk(parsed(module.read_text())) if isinstance(n, ast.Call)]
        prints = [name for name in names if name in ("click.echo", "print", "click.secho")]
        assert len(prints) <= doors.get(module.name, 0), module.name


# --- secrets ----------------------------------------------------------------------------------------


def test_a_uri_without_its_secret() -> None:
    for text, shown in (
        (f"s3://KEY:{SECRET}@bucket/a b", "s3://bucket/a b"),
        (f"two: s3a://KEY:{SECRET}@b/x and s3://K:S@c", "two: s3a://b/x and s3://c"),
        ("s3://KEY:123/456@bucket/x", "s3://bucket/x"),
        ("abfs://account:pass@container/x", "abfs://container/x"),
        ("hdfs://host:8020/user@home/x", "hdfs://host:8020/user@home/x"),
        ("s3://bucket/a@b:c", "s3://bucket/a@b:c"),
    ):
        assert without_secret(text) == shown


COMMANDS = [["inspect"], ["inspect", "--json"], ["verify"], ["read"], ["add", "--in-place"], ["check"], ["remove"]]


def secretless(capsys: pytest.CaptureFixture[str], *words: str) -> None:
    assert cli.run(list(words)) == 2
    told = "".join(capsys.readouterr())
    assert not [part for part in ("wJalr", "XUt", "MDENG", "456") if part in told], told


def test_no_message_has_a_secret(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for secret in (SECRET, "123/456"):
        uri = f"s3://KEY:{secret}@bucket/x.parquet"
        for words in COMMANDS:
            for sources in ([uri], [uri, str(tmp_path)], [str(tmp_path), uri]):
                secretless(capsys, *words, *sources, *(["a = 1"] if words == ["check"] else []))
        secretless(capsys, "check", uri)  # the predicate is missing, and click names what is there


def test_no_message_of_a_store_has_a_secret(capsys: pytest.CaptureFixture[str]) -> None:
    """Where nobody answers: storage/test_object_lies.py."""
    object_ = f"s3://KEY:{SECRET.replace('/', '%2F')}@bucket/x.parquet"
    with recording() as store:
        at = f"endpoint_override={store.endpoint}&scheme=http&region=us-east-1"
        secretless(capsys, "inspect", f"{object_}?{at}")  # there is no such object
        store.objects["bucket/x.parquet"] = b"no Parquet"
        secretless(capsys, "inspect", f"{object_}?{at}")
    secretless(capsys, "inspect", f"{object_}?nonsense=1")


def test_no_exception_has_a_secret_in_its_chain() -> None:
    for uri in (f"s3://KEY:{SECRET}@bucket/x", f"s3://KEY:{SECRET.replace('/', '%2F')}@bucket/x?nonsense=1"):
        with pytest.raises(ParquetBloomError) as caught:
            parquet_bloom.inspect(uri)
        error: BaseException | None = caught.value
        while error is not None:
            assert "wJalr" not in f"{error}{error!r}"
            error = error.__cause__
