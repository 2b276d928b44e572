"""Key indexes as a user types them: each command, its options, its exit status, and one line for what goes wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands import error_lines, in_this_process, without_hints

import parquet_bloom
from parquet_bloom.keys.entries import SCHEMA, write_parquet
from parquet_bloom.keys.manifest import NAME, from_json, to_json
from parquet_bloom.output.index_files import IndexFiles

FILES, GROUPS, ROWS = 4, 3, 200
TOTAL = FILES * GROUPS * ROWS
STEP, ABSENT = 7, 7003  # ids are multiples of 7, so that there are absent ones within all bounds


def table(file: int, files: int = FILES) -> pa.Table:
    """Ids of which each row group has some of everywhere, and texts of digits."""
    order = np.random.default_rng(1).permutation(GROUPS * ROWS * files)
    ids = order[file::files][: GROUPS * ROWS] * STEP
    return pa.table({"id": ids, "code": [f"{one:06d}" for one in ids], "half": ids / 2})


def write(path: Path, rows: pa.Table) -> None:
    pq.write_table(rows, path, row_group_size=ROWS, use_dictionary=False)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with events/, four files of three row groups; it is the current one."""
    monkeypatch.chdir(tmp_path)
    Path("events").mkdir()
    for i in range(FILES):
        write(Path(f"events/{i}.parquet"), table(i))
    return tmp_path


@pytest.fixture
def index(here: Path) -> Path:
    """keys/, a key index over id and code of events/."""
    assert typed("index", "build", "events", "-c", "id", "-c", "code", "-o", "keys")
    return here / "keys"


class Said(str):
    """What a command printed on standard output, and beside it."""

    errors: str


def typed(*words: object, status: int = 0) -> Said:
    """What a command printed; its exit status is compared."""
    done = in_this_process(*words)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    said = Said(done.stdout)
    said.errors = done.stderr
    return said


def refused(*words: object) -> str:
    """The one line with which a command is refused."""
    said = typed(*words, status=2)
    [line] = without_hints(said.errors)
    assert line.startswith("parquet-bloom: ")
    assert said == ""
    return line.removeprefix("parquet-bloom: ")


def document(*words: object, status: int = 0) -> dict[str, Any]:
    found = json.loads(typed(*words, "--json", status=status))
    assert isinstance(found, dict)
    return found


def found_by(*words: object) -> dict[str, Any]:
    """The totals of a check. The first file is opened, as names of columns are looked up in it."""
    done = in_this_process("check", "events", *words, "--json")
    assert done.returncode in (0, 1), done.stderr
    totals = json.loads(done.stdout)["totals"]
    assert isinstance(totals, dict)
    return totals


def rows_of(value: int, *words: object) -> list[dict[str, object]]:
    lines = typed("read", "events", f"id = {value}", "--format", "ndjson", *words).splitlines()
    return [json.loads(line) for line in lines]


# --- build ----------------------------------------------------------------------------------------


def test_a_dry_run_says_the_size_and_writes_nothing(here: Path) -> None:
    said = typed("index", "build", "events", "-c", "id", "-o", "keys", "--dry-run")
    assert "12 row groups of 4 files, 2,400 rows" in said
    assert "at most; nothing is written" in said
    assert os.listdir() == ["events"]
    planned = document("index", "build", "events", "-c", "id", "-o", "keys", "--dry-run")
    built = document("index", "build", "events", "-c", "id", "-o", "keys")
    assert os.listdir("keys") != []
    assert planned["rows"] == built["rows"] == TOTAL
    assert 0 < built["bytes"] <= planned["bytes"], "at most"
    on_disk = sum(path.stat().st_size for path in Path("keys").rglob("*.parquet"))
    assert built["bytes"] == on_disk


