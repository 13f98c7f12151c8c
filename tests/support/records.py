"""Shared by the tests of histograms: random records, the plain loop that counts them, and every way to hand them in."""

import csv
import gzip
import math
import random
import sqlite3
import weakref
from collections import Counter

import numpy as np
import pytest

import hdmm_bf as bf

TOWNS = ("Ünn", "007", 'b,"c', "x\ny", "it's")
EDGES = (0.0, 18.0, 65.0, 120.0)
DOMAIN = bf.Domain((5, 4, 3), ("town", "rooms", "age"), (TOWNS, None, ("young", "middle", "old")))
NUMBERS = bf.Domain((4, 3), ("rooms", "age"))
BINS = {"age": EDGES}
NAMES = ("town", "rooms", "age", "times")


def records(seed, number=60):
    """Tuples (town, rooms, age, times): about half of them with a value that is unknown, missing or too large."""
    draw = random.Random(seed)
    towns = [*TOWNS, *TOWNS, "7", "", None]
    rooms = [0, 1, 2, 3, 0, 1, 2, 3, -1, 4, 10**12, None]
    ages = [0.0, 17.5, 18.0, 64.9, 65.0, 100.0, 120.0, -0.1, 120.5, math.inf, -math.inf, None]
    return [
        (draw.choice(towns), draw.choice(rooms), draw.choice(ages), draw.choice([0, 1, 2, 5, 2**53 + 1]))
        for _ in range(number)
    ]


def good(seed, number=40):
    """Records inside the domain."""
    draw = random.Random(seed)
    return [
        (draw.choice(TOWNS), draw.randrange(4), draw.choice([0.0, 17.9, 18.0, 65.0, 120.0]), draw.randrange(9))
        for _ in range(number)
    ]


def counted(rows, *, town=True, clip=False, weighted=False):
    """Count by the definition, one record at a time; a record outside the domain is left out."""
    found = Counter()
    for place, rooms, age, times in rows:
        if rooms is None or age is None or (town and place not in TOWNS):
            continue
        if clip:
            rooms, age = min(max(rooms, 0), 3), min(max(age, 0.0), 120.0)
        if rooms not in (0, 1, 2, 3) or not 0 <= age <= 120:
            continue
        group = "young" if age < 18 else "middle" if age < 65 else "old"
        found[place if town else None, rooms, group] += times if weighted else 1
    groups = ("young", "middle", "old")
    towns = TOWNS if town else (None,)
    return np.array([found[t, r, g] for t in towns for r in range(4) for g in groups], dtype=np.int64)


def columns(rows):
    return {name: [row[i] for row in rows] for i, name in enumerate(NAMES)}


def arrow(rows, folder=None):
    pa = pytest.importorskip("pyarrow")
    kinds = (pa.string(), pa.int64(), pa.float64(), pa.int64())
    return pa.table({name: pa.array(v, k) for (name, v), k in zip(columns(rows).items(), kinds, strict=True)})


def pandas(rows, folder):
    pytest.importorskip("pandas")
    return arrow(rows).to_pandas()  # a column of whole numbers with missing ones becomes floats


def pandas_nullable(rows, folder, **options):
    pytest.importorskip("pandas")
    with np.errstate(invalid="ignore"):  # pandas 2 tries whether infinity is a whole number
        return arrow(rows).to_pandas().convert_dtypes(**options)


def pandas_on_arrow(rows, folder):
    return pandas_nullable(rows, folder, dtype_backend="pyarrow")


def polars(rows, folder):
    return pytest.importorskip("polars").from_arrow(arrow(rows))


def polars_lazy(rows, folder):
    return polars(rows, folder).lazy()


def duckdb(rows, folder):
    base = pytest.importorskip("duckdb").connect()
    table = base.from_arrow(arrow(rows))
    weakref.finalize(table, base.close)  # before 1.5 a table does not keep its connection
    return table


def ibis(rows, folder):
    module = pytest.importorskip("ibis")
    pytest.importorskip("pyarrow_hotfix", reason="ibis needs it to take tables")
    return module.memtable(arrow(rows))


def sqlite(rows, folder):
    pytest.importorskip("pyarrow_hotfix", reason="ibis needs it to return tables")
    with sqlite3.connect(folder / "records.db") as database:
        database.execute("DROP TABLE IF EXISTS people")
        database.execute("CREATE TABLE people (town TEXT, rooms INTEGER, age REAL, times INTEGER)")
        database.executemany("INSERT INTO people VALUES (?, ?, ?, ?)", rows)
    database.close()
    backend = pytest.importorskip("ibis").sqlite.connect(folder / "records.db")
    table = backend.table("people")
    weakref.finalize(table, backend.disconnect)  # ibis leaves it open, of which Python 3.13 warns
    return table


def parquet(rows, folder):
    pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow.parquet").write_table(arrow(rows), folder / "it's [*]?.parquet")
    return folder / "it's [*]?.parquet"


def write_csv(rows, stream, separator=","):
    writer = csv.writer(stream, delimiter=separator)
    writer.writerows([NAMES, *rows])


def csv_file(rows, folder):
    pytest.importorskip("duckdb")
    with (folder / "it's [*]?.csv").open("w", encoding="utf-8-sig", newline="") as stream:
        write_csv(rows, stream)
    return folder / "it's [*]?.csv"


def packed_csv(rows, folder):
    pytest.importorskip("duckdb")
    with gzip.open(folder / "records.csv.gz", "wt", encoding="utf-8", newline="") as stream:
        write_csv(rows, stream)
    return str(folder / "records.csv.gz")


def tsv(rows, folder):
    pytest.importorskip("duckdb")
    with (folder / "records.TSV").open("w", encoding="utf-8", newline="") as stream:
        write_csv(rows, stream, "\t")
    return folder / "records.TSV"


ENGINES = {
    make.__name__: make
    for make in (
        pandas, pandas_nullable, pandas_on_arrow, polars, polars_lazy, arrow, duckdb, ibis, sqlite,
        parquet, csv_file, packed_csv, tsv,
    )
}  # fmt: skip
