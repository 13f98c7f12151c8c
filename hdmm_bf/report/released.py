"""A released file read back for the report: the same queries as the bundle's, in the same order, or refused."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hdmm_bf._checks import fail, readable_file, utf8_text
from hdmm_bf._display import spreadsheet_cell
from hdmm_bf._types import RealVector
from hdmm_bf.report.export.csvw import metadata_file
from hdmm_bf.workload import Workload
from hdmm_bf.workload.columns import NUMBERS

RELEASES = (".csv", ".parquet")
_ADVICE = "Give the file that `hdmm-bf release` wrote for this bundle, without --queries."


class Released(NamedTuple):
    """Numbers of every query as they were published, and what was said of them.

    Attributes:
        numbers: estimate, stddev, low and high, and what is processed where it is there, one a query.
        notes: what is promised, by name; empty where the file beside the table is missing.
    """

    numbers: dict[str, RealVector]
    notes: dict[str, str]


def read_release(path: str | Path, workload: Workload) -> Released:
    """Read a file that a release wrote.

    Guarantees:
        A file whose queries are not those of the workload, one by one, is refused.
    """
    file = readable_file("report", path)
    suffix = file.suffix.lower()
    if suffix not in RELEASES:
        raise fail("report", file, f"releases are read from {' and '.join(RELEASES)}", _ADVICE)
    columns, notes = _csv(file) if suffix == ".csv" else _parquet(file)
    said = workload.columns() if workload.domain.has_own_names and workload.layout is not None else None
    asked: Mapping[str, Sequence[Any]] = {"query": workload.names()} if said is None else said
    for name, cells in asked.items():
        if [_shown(cell) for cell in columns.get(name, [])] != [_shown(cell) for cell in cells]:
            raise fail("report", file, f"its column {name!r} is not that of this bundle's queries", _ADVICE)
    if "answer" in columns:
        columns["estimate"] = columns.pop("answer")
    return Released({name: _numbers(file, columns, name) for name in NUMBERS if name in columns}, notes)


def _shown(cell: object) -> str:
    """Write a cell as it stands in a CSV file."""
    return "" if cell is None else spreadsheet_cell(str(cell))


def _csv(file: Path) -> tuple[dict[str, list[Any]], dict[str, str]]:
    head, *rows = list(csv.reader(io.StringIO(utf8_text("report", file)))) or [[]]
    if any(len(row) != len(head) for row in rows) or len(set(head)) < len(head):
        raise fail("report", file, "is no table: its lines differ in length", _ADVICE)
    columns = {name: [row[i] for row in rows] for i, name in enumerate(head)}
    beside = metadata_file(file)
    if beside is None or not beside.is_file():
        return columns, {}
    try:
        found = json.loads(utf8_text("report", beside))["notes"][0]
        return columns, {str(key): str(value) for key, value in found.items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        raise fail("report", beside, "is not what a release writes beside a table", "Remove it.") from None


def _parquet(file: Path) -> tuple[dict[str, list[Any]], dict[str, str]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(file)
    except (OSError, pa.ArrowException):
        raise fail("report", file, "is not readable as Parquet", _ADVICE) from None
    notes = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    return {name: table[name].to_pylist() for name in table.column_names}, notes


def _numbers(file: Path, columns: Mapping[str, Sequence[Any]], name: str) -> RealVector:
    try:
        values = [float(cell) for cell in columns[name]]
    except (TypeError, ValueError):
        values = [math.nan]
    if not all(map(math.isfinite, values)):
        raise fail("report", file, f"its column {name!r} holds something that is no number", _ADVICE)
    return np.array(values)
