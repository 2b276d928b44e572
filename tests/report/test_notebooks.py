"""Results as people meet them in a shell and in a notebook: one line each, and the summary that the commands print."""

from __future__ import annotations

import dataclasses
import html
import json
import pickle
import re
import sys
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.corpus import FIXTURES

import parquet_bloom
from parquet_bloom import lance
from parquet_bloom.source.results import Result

EVIL = "<script>alert(1)</script>\n::error::x"
FILES, ROWS = 24, 40
TAGS = {"div", "p", "pre", "table", "thead", "tbody", "tr", "th", "td"}


def write_folder(folder: Path, files: int) -> Path:
    """Files with hostile names and columns, two row groups each; the last one is no Parquet file."""
    folder.mkdir()
    rng = np.random.default_rng(3)
    for number in range(files):
        keys = [f"{value:016x}" for value in rng.integers(0, 2**62, ROWS).tolist()]
        table = pa.table({"trace_id": keys, EVIL: rng.integers(0, 2**40, ROWS), "at": np.arange(ROWS)})
        pq.write_table(table, folder / f"{number:03} <script>.parquet", row_group_size=ROWS // 2)
    (folder / "no <b>Parquet<b>.parquet").write_bytes(b"nothing")
    return folder


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the functions give for one file and a broken one, and for more than a table shows and a broken one."""
    return [results_of(tmp_path_factory.mktemp("notebook"), files) for files in (1, FILES)]


def results_of(work: Path, files: int) -> dict[str, Any]:
    data = write_folder(work / "data", files)
    quoted = f'"{EVIL}"'
    found: dict[str, Any] = {"dry run": parquet_bloom.add_filters(data, in_place=True, dry_run=True, sync=False)}
    seen: list[Any] = []
    found["add"] = parquet_bloom.add_filters(
        data, in_place=True, columns=["trace_id", quoted], page_index=True, sync=False, progress=seen.append
    )
    found["progress"] = seen[-1]
    good = sorted(str(path) for path in data.iterdir())[:files]
    key = pq.read_table(pa.BufferReader(Path(good[-1]).read_bytes()))["trace_id"][0].as_py()
    cache = parquet_bloom.FooterCache()
    source = parquet_bloom.Source(data, cache=cache)
    source.check("at >= 0")
    found |= {
        "source": source,
        "inspect": parquet_bloom.inspect(data, assert_filters=["at"]),
        "verify": parquet_bloom.verify(data),
        "statistics": parquet_bloom.verify(FIXTURES / "old_statistics" / "polars-1.44.2.parquet", statistics=True),
        "repair": parquet_bloom.repair(
            FIXTURES / "old_statistics" / "polars-1.44.2.parquet", work / "repaired.parquet", sync=False
        ),
        "status": parquet_bloom.status(data, columns=["trace_id", "at"]),
        "check": parquet_bloom.check(data, f"trace_id = '{key}' AND length(trace_id) = 16", cache=cache),
        "check reads": parquet_bloom.check(data, "at >= 0"),
        "prune": parquet_bloom.prune(good, f"trace_id = '{key}'"),
        "prune keys": parquet_bloom.prune(good, column="trace_id", values=[key, "x"], count_hits=True),
        "dataset": parquet_bloom.dataset(good, f"trace_id = '{key}'"),
        "count": parquet_bloom.count(good, "at < 3"),
        "advise": parquet_bloom.advise(data),
        "engines": parquet_bloom.engines(),
        "report": parquet_bloom.write_report(data, work / "page.html"),
        "footer_cache": cache,
        "limits": parquet_bloom.Limits(),
        "failed": parquet_bloom.inspect(data).failed[0],
    }
    found["filtered"] = found["dataset"].filter(pa.compute.field("at") > 3)
    scan = parquet_bloom.Scan(good, f"trace_id = '{key}' OR at < 0")
    found["scan before"] = repr(scan)
    assert len(scan.verdicts) == 2 * files
    found["scan"] = scan
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    days = pa.table({"day": [day for day in range(files) for _ in range(2)], "id": np.arange(2 * files)})
    deltalake.write_deltalake(str(work / "table"), days, partition_by=["day"])
    found["of a table"] = parquet_bloom.check(f"delta:{work / 'table'}", "day = 0 AND id = 1")
    found["index"] = parquet_bloom.build_index(good, "trace_id", work / "keys")
    found["update"] = parquet_bloom.update_index(work / "keys", good)
    found["excluded"] = parquet_bloom.Scan(f"delta:{work / 'table'}", "day = -1").excluded_files
    found["delete"] = parquet_bloom.delete_keys(f"delta:{work / 'table'}", "id", [0, 3, -1])
    found["remove"] = parquet_bloom.remove_filters(data, work / "removed", sync=False)
    table = pq.read_table(pa.BufferReader(Path(good[0]).read_bytes()))
    with parquet_bloom.FilterWriter(work / "written.parquet", table.schema, bloom_filters=["trace_id"]) as writer:
        found["open writer"] = repr(writer)
        writer.write_table(table)
    found["writer"] = writer
    return found


@pytest.fixture(scope="module")
def zones(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What zone indexes over 30 fragments give."""
    pytest.importorskip("lance", reason="pylance is not installed (extra `lance`)")
    work = tmp_path_factory.mktemp("zones")
    data = write_folder(work / "data", 30)
    good = sorted(data.iterdir())[:30]
    built = lance.build_index(good, ["trace_id", "at"], work / "index", items=8, sync=False)
    where = built.indexes[0].path
    return {
        "build": built,
        "inspect": lance.inspect_index(where),
        "query": lance.query_index(where, "trace_id >= '0' OR trace_id = 'x'"),
        "verify": lance.verify_index(where, good)[0],
    }


def walked(value: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """A result and every value in it."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    seen.add(id(value))
    yield value
    parts: list[Any] = []
    if isinstance(value, dict):
        parts += value.values()
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        parts += value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts += [getattr(value, field.name) for field in dataclasses.fields(value)]
    elif isinstance(value, Result) and hasattr(value, "__dict__"):
        parts += [one for name, one in vars(value).items() if name[0] != "_" and isinstance(one, list | dict)]
    for one in parts:
        yield from walked(one, seen)


def is_line(text: str) -> bool:
    return text.isprintable() and len(text) <= 200 and not re.search(r"0x[0-9a-f]+", text)


def test_every_result_is_one_line(both: list[dict[str, Any]], zones: dict[str, Any]) -> None:
    for results in (*both, zones):
        for name, result in results.items():
            for one in walked(result):
                if type(one).__module__.startswith("parquet_bloom") and not isinstance(one, Exception):
                    assert is_line(repr(one)), f"{name}: {type(one).__name__}: {len(repr(one))}: {repr(one)[:300]}"
    assert is_line(both[0]["open writer"])


def test_no_public_type_is_left_out(both: list[dict[str, Any]], zones: dict[str, Any]) -> None:
    """Else a new result would print in its own way; of typed dicts Python prints the dicts."""
    public = {one for name in parquet_bloom.__all__ if isinstance(one := getattr(parquet_bloom, name), type)}
    expected = {one for one in public if not issubclass(one, Exception | dict)}
    expected -= {parquet_bloom.TableCommit, parquet_bloom.Draft2015}  # of tables alone; a value that is given
    seen = {type(one) for result in both[1].values() for one in walked(result)}
    assert {one.__name__ for one in expected - seen} == set()
    assert is_line(repr(parquet_bloom.TableCommit("delta:" + "long/" * 90 + EVIL, "5", 3, 0)))

    names = {type(one).__name__ for result in zones.values() for one in walked(result)}
    assert {name for name in lance.__all__ if name[0].isupper()} <= names


def test_a_scan_says_what_it_scans_before_it_opens_a_file(both: list[dict[str, Any]]) -> None:
    for files, results in zip((1, FILES), both, strict=True):
        assert re.fullmatch(rf"""Scan\({files} files?, "trace_id = '\w+' OR at < 0"\)""", results["scan before"])
        assert repr(results["scan"]).endswith(f"1 of {2 * files} row groups left)")


def test_numbers_and_nouns_agree(tmp_path: Path) -> None:
    one, two = write_folder(tmp_path / "one", 1), write_folder(tmp_path / "two", 2)
    assert repr(parquet_bloom.inspect(one)) == "InspectReport(0 filters, 1 file, 1 failed)"
    assert repr(parquet_bloom.inspect(two)) == "InspectReport(0 filters, 2 files, 1 failed)"
    good = next(iter(sorted(one.iterdir())))
    assert repr(parquet_bloom.check(good, "at < 0")) == "Verdicts(2 of 2 row groups skipped)"
    assert repr(parquet_bloom.prune(good, "at < 5")) == "PrunedFiles(1 of 2 row groups in 1 file)"
    assert repr(parquet_bloom.dataset(good, "at < 5")) == "SearchedDataset(1 row group in 1 file, 3 columns)"


# --- HTML -------------------------------------------------------------------------------------------


class Drawn(HTMLParser):
    """HTML as its tags, its tables (rows of cells, the headings first) and its paragraphs."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.tables: list[list[list[str]]] = []
        self.lines: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert {name for name, _ in attrs} <= {"style"}
        self.tags.add(tag)
        self._open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append("")
        elif tag in ("p", "pre"):
            self.lines.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1] in ("th", "td"):
            self.tables[-1][-1][-1] += data
        else:
            self.lines[-1] += data


def test_html_of_every_result_is_bounded_and_escaped(both: list[dict[str, Any]], zones: dict[str, Any]) -> None:
    for results in (*both, zones):
        drawn = 0
        for name, result in results.items():
            for one in walked(result):
                if not isinstance(one, Result):
                    continue
                drawn += 1
                html = one._repr_html_()
                page = Drawn(html)
                assert "<script" not in html, name
                assert page.tags <= TAGS, name
                assert all(len(table) <= 21 for table in page.tables), name
                assert len(html) < 60_000, name
                text = "\n".join(page.lines)
                assert "--all" not in text, "a notebook has no options"
                assert "--json" not in text, name
        assert drawn > 20 or results is zones
    assert all(Drawn(result._repr_html_()).tables for result in zones.values())
    assert "&lt;script&gt;alert(1)" in both[0]["inspect"]._repr_html_(), "a hostile name is shown as text"
    assert Drawn(zones["query"]._repr_html_()).lines[0].startswith("150 of 150 zones may match")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """22 row groups; two of them are left by a predicate."""
    path = tmp_path_factory.mktemp("mixed") / "events.parquet"
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 2**60, 22 * 50)
    keys[7 * 50 + 3] = keys[19 * 50 + 11] = 42
    pq.write_table(pa.table({"id": keys, "at": np.arange(len(keys))}), path, row_group_size=50)
    parquet_bloom.add_filters(path, in_place=True, columns=["id"], fpp=1e-6, sync=False)
    return path


