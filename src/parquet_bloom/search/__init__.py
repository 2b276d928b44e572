"""Finds the row groups that can match a predicate, and their rows.

Decisions

A column that a later file lacks is NULL there, as in pyarrow.

A filter is queried only where its "no" decides (`evidence`).
    Every open filter is assumed to deny. If the row group would then be skipped, its filters are queried, term by
    term, until it is skipped or cannot be.

pyarrow's scanner does not filter by itself: its filter starts with min and max, and loses NaN.
    `scan` hands it row groups and filters the batches. Afterwards `unchanged` checks that the files are still the ones
    that were searched.

Rows of a table are read file by file, two side by side.
    pyarrow's data set scanner knows neither field ids nor positions. `dataset` returns pyarrow's own only if deletes,
    renames, casts and constants change nothing.
"""