def test_fewer_false_places_take_more_bits(here: Path) -> None:
    bits = []
    for false_places in ("0.5", "0.005"):
        words = ("index", "build", "events", "-c", "id", "-o", "keys", "--overwrite")
        [column] = document(*words, "--false-places", false_places)["columns"]
        assert column["false_places"] <= float(false_places)
        bits.append(column["bits"])
    assert bits[1] - bits[0] in (6, 7), "log2(100)"
    assert "0.0 is not in the range" in refused("index", "build", "events", "-c", "id", "-o", "i", "--false-places", 0)


def test_little_memory_gives_the_same_index(here: Path) -> None:
    """Entries of each file go to the disk, and are sorted together."""
    parts = []
    for words in ([], ["--max-memory", "16KiB"]):
        typed("index", "build", "events", "-c", "id", "-o", "keys", "--overwrite", *words)
        [part] = Path("keys/columns/0").iterdir()
        parts.append(pq.read_table(part))
    assert parts[0].equals(parts[1])
    assert parts[0].num_rows > (16 << 10) // 32, "more entries than fit"
    assert sorted(os.listdir("keys")) == ["columns", "lock", "manifest.json", "segments"]


def test_names_are_kept_below_a_root(here: Path) -> None:
    typed("index", "build", "events", "-c", "id", "-o", "keys", "--root", here)
    assert document("index", "inspect", "keys")["root"] == str(here)
    assert found_by("id = 7003", "--index", "keys")["files_excluded"] == FILES - 1


def test_an_index_is_replaced_only_if_that_is_asked_for(index: Path) -> None:
    before = (index / "manifest.json").read_bytes()
    assert "exists; give --overwrite to replace it" in refused("index", "build", "events", "-c", "id", "-o", "keys")
    assert (index / "manifest.json").read_bytes() == before
    typed("index", "build", "events", "-c", "id", "-o", "keys", "--overwrite")
    assert [one["column"] for one in document("index", "inspect", "keys")["columns"]] == ["id"]
    names = [path.name for path in index.rglob("*.parquet")]
    assert len(names) == 2, "nothing of the old one is left: its part and its listing"


def test_what_cannot_be_built(here: Path) -> None:
    among = "its files would be read as data; name a folder beside it"
    before = sorted(here.rglob("*"))
    for words, said in (
        ("-o events/keys -c id", among),
        ("-o events -c id", among),
        ("-o events/deep/keys -c id", among),
        ("-o keys -c idd", "events/0.parquet: no column idd; near names: id"),
        ("-o keys", "--column"),
        ("-o keys -c id --kind zones", "'zones' is not one of 'keys', 'lance'"),
        ("-o keys -c id --items 5", "--items is for --kind lance"),
        ("-o keys -c id --probability 0.1", "--probability is for --kind lance"),
        ("-o keys -c id --no-sync", "--no-sync is for --kind lance"),
        ("-o keys -c id --kind lance --false-places 1", "--false-places is for --kind keys"),
        ("-o keys -c id --kind lance --root .", "--root is for --kind keys"),
        ("-o keys -c id --kind lance --dry-run", "--dry-run is for --kind keys"),
    ):
        assert said in refused("index", "build", "events", *words.split()), words
        assert sorted(here.rglob("*")) == before, words


def test_a_quiet_build_says_nothing(here: Path) -> None:
    said = typed("-q", "index", "build", "events", "-c", "id", "-o", "keys")
    assert (said, said.errors) == ("", "")
    for words in (["inspect", "keys"], ["update", "keys", "events"], ["verify", "keys", "--data", "events"]):
        said = typed("-q", "index", *words)
        assert (said, said.errors) == ("", ""), words


# --- inspect, update, verify ----------------------------------------------------------------------


def test_inspect_says_what_it_covers(index: Path) -> None:
    said = typed("index", "inspect", "keys")
    assert "12 row groups of 4 files, 2,400 rows" in said
    assert f"of {index.parent}/events" in said
    assert "covers" not in said
    assert "covers 4 of 4 files\n" in typed("index", "inspect", "keys", "--data", "events")
    write(Path("events/9.parquet"), table(0))
    write(Path("events/0.parquet"), table(0))
    said = typed("index", "inspect", "keys", "--data", "events")
    assert "covers 3 of 5 files (1 changed since); the others are read as without it" in said
    assert "UTC, 0 minutes ago, by parquet-bloom" in said


