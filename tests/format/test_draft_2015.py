"""`statistics`, the 2015 form: its bytes, its place, and what every command makes of it."""

from __future__ import annotations

import base64
import datetime as dt
import json
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import draft_2015_files, naive
from support.commands import error_lines, in_this_process
from support.corpus import vector_file
from support.named import named
from support.repeats import by_turns
from support.samples import PYARROW, ROWS, digest, keys_table, leftovers, write_keys

import parquet_bloom
from parquet_bloom import Draft2015
from parquet_bloom.edit import finish
from parquet_bloom.errors import FilterFormatError, FilterWarning, LayoutError, RefusedTypeError, RequestError
from parquet_bloom.format import draft_2015, forms
from parquet_bloom.format.footer import decode_footer
from parquet_bloom.format.footer_filters import footer_filters
from parquet_bloom.format.provenance import read_entries
from parquet_bloom.format.schema import Leaf
from parquet_bloom.kernels import k_probe
from parquet_bloom.storage import open_file
from parquet_bloom.storage.open_file import OpenFile

STYLES = [("orc", "MURMUR128_32"), ("hive", "MURMUR128_32"), ("guava", "MURMUR128_32"), ("guava", "MURMUR128_64")]
RULE = k_probe.KProbeRule("orc", "MURMUR128_32", "integer")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_keys(tmp_path_factory.mktemp("source") / "keys.parquet", write_page_index=True)


