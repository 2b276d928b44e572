"""Engines tried out here: whether they use filters, and how long a query takes with and without.

Decisions

Each engine runs in a process of its own (`process`, `child`). A crash or a hang of an engine costs one answer.

Use is shown by a file whose filters deny everything (`samples`). If the engine returns no row, it used the filter.
"""
