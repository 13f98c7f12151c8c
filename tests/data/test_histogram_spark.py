"""Histograms on PySpark, in local mode: as the plain loop counts, and the records stay on Spark."""

import shutil

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf._checks import InputError
from hdmm_bf.data.histogram import histogram
from tests.support.records import BINS, DOMAIN, NUMBERS, TOWNS, counted, good, records

pytestmark = [
    pytest.mark.slow,  # a minute, most of it the JVM's
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
    pytest.mark.filterwarnings("ignore"),  # Spark's own, about sockets, pandas and its JVM
]
SCHEMA = "town string, rooms bigint, age double, times bigint"


@pytest.fixture(scope="module")
def spark():
    sql = pytest.importorskip("pyspark.sql", reason="needs the dependency group `spark`")
    build = sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    build = build.config("spark.driver.host", "127.0.0.1").config("spark.sql.shuffle.partitions", "1")
    session = build.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    yield session
    session.stop()


def test_spark_counts_as_the_loop_does(spark):
    rows = records(1)
    counts = histogram(spark.createDataFrame(rows, SCHEMA), DOMAIN, bins=BINS, outside="drop")
    assert np.array_equal(counts, counted(rows))


def test_spark_adds_weights_exactly(spark):
    rows = [*records(3), (TOWNS[0], 1, 5.0, 2**62)]
    counts = histogram(spark.createDataFrame(rows, SCHEMA), DOMAIN, bins=BINS, outside="drop", weights="times")
    assert np.array_equal(counts, counted(rows, weighted=True))


def test_spark_clips_as_the_loop_does(spark):
    rows = [row for row in records(2) if None not in row[1:3]]
    counts = histogram(spark.createDataFrame(rows, SCHEMA), NUMBERS, bins=BINS, outside="clip")
    assert np.array_equal(counts, counted(rows, town=False, clip=True))


def test_spark_says_which_column_leaves_the_domain(spark):
    frame = spark.createDataFrame([*good(1), ("secret", 1, 5.0, 1)], SCHEMA)
    with pytest.raises(InputError, match="column 'town'") as caught:
        histogram(frame, DOMAIN, bins=BINS)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.b", "a`b", "r0"])
def test_column_names_are_not_read_as_code_on_spark(name, spark):
    frame = spark.createDataFrame([(9, 1), (9, 0)], "other int, v int").withColumnRenamed("v", name)
    assert histogram(frame, bf.Domain((2,)), columns={"a0": name}).tolist() == [1, 1]
