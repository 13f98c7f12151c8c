"""Histograms: 10 million records into 70 000 cells, on one engine after the other; limits are for Parquet and CSV."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.parquet as pq

from experiments.benchmarks.measure import Part, Table, timed
from hdmm_bf import Domain, histogram

RECORDS = 10_000_000
PLACES = tuple(f"place {i}" for i in range(700))
LABELLED = Domain((100, 700), ("age", "place"), (None, PLACES))
BINNED = Domain((100, 700), ("age", "pay"))
EDGES = [i * 10_000 / 700 for i in range(701)]
LIMITS = {"Parquet file": "5", "CSV file": "5"}
RANDOM = """
    SELECT (hash(i) % 100)::INTEGER AS age, 'place ' || (hash(7 * i) % 700) AS place, (hash(3 * i) % 100000) / 10 AS pay
    FROM range({records}) AS numbers(i)
"""


def engines(folder: Path, records: int) -> dict[str, Callable[[], Any]]:
    """Write the records and return the ways to hand them in; frames in memory are loaded before the clock starts."""
    parquet, csv = folder / "records.parquet", folder / "records.csv"
    duckdb.execute(f"COPY ({RANDOM.format(records=records)}) TO '{parquet}'")
    duckdb.execute(f"COPY (FROM '{parquet}') TO '{csv}'")
    return {
        "Parquet file": lambda: parquet,
        "CSV file": lambda: csv,
        "polars, lazy": lambda: pl.scan_parquet(parquet),
        "pyarrow": lambda: pq.read_table(parquet),
        "pandas": lambda: pq.read_table(parquet).to_pandas(),
    }


def row(name: str, source: Any, kind: str, domain: Domain, options: dict[str, Any], records: int) -> list[str]:
    """Time one histogram and see that no record was lost."""
    run = timed(lambda: histogram(source, domain, **options), repeat=2)
    assert run.result.sum() == records
    return [name, kind, f"{run.wall:.2f}", f"{run.cpu:.2f}", LIMITS.get(name, "-")]


def report(*, quick: bool = False) -> list[Part]:
    """Return the table; quick: a tenth of the records."""
    records = RECORDS // 10 if quick else RECORDS
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for name, make in engines(Path(folder), records).items():
            source = make()
            rows.append(row(name, source, "700 labels", LABELLED, {}, records))
            rows.append(row(name, source, "700 bins", BINNED, {"bins": {"pay": EDGES}}, records))
            del source
    return [Table(["engine", "second attribute", "wall s", "CPU s", "limit s"], rows)]
