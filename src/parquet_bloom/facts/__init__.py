"""Which engine uses filters on which type of column: facts with versions, and what they mean for a column.

Decisions

Facts are data (`engines.json`), each with its version and source.
    They are measured by `docs/generate --measure` (see `trials`), or cited if an engine does not install. So a program
    reads them without any engine.
"""
