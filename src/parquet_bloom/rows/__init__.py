"""Reads rows: of the row groups that a search leaves, those that match.

Decisions

The predicate's columns are read first, and of the others only pages with a row that matches (`matching`, `pages`).
    Of a row group of 1,048,576 rows and 12 columns, a million values of each of 11 columns were decoded for one row.
    Where pages lie, their headers say: they are read locally, all of a chunk, and kept with the outline. A page index
    would be quicker to read, but its numbers of rows are a second opinion that nothing but these headers can confirm.
    pages_file makes a Parquet file of the pages in memory, because pyarrow has no read of single rows. Columns of
    lists, of several leaves, and with anything odd in their pages are read whole, if there is a row at all.

A row group goes this way if its other columns have 1 MB (4 MB on another storage), and as much as the predicate's.
    Two reads of a small one take longer than one. As soon as one has many rows that match, the next ones are read with
    all columns at once, as before: one, then two, four and so on, until one of them has few.

A column is read by pages where these take less than half of its bytes, or it has less than 1 MB.

pyarrow decodes, and its scanner does not filter by itself: its filter starts with min and max, and loses NaN.
    `scan` hands it row groups and filters the batches. Afterwards `unchanged` checks that the files are still the ones
    that were searched.

Rows of a table are read file by file, two side by side.
    pyarrow's data set scanner knows neither field ids nor positions. `dataset` returns pyarrow's own only if deletes,
    renames, casts and constants change nothing.
"""
