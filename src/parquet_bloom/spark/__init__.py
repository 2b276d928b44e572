"""Filters for data sets of any size, on Spark: each function takes a SparkSession and gives a DataFrame.

    from parquet_bloom import spark as bloom

    bloom.add_filters(spark, ["s3a://bucket/events"], columns=["trace_id"], in_place=True).show()

The executors call the same functions as the command line does; failures are rows, not exceptions.
Needs the extra `spark` (pyspark 4.1 or later, Java 17 or later).
"""
