"""The certificate of blocks that join attributes: they are checked, and their error derived, from the integers.

N = Q (y + K_1 (z - T y) - K_2 S y) for noise y and z of variances w^-2 and 1, so that with F = Q (I - K_1 T - K_2 S)

    trace = tr(V F diag(w)^-2 F^T) + tr(V Q K_1 K_1^T Q^T)

over the joined attributes, times tr V_k for every other one: there each value has noise of its own.
"""

from __future__ import annotations

import math

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf._types import RealMatrix, SparseMatrix
from hdmm_bf.certificate.exact import GRID_BITS, fits_in_words
from hdmm_bf.matrix import apply_factors
from hdmm_bf.problem.product import ProductProblem, Term
from hdmm_bf.problem.public_totals import kept_totals
from hdmm_bf.strategies.records import JoinedBlock

_AGAIN = "Fit the strategy again."
_MOST_GAIN_BITS = 52
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
    """Q: take what is left of every total off the first value of its component."""
    found = columns.copy()
    if S.shape[0]:
        found[S.indices[S.indptr[:-1]]] -= S @ columns
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
