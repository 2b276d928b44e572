"""Rows for Spark: the data source, and `read`; planned by the driver, read by tasks.

Decisions

Spark's values and the files' values are compared separately.
    The data source filters rows by their values in Spark, and queries files by the values that they store.
    `spark.source.rows.for_file` translates a part of the predicate exactly (a microsecond is a thousand nanoseconds),
    or omits it (a float that became a double). So no conversion skips a row group by mistake.

The read is planned without a job.
    A data source cannot start a job that lists. Tasks of large data sets each list, and take a share by the hash of
    the name. The driver lists a bounded number of files and folders; the others become shares.
"""
