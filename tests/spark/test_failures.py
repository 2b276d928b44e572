"""One line of what Spark says in hundreds; the texts are those of Spark 4.3, shortened in their stacks only."""

from __future__ import annotations

import pytest

from parquet_bloom.errors import SparkJobError
from parquet_bloom.spark.failures import explained, in_one_line, lacking, one_line


class Captured(Exception):
    """As PySpark's own: told by the module it is from."""

    __module__ = "pyspark.errors.exceptions.captured"


WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/x/pyspark.zip/pyspark/worker.py", line 4207, in invoke_udf
    func, profiler, deserializer, serializer = read_udfs(
                                               ^^^^^^^^^^
{0}

JVM stacktrace:
org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:3131)"""
JOB = """An error occurred while calling o111.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent \
failure: Lost task 0.3 in stage 0.0 (TID 3) (127.0.0.1 executor 1): {0}
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
\tat org.apache.spark.executor.Executor$TaskRunner.run(Executor.scala:906)
Caused by: java.io.IOException: {1}
\tat java.base/java.lang.ProcessImpl.forkAndExec(Native Method)
\t... 57 more

Driver stacktrace:"""


def test_what_executors_lack() -> None:
    for text, told in (
        (WORKER.format("ModuleNotFoundError: No module named 'parquet_bloom'"), "executors lack the package"),
        (WORKER.format("ModuleNotFoundError: No module named 'numba'"), "executors lack numba, which"),
        (WORKER.format("ModuleNotFoundError: No module named 'parquet_bloom.spark.new'"), "executors have another"),
        (WORKER.format("AttributeError: Can't get attribute 'Job' on <module 'parquet_bloom.spark.tasks' from 'x'>"),
         "executors have another version of parquet-bloom: "),
        (WORKER.format("pyspark.errors.exceptions.base.PySparkImportError: [PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 "
                       "must be installed; however, it was not found."), "executors lack PyArrow >= 18.0.0, which "),
        (WORKER.format("pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker "
                       "has different version: 3.12 than that in driver: 3.11, PySpark cannot run with ..."),
         "executors run Python 3.12, and this is Python 3.11; both must be the same: "),
        (JOB.format('java.io.IOException: Cannot run program "python3": error=2, No such file or directory', "error=2"),
         "executors cannot run python3 (No such file or directory): "),
        (JOB.format("org.apache.spark.SparkException: \nError from python worker:\n  /bin/ls: no such option", ""),
         "the Python of the executors cannot run PySpark (/bin/ls: no such option): "),
    ):  # fmt: skip
        assert str(lacking(Captured(text))).startswith(told)
        assert "\n" not in one_line(Captured(text))
        assert lacking(RuntimeError(text)) is None, "no error of Spark's"
        with pytest.raises(SparkJobError, match=told[:20]):
            explained(_raise)(Captured(text))


def test_the_line_that_matters() -> None:
    for text, told in (
        ("[PATH_NOT_FOUND] No such path: file:/x. SQLSTATE: 42K03", "[PATH_NOT_FOUND] No such path: file:/x."),
        (WORKER.format("ValueError: first\nsecond"), "ValueError: first second"),
        (WORKER.format("parquet_bloom.errors.DamagedFileError: /d/x.parquet: cut off"), "/d/x.parquet: cut off"),
        (JOB.format("org.apache.spark.SparkException: Task failed while writing rows", "No space left on device"),
         "Task failed while writing rows: No space left on device"),
        ("", "Captured"),
    ):  # fmt: skip
        assert one_line(Captured(text)) == told
        with pytest.raises(SparkJobError) as raised, in_one_line():
            _raise(Captured(text))
        assert str(raised.value) == told
        with pytest.raises(Captured):
            explained(_raise)(Captured(text))


def _raise(error: Exception) -> None:
    raise error
