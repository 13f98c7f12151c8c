"""The certificate of blocks that join attributes: they are checked, and their error derived, from the integers.

N = Q (y + K_1 (z - T y) - K_2 S y) for noise y and z of variances w^-2 and 1, so that with F = Q (I - K_1 T - K_2 S)

    trace = tr(V F diag(w)^-2 F^T) + tr(V Q K_1 K_1^T Q^T)

over the joined attributes, times tr V_k for every other one: there each value has noise of its own.
"""

from __future__ import annotations

import math

import numpy as np

from hdmm_bf._checks import fail, fits
from hdmm_bf._types import RealMatrix, SparseMatrix
from hdmm_bf.certificate.exact import GRID_BITS, fits_in_words
from hdmm_bf.matrix import apply_factors
from hdmm_bf.problem.product import ProductProblem, Term
from hdmm_bf.problem.public_totals import kept_totals, others_of_totals
from hdmm_bf.strategies.records import JoinedBlock

_AGAIN = "Fit the strategy again."
_MOST_GAIN_BITS = 52
_MOST_VALUES = 2**16
"""Values, and rows with totals: sums of so many products are exact when noise is added up."""

_MOST_UNEVEN = 2**14
"""Weights and rows over the least weight, and gains: beyond, variances would drown in the rounding of larger ones."""

_COLUMNS = 256
"""Columns of F that are carried through the queries at a time."""


def check_joined(product: ProductProblem, block: JoinedBlock) -> None:
    """Refuse a block that does not fit the domain, or whose numbers are out of reach."""
    d, axes = len(product.sizes), block.axes
    fine = axes == tuple(sorted(set(axes))) and all(0 <= i < d for i in axes) and block.hides in axes
    if fine:
        n = math.prod(product.sizes[i] for i in axes)
        totals = kept_totals(product, axes, block.hides).shape[0]
        fine = block.weights.shape == (n,) and block.rows.shape[1:] == (n,)
        fine = fine and block.gains.shape == (n, len(block.rows) + totals)
    fine = fine and 0 <= block.bits <= GRID_BITS and 0 <= block.gain_bits <= _MOST_GAIN_BITS
    if not fine or not int(block.weights.min()) >= 1 or not fits_in_words(block):
        shown = f"a block that joins attributes {axes} and hides {block.hides}"
        raise fail("certificate", shown, "does not fit the domain", _AGAIN)
    _check_sizes(block)


def _check_sizes(block: JoinedBlock) -> None:
    """Refuse a block too large to be added up exactly, or too uneven for its error to be known."""
    n, told = block.gains.shape
    shown = f"a block of {n} values, {len(block.rows)} rows and {told - len(block.rows)} totals"
    if max(n, told) > _MOST_VALUES:
        raise fail("certificate", shown, "is too large to be run exactly", "Join fewer attributes.")
    fits("certificate", shown, 8 * max(2 * n * told, 4 * told**2), advice="Join fewer attributes.")
    rows = int(np.abs(block.rows).sum(axis=0).max())
    gains = int(np.abs(block.gains.astype(object)).max(initial=0))
    uneven = int(block.weights.max()) + rows > _MOST_UNEVEN * int(block.weights.min())
    if uneven or gains > _MOST_UNEVEN << block.gain_bits:
        raise fail("certificate", shown, "is too uneven for its error to be known", _AGAIN)


def joined_trace(product: ProductProblem, block: JoinedBlock) -> float:
    """Return what the noise of a block adds to the queries, at a scale of 1."""
    S = kept_totals(product, block.axes, block.hides)
    w = np.ldexp(block.weights.astype(np.float64), -block.bits)
    T = np.ldexp(block.rows.astype(np.float64), -block.bits)
    K = np.ldexp(block.gains.astype(np.float64), -block.gain_bits)
    total = _carried(product, block, _put_right(S, K[:, : len(T)]))
    told = np.vstack([T, S.toarray()])
    for start in range(0, w.size, _COLUMNS):
        columns = slice(start, min(start + _COLUMNS, w.size))
        F = -K @ told[:, columns]
        F[np.arange(columns.start, columns.stop), np.arange(F.shape[1])] += 1.0
        total += _carried(product, block, _put_right(S, F) / w[columns])
    return total


def _put_right(S: SparseMatrix, columns: RealMatrix) -> RealMatrix:
    """Q: take what is left of every total off the first value of its component, which is then minus the others."""
    found = columns.copy()
    first, others = others_of_totals(S)
    found[first] = -(others @ columns)
    return found


def _carried(product: ProductProblem, block: JoinedBlock, columns: RealMatrix) -> float:
    """Squared size, in all queries, of vectors over the joined attributes."""
    shape = [product.sizes[i] for i in block.axes]
    tensor = columns.reshape(*shape, -1)
    total = 0.0
    for term in product.terms:
        through = apply_factors([term.grams[i] for i in block.axes], tensor)
        total += _others(term, block) * float(np.vdot(tensor, through))
    return total


def _others(term: Term, block: JoinedBlock) -> float:
    """The weight of a term, and tr V_k for every attribute that is not joined."""
    apart = [float(np.trace(V)) for i, V in enumerate(term.grams) if i not in block.axes]
    return term.weight**2 * math.prod(apart)
