"""Rows for Spark: the data source, and `read`; planned by the driver, read by tasks."""