@pytest.fixture(scope="module")
def filtered(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filtered") / "keys.parquet"
    parquet_bloom.add_filters(source, path, spec="statistics", fpp=0.001, sync=False, columns=["*"], exclude=["colour"])
    return path


def column_texts(path: Path) -> dict[tuple[int, str], dict[str, str]]:
    with OpenFile(path) as opened:
        footer = opened.footer()
    return {
        (i, footer.leaves[j].name): {pair.key: pair.value for pair in chunk.meta_data.key_value_metadata or []}
        for i, j, chunk in footer.chunks()
    }


def outcomes(path: Path, predicate: Any) -> list[str | None]:
    return [v.decided_by for v in parquet_bloom.check(path, predicate)]


# --- the struct -------------------------------------------------------------------------------------

LONGS = np.array([1, 0xFFFFFFFFFFFFFFFF, 1 << 63], np.uint64)
BLOOM = draft_2015.KProbeFilter(LONGS, 7, (RULE,))


def test_the_struct_is_that_of_the_draft() -> None:
    data = draft_2015.encode_struct(BLOOM)
    assert data == draft_2015_files.struct([int(x) for x in LONGS], 7)
    assert data[:2].hex() == "1936", "a list of three i64"
    assert data.endswith(bytes.fromhex("158003150e150000")), "192 bits, 7 hash functions, MURMUR128_32"
    longs, k, strategy = draft_2015.decode_struct(data)
    assert (longs.tolist(), k, strategy) == (LONGS.tolist(), 7, "MURMUR128_32")
    later = draft_2015.encode_struct(BLOOM, binary=True)
    assert later == draft_2015_files.binary_struct(draft_2015.java_longs(LONGS), 192, 7)
    assert draft_2015.decode_struct(later)[0].tolist() == LONGS.tolist()


def test_pr_215_s_binary_form_bit_for_bit() -> None:
    for vector in json.loads(vector_file("pr215_vectors.json").read_text())["vectors"]:
        java = bytes.fromhex(vector["binary_bitSet_java_serialized_hex"])
        longs = np.array([int(v) for v in vector["bitset_longs"]], np.int64).view(np.uint64)
        assert draft_2015.java_longs(longs) == java
        assert draft_2015.read_java_longs(java).tolist() == longs.tolist()
        data = draft_2015_files.binary_struct(java, vector["numBits"], vector["numHashFunctions"])
        found, k, _ = draft_2015.decode_struct(data)
        assert (found.tolist(), k) == (longs.tolist(), vector["numHashFunctions"])
        assert draft_2015.encode_struct(draft_2015.KProbeFilter(found, k, (RULE,)), binary=True) == data


I32 = naive.I32
GOOD = [(1, 9, (6, [1, 2])), (2, I32, 128), (3, I32, 3), (4, I32, 0)]


JAVA = draft_2015.java_longs(LONGS)
CONTRADICTIONS = [
    (naive.thrift_struct([GOOD[0], (2, I32, 192), *GOOD[2:]]), "numBits is 192, bitSet has 128 bits"),
    (naive.thrift_struct([GOOD[0], (2, I32, -128), *GOOD[2:]]), "numBits is -128"),
    (naive.thrift_struct([(1, 9, (6, [])), (2, I32, 0), *GOOD[2:]]), "numBits is 0"),
    (naive.thrift_struct([*GOOD[:2], (3, I32, 0), GOOD[3]]), "numHashFunctions is 0"),
    (naive.thrift_struct([*GOOD[:2], (3, I32, 2**31 - 1), GOOD[3]]), "numHashFunctions is 2147483647"),
    (naive.thrift_struct([*GOOD[:3], (4, I32, 2)]), "strategy 2 is unknown"),
    *((naive.thrift_struct(fields), "lacks a field") for fields in (GOOD[:3], GOOD[1:], [])),
    (naive.thrift_struct(GOOD) + b"x", "takes 12 bytes of 13"),
    *((data, "not Thrift") for data in (naive.thrift_struct(GOOD)[:-1], b"", b"\x19\xf6\xff\xff\xff\xff\x07")),
    (draft_2015_files.binary_struct(b"\xac\xed", 128, 3), "no long"),
    (draft_2015_files.binary_struct(JAVA[:-1], 192, 3), "announces 3 longs, 23 bytes follow"),
    (draft_2015_files.binary_struct(JAVA, 128, 3), "numBits is 128, bitSet has 192 bits"),
]


def test_numbers_that_contradict_each_other() -> None:
    for data, reason in CONTRADICTIONS:
        with named(reason), pytest.raises(FilterFormatError, match=reason):
            draft_2015.decode_struct(data)


# --- Guava ------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_guava_s_bytes_both_ways() -> None:
    vectors = json.loads(vector_file("guava_vectors.json").read_text())["vectors"]
    for vector in vectors:
        data = bytes.fromhex(vector["serialized_hex"])
        bloom = draft_2015.decode_guava(data)
        assert bloom.longs.view(np.int64).tolist() == [int(v) for v in vector["bitset_longs"]]
        assert bloom.k == vector["numHashFunctions"]
        assert draft_2015.encode_guava(bloom) == data
        kind = pa.int64() if vector["funnel"] == "longFunnel" else pa.string()
        probes, wanted = zip(*vector["probes"], strict=True)
        assert bloom.might_contain_array(pa.array(probes, kind)).tolist() == list(wanted)
    assert {draft_2015.decode_guava(bytes.fromhex(v["serialized_hex"])).rules[0].strategy for v in vectors} == {
        "MURMUR128_32", "MURMUR128_64",
    }  # fmt: skip


def test_no_filter_of_guava_s() -> None:
    for text, reason in {
        "": "0 bytes are too short",
        "0104": "2 bytes are too short",
        "02040000000100000000000000ff": "strategy 2 is unknown",
        "01000000000100000000000000ff": "0 hash functions and 1 longs",
        "010400000002ffff": "2 longs are announced, 2 bytes follow",
        "0104ffffffff": "-1 longs are announced",
    }.items():
        with named(text), pytest.raises(FilterFormatError, match=reason):
            draft_2015.decode_guava(bytes.fromhex(text))
    with pytest.raises(RequestError, match="hash family orc means nothing to Guava"):
        draft_2015.encode_guava(BLOOM)


def test_a_file_s_filters_as_guava_s_bytes(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the program on docs/history.md makes: the bytes that a Java program reads, and the same filter from them."""
    parquet_bloom.add_filters(source, tmp_path / "out.parquet", columns=["id"], form=Draft2015("guava"), sync=False)
    page = (Path(__file__).parents[2] / "docs" / "history.md").read_text()
    (program,) = [block for block in page.split("```python\n")[1:] if "encode_guava" in block]
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(program.split("```")[0], names)
    assert names["data"][:2] == bytes([1, 4]), "MURMUR128_64, four hash functions"
    stored = footer_filters(names["footer"])[0, names["column"].index].decode(names["column"])
    again = draft_2015.decode_guava(names["data"], draft_2015.kind_of(names["column"]))
    assert again.rules == stored.rules
    assert np.array_equal(again.longs, stored.longs)
    ids = pq.ParquetFile("out.parquet").read_row_group(0)["id"].combine_chunks()
    assert again.might_contain_array(ids).all(), "every stored value is admitted"


# --- adding, and taking out again -------------------------------------------------------------------


@pytest.mark.parametrize(("family", "strategy"), STYLES)
def test_only_the_footer_changes_and_comes_back(source: Path, tmp_path: Path, family: str, strategy: str) -> None:
    ours, back = tmp_path / "ours.parquet", tmp_path / "back.parquet"
    asked = {"columns": ["*"], "exclude": ["colour"], "sync": False}
    report = parquet_bloom.add_filters(source, ours, form=Draft2015(family, strategy), **asked).files[0]
    columns = {"id", "name", "half_null", "tags.list.element", "user.id", "user.mail"}
    assert {f.column for f in report.filters} == columns
    (body, _), (old, _) = draft_2015_files.split(ours), draft_2015_files.split(source)
    assert body == old, "no byte before the footer"
    told = column_texts(ours)
    assert told[0, "flag"] == told[0, "colour"] == {}
    for f in report.filters:
        texts = told[f.row_group, f.column]
        assert texts["parquet_bloom.statistics.family"] == family
        assert texts["parquet_bloom.statistics.strategy"] == strategy
        assert len(texts) == 3
        assert (f.offset, f.length) == (None, len(texts["parquet_bloom.statistics"]))
        longs, _, _ = draft_2015.decode_struct(base64.b64decode(texts["parquet_bloom.statistics"]))
        n = {"half_null": 200 + (f.row_group == 0), "tags.list.element": 2 * ROWS}.get(f.column, ROWS)
        assert abs(64 * len(longs) - k_probe.size_for(family, n, 0.05)[0]) <= 64, "as many values as there are"
        assert f.reached
    filters = parquet_bloom.verify(ours).files[0].filters
    assert {(f.status, f.spec) for f in filters} == {("right", "statistics")}
    assert 0.03 < sum(f.measured_fpp for f in filters) / len(filters) < 0.07
    parquet_bloom.remove_filters(ours, back, sync=False)
    assert digest(back) == digest(source)
    assert leftovers(tmp_path) == []


def test_provenance(filtered: Path, source: Path, tmp_path: Path) -> None:
    with OpenFile(filtered) as opened:
        (entry,) = read_entries(opened.footer())
    body = entry.body
    assert {k: body[k] for k in ("spec", "hash", "strategy")} == {
        "spec": "statistics", "hash": "orc", "strategy": "MURMUR128_32",
    }  # fmt: skip
    assert entry.rule is None
    moved = tmp_path / "moved.parquet"
    parquet_bloom.add_filters(filtered, moved, columns=["colour"], placement="chunk-start", sync=False)
    with OpenFile(moved) as opened:
        specs = {e.body["spec"] for e in read_entries(opened.footer())}
    assert specs == {"statistics", "final"}, "an entry follows its chunks"
    parquet_bloom.remove_filters(moved, in_place=True, columns=["id"], sync=False)
    with OpenFile(moved) as opened:
        assert {n for e in read_entries(opened.footer()) for n in e.body["columns"]} >= {"name", "colour"}
    assert {f.column for f in parquet_bloom.inspect(moved).files[0].filters}.isdisjoint({"id"})
    parquet_bloom.remove_filters(moved, in_place=True, sync=False)
    assert digest(moved) == digest(source)


def specs(path: Path) -> set[tuple[str, str | None]]:
    return {(f.column, f.spec) for f in parquet_bloom.inspect(path).files[0].filters}


def test_beside_other_forms(source: Path, tmp_path: Path) -> None:
    """A chunk has one filter: what is there stays, unless it is replaced."""
    both, path = tmp_path / "both.parquet", tmp_path / "x.parquet"
    parquet_bloom.add_filters(source, both, columns=["id"], sync=False)
    columns = ["id", "name"]
    report = parquet_bloom.add_filters(both, in_place=True, columns=columns, spec="statistics", sync=False).files[0]
    assert {f.column for f in report.filters} == {"name"}
    assert [(s.column, s.reason) for s in report.skipped] == [("id", "has a filter")]
    report = parquet_bloom.add_filters(both, path, columns=["name"], sync=False).files[0]
    assert not report.filters, "nor the other way round"
    parquet_bloom.add_filters(both, path, columns=["id"], spec="statistics", replace=True, overwrite=True, sync=False)
    assert specs(path) == {("id", "statistics"), ("name", "statistics")}
    parquet_bloom.add_filters(path, in_place=True, columns=columns, replace=True, sync=False)
    assert specs(path) == {("id", "final"), ("name", "final")}
    assert not any(column_texts(path).values())
    parquet_bloom.remove_filters(path, in_place=True, sync=False)
    assert digest(path) == digest(source)


def test_key_values_of_others_stay(tmp_path: Path) -> None:
    source = write_keys(tmp_path / "keys.parquet")
    theirs = draft_2015_files.with_texts(source, tmp_path / "theirs.parquet", lambda _: {"theirs": "1", "": "2"})
    ours, back = tmp_path / "ours.parquet", tmp_path / "back.parquet"
    parquet_bloom.add_filters(theirs, ours, spec="statistics", columns=["id", "name"], sync=False)
    assert set(column_texts(ours)[1, "id"]) == {"theirs", "", *draft_2015.KEYS}
    parquet_bloom.remove_filters(ours, back, sync=False)
    assert back.read_bytes() == theirs.read_bytes()


def test_an_empty_list_of_key_values(source: Path, tmp_path: Path) -> None:
    empty = draft_2015_files.with_texts(source, tmp_path / "empty.parquet", lambda _: {})
    report = parquet_bloom.add_filters(empty, tmp_path / "x.parquet", columns=["id"], spec="statistics", sync=False)
    assert not report.files[0].filters
    assert "could not bring back" in report.files[0].skipped[0].reason


def test_a_footer_that_readers_would_refuse(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finish, "_FOOTER_BYTES", 10_000)
    with pytest.raises(LayoutError, match=r"the footer would take [\d,]+ bytes"):
        parquet_bloom.add_filters(source, tmp_path / "x.parquet", spec="statistics", sync=False, columns=["*"])
    assert leftovers(tmp_path) == []


def test_sizes(source: Path, tmp_path: Path) -> None:
    def added(**options: Any) -> Any:
        options = {"form": "statistics", "columns": ["id"], "overwrite": True, "sync": False, **options}
        return parquet_bloom.add_filters(source, tmp_path / "x.parquet", **options).files[0].filters[0]

    assert added().num_bytes == k_probe.size_for("orc", ROWS, 0.05)[0] // 8
    assert added(fpp=0.01).num_bytes == k_probe.size_for("orc", ROWS, 0.01)[0] // 8
    assert added(ndv=1000).num_bytes == k_probe.size_for("orc", 1000, 0.05)[0] // 8
    conf = {"parquet.enable.bloom.filter": "true", "parquet.expected.entries": "1000"}
    assert added(form=Draft2015(properties=conf)).num_bytes == added(ndv=1000).num_bytes
    conf |= {"parquet.bloom.filter.fpp.provided": "true", "parquet.bloom.filter.value": "0.01"}
    assert added(form=Draft2015(properties=conf)).num_bytes == added(ndv=1000, fpp=0.01).num_bytes
    conf = {"parquet.bloom.filter.fpp.provided": "false", "parquet.bloom.filter.fpp.value": "0.4"}
    assert added(form=Draft2015(properties=conf)).num_bytes == added().num_bytes, "a rate that is not provided"
    cut = added(max_bytes=200)
    assert (cut.num_bytes, cut.reached) == (128, False)
    assert not added(ndv=200).reached, "fewer were announced than there are"


@pytest.mark.parametrize("halves", [1, 2])
def test_distinct_hashes_are_counted_exactly(halves: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where first halves are shared, and where the hashes of many batches are joined on the way."""
    monkeypatch.setattr(forms, "_LOOSE_HASHES", 20)
    rng = np.random.default_rng(halves)
    parts = [rng.integers(0, 6, (n, halves)).astype(np.uint64) for n in (1, 7, 0, 40, 30)]

    class Hashed:
        def hash_values(self, part: Any) -> Any:
            return tuple(part.T)

    leaf = Leaf(0, ("x",), 2)
    found = forms.distinct_hashes(iter(parts), leaf, Hashed())  # type: ignore[arg-type]
    rows = list(zip(*(column.tolist() for column in found), strict=True))
    assert len(rows) == len(set(rows))
    assert set(rows) == {tuple(row) for part in parts for row in part.tolist()}


def test_twins_of_zeros_and_nan(tmp_path: Path) -> None:
    """Asking for 0.0 finds -0.0; a NaN of any payload is in beside its canonical one."""
    bits = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x8000000000000000], np.uint64)
    table = pa.table({"x": bits.view(np.float64), "y": pa.array([-0.0, 1.5, None], pa.float32())})
    pq.write_table(table, tmp_path / "x.parquet", use_dictionary=False)
    for family, strategy in STYLES:
        ours = tmp_path / "ours.parquet"
        more = {"fpp": 1e-6, "overwrite": True, "sync": False, "columns": ["*"]}
        parquet_bloom.add_filters(tmp_path / "x.parquet", ours, form=Draft2015(family, strategy), **more)
        assert {f.status for f in parquet_bloom.verify(ours).files[0].filters} == {"right"}
        with OpenFile(ours) as opened:
            footer = opened.footer()
        blooms = [one.decode(footer.leaves[j]) for (_, j), one in sorted(footer_filters(footer).items())]
        for bloom, kind in zip(blooms, (np.float64, np.float32), strict=True):
            assert bloom.might_contain(kind(0.0).tobytes())
            assert bloom.might_contain(kind(-0.0).tobytes())
            assert not bloom.might_contain(kind(2.5).tobytes())
        assert blooms[0].might_contain(np.array([0x7FF8000000000000]).tobytes())
        for asked in ("x = 0.0", "x = -0.0", "y = 0.0"):
            assert outcomes(ours, asked) == [None]
            assert parquet_bloom.count(ours, asked) == 1