def test_check_shows_what_is_left_before_what_is_skipped(mixed: Path) -> None:
    page = Drawn(parquet_bloom.check(mixed, "id = 42")._repr_html_())
    assert page.lines[0].startswith("20 of 22 row groups skipped (")
    left, skipped = page.tables
    assert left[0] == ["row group", "verdict", "why", "rows", "bytes"]
    assert [row[:2] for row in left[1:]] == [["7", "read"], ["19", "read"]]
    assert skipped[0] == ["row groups", "which", "verdict", "by", "why"]
    assert sum(int(row[0]) for row in skipped[1:]) == 20
    assert len(skipped) <= 4, "one row a reason"
    assert {row[2] for row in skipped[1:]} == {"skip"}


def test_check_of_many_row_groups_that_are_read_shows_files(both: list[dict[str, Any]]) -> None:
    few, many = (Drawn(results["check reads"]._repr_html_()) for results in both)
    assert any(text.startswith("left: all ") for text in many.lines), "files with one verdict are one line"
    assert all(any("Parquet" in text for text in page.lines) for page in (few, many)), "the broken file"


def test_files_that_were_not_opened_are_summed(both: list[dict[str, Any]]) -> None:
    for results in both:
        verdicts = results["of a table"]
        assert len(verdicts.excluded) == len(results["excluded"]) - 1
        page = Drawn(verdicts._repr_html_())
    (row,) = page.tables[-1][1:]
    assert row[:4] == [f"{FILES - 1}", f"{FILES - 1} files", "not opened", "partition"]