def test_update_takes_new_files_and_leaves_gone_ones(index: Path) -> None:
    parquet_bloom.add_filters("events/1.parquet", in_place=True, columns=["id"])
    os.unlink("events/0.parquet")
    late = pa.table({"id": [ABSENT, 10], "code": ["007003", "000010"], "half": [1.5, 5.0]})
    write(Path("events/late.parquet"), late)
    before = found_by("id = 7003", "--index", "keys")
    assert before["files_excluded"] == 2, "not the new one, nor the one that has filters now, which is the first"
    said = typed("index", "update", "keys", "events")
    assert "files: 3 kept, 1 of them by checksums, 1 added, 1 gone" in said
    info = document("index", "inspect", "keys", "--data", "events")
    assert (info["data_files"], info["covered"], info["changed"]) == (4, 4, 0)
    after = found_by("id = 7003", "--index", "keys")
    assert after["files_excluded"] == 2
    assert [row["code"] for row in rows_of(ABSENT, "--index", "keys")] == ["007003"]
    assert found_by("id = 4", "--index", "keys")["files_excluded"] == 3
    assert typed("index", "verify", "keys", "--data", "events", "--all-files").rstrip().endswith("right")
    again = document("index", "update", "keys", "events")
    assert (again["kept"], again["added"], again["gone"]) == (4, 0, 0)


def test_verify_finds_a_part_that_lies(index: Path) -> None:
    said = typed("index", "verify", "keys", "--data", "events")
    assert said == "keys: 4 of 4 files decoded, 4,800 values, right\n"
    damage(index)
    said = typed("index", "verify", "keys", "--data", "events", status=1)
    assert "wrong" in said
    assert error_lines(said.errors) == 1
    said = typed("-q", "index", "verify", "keys", "--data", "events", status=1)
    assert (said, error_lines(said.errors)) == ("", 1)
    assert "name the data of a key index" in refused("index", "verify", "keys")


def test_verify_finds_values_that_the_index_forgot(index: Path) -> None:
    """An index that its writer made of too little, with checksums that are right."""
    manifest = from_json((index / NAME).read_bytes(), index)
    [segment] = manifest.segments
    first, *others = segment.columns
    part = segment.part_name(first.number, 0)
    entries = pq.read_table(index / part)
    fewer = write_parquet(IndexFiles(str(index)), part, entries.slice(5).cast(SCHEMA), ["hash", "place"])
    column = replace(first, parts=(fewer,))
    forged = replace(manifest, segments=(replace(segment, columns=(column, *others)),))
    (index / NAME).write_bytes(to_json(forged))
    said = typed("index", "verify", "keys", "--data", "events", status=1)
    assert said == "keys: 4 of 4 files decoded, 4,800 values, 5 of them missing, wrong\n"
    said = typed("-q", "index", "verify", "keys", "--data", "events", status=1)
    assert "5 of them missing" in said.errors
    assert (said, error_lines(said.errors)) == ("", 1)


def test_a_folder_that_is_no_index(here: Path) -> None:
    Path("ids.txt").write_text("7003\n")
    before = sorted(here.rglob("*"))
    for name in ("nowhere", "events", "events/0.parquet"):
        assert refused("index", "update", name, "events").startswith(f"{name}: no ")
        assert "no key index" in refused("check", "events", "id = 7003", "--index", name)
        # Quiet: to import lance may take so long that a line says how far it is.
        assert name in refused("-q", "read", "events", "id = 7003", "--index", name)
        assert name in refused("locate", "events", "-c", "id", "--keys", "ids.txt", "--index", name)
    for name in ("nowhere", "events"):
        assert refused("index", "inspect", name).startswith(f"{name}: no ")
    assert sorted(here.rglob("*")) == before