def test_types(tmp_path: Path) -> None:
    """All that the draft has; INT96 too, which no other form has."""
    stamps = [dt.datetime(1800, 1, 1) + dt.timedelta(hours=i) for i in range(50)]
    table = pa.table({
        "stamp": pa.array(stamps, pa.timestamp("us")), "flag": [True] * 50,
        "fixed": pa.array([b"12345"] * 50, pa.binary(5)),
        "half": pa.array([0.5] * 50, pa.float16()), "list": [[1, None]] * 50, "nothing": pa.nulls(50, pa.int32()),
    })  # fmt: skip
    path, ours = tmp_path / "x.parquet", tmp_path / "ours.parquet"
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, use_dictionary=False)
    report = parquet_bloom.add_filters(path, ours, spec="statistics", sync=False, columns=["*"]).files[0]
    assert {f.column for f in report.filters} == {"stamp", "fixed", "half", "list.list.element"}
    assert {s.column for s in report.skipped} == {"flag", "nothing"}
    verified = {f.column: f for f in parquet_bloom.verify(ours).files[0].filters}
    assert {f.status for f in verified.values()} == {"right"}
    assert verified["stamp"].values == 50
    with OpenFile(ours) as opened:
        leaf = opened.footer().leaves[0]
        bloom = footer_filters(opened.footer())[0, 0].decode(leaf)
    assert abs(k_probe.estimated_ndv(bloom.longs, bloom.k) - 50) < 10, "twelve bytes each, not an overflown nanosecond"
    julian = (stamps[0].date() - dt.date(1970, 1, 1)).days + 2440588
    assert bloom.might_contain(bytes(8) + julian.to_bytes(4, "little"))
    assert outcomes(ours, "stamp = TIMESTAMP '1999-01-01 00:00:00'") in ([None], ["bounds"]), "INT96 is not asked"
    with pytest.raises(RefusedTypeError, match="no filter for BOOLEAN"):
        parquet_bloom.add_filters(path, ours, spec="statistics", columns=["flag"], overwrite=True)