def test_notebooks_show_what_the_commands_print(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The lines and the headings of the tables are those of the terminal: there is one summary."""
    from parquet_bloom.cli import run

    for words, result in (
        (("inspect", mixed), parquet_bloom.inspect(mixed)),
        (("verify", mixed), parquet_bloom.verify(mixed)),
        (("status", mixed, "-c", "at"), parquet_bloom.status(mixed, columns=["at"])),
        (("check", mixed, "id = 42"), parquet_bloom.check(mixed, "id = 42")),
        (("add", mixed, "-c", "at", "--in-place", "--dry-run"),
         parquet_bloom.add_filters(mixed, in_place=True, columns=["at"], dry_run=True)),
        (("advise", mixed), parquet_bloom.advise(mixed)),
        (("engines",), parquet_bloom.engines()),
    ):  # fmt: skip
        run([str(word) for word in words])
        printed = " ".join(capsys.readouterr().out.split())
        page = Drawn(result._repr_html_())
        first = page.lines[0].split(" s")[0]
        assert " ".join(first.split()) in printed, words[0]


def test_results_in_a_result_are_tables(both: list[dict[str, Any]]) -> None:
    for results in both:
        page = Drawn(results["index"]._repr_html_())
        assert page.tables[1][0] == ["column", "entries", "bits", "bytes", "false places"]
        assert page.tables[1][1][0] == "trace_id"
        assert page.tables[1][1:] == Drawn(results["update"]._repr_html_()).tables[2][1:]
        for name in ("index", "update", "report"):
            assert "{" not in results[name]._repr_html_(), "no raw dict"


def test_add_begins_with_what_people_want(both: list[dict[str, Any]]) -> None:
    for results in both:
        page = Drawn(results["add"]._repr_html_())
        assert page.tables[0][0][0] == "column"
        assert page.tables[0][1][0] == "trace_id"
        assert results["add"].to_arrow().column_names[:3] == ["source", "output", "row_groups"]
        assert list(results["add"].files[0].to_dict())[:2] == ["source", "output"]
    assert page.tables[1][0] == ["file", "filters", "bytes", "grows"], "of several files"


def test_what_is_to_be_pasted_is_python(tmp_path: Path) -> None:
    """A notebook has no shell: each command is shown as the call that does the same, and that call does it."""
    path = tmp_path / "it's.parquet"
    pq.write_table(pa.table({"id": list(range(0, 3000, 3)), "name": [f"n{i}" for i in range(1000)]}), path)
    status = parquet_bloom.status(path, columns=["id"])
    advice = parquet_bloom.advise(path)
    for result, commands in (
        (status, status.mend),
        (parquet_bloom.check(path, "name = 'n10'"), [None]),
        (parquet_bloom.check(path, "id = 31 AND name = 'n11'"), [None]),
        (advice, advice.commands[:1]),
    ):
        page = result._repr_html_()
        [shown] = [html.unescape(text) for text in re.findall(r"<pre>(parquet_bloom\.add_filters.*?)</pre>", page)]
        for command in commands:
            assert command is None or shown == command.python
        assert "parquet-bloom add" not in page
        copy = tmp_path / "copy.parquet"
        copy.write_bytes(path.read_bytes())
        exec(shown.replace(repr(str(path)), repr(str(copy))), {"parquet_bloom": parquet_bloom})
        added = {one.column for one in parquet_bloom.inspect(copy).files[0].filters}
        assert added == {name for name in ("id", "name") if f"'{name}'" in shown} != set()
    [mend] = status.mend
    again = pickle.loads(pickle.dumps(mend))
    assert (again, again.python) == (mend, mend.python)
    assert json.loads(json.dumps(status.to_dict()))["mend"] == [str(mend)], "programs get the shell's words"


def test_files_of_another_file_system_have_no_command(tmp_path: Path) -> None:
    """What no command line can name has none to paste."""
    pq.write_table(pa.table({"id": list(range(1000))}), tmp_path / "a.parquet")
    verdicts = parquet_bloom.check(tmp_path / "a.parquet", "id = 7", filesystem=pa.fs.LocalFileSystem())
    assert verdicts.named == []
    assert "add_filters" not in verdicts._repr_html_()


def test_dir_begins_with_the_functions() -> None:
    names = dir(parquet_bloom)
    functions = [name for name in names if name[0].islower()]
    assert names[: len(functions)] == functions == sorted(functions)
    assert set(names) == set(parquet_bloom.__all__)
    types, rest = parquet_bloom.__all__[len(functions) :], parquet_bloom.__all__[: len(functions)]
    assert set(rest) == set(functions), "__all__ too"
    first_error = next(at for at, name in enumerate(types) if name.endswith("Error"))
    assert all(name.endswith(("Error", "Warning", "__")) for name in types[first_error:])
    assert "add_filters" in (parquet_bloom.__doc__ or "")
    for name in functions:
        assert name in (parquet_bloom.__doc__ or ""), "help(parquet_bloom) begins with them"


# --- a real notebook --------------------------------------------------------------------------------

CELLS = """\
import parquet_bloom
parquet_bloom.add_filters("events", in_place=True, columns=["id"], sync=False)
parquet_bloom.inspect("events")
parquet_bloom.check("events", "id = 42")
parquet_bloom.advise("events")
parquet_bloom.verify("events")
parquet_bloom.prune("events", "id = 42")
parquet_bloom.dataset("events", "id = 42")
parquet_bloom.count("events", "id = 42")
parquet_bloom.read_table("events", "id = 42")
parquet_bloom.remove_filters("events", in_place=True, sync=False)
parquet_bloom.build_index("events", "id", "keys")
""".splitlines()
WRONG = {
    'where = "id = 42"\nparquet_bloom.check("no\\x1bwhere", where)': (
        'line 2, in <module>\n    parquet_bloom.check("no\\x1bwhere", where)\n'
        "StorageError: no\\x1bwhere: no such file or folder"
    ),
    'def look(where):\n    return parquet_bloom.read_table("events", where)\n\nlook("id = = 42")': (
        'line 2, in look\n    return parquet_bloom.read_table("events", where)\n'
        "TextError: expected more before =\n  id = = 42\n       ^"
    ),
}


def test_a_notebook_shows_summaries(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed (pip install nbclient ipykernel)")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed (pip install nbclient ipykernel)")
    nbformat = pytest.importorskip("nbformat")
    folder = tmp_path / "events"
    folder.mkdir()
    for number in range(3):
        keys = np.random.default_rng(number).integers(0, 2**60, 400)
        keys[number * 100] = 42
        pq.write_table(pa.table({"id": keys}), folder / f"{number}.parquet", row_group_size=100)
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in (*CELLS, *WRONG)])
    spec = {"language": "python", "display_name": "python", "argv": [
        sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]}  # fmt: skip
    kernels = tmp_path / "kernels" / "here"
    kernels.mkdir(parents=True)
    (kernels / "kernel.json").write_text(json.dumps(spec))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(tmp_path))
        patch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
        where = {"metadata": {"path": str(tmp_path)}}
        nbclient.NotebookClient(book, timeout=120, kernel_name="here", resources=where, allow_errors=True).execute()
    outputs = dict(zip((*CELLS, *WRONG), (cell.outputs for cell in book.cells), strict=True))
    for cell, error in WRONG.items():
        (one,) = outputs.pop(cell)
        lines = [line for line in "\n".join(one.traceback).splitlines() if "^^" not in line]  # Python 3.11's marks
        assert "\n".join(lines).endswith(error), one.traceback
        assert len(lines) <= 5
    for cell, shown in outputs.items():
        assert all(one.output_type != "stream" for one in shown), f"{cell} prints beside what it shows: {shown}"
        if cell.startswith("import"):
            continue
        (one,) = shown
        plain = one.data["text/plain"]
        assert "\n" not in plain or "read_table" in cell
        if not any(name in cell for name in ("dataset", "count", "read_table")):
            assert Drawn(one.data["text/html"]).lines, cell
    check = outputs[CELLS[3]][0].data
    assert check["text/plain"] == "Verdicts(9 of 12 row groups skipped)"
    assert [row[1] for row in Drawn(check["text/html"]).tables[0][1:]] == ["0", "1", "2"]
    assert outputs[CELLS[7]][0].data["text/plain"] == "SearchedDataset(3 row groups in 3 files, 1 column)"
    assert outputs[CELLS[8]][0].data["text/plain"] == "3"
