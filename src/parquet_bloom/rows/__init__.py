"""Reads rows: of the row groups that a search leaves, those that match.

Decisions

pyarrow decodes, and its scanner does not filter by itself: its filter starts with min and max, and loses NaN.
    `scan` hands it row groups and filters the batches. Afterwards `unchanged` checks that the files are still the ones
    that were searched.

Rows of a table are read file by file, two side by side.
    pyarrow's data set scanner knows neither field ids nor positions. `dataset` returns pyarrow's own only if deletes,
    renames, casts and constants change nothing.
"""