def test_options_of_zone_indexes_and_of_key_indexes(index: Path) -> None:
    assert "is for --kind keys" in refused("index", "verify", "x.lance", "--all-files")
    assert "parquet-bloom check DATA PREDICATE --index keys" in refused("index", "query", "keys", "id = 5")


def test_both_kinds_take_the_same_words(index: Path) -> None:
    pytest.importorskip("lance", reason="pylance is not installed (extra `lance`)")
    typed("index", "build", "events", "--kind", "lance", "-c", "id", "-c", "code", "-o", "zones")
    for kind, in_order in (("keys", "4 of 4 files decoded"), ("zones", "2,400 rows in 4 fragments, right")):
        said = typed("index", "verify", kind, "events")
        assert in_order in said
        assert typed("index", "verify", kind, "--data", "events") == said
        names = [f"events/{i}.parquet" for i in range(FILES)]
        assert typed("index", "verify", kind, *names) == said
        assert typed("index", "verify", kind, names[0], "--data", "events") == said
        assert kind in typed("index", "inspect", kind)
    assert "covers 4 of 4 files" in typed("index", "inspect", "keys", "events")
    named = [f"zones/{column}/bloomfilter.lance" for column in ("code", "id")]
    assert [one["path"] for one in document("index", "inspect", "zones")["indexes"]] == named
    assert typed("index", "verify", "zones/id", "zones/code", "events").count(", right\n") == 2
    assert typed("index", "inspect", "zones/id") == typed("index", "inspect", named[1])
    assert "index verify" in refused("index", "inspect", "zones", "events")
    assert "index verify" in refused("index", "inspect", "zones", "--data", "events")
    assert "behind it" in refused("index", "verify", "keys")
    for command in ("update", "rebuild"):
        assert "zones: a zone index, which is built again; use parquet-bloom index build DATA --kind lance" in refused(
            "index", command, "zones", "events"
        )


def test_a_folder_of_an_index_is_registered(index: Path) -> None:
    lance = pytest.importorskip("lance", reason="pylance is not installed (extra `lance`)")
    lance.write_dataset(table(0), "events.lance")
    typed("index", "build", "events.lance", "--kind", "lance", "-c", "id", "-c", "code", "-o", "zones")
    said = refused("index", "register", "zones", "events.lance")
    assert "zones/code/bloomfilter.lance, zones/id/bloomfilter.lance" in said
    assert "index over id registered" in typed("index", "register", "zones/id", "events.lance")
    said = typed("index", "verify", "events.lance")
    assert said.count(", right\n") == 1
    assert typed("index", "verify", "zones", "events.lance").count(", right\n") == 2, (
        "a data set behind an index is data"
    )


# --- check and read -------------------------------------------------------------------------------


def test_check_opens_no_file_in_which_the_index_denies(index: Path) -> None:
    said = typed("check", "events", "id = 7003", "--index", "keys", "--explain", status=1)
    assert f"{FILES - 1} files not opened (index {FILES - 1})" in said
    assert "the index denies the value in all of its row groups" in said
    held = int(table(2)["id"][0].as_py())
    said = typed("check", "events", f"id = {held}", "--index", "keys", "--explain")
    assert "2 files not opened (index 2)" in said, "the first is, and the one that has it"
    assert "events/2.parquet: row group 0" in typed("check", "events", f"id = {held}", "--index", "keys")
    assert found_by(f"id = {held}")["row_groups_skipped"] == 0, "nothing else would have skipped any"
    assert document("check", "events", "id = 7003", "--index", "keys", status=1)["notes"] == []


