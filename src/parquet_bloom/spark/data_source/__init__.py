"""The data source for Spark: rows, by way of filters."""
