"""Reads rows: of the row groups that a search leaves, those that match.

Decisions

The predicate's columns are read first, and of the others only pages with a row that matches (`matching`, `pages`).
    Of a row group of 1,048,576 rows and 12 columns, a million values of each of 11 columns were decoded for one row.
    Where pages lie says the offset index, or else, in a local file, their headers: they are all read, and kept with the
    outline. An index counts only where it fits the chunk, and where the headers of the pages that are read, and of the
    last one, agree with it (`filters.page_places`): an index with other rows gives no row of another place. Against one
    that is wrong twice, so that both mistakes make good for each other before the last page, there is no check but
    `verify --statistics`; all readers of page indexes rely on that.
    pages_file makes a Parquet file of the pages in memory, because pyarrow has no read of single rows. Maps, and
    columns with anything odd in their pages, are read whole, if there is a row at all. Structs are read leaf by leaf
    and put together (`nested`). Of lists in pages of version 1 the index alone says which rows they have, so the values
    of each page are counted.

Bounds of pages are evidence as those of row groups are, by the same code and of the same writers (`page_bounds`).
    Pages of which they exclude a match are not decoded, those of the predicate neither, if that is half of the rows or
    more. The headers of the others are compared with the offset index before: a wrong one would exclude other rows.

Of an AND the most selective part goes first: an = or IN on a column with filters, another =, then a range.
    Its columns are decoded, and the other parts' only at the rows that it keeps. That is a plain rule, no estimate.

Of a file on another storage pages travel, not chunks, if it has offset indexes: these are requested beside the
    predicate's columns, and large dictionaries only once a page's header asks for them. One key of a file of 340 MB, 12
    columns and row groups of a million rows takes 10 MB in 4 rounds, or, where pages need eight dictionaries of 1 MB,
    18 MB in 5; it was 84 MB. Without an offset index each page header would be a request: chunks are read, where there
    is a row.

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
