"""A hundred million records to a histogram of 70 000 cells: seconds and peak memory, one process an engine.

The records are made by the engine itself while they are counted, or written to a Parquet file by it before. The peak
is that of the whole process, Python and the package included, for Spark with its Java virtual machine; the limit is
4 GB. Spark runs in local mode with 2 GB for the machine, and is left out where the dependency group `spark` or Java is
missing.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from experiments.benchmarks.measure import Part, Table, own_process, peak_memory, timed

RECORDS = 100_000_000
LIMIT_GB = 4
PLACES = tuple(f"place {i}" for i in range(700))
MADE = """
    SELECT (hash(i) % 100)::INTEGER AS age, 'place ' || (hash(7 * i) % 700) AS place FROM range({records}) AS numbers(i)
"""
SPARK = ("CAST(pmod(hash(id), 100) AS INT) AS age", "concat('place ', pmod(hash(7 * id), 700)) AS place")


@contextmanager
def made_by_duckdb(records: int) -> Iterator[Any]:
    """Make the records while they are counted."""
    import duckdb

    yield duckdb.sql(MADE.format(records=records))


@contextmanager
def parquet_file(records: int) -> Iterator[Any]:
    """Write the records to a file first, in another process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "records.parquet"
        own_process(__spec__.name, "write", records, file)
        yield file


@contextmanager
def made_by_spark(records: int) -> Iterator[Any]:
    """Make the records while they are counted, on local Spark."""
    from pyspark.sql import SparkSession

    build = SparkSession.builder.master("local[2]").config("spark.driver.memory", "2g")
    build = build.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    session = build.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    yield session.range(records).selectExpr(*SPARK)
    session.stop()


ENGINES: dict[str, Callable[[int], Any]] = {
    "DuckDB, made as counted": made_by_duckdb,
    "Parquet file": parquet_file,
    "Spark, made as counted": made_by_spark,
}


def measured(engine: str, records: int) -> dict[str, float]:
    """Count on one engine, and return what it took."""
    from hdmm_bf import Domain, histogram

    domain = Domain((100, 700), ("age", "place"), (None, PLACES))
    with ENGINES[engine](records) as source:
        run = timed(lambda: histogram(source, domain))
        assert run.result.sum() == records
        peak = peak_memory() + sum(map(_peak_of, _machines()))
    return {"wall": run.wall, "peak": peak, "filled": int((run.result > 0).sum())}


def _machines() -> list[Path]:
    """Return the processes of Java virtual machines that this process started."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and "java" in (place / "comm").read_text():
                found.append(place)
        except OSError:  # it ended meanwhile
            continue
    return found


def _peak_of(place: Path) -> int:
    line = next(line for line in (place / "status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def report(*, quick: bool = False) -> list[Part]:
    """Return the table; quick: a hundredth of the records."""
    records = RECORDS // 100 if quick else RECORDS
    spark = importlib.util.find_spec("pyspark") is not None and shutil.which("java") is not None
    rows = []
    for engine in ENGINES:
        if engine.startswith("Spark") and not spark:
            rows.append([engine, f"{records:.0e}", "not installed", "-", f"{LIMIT_GB}"])
            continue
        found = own_process(__spec__.name, "count", engine, records)
        peak = f"{found['peak'] / 2**30:.2f}"
        rows.append([engine, f"{records:.0e}", f"{found['wall']:.1f}", peak, f"{LIMIT_GB}"])
    return [Table(["engine", "records", "wall s", "peak GB", "limit GB"], rows)]


def _write(records: int, file: str) -> dict[str, Any]:
    import duckdb

    duckdb.execute(f"COPY ({MADE.format(records=records)}) TO '{file}' (FORMAT parquet)")
    return {"bytes": Path(file).stat().st_size}


if __name__ == "__main__":
    _, act, first, second = sys.argv
    print(json.dumps(measured(first, int(second)) if act == "count" else _write(int(first), second)))
