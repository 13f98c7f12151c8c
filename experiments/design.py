"""An experiment is a list of cells, each measured on its own and kept in a CSV as soon as it is known.

A cell is its configuration, as text; the same configuration has the same seed, so a run that was killed continues
where it stopped and ends with the same file. Rows of another design, or of other versions, are measured again.
"""

from __future__ import annotations

import csv
import io
import os
import platform
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeAlias
from zlib import crc32

import numpy as np
import scipy

import hdmm_bf as bf

Row: TypeAlias = dict[str, str]
SEED = 7


class Experiment(NamedTuple):
    """A figure or table of the paper.

    Attributes:
        name: what `hdmm-bf reproduce` calls it.
        question: what it answers.
        cells: the design, small with smoke=True; every cell has the same columns.
        results: the columns that `measure` fills.
        measure: from a cell and its generator to the results.
        draw: from all rows and a path without suffix to the figures; None for a table.
    """

    name: str
    question: str
    cells: Callable[[bool], list[Row]]
    results: tuple[str, ...]
    measure: Callable[[Row, np.random.Generator], dict[str, float | str]]
    draw: Callable[[list[Row], Path], None] | None = None


def versions() -> str:
    """Return what the numbers were computed with."""
    own = f"hdmm_bf {bf.__version__}; Python {platform.python_version()}"
    return f"{own}; NumPy {np.__version__}; SciPy {scipy.__version__}"


def generator(cell: Row) -> np.random.Generator:
    """Return the random numbers of a cell: they depend on its configuration and the seed alone."""
    text = "|".join(f"{name}={value}" for name, value in cell.items() if name != "versions")
    return np.random.default_rng([int(cell["seed"]), crc32(text.encode())])


def complete(cells: Iterable[Row]) -> list[Row]:
    """Add seed and versions to every cell."""
    return [{**cell, "seed": str(SEED), "versions": versions()} for cell in cells]


def written(value: float | str) -> str:
    """Write a number with six digits, nothing for one that is not known."""
    if isinstance(value, str):
        return value
    return "" if np.isnan(value) else f"{value:.6g}"


def read(path: Path) -> list[Row]:
    """Read the rows of a results file; a last line that was cut off is left out."""
    if not path.is_file():
        return []
    text = path.read_text()
    return list(csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1])))


def run(
    experiment: Experiment,
    folder: Path,
    *,
    smoke: bool = False,
    callback: Callable[[int, int, str], None] | None = None,
) -> list[Row]:
    """Measure the cells that the results file does not hold yet, and return all rows in the order of the design."""
    cells = complete(experiment.cells(smoke))
    path = folder / f"{experiment.name}.csv"
    columns = [*cells[0], *experiment.results]
    configuration = list(cells[0])
    kept = {_key(row, configuration): row for row in read(path) if set(row) == set(columns)}
    rows = [kept[key] for cell in cells if (key := _key(cell, configuration)) in kept]
    _write(path, columns, rows)
    for done, cell in enumerate(cells):
        key = _key(cell, configuration)
        if callback is not None:
            callback(done, len(cells), " ".join(v for k, v in cell.items() if k not in ("versions", "seed")))
        if key not in kept:
            found = experiment.measure(cell, generator(cell))
            kept[key] = {**cell, **{name: written(found[name]) for name in experiment.results}}
            _append(path, columns, kept[key])
    rows = [kept[_key(cell, configuration)] for cell in cells]
    _write(path, columns, rows)
    return rows


def _key(row: Row, columns: list[str]) -> tuple[str, ...]:
    return tuple(row.get(name, "") for name in columns)


def _write(path: Path, columns: list[str], rows: list[Row]) -> None:
    """Replace the file in one step, so that a kill leaves the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".csv.new")
    with fresh.open("w", newline="") as file:
        table = csv.DictWriter(file, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    os.replace(fresh, path)


def _append(path: Path, columns: list[str], row: Row) -> None:
    with path.open("a", newline="") as file:
        csv.DictWriter(file, columns, lineterminator="\n").writerow(row)
