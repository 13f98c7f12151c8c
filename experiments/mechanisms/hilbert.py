"""The Hilbert curve: an order of the cells of a grid in which neighbours in the order are neighbours on the grid."""

from __future__ import annotations

import numpy as np

from experiments.mechanisms.checks import IndexArray, fail
from hdmm_bf.domain import DomainLike, as_domain


def hilbert_order(domain: DomainLike) -> IndexArray:
    """Return the cells of a domain of two attributes in the order of a Hilbert curve.

    The curve is that of the smallest square with a power of two as side; cells outside the domain are left out.

    Guarantees:
        Every cell comes once. On squares whose side is a power of two every step goes to a cell next to the last.
    """
    cells = as_domain(domain)
    if cells.num_attributes != 2:
        raise fail("hilbert_order", cells, "needs a domain of two attributes", "Use for example 64x64.")
    rows, columns = cells.sizes
    row, column = _curve(max(rows, columns, 1))
    inside = (row < rows) & (column < columns)
    return np.asarray(row[inside] * columns + column[inside])


def _curve(side: int) -> tuple[IndexArray, IndexArray]:
    """Coordinates along the curve: four copies of the curve of half the side, the first and last one turned."""
    row = column = np.zeros(1, dtype=np.int64)
    half = 1
    while half < side:
        far = half - 1
        row, column = (
            np.concatenate([column, row, row + half, far - column + half]),
            np.concatenate([row, column + half, column + half, far - row]),
        )
        half *= 2
    return row, column
