"""Files whose filters deny every value: an engine that does not find a value that is stored has used a filter.

Each word of such a bitset has its lowest bit alone. A value is admitted only if all eight of its bits are these, which
is one value in 2^40; and the bitset is not blank, as some engines take a blank one for no filter. The same file with
its own, right filters is the control: an engine that does not find the value there was not asked well.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from parquet_bloom.audit.inspect import inspect
from parquet_bloom.change import add_filters
from parquet_bloom.facts.kinds import DICTIONARY, ELEMENT, FIELD, PLAIN
from parquet_bloom.worth import samples

# The columns of a file: the path of the values' field, as people name it and as Parquet does.
COLUMNS = {PLAIN: ("plain",), DICTIONARY: ("dictionary",), FIELD: ("s", "f"), ELEMENT: ("l",)}
_WORD = b"\x01\x00\x00\x00"


def write_pair(folder: Path, kind: str) -> tuple[Path, Path]:
    """Write the control and the file with filters that deny everything; returns their paths.

    One row group, with the values of a kind in a column without a dictionary, in one with a dictionary, in a struct's
    field and as elements of lists; filters on all of them.
    """
    name = "".join(c if c.isalnum() else "-" for c in kind)
    control, denying = folder / f"{name}-control.parquet", folder / f"{name}-denying.parquet"
    values = samples.column(kind)
    if kind == "uuid":
        values = pa.ExtensionArray.from_storage(pa.uuid(), values)
    lists = pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), values)
    fields = pa.StructArray.from_arrays([values], ["f"])
    table = pa.table({"plain": values, "dictionary": values, "s": fields, "l": lists})
    pq.write_table(
        table, control, use_dictionary=["dictionary"], store_decimal_as_integer=kind.startswith("decimal as INT")
    )
    add_filters(control, columns=["*"], in_place=True, sync=False)
    shutil.copyfile(control, denying)
    deny(denying)
    return control, denying


def deny(path: Path) -> int:
    """Make all filters of a file of one's own deny everything; returns how many there are."""
    filters = inspect(path).files[0].filters
    with open(path, "r+b") as file:
        for each in filters:
            assert each.offset is not None
            assert each.length is not None
            file.seek(each.offset + each.length - each.num_bytes)
            file.write(_WORD * (each.num_bytes // len(_WORD)))
    return len(filters)
