"""Histograms from files: `.npy`, or `.csv` as a table of counts or as a list of cells with their counts.

Refusals name the file and the line, never a count.
"""

from __future__ import annotations

import tokenize
import warnings
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int64

from hdmm_bf._checks import InputError, csv_rows, fail, fits, nearest, readable_file, written_real, written_whole
from hdmm_bf._types import AnyArray
from hdmm_bf.domain import Domain
from hdmm_bf.workload.files import check_header

SUFFIXES = (".csv", ".npy")
COUNT, CELL = "count", "cell"
_LARGEST = 2**53
_DAMAGED = (ValueError, OSError, EOFError, LookupError, TypeError, SyntaxError, RuntimeError, ArithmeticError)
"""What NumPy raises on files that are not arrays, besides two that inherit from none of these."""


def read_counts(path: str | Path, domain: Domain, *, missing: Literal["refuse", "zero"] = "refuse") -> AnyArray:
    """Read one count for each cell of a domain.

    A CSV file holds either as many whole numbers as the domain has cells, in rows of any length, row-major, with or
    without a line of names; or a line of names with `count` and either `cell` or every attribute, then one line for
    each cell.

    Args:
        path: the file.
        domain: the cells.
        missing: what to do about cells that a list leaves out: refuse the file, or count "zero" records there.
    """
    file = readable_file("release", path, missing="Check the path.")
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise fail("release", file, f"unknown kind of file '{suffix}'", nearest(suffix, SUFFIXES))
    fits("release", f"domain {domain}", domain.num_cells * 8, advice="Use a smaller domain.")
    return _read_npy(file) if suffix == ".npy" else _read_csv(file, domain, missing)


def _read_npy(file: Path) -> AnyArray:
    try:
        with warnings.catch_warnings(), file.open("rb") as stream:
            warnings.simplefilter("ignore")  # about headers of Python 2
            check_header("release", file, stream, file.stat().st_size)
            return np.array(np.lib.format.open_memmap(file, mode="r"))
    except InputError:
        raise
    except (*_DAMAGED, MemoryError, tokenize.TokenError):
        raise fail("release", file, "not readable as .npy", "Save whole numbers with numpy.save.") from None


def _read_csv(file: Path, domain: Domain, missing: str) -> Int64[np.ndarray, " n"]:
    rows = csv_rows("release", file)
    names = [name.strip() for name in rows[0][1]] if rows else []
    if COUNT in names and rows:
        counts, seen = _from_list(file, names, rows[1:], domain)
        if missing != "zero":
            _check_complete(file, seen, domain)
        return counts
    if rows and all(written_real(entry) is None for entry in names):
        rows = rows[1:]
    entries = [_whole(file, line, entry) for line, row in rows for entry in row]
    if len(entries) != domain.num_cells:
        advice = f"Give one count for each cell, or a list with the names {CELL},{COUNT}."
        problem = f"holds {len(entries)} numbers, the domain {domain} has {domain.num_cells} cells"
        raise fail("release", file, problem, advice)
    return np.array(entries, dtype=np.int64)


def _from_list(
    file: Path, names: list[str], rows: list[tuple[int, list[str]]], domain: Domain
) -> tuple[Int64[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """Return the counts, and which cells have a line."""
    keys = [CELL] if CELL in names else list(domain.names)
    missing = [key for key in keys if names.count(key) != 1]
    if missing or names.count(COUNT) != 1:
        advice = f"Name the columns {CELL},{COUNT}, or {','.join(domain.names)},{COUNT}."
        raise fail("release", f"{file}, line 1", "does not name each needed column once", advice)
    places, amount = [names.index(key) for key in keys], names.index(COUNT)
    counts = np.zeros(domain.num_cells, dtype=np.int64)
    seen = np.zeros(domain.num_cells, dtype=bool)
    for line, row in rows:
        if len(row) != len(names):
            raise fail("release", f"{file}, line {line}", f"has not {len(names)} columns", "Complete the line.")
        cell = _cell(file, line, [row[place] for place in places], domain, numbered=keys == [CELL])
        if seen[cell]:
            raise fail("release", f"{file}, line {line}", "names a cell for the second time", "Add the counts up.")
        seen[cell], counts[cell] = True, _whole(file, line, row[amount])
    return counts, seen


def _check_complete(file: Path, seen: Bool[np.ndarray, " n"], domain: Domain) -> None:
    left_out = np.flatnonzero(~seen)
    if left_out.size:
        more = f" and {left_out.size - 1} more" if left_out.size > 1 else ""
        problem = f"has no line for {domain.describe(int(left_out[0]))}{more}"
        advice = 'Add them with their counts, or say --missing zero (missing="zero") if they are empty.'
        raise fail("release", file, problem, advice)


def _cell(file: Path, line: int, values: list[str], domain: Domain, *, numbered: bool) -> int:
    """Number of the cell that a line names, by its number or by one value (number or label) an attribute."""
    if numbered:
        cell = written_whole(values[0])
        if cell is not None and 0 <= cell < domain.num_cells:
            return cell
    else:
        found = [_value(domain, i, value.strip()) for i, value in enumerate(values)]
        known = [value for value in found if value is not None]
        if len(known) == len(found):
            return int(domain.ravel(known))
    advice = "Correct or remove it; in labels capitals and spaces count."
    raise fail("release", f"{file}, line {line}", f"names no cell of the domain {domain}", advice)


def _value(domain: Domain, attribute: int, text: str) -> int | None:
    labels = domain.labels[attribute]
    if labels is not None:
        return labels.index(text) if text in labels else None
    value = written_whole(text)
    return value if value is not None and 0 <= value < domain.sizes[attribute] else None


def _whole(file: Path, line: int, entry: str) -> int:
    value = written_whole(entry)
    if value is None or not 0 <= value <= _LARGEST:
        advice = "Write counts as whole numbers from 0 to 2^53."
        raise fail("release", f"{file}, line {line}", "holds something that is no count", advice)
    return value