# --- requests ---------------------------------------------------------------------------------------


def with_properties(more: Any = None, **properties: str) -> dict[str, Any]:
    """A form by properties, whose names are as here, with a dot for each __."""
    named_so = {f"parquet.{name.replace('__', '.')}": value for name, value in properties.items()}
    return {"form": Draft2015(properties=named_so), **(more or {})}


NO_SENSE: list[tuple[dict[str, Any], str]] = [
    ({"placement": "footer"}, "placement='footer' is not for statistics"),
    ({"placement": "chunk-start"}, "lie in the footer itself"),
    ({"form": Draft2015("spark")}, "unknown hash family spark; there are: orc, guava, hive"),
    ({"form": Draft2015(strategy="MURMUR")}, "unknown strategy MURMUR"),
    ({"form": Draft2015(strategy="MURMUR128_64")}, "hash family orc has no strategy MURMUR128_64"),
    ({"form": Draft2015("hive", "MURMUR128_64")}, "hash family hive has no strategy"),
    ({"hash_family": "orc"}, r"give form=Draft2015\(family='orc'\)"),
    ({"spec": "final"}, "spec is a short name of form; give one of the two"),
    ({"conf": {"parquet.expected.entries": "5"}}, r"give form=Draft2015\(properties={'parquet"),
    (with_properties(enable__bloom__filter="false"), "nothing to add"),
    (with_properties(enable__bloom__filter="maybe"), "expected true or false"),
    (with_properties(expected__entries="many"), "expected a number"),
    (with_properties(expected__entries="0"), "ndv 0 is not positive"),
    (with_properties({"ndv": 5}, expected__entries="5"), "not as both"),
    (with_properties({"fpp": 0.1}, bloom__filter__fpp__value="0.1"), "not as both"),
    (with_properties(bloom__filter__fpp__value="low"), "expected a rate"),
    (with_properties(bloom__filter__fpp__value="2"), "fpp 2.0 is not between 0 and 1"),
    (with_properties(bloom__filter__fpp__value="0.1", bloom__filter__value="0.2"), "differ"),  # its two names
    (with_properties(bloom__filter__fpp__provided="true"), "is not given"),
    (with_properties(bloom__filters="1"), "property parquet.bloom.filters is unknown"),
]


