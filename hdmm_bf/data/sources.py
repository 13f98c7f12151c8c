"""A file of data, whatever it holds: counts, one a cell, or records, counted by the engine that reads them.

CSV files tell by their first line: with a column `count`, or without names, they hold counts; with a column for every
attribute, records. NumPy files hold counts; Parquet, Arrow and DuckDB files hold records.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from hdmm_bf._checks import MAX_BYTES, fail, nearest, readable_file
from hdmm_bf.data.counts import COUNT, read_counts
from hdmm_bf.data.counts import SUFFIXES as COUNT_SUFFIXES
from hdmm_bf.data.histogram import Outside, histogram, records
from hdmm_bf.data.histogram.tables import FILES, kind_of
from hdmm_bf.domain import Domain

_CELL_BYTES = 24
_TEXT = (".csv", ".tsv")
_LONGEST_HEADER = 2**20


def read_data(
    path: str | Path,
    domain: Domain,
    *,
    missing: Literal["refuse", "zero"] = "refuse",
    outside: Outside = "error",
    other: Mapping[str, str | int] | None = None,
    weights: str | None = None,
    table: str | None = None,
    person: str | None = None,
    per_person: int | None = None,
    seed: int | None = None,
) -> Any:
    """Return counts, one a cell, or `Records` where the domain is too large for them.

    Args:
        path: the file; `people.duckdb:adults` is the table `adults` of a database.
        domain: the attributes, with the bins that numbers are counted by.
        missing: of a list of counts, as for `read_counts`.
        outside, other, weights, table, person, per_person, seed: of records, as for `histogram`.
    """
    path, table = _with_table(path, table)
    file = Path(path)
    if not holds_records(file, domain):
        for name, value in (("other", other), ("weights", weights), ("table", table), ("person", person)):
            if value:
                problem = f"the file holds counts, for which there is no {name}"
                raise fail("release", file, problem, f"Leave {name} out, or give records with named columns.")
        return read_counts(path, domain, missing=missing)
    whose: Any = {"person": person, "per_person": per_person if person else None, "seed": seed}
    if domain.num_cells * _CELL_BYTES > MAX_BYTES:
        return records(path, domain, other=other, table=table, **whose)
    return histogram(path, domain, outside=outside, other=other, weights=weights, table=table, **whose)


def _with_table(path: str | Path, table: str | None) -> tuple[str | Path, str | None]:
    """Take apart `people.duckdb:adults`."""
    head, mark, tail = str(path).rpartition(".duckdb:")
    return (f"{head}.duckdb", tail) if mark and table is None else (path, table)


def holds_records(file: Path, domain: Domain) -> bool:
    """Whether a file holds records, by its kind and, of text, by its first line."""
    suffix = kind_of(file)
    known = sorted({*COUNT_SUFFIXES, *FILES})
    if suffix not in known:
        raise fail("release", file, f"unknown kind of file '{suffix}'", nearest(suffix, known))
    readable_file("release", file, missing="Check the path.")
    if suffix not in _TEXT:
        return suffix != ".npy"
    packed = file.suffix.lower() != suffix
    return suffix == ".tsv" or packed or _names_attributes(_first_line(file), domain)


def _first_line(file: Path) -> list[str]:
    """Return the fields of a first line, none if it has no sense: whoever reads the file will say why."""
    with file.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        try:
            return [name.strip() for name in next(csv.reader([stream.readline(_LONGEST_HEADER)]), [])]
        except csv.Error:
            return []


def _names_attributes(names: list[str], domain: Domain) -> bool:
    """Whether a first line names the attributes of records: some of them, and no column of counts.

    Labels are no names of attributes, so a first line of counts under the labels of cells is told apart.
    """
    return COUNT not in names and any(name in names for name in domain.names)
