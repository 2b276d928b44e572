"""Knows which engines use filters on which types of columns: facts with versions, and their meaning for a column.

Decisions

Facts are data (`engines.json`), each with its version and source.
    They are measured by `docs/generate --measure` (see `trials`), or cited if an engine does not install. So a program
    reads them without any engine.
"""
