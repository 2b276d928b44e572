"""Predicates as text and trees, and what they may give over rows; no files.

Decisions

A literal stays exact.
    Some engines round a literal to the column's type before they compare, and find rows for `int =
    1.0000000000000001`. This room follows SQL and pyarrow, which do not. Filters for the engines' own use are not
    affected.

The meaning of a literal is in one place.
    `format.literals` parses its text, with days and times and the hint for a wrong one. `format.values` has its
    position in a column's order (between two values if it is none) and the bytes of a value. `casts` compares rows and
    uses the same arithmetic. `tests/property/test_literals.py` compares positions and bytes with what pyarrow wrote.

A filter of a list's column contains elements, so only `list_contains` uses it.
    `tags = 5` skips nothing, and the message names the predicate to write.

One column may differ in files of several writers.
    `format.values.same_kind` decides whether two columns are comparable: if pyarrow's cast to the first file's type is
    exact or an error. A literal is cast for each file by itself. So no row can match in the cast values that does not
    match in the stored ones. The cast is not exact between FLOAT and DOUBLE, from a timestamp to a date, or from a
    double to a decimal. The literal must also be known for the first file's column. That separates meanings which
    share a text: timestamps in UTC and without a zone, uuids and 16 bytes. `bind` applies the rule.

Days in folders' names stay texts in rows.
    pyarrow returns texts there, and DNF lists over texts must keep working. The key is a BYTE_ARRAY DATE, which is no
    type of the format. `format.values.key_for` makes it a text or a date by the literals that it meets.
"""