def test_row_groups_of_files_that_were_not_opened_count(index: Path) -> None:
    """3 row groups in each of 4 files, wherever a number is printed."""
    held = int(table(2)["id"][0].as_py())
    for value in (7003, held):
        without, known = found_by(f"id = {value}"), found_by(f"id = {value}", "--index", "keys")
        assert (without["row_groups"], known["row_groups"]) == (12, 12)
        verdicts = parquet_bloom.check("events", f"id = {value}", index="keys")
        skipped = sum(v.skipped for v in verdicts) + 3 * len(verdicts.excluded)
        assert known["row_groups_skipped"] == sum(known["by"].values()) == skipped
        assert known["by"]["index"] >= 3 * len(verdicts.excluded)
        assert {one.row_groups for one in verdicts.excluded} == {3}
        for one in (verdicts, parquet_bloom.check("events", f"id = {value}", index="keys")):
            assert f"{skipped} of 12 row groups skipped" in repr(one), "with and without entries of files"
        line = f"{skipped} of 12 row groups skipped (index "
        status = 0 if value == held else 1
        assert typed("check", "events", f"id = {value}", "--index", "keys", status=status).startswith(line)
        assert line in typed("read", "events", f"id = {value}", "--index", "keys").errors
        said = typed("check", "events", f"id = {value}", "--index", "keys", "--output-format", "github", status=status)
        assert line in said
        assert f"{len(verdicts.excluded)} files not opened" in said
    least = ("check", "events", f"id = {held}", "--index", "keys", "--min-skipped")
    typed(*least, 91)
    assert "11 of 12 row groups skipped, 91.67 %" in typed(*least, 92, status=1).errors


def test_read_gives_the_rows_that_it_gives_without_an_index(index: Path) -> None:
    write(Path("events/new.parquet"), table(0))
    for value in (int(table(0)["id"][0].as_py()), int(table(3)["id"][500].as_py()), ABSENT):
        assert rows_of(value, "--index", "keys") == rows_of(value)
    said = typed("read", "events", "id = 7003", "--index", "keys", "--explain")
    assert f"{FILES - 1} files not opened (index {FILES - 1})" in said.errors
    assert "1 of 5 files" in said.errors, "one line on the file that the index does not know"
    said = typed("-q", "read", "events", "id = 7003", "--index", "keys")
    assert said.errors == ""


def test_a_damaged_part_costs_no_row(index: Path) -> None:
    damage(index)
    value = int(table(3)["id"][500].as_py())
    said = typed("read", "events", f"id = {value}", "--index", "keys", "--format", "ndjson")
    assert [json.loads(line)["id"] for line in said.splitlines()] == [value]
    notes = [line for line in said.errors.splitlines() if line.startswith("parquet-bloom: note: ")]
    assert len(notes) == 1
    assert "columns/0/" in notes[0]
    said = typed("check", "events", "id = 7003", "--index", "keys")
    assert said.errors.count("parquet-bloom: note: ") == 1
    Path("ids.txt").write_text(f"{value}\n")
    said = typed("locate", "events", "-c", "id", "--keys", "ids.txt", "--index", "keys", "--verify")
    assert "events/3.parquet" in said
    assert "1 place in 1 file; 0 files by the index, 4 opened" in said.errors
    assert said.errors.count("parquet-bloom: ") + said.errors.count("columns/0/") in (1, 2)


def test_a_manifest_that_is_cut_off_is_one_line(index: Path) -> None:
    manifest = index / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-20])
    Path("ids.txt").write_text("7003\n")
    for words in (
        ["check", "events", "id = 7003", "--index", "keys"],
        ["read", "events", "id = 7003", "--index", "keys"],
        ["locate", "events", "-c", "id", "--keys", "ids.txt", "--index", "keys"],
        ["index", "inspect", "keys"],
        ["index", "update", "keys", "events"],
        ["index", "verify", "keys", "--data", "events"],
    ):
        assert "manifest.json: is no manifest of a key index" in refused(*words), words


