"""Targets from files: one standard deviation for every query, in order or by the query's name."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np

from hdmm_bf._checks import InputError, fail, nearest, numbers, utf8_text
from hdmm_bf._types import RealVector
from hdmm_bf.workload import Workload


def read_targets(text: str, workload: Workload) -> RealVector | float:
    """Read targets: a number for all queries; a .npy file; a .csv file of numbers, or of names and numbers.

    A name or a place without a number asks for nothing. A header line is left out.
    """
    try:
        return float(text)
    except ValueError:
        pass
    path = Path(text)
    if path.suffix.lower() == ".npy":
        return _from_npy(path)
    lines = (
        utf8_text("targets", path, missing="Check the path, or give one number for all queries.").rstrip().splitlines()
    )
    rows = _rows(list(csv.reader(lines)))
    if not rows or len({len(row) for row in rows}) != 1 or len(rows[0]) > 2:
        advice = "Write one standard deviation a line, or the name of a query, a comma and its standard deviation."
        raise fail("targets", repr(text), "has no one or two columns", advice)
    if len(rows[0]) == 1:
        return _in_order(text, [row[0] for row in rows], workload)
    return _by_name(text, rows, workload)


def _rows(rows: list[list[str]]) -> list[list[str]]:
    """An empty line is a query without a target where there is one column, and nothing where there are two."""
    if max(map(len, rows), default=0) > 1:
        return [row for row in rows if row]
    return [row or [""] for row in rows]


def _from_npy(path: Path) -> RealVector:
    try:
        held = np.load(path, allow_pickle=False)
        return np.asarray(numbers("targets", str(path), held), dtype=np.float64).reshape(-1)
    except (OSError, ValueError, EOFError) as error:
        if isinstance(error, InputError):
            raise
        raise fail("targets", repr(str(path)), f"could not be read ({error})", "Write it with numpy.save.") from None


def _in_order(text: str, column: list[str], workload: Workload) -> RealVector:
    if len(column) == workload.num_queries + 1 and math.isnan(_number(column[0], math.nan)):
        column = column[1:]
    return np.array([_checked(text, i, value) for i, value in enumerate(column)])


def _by_name(text: str, rows: list[list[str]], workload: Workload) -> RealVector:
    places = {name: i for i, name in enumerate(workload.names())}
    targets, seen = np.full(workload.num_queries, math.nan), set[str]()
    for i, (name, value) in enumerate(rows):
        if name not in places:
            if i == 0 and math.isnan(_number(value, math.nan)):
                continue  # a header
            raise fail("targets", f"{text}: query {name!r}", "is none of the workload", nearest(name, list(places)))
        if name in seen:
            raise fail("targets", f"{text}: query {name!r}", "has two lines", "Write one of them.")
        seen.add(name)
        targets[places[name]] = _checked(text, i, value)
    return targets


def _checked(text: str, line: int, value: str) -> float:
    number = _number(value, math.inf)
    if math.isinf(number):
        shown = f"{text}: line {line + 1}, {value!r}"
        raise fail("targets", shown, "is not a number", "Write a standard deviation such as 5, or nothing.")
    return number


def _number(value: str, otherwise: float) -> float:
    if not value.strip():
        return math.nan
    try:
        return float(value)
    except ValueError:
        return otherwise
