"""A hundred million records to a histogram of 70 000 cells: seconds and peak memory, one process an engine.

The records are made by the engine itself while they are counted, or are read from a Parquet file that DuckDB wrote
before. The CPU seconds and the peak are those of Python, the package and every process that was started for it, for
Spark its Java virtual machine; peaks of several processes are added, as if they came at once. The limit is 4 GB. Spark
runs in local mode on two cores with `spark.driver.memory` at 2 GB, its start is not counted, and it is left out where
the dependency group `spark` or Java is missing.
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
def spark() -> Iterator[Any]:
    """Start Spark on this machine."""
    from pyspark.sql import SparkSession

    build = SparkSession.builder.master("local[2]").config("spark.driver.memory", "2g")
    build = build.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    session = build.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    yield session
    session.stop()


@contextmanager
def made_by_spark(records: int) -> Iterator[Any]:
    """Make the records while they are counted, on local Spark."""
    with spark() as session:
        yield session.range(records).selectExpr(*SPARK)


@contextmanager
def parquet_in_spark(records: int) -> Iterator[Any]:
    """Read the file of `parquet_file` on local Spark."""
    with parquet_file(records) as file, spark() as session:
        yield session.read.parquet(str(file))


ENGINES: dict[str, Callable[[int], Any]] = {
    "DuckDB, made as counted": made_by_duckdb,
    "DuckDB, Parquet file": parquet_file,
    "Spark, made as counted": made_by_spark,
    "Spark, Parquet file": parquet_in_spark,
}


def measured(engine: str, records: int) -> dict[str, float]:
    """Count on one engine, and return what it took."""
    from hdmm_bf import Domain, histogram

    domain = Domain((100, 700), ("age", "place"), (None, PLACES))
    with ENGINES[engine](records) as source:
        before = sum(map(_cpu_of, _started()))
        run = timed(lambda: histogram(source, domain))
        assert run.result.sum() == records
        others = _started()
        cpu = run.cpu + sum(map(_cpu_of, others)) - before
        peak = peak_memory() + sum(map(_peak_of, others))
    return {"wall": run.wall, "cpu": cpu, "peak": peak, "filled": int((run.result > 0).sum())}


def _started() -> list[Path]:
    """Return the processes that this process started, and those that they started."""
    parents = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(place.name)] = int(_stat(place)[1])
        except OSError:  # it ended meanwhile
            continue
    family = [os.getpid()]
    for process in family:  # grows while it is read
        family += [child for child, parent in parents.items() if parent == process]
    return [Path("/proc") / str(process) for process in family[1:]]


def _stat(place: Path) -> list[str]:
    """Return what stands behind the name of a process: its state, its parent, ..."""
    return (place / "stat").read_text().rpartition(")")[2].split()


def _cpu_of(place: Path) -> float:
    user, system = _stat(place)[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _peak_of(place: Path) -> int:
    line = next(line for line in (place / "status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def report(*, quick: bool = False) -> list[Part]:
    """Return the table; quick: a hundredth of the records."""
    records = RECORDS // 100 if quick else RECORDS
    has_spark = importlib.util.find_spec("pyspark") is not None and shutil.which("java") is not None
    rows = []
    for engine in ENGINES:
        if engine.startswith("Spark") and not has_spark:
            rows.append([engine, f"{records:.0e}", "not installed", "-", "-", f"{LIMIT_GB}"])
            continue
        found = own_process(__spec__.name, "count", engine, records)
        took = [f"{found['wall']:.1f}", f"{found['cpu']:.1f}", f"{found['peak'] / 2**30:.2f}"]
        rows.append([engine, f"{records:.0e}", *took, f"{LIMIT_GB}"])
    return [Table(["engine", "records", "wall s", "CPU s", "peak GB", "limit GB"], rows)]


def _write(records: int, file: str) -> dict[str, Any]:
    import duckdb

    duckdb.execute(f"COPY ({MADE.format(records=records)}) TO '{file}' (FORMAT parquet)")
    return {"bytes": Path(file).stat().st_size}


if __name__ == "__main__":
    _, act, first, second = sys.argv
    print(json.dumps(measured(first, int(second)) if act == "count" else _write(int(first), second)))
