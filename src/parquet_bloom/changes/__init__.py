"""Changes of rows by their keys: `locate` finds files and rows, which are then written again.

Decisions

Rows are decided by their values, not by their places: the row groups that `locate` names are read again, and must have
    as many rows with the keys as it found. Else nothing of the file is written.

A row group without such rows is not written again (`edit.without_rows`).
"""
