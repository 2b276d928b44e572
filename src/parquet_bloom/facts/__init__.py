"""Knows which engines use filters on which types of columns: facts with versions, and their meaning for a column.

Decisions

Facts are data (`engines.json`), each with its version and source.
    They are measured by `tests/engines/measure.py`, or cited if an engine does not install. So a program reads them
    without any engine.

Engines are measured beside the package, not in it.
    Use is shown by a file whose filters deny everything. If an engine returns no row, it used the filter. Each engine
    runs in a process of its own.
"""