def test_an_index_of_other_data_is_one_line(index: Path) -> None:
    Path("others").mkdir()
    write(Path("others/0.parquet"), table(0))
    Path("ids.txt").write_text("7003\n")
    for words in (
        ["check", "others", "id = 7003", "--index", "keys"],
        ["read", "others", "id = 7003", "--index", "keys"],
        ["locate", "others", "-c", "id", "--keys", "ids.txt", "--index", "keys"],
        ["index", "verify", "keys", "--data", "others"],
    ):
        line = refused(*words)
        assert line.startswith("keys: is an index of "), words
        assert "of none of these files" in line
    assert "of none of these files" in refused("index", "update", "keys", "others")
    assert document("index", "inspect", "keys", "--data", "others")["covered"] == 0


# --- locate ---------------------------------------------------------------------------------------


def places(column: str, keys: list[object]) -> list[tuple[object, str, int, list[int]]]:
    """The places of keys, by reading everything."""
    found = []
    for i in range(FILES):
        values = table(i)[column].to_pylist()
        for group in range(GROUPS):
            at = range(group * ROWS, (group + 1) * ROWS)
            for key in keys:
                numbers = [row for row in at if values[row] == key]
                if numbers:
                    found.append((key, f"events/{i}.parquet", group, numbers))
    return found


def test_locate_finds_what_brute_force_finds(index: Path) -> None:
    for column, absent in (("id", ABSENT), ("code", "007003")):
        wanted = [*table(0)[column].to_pylist()[::150], *table(2)[column].to_pylist()[::250], absent]
        pq.write_table(pa.table({"other": [0] * len(wanted), column: wanted}), "keys.parquet")
        Path("keys.txt").write_text("".join(f"{key}\n" for key in wanted))
        expected = places(column, wanted)
        for keys, by in (("keys.parquet", ("--index", "keys")), ("keys.txt", ("--index", "keys")), ("keys.txt", ())):
            words = ("locate", "events", "-c", column, "--keys", keys, *by)
            found = document(*words, "--verify")
            rows = [(row["key"], row["file"], row["row_group"], row["row_numbers"]) for row in found["found"]]
            assert rows == expected, words
            assert (found["covered"], found["searched"]) == ((FILES, 0) if by else (0, FILES)), words
            perhaps = {(row["key"], row["file"], row["row_group"]) for row in document(*words)["found"]}
            assert {row[:3] for row in expected} <= perhaps, words


def test_the_keys_of_a_csv_are_those_of_the_column_that_its_first_line_names(index: Path) -> None:
    code = table(1)["code"][5].as_py()
    for column, text in (("code", f"code\n{code}\n"), ("id", f'other,"id"\r\n"a\nb",{code}\r\n\r\n')):
        Path("keys.csv").write_text(text, newline="")
        [row] = document("locate", "events", "-c", column, "--keys", "keys.csv", "--verify")["found"]
        assert (row["file"], row["row_numbers"]) == ("events/1.parquet", [5]), column
    words = ("locate", "events", "-c", "id", "--keys", "keys.csv")
    assert typed(*words, "--keys-column", "other", status=2).errors.count("is no literal for it") == 1
    for text in (f"{code}\n", f"id,id\n{code},5\n", ""):
        Path("keys.csv").write_text(text)
        assert "its first line does not name column id once" in refused(*words)
    Path("keys.csv").write_text("id\n" + "5" * 200_000)
    assert "keys.csv: line 2: field larger" in refused(*words)


def test_keys_may_come_from_stdin(index: Path) -> None:
    code = table(1)["code"][5].as_py()
    words = ["-m", "parquet_bloom", "locate", "events", "-c", "code", "--keys", "-", "--verify", "--json"]
    done = subprocess.run([sys.executable, *words], input=f"{code}\n", capture_output=True, text=True, check=True)
    [row] = json.loads(done.stdout)["found"]
    assert (row["file"], row["row_numbers"]) == ("events/1.parquet", [5])