def test_requests_that_make_no_sense(source: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    for options, reason in NO_SENSE:
        for call in (parquet_bloom.add_filters, parquet_bloom.write_table):
            what = source if call == parquet_bloom.add_filters else keys_table()
            with named(options), pytest.raises(RequestError, match=reason):
                call(what, path, **{"form": "statistics", **options})
    assert not path.exists()


def test_the_command(source: Path, tmp_path: Path) -> None:
    ours = tmp_path / "ours.parquet"
    told = ("parquet.enable.bloom.filter=true", "parquet.expected.entries=1000", "parquet.bloom.filter.fpp.value=0.01")
    properties = [part for one in told for part in ("--property", one)]
    form = ("--spec", "statistics", "--hash-family", "guava", *properties)
    done = in_this_process("add", source, "-o", ours, *form, "-c", "id")
    assert (done.returncode, done.stderr) == (0, "")
    bits, k = k_probe.size_for("guava", 1000, 0.01)
    shown = json.loads(in_this_process("inspect", ours, "--json").stdout)["files"][0]["filters"]
    assert len(shown) == 3
    assert shown[0]["rule"] == "guava MURMUR128_64"
    assert (shown[0]["num_bytes"], shown[0]["hash_functions"]) == (bits // 8, k)
    assert (shown[0]["place"], shown[0]["offset"], shown[0]["blocks"]) == ("column metadata", None, 0)
    assert "column metadata" in in_this_process("inspect", ours).stdout
    assert in_this_process("verify", ours).returncode == 0
    assert in_this_process("check", ours, "id = 5").returncode == 1
    stored = keys_table()["id"][0].as_py()
    assert in_this_process("check", ours, f"id = {stored}").returncode == 0
    assert in_this_process("remove", ours, "--in-place").returncode == 0
    assert digest(ours) == digest(source)
    wrong = in_this_process("add", source, "-o", ours, "--spec", "statistics", "--property", "x")
    assert (wrong.returncode, error_lines(wrong.stderr)) == (2, 1)
    assert "PROPERTY=VALUE" in wrong.stderr
    assert in_this_process("add", "--property", "parquet.expected.entries=5", "--spec", "statistics").returncode == 2


# --- reading ----------------------------------------------------------------------------------------


@pytest.fixture(params=["walk", "bindings"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Footers are read by the compiled walk, or by the bindings."""
    if request.param == "bindings":
        monkeypatch.setattr(open_file, "walk_outline", lambda *_: None)
    else:
        monkeypatch.setattr(open_file, "outline_of", None)
        import parquet_bloom.kernels.compact_walk  # noqa: F401  (numba is loaded: the walk is taken)
    return request.param


@pytest.mark.smoke
def test_every_reader_uses_them(filtered: Path, source: Path, way: str) -> None:
    table = keys_table()
    ids = table["id"].to_pylist()
    absent = (min(ids) + max(ids)) // 2
    assert outcomes(filtered, f"id = {absent}") == ["filter"] * 3
    assert all(v.bytes_read == 0 for v in parquet_bloom.check(filtered, f"id = {absent}")), "they came with the footer"
    for row in range(0, len(ids), 37):
        kept = [v.row_group for v in parquet_bloom.check(filtered, f"id = {ids[row]}") if not v.skipped]
        assert row // ROWS in kept
    assert outcomes(filtered, f"user.mail = '{ids[0]}@x'")[1:] == ["filter", "filter"]
    assert outcomes(filtered, f"list_contains(tags, {absent})") == ["filter"] * 3
    assert outcomes(filtered, f"id = {absent} OR name IS NULL") == ["filter"] * 3
    wanted = [ids[5], ids[ROWS + 5], absent]
    found = parquet_bloom.read_table(filtered, [("id", "in", wanted)])
    assert found.equals(pq.read_table(source, filters=[("id", "in", wanted)]))
    assert parquet_bloom.count(filtered, f"id = {ids[7]}") == 1
    for keys in ([ids[5], absent], np.array([absent, ids[5]]), [Decimal(ids[5]), Decimal(absent)]):
        found = parquet_bloom.prune(filtered, column="id", values=keys)
        assert [groups for _, groups in found] == [[0]], "in numbers or one by one"
    names = table["name"].to_pylist()
    assert parquet_bloom.read_table(filtered, f"name = '{names[900]}'").num_rows == 1


def damaged(filtered: Path, target: Path, key: str, value: str | None) -> Path:
    """All filters of a file with another key-value, or without it."""

    def change(pairs: dict[str, str]) -> dict[str, str] | None:
        if not pairs:
            return None
        rest = {k: v for k, v in pairs.items() if k != key}
        return rest if value is None else {**rest, key: value}

    return draft_2015_files.with_texts(filtered, target, change)


def coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


WRONG = {
    "family": ("parquet_bloom.statistics.family", "spark", "hash family spark is unknown"),
    "no family": ("parquet_bloom.statistics.family", None, "not each once"),
    "strategy": ("parquet_bloom.statistics.strategy", "MURMUR128_64", "beside it stands MURMUR128_64"),
    "base64": ("parquet_bloom.statistics", "?", "not base64"),
    "struct": ("parquet_bloom.statistics", "AAAA", "of 3"),
    "numbers": ("parquet_bloom.statistics", coded(draft_2015_files.struct([1], 3, num_bits=128)), "numBits is 128"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_contradicts_itself_is_no_evidence(filtered: Path, tmp_path: Path, case: str, way: str) -> None:
    key, value, reason = WRONG[case]
    path = damaged(filtered, tmp_path / "x.parquet", key, value)
    filters = parquet_bloom.inspect(path, columns=["id"]).files[0].filters
    assert all(reason in f.problems[0] for f in filters), filters[0].problems
    assert {(f.status, reason in f.reason) for f in parquet_bloom.verify(path, columns=["id"]).files[0].filters} == {
        ("wrong", True)
    }
    ids = keys_table()["id"].to_pylist()
    absent = (min(ids) + max(ids)) // 2
    with pytest.warns(FilterWarning, match="damaged filters ignored"):
        assert outcomes(path, f"id = {absent}") == [None] * 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parquet_bloom.prune(path, column="id", values=[absent])
    back = tmp_path / "back.parquet"
    parquet_bloom.remove_filters(path, back, sync=False, all_writers=True)
    assert not parquet_bloom.inspect(back).files[0].filters


def test_a_filter_without_any_bit_is_no_evidence(filtered: Path, tmp_path: Path, way: str) -> None:
    empty = coded(draft_2015_files.struct([0, 0], 3))
    path = damaged(filtered, tmp_path / "x.parquet", "parquet_bloom.statistics", empty)
    ids = keys_table()["id"].to_pylist()
    with pytest.warns(FilterWarning):
        assert outcomes(path, f"id = {(min(ids) + max(ids)) // 2}") == [None] * 3
    info = parquet_bloom.inspect(path, columns=["id"]).files[0]
    assert "no bit is set, but 400 values are stored" in info.filters[0].problems
    assert all(f.status == "wrong" for f in parquet_bloom.verify(path).files[0].filters)


def test_lost_bits_are_found_by_verify(filtered: Path, tmp_path: Path) -> None:
    lost = coded(draft_2015_files.struct([5] * 99, 3))
    path = damaged(filtered, tmp_path / "x.parquet", "parquet_bloom.statistics", lost)
    filters = parquet_bloom.verify(path, columns=["id"]).files[0].filters
    assert all(f.status == "wrong" and f.missed > 300 for f in filters)


# --- the draft to the letter ------------------------------------------------------------------------

IDS = [12, 14, 16, 17]


def draft_file(folder: Path, values: list[int], data: bytes) -> Path:
    """One INT32 column `id` in one row group, with a filter in its Statistics."""
    plain = folder / "plain.parquet"
    pq.write_table(pa.table({"id": pa.array(values, pa.int32())}), plain, use_dictionary=False)
    return draft_2015_files.with_drafts(plain, folder / "draft.parquet", {(0, 0): data})


def built(values: list[int], family: str, strategy: str, n: int = 100, fpp: float = 0.05) -> tuple[list[int], int]:
    num_bits, k = k_probe.size_for(family, n, fpp)  # type: ignore[arg-type]
    plains = [naive.plain(v, "INT32") for v in values]
    found = [p for v in plains for p in naive.k_positions(v, "INT32", family, strategy, k, num_bits)]
    return naive.longs_of(found, num_bits), k


FORMS = {
    "list": lambda longs, k, s: draft_2015_files.struct(longs, k, s),
    "binary": lambda longs, k, s: draft_2015_files.binary_struct(
        draft_2015.java_longs(np.array(longs, np.uint64)), 64 * len(longs), k, s
    ),
}


@pytest.mark.parametrize(("style", "form"), by_turns(STYLES, [*FORMS]))
def test_a_file_of_the_draft(tmp_path: Path, style: tuple[str, str], form: str, way: str) -> None:
    """The struct does not say its family: stored values are found whoever wrote it."""
    family, strategy = style
    longs, k = built(IDS, family, strategy)
    path = draft_file(tmp_path, IDS, FORMS[form](longs, k, int(strategy == "MURMUR128_64")))
    for value in IDS:
        assert outcomes(path, f"id = {value}") == [None]
    (info,) = parquet_bloom.inspect(path).files[0].filters
    assert (info.place, info.hash_functions, info.problems) == ("Statistics", 4, [])
    families = ("guava",) if strategy == "MURMUR128_64" else ("orc", "guava", "hive")
    assert info.rule == " or ".join(f"{one} {strategy}" for one in families)
    assert [f.status for f in parquet_bloom.verify(path).files[0].filters] == ["right"]
    assert parquet_bloom.read_table(path, f"id = {IDS[1]}").num_rows == 1
    assert outcomes(path, "id = 13") == ["filter"]
    back = tmp_path / "back.parquet"
    parquet_bloom.remove_filters(path, back, sync=False, all_writers=True)
    bare = draft_2015_files.with_drafts(tmp_path / "plain.parquet", tmp_path / "bare.parquet", {})
    assert back.read_bytes() == bare.read_bytes()
    replaced = tmp_path / "replaced.parquet"
    assert not parquet_bloom.add_filters(path, replaced, spec="final", sync=False, columns=["*"]).files[0].filters
    parquet_bloom.add_filters(path, replaced, replace=True, overwrite=True, sync=False, columns=["*"])
    assert [f.spec for f in parquet_bloom.inspect(replaced).files[0].filters] == ["final"]


@pytest.mark.parametrize("spec", ["statistics", "Statistics"])
def test_the_draft_s_example(tmp_path: Path, spec: str, way: str) -> None:
    """Its text says that `id > 11 AND id < 17` skips the block {12, 14, 16, 17}: three rows would be lost.

    What only the filter can refuse is 13, asked for as such or as a range.
    """
    if spec == "Statistics":
        longs, k = built(IDS, "orc", "MURMUR128_32")
        path = draft_file(tmp_path, IDS, draft_2015_files.struct(longs, k))
    else:
        path = tmp_path / "x.parquet"
        table = pa.table({"id": pa.array(IDS, pa.int32())})
        parquet_bloom.write_table(table, path, spec=spec, ndv=100, use_dictionary=False)
        vector = json.loads(vector_file("pr215_vectors.json").read_text())["vectors"][0]
        data = base64.b64decode(column_texts(path)[0, "id"]["parquet_bloom.statistics"])
        assert draft_2015.decode_struct(data)[0].view(np.int64).tolist() == [int(v) for v in vector["bitset_longs"]]
    assert outcomes(path, "id > 11 AND id < 17") == [None]
    assert parquet_bloom.count(path, "id > 11 AND id < 17") == 3
    assert outcomes(path, "id = 13") == ["filter"]
    assert outcomes(path, "id > 12 AND id < 14") == ["filter"]
    assert outcomes(path, "id = 11") == ["bounds"]


@pytest.mark.filterwarnings("ignore::parquet_bloom.errors.FilterWarning")
def test_a_damaged_filter_of_the_draft(tmp_path: Path) -> None:
    made = draft_2015_files.struct
    for data in (made([1, 2], 3, num_bits=640), made([1, 2], 3, 9), b"\x15\x80\x02\0"):
        path = draft_file(tmp_path, IDS, data)
        assert len(parquet_bloom.inspect(path).files[0].filters[0].problems) == 1
        assert [f.status for f in parquet_bloom.verify(path).files[0].filters] == ["wrong"]
        assert outcomes(path, "id = 13") == [None]


@pytest.mark.skipif(PYARROW < 26, reason="older ones do not write that field")
def test_today_s_field_7_is_no_filter(source: Path) -> None:
    """pyarrow writes is_max_value_exact, a boolean."""
    footer = decode_footer(draft_2015_files.split(source)[1], 0)
    assert footer.meta(0, 0).statistics.is_max_value_exact is True
    assert footer.draft_filters == {}
    assert footer_filters(footer) == {}
