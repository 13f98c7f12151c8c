"""Counting records into the cells of a declared domain, on the engine that holds them.

The only thing that comes to Python is the table of (cell, count), at most one row a cell; the rows of records
never do, and no message repeats a value of a record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from hdmm_bf._checks import fail
from hdmm_bf._types import Number
from hdmm_bf.data.histogram.codes import cell, coded, joined, limbs, weight
from hdmm_bf.data.histogram.hints import hints
from hdmm_bf.data.histogram.people import check_named, check_request, kept
from hdmm_bf.data.histogram.request import WHERE, Outside, Reading, placed, readings
from hdmm_bf.data.histogram.tables import Frame, Table, opened, refused
from hdmm_bf.data.tables import Records
from hdmm_bf.domain import DomainLike, as_domain

_LARGEST = 2**63 - 1
_LEAVE_OUT = "--outside drop (outside='drop') to leave them out"
_REMEDY = {
    "error": f"Use --other (other={{...}}) to count them under a declared value, {_LEAVE_OUT}, --outside clip "
    "(outside='clip') for numbers, or correct the table.",
    "clip": f"Use {_LEAVE_OUT}, or correct the table.",
}
_PROBLEM = {
    "error": "values outside the domain, or missing ones",
    "clip": "values that cannot be clipped: missing ones, or numbers that are not whole",
}


def histogram(
    source: object,
    domain: DomainLike,
    *,
    columns: Mapping[str, str] | None = None,
    bins: Mapping[str, Sequence[Number]] | None = None,
    weights: str | None = None,
    outside: Outside = "error",
    other: Mapping[str, str | int] | None = None,
    table: str | None = None,
    person: str | None = None,
    per_person: int | None = None,
    seed: int | None = None,
) -> Int64[np.ndarray, " n"]:
    """Count the records of a table into the cells of a domain, in row-major order, ready for `release`.

    The domain is declared and never taken from the data, which would tell who is in them. An attribute with labels
    counts the texts, whole numbers (7 is the label "7", not "007") or truth values that equal a label; one without
    labels counts whole numbers from 0 to its size - 1; one with bins counts the numbers of each interval.

    Args:
        source: a pandas, polars (eager or lazy), pyarrow, DuckDB, ibis or PySpark table, or the path of a file
            .csv, .csv.gz, .tsv (UTF-8, names in the first line), .parquet, .arrow or .duckdb; for SQL a DuckDB relation
            or ibis table.
        domain: what a record can be; each attribute is read from the column of its name.
        columns: the column of an attribute where it has another name.
        bins: rising edges of the intervals of a numeric attribute, one more than its size, for example
            `{"age": [0, 18, 65, 120]}`, where the domain has none;
            an interval holds its lower edge and not its upper one, but the last holds both. The first and last edge may
            be infinite. Labels of such an attribute are names of the intervals.
        weights: a column of whole numbers, how many records each row stands for.
        outside: what becomes of records with a value that the domain does not have: "error"; "clip", which counts
            numbers too small or too large as the first or last value; or "drop", which leaves the record out.
        other: by attribute, the value (a label, or a number) under which all values are counted that the domain does
            not have, missing ones included.
        table: the name of the table in a .duckdb file that holds several.
        person: the column that names the person of each record, with
        per_person: how many records of one person are counted; hand the same number to `release`. Of somebody with more
            a random choice is kept (`docs/howto/people.md`).
        seed: a whole number that makes the choice repeatable; the order of each person's records must then not depend
            on their values. Without it a fresh choice is drawn, which nobody knows.

    Returns:
        One int64 count a cell.

    Guarantees:
        All engines give the same counts, exact up to 2^63 - 1, and a sum beyond that is refused.
        Records stay on their engine, but with `person` whom they are of and their cells come to Python. No message
        holds a value of a record; a refusal says how many records are outside the domain, for whoever holds them to
        find them, and no other number of records.
        With `person`, at most `per_person` records of anybody are counted, and which are does not depend on values.
    """
    check_request(person, per_person, seed, weights)
    shape = as_domain(domain)
    made = readings(shape, columns or {}, bins or {}, outside, other or {})
    if weights is not None and not isinstance(weights, str):
        raise fail(WHERE, f"weights of type {type(weights).__name__}", "must name a column", "Use weights='count'.")
    with opened(source, table) as held:
        others = [name for name in (weights, person) if name is not None]
        found = placed(made, held.names, others, from_text=held.from_text)
        file = Path(source) if isinstance(source, str | Path) else None
        if person is not None and per_person is not None:
            (cells,), people = _listed(held, found, person, outside, file, by_cell=True)
            parts = [np.ones_like(cells)]
            _check_outside(cells, parts, found, None, outside, held)
            inside = np.flatnonzero(cells >= 0)
            cells = cells[inside[kept([people[i] for i in inside.tolist()], per_person, seed)]]
            return np.bincount(cells, minlength=shape.num_cells).astype(np.int64)
        cells, parts = _grouped(held, found, weights, outside, file)
        _check_outside(cells, parts, found, weights, outside, held)
    return _dense(cells, parts, shape.num_cells)


def records(
    source: object,
    domain: DomainLike,
    *,
    other: Mapping[str, str | int] | None = None,
    table: str | None = None,
    person: str | None = None,
    per_person: int | None = None,
    seed: int | None = None,
) -> Records:
    """Return the records of a table by the numbers of their values, for domains too large for a histogram.

    Equal records are counted on the engine that holds them, so that what comes to Python is at most one row for each
    combination of values that occurs. Arguments as for `histogram`.
    """
    check_request(person, per_person, seed)
    shape = as_domain(domain)
    made = readings(shape, {}, {}, "error", other or {}, dense=False)
    names = [f"r{i}" for i in range(len(made))]
    with opened(source, table) as held:
        found = placed(made, held.names, [] if person is None else [person], from_text=held.from_text)
        file = Path(source) if isinstance(source, str | Path) else None
        if person is not None and per_person is not None:
            codes, people = _listed(held, found, person, "error", file, by_cell=False)
            values, amounts = np.stack(codes, axis=1), np.ones(len(people), dtype=np.int64)
            counted = kept(people, per_person, seed).astype(np.int64)
        else:
            values, amounts = _combinations(held, found, names, file)
            counted = amounts
        first = np.where((values < 0).any(axis=1), -1 - np.argmax(values < 0, axis=1), 0)
        _check_outside(first, [amounts], found, None, "error", held)
    return Records(np.repeat(values, counted, axis=0), shape)


def _combinations(
    held: Table, made: list[Reading], names: list[str], file: Path | None
) -> tuple[Int64[np.ndarray, "g d"], Int64[np.ndarray, " g"]]:
    """Return the combinations of values that occur, and how often, counted on the engine."""
    import narwhals as nw

    try:
        groups = _collected(coded(held.select(made, {}), made, "error").group_by(*names).agg(n=nw.len()))
        columns = [np.asarray(groups[name].to_numpy()).astype(np.int64) for name in (*names, "n")]
    except Exception as error:  # noqa: BLE001  # as in _grouped
        raise refused(error, file) from None
    return np.stack(columns[:-1], axis=1), columns[-1]


def _listed(
    held: Table, made: list[Reading], person: str, outside: Outside, file: Path | None, *, by_cell: bool
) -> tuple[list[Int64[np.ndarray, " records"]], list[Any]]:
    """Return the cell of every record, or its codes one by one, and the person, in the order of the table."""
    import narwhals as nw

    try:
        frame = coded(held.select(made, {"p": person}), made, outside)
        codes = {"cell": cell(made, False)} if by_cell else {f"r{i}": nw.col(f"r{i}") for i in range(len(made))}
        rows = _collected(frame.select(**codes, p=nw.col("p"), gone=nw.col("p").is_null()))
        columns = [np.asarray(rows[name].to_numpy()).astype(np.int64) for name in codes]
        people, gone = rows["p"].to_list(), np.asarray(rows["gone"].to_list(), dtype=bool)
    except Exception as error:  # noqa: BLE001  # as in _grouped
        raise refused(error, file) from None
    check_named(gone, people, person)
    return columns, people


def _grouped(
    table: Table, made: list[Reading], weights: str | None, outside: Outside, file: Path | None
) -> tuple[Int64[np.ndarray, " g"], list[Int64[np.ndarray, " g"]]]:
    """Run the one group-by on the engine; its errors become sentences, for their words can hold records."""
    try:
        groups = _collected(
            _counted(table.select(made, {} if weights is None else {"w": weights}), made, weights is not None, outside)
        )
        columns = [np.asarray(groups[name].to_numpy()).astype(np.int64) for name in groups.columns]
    except Exception as error:  # noqa: BLE001  # each engine has its own kinds, and users need a sentence
        raise refused(error, file) from None
    return columns[0], columns[1:]


def _counted(frame: Frame, made: list[Reading], weighted: bool, outside: Outside) -> Frame:
    """Return the table of cells and their counts, or of cells and the three parts of their sums of weights."""
    import narwhals as nw

    frame = frame.with_columns(w=weight(frame)) if weighted else frame
    frame = coded(frame, made, outside)
    if not weighted:
        return frame.select(cell=cell(made, False)).group_by("cell").agg(n=nw.len())
    parts = dict(zip(("low", "middle", "high"), limbs(nw.col("w")), strict=True))
    frame = frame.select(cell=cell(made, True), **parts)
    return frame.group_by("cell").agg(**{name: nw.col(name).sum() for name in parts})


def _collected(frame: Frame) -> Frame:
    import narwhals as nw

    return frame.collect() if isinstance(frame, nw.LazyFrame) else frame


def _check_outside(
    cells: Int64[np.ndarray, " g"],
    parts: list[Int64[np.ndarray, " g"]],
    made: list[Reading],
    weights: str | None,
    outside: Outside,
    held: Table,
) -> None:
    """Say of the first column with values outside the domain how many records are, and why; never which."""
    problems = sorted({int(-1 - c) for c in cells[cells < 0]})
    if len(made) in problems:
        problem = "has weights that are missing, negative, not whole or above 2^62"
        raise fail(WHERE, f"column {weights!r}", problem, "Weights say how many records a row stands for: correct it.")
    if not problems or outside == "drop":
        return
    first = made[problems[0]]
    amount = _total([part[cells < 0] for part in parts])
    others = [made[i].column for i in problems[1:]]
    elsewhere = f", in this column or in {', '.join(map(repr, others))}" if others else ""
    said = f"{amount} record{'s have' if amount != 1 else ' has'} {_PROBLEM[outside]}{elsewhere}"
    hint = hints(held, first)
    raise fail(WHERE, f"column {first.column!r}", said, f"{hint} {_REMEDY[outside]}" if hint else _REMEDY[outside])


def _total(parts: list[Int64[np.ndarray, " g"]]) -> int:
    """Return the number of records in groups, which may come in three parts."""
    sums = [int(part.sum()) for part in parts]
    return sums[0] if len(sums) == 1 else joined(*sums)


def _dense(
    cells: Int64[np.ndarray, " g"], parts: list[Int64[np.ndarray, " g"]], num_cells: int
) -> Int64[np.ndarray, " n"]:
    """Write the counts of the cells that occur into a vector of all cells."""
    counts = np.zeros(num_cells, dtype=np.int64)
    inside = cells >= 0
    if len(parts) == 1:
        counts[cells[inside]] = parts[0][inside]
        return counts
    sums = [joined(*limb) for limb in zip(*(part[inside].tolist() for part in parts), strict=True)]
    if max(sums, default=0) > _LARGEST:
        problem = "the weights of a cell add up to more than 2^63 - 1"
        raise fail(WHERE, "weights", problem, "Count in larger units, such as thousands.")
    counts[cells[inside]] = sums
    return counts