def test_a_text_has_texts_or_numbers_as_the_column_has_them(index: Path) -> None:
    code, half = table(1)["code"][5].as_py(), table(1)["half"][5].as_py()
    for column, text in (("code", code), ("id", code), ("half", str(half)), ("half", f" {half:.4f}")):
        Path("keys.txt").write_bytes(f"\ufeff{text}\r\n\r\n".encode())
        [row] = document("locate", "events", "-c", column, "--keys", "keys.txt", "--verify")["found"]
        assert (row["file"], row["row_numbers"]) == ("events/1.parquet", [5]), column
    Path("keys.txt").write_text("5\nx\n")
    assert "is no literal for it" in refused("locate", "events", "-c", "id", "--keys", "keys.txt")


def test_locate_writes_a_table(index: Path) -> None:
    pq.write_table(pa.table({"a": [0], "b": table(1)["id"][:1]}), "keys.parquet")
    words = ("locate", "events", "-c", "id", "--keys", "keys.parquet", "--index", "keys", "--verify")
    assert "has no column id; --keys-column names one" in refused(*words)
    said = typed(*words, "--keys-column", "b", "-o", "found.parquet")
    assert said == ""
    assert said.errors == "1 place in 1 file; 4 files by the index, 0 opened\n"
    assert pq.read_table("found.parquet").to_pylist() == [
        {"key": int(table(1)["id"][0].as_py()), "file": "events/1.parquet", "row_group": 0, "first_row": 0,
         "rows": ROWS, "deletes": False, "row_numbers": [0]}
    ]  # fmt: skip
    assert "found.parquet: exists; give --overwrite" in refused(*words, "--keys-column", "b", "-o", "found.parquet")
    said = typed("-q", *words, "--keys-column", "b", "-o", "found.parquet", "--overwrite")
    assert (said, said.errors) == ("", "")


def test_locate_answers_no_with_status_1(index: Path) -> None:
    Path("keys.txt").write_text("7003\n")
    words = ("locate", "events", "-c", "id", "--keys", "keys.txt", "--index", "keys")
    said = typed(*words, status=1)
    assert "0 places in 0 files" in said.errors
    assert document(*words, status=1)["found"] == []
    said = typed("-q", *words, status=1)
    assert (said, said.errors) == ("", "")
    Path("keys.txt").write_text("\n")
    typed(*words, status=1)


def test_a_long_answer_is_cut_and_says_so(index: Path) -> None:
    pq.write_table(table(0).select(["id"]), "keys.parquet")
    words = ("locate", "events", "-c", "id", "--keys", "keys.parquet", "--index", "keys", "--verify")
    lines = typed(*words).splitlines()
    assert len(lines) == 2 + 50 + 1
    assert lines[-1] == f"... and {GROUPS * ROWS - 50} more; -o FILE has all"
    assert len(document(*words)["found"]) == GROUPS * ROWS


def test_what_cannot_be_located(here: Path) -> None:
    Path("keys.txt").write_text("7003\n")
    Path("bytes.txt").write_bytes(b"\xff\xfe\n")
    for words, said in (
        ("-c id --keys nowhere.txt", "nowhere.txt: No such file or directory"),
        ("-c id --keys nowhere.parquet", "nowhere.parquet: No such file or directory"),
        ("-c id --keys keys.txt --keys-column id", "--keys-column is for keys of a Parquet or CSV file"),
        ("-c id --keys bytes.txt", "bytes.txt: is no text in UTF-8"),
        ("-c idd --keys keys.txt", "no column idd"),
        ("-c id", "--keys"),
    ):
        assert said in refused("locate", "events", *words.split()), words


def damage(index: Path) -> None:
    """Another byte in the middle of the entries of the first column."""
    [part] = (index / "columns" / "0").iterdir()
    data = bytearray(part.read_bytes())
    data[len(data) // 3] ^= 0xFF
    part.write_bytes(data)


def test_an_index_that_was_moved_is_the_same(index: Path) -> None:
    shutil.move(index, index.parent / "elsewhere")
    assert found_by("id = 7003", "--index", "elsewhere")["files_excluded"] == FILES - 1
