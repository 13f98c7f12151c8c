"""Known mechanisms with Gaussian noise, as members of the family of bases: closed forms, nothing is searched.

    rows over the cells     A = A_1 (x) ... (x) A_d, X_i = A_i^T A_i = S_i S_i^T:                    M = 1
    noise on the edges      covariance sum_i L_i (x) Z_k (x) ..., one Laplacian L_i among Z_k = (A_k^T A_k)^-1. With
                            T_i^T Z_i^-1 T_i = I and L_i = T_i diag(lambda_i) T_i^T, S_i = T_i^-T:   M_J = 1 / sum_i
                            lambda_ij

For Gaussian noise rows over the edges are never better than the rows over the cells of the same covariance. The first
columns of S_i span the indicators of public components, and products of these are public totals, known exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import NamedTuple

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf._types import RealMatrix, RealVector, SquareMatrix
from hdmm_bf.objectives import limits
from hdmm_bf.problem.product import ProductProblem, incidence
from hdmm_bf.problem.public_totals import indicators
from hdmm_bf.strategies.baselines.classical import branchings, haar, hierarchy
from hdmm_bf.strategies.gaussian.bases import build
from hdmm_bf.strategies.gaussian.family import Bases
from hdmm_bf.strategies.gaussian.moves import InBalls, Tensor
from hdmm_bf.strategies.gaussian.sketch import Sketch

IDENTITY, WAVELET = "identity", "wavelet (Privelet)"
EDGES, GRID = "identity on edges", "rows and columns of wavelets"

MOST_CELLS, _MOST_MOVES = 2**22, 2**25
"""Cells, and edges of an attribute times its values, up to which floors are evaluated."""
_STILL = 1e-12
"""Share of the largest eigenvalue of a Laplacian below which it is zero."""


class Floor(NamedTuple):
    """A mechanism at sensitivity 1."""

    name: str
    error: float
    sketch: Sketch


def applies(product: ProductProblem) -> bool:
    """Whether edges hide anything, and tensors over the cells can be written out."""
    moves = max(len(edges) * n for edges, n in zip(product.edges, product.sizes, strict=True))
    return 0 < moves <= _MOST_MOVES and math.prod(product.sizes) <= MOST_CELLS


def floors(product: ProductProblem) -> list[Floor]:
    """Return the classical mechanisms and, on Cartesian products, the paper's, each with its error in closed form.

    When time is up, those that were evaluated until then: one at least.
    """
    found: list[Floor | None] = []
    if applies(product):
        family = build(product, fold=False)
        with la.threads_for(max(product.sizes)):
            for name, bases, M in _members(product):
                found.append(_floor(family, name, bases, M))
                if limits.ending():
                    break
    return [floor for floor in found if floor is not None]


def _members(product: ProductProblem) -> Iterator[tuple[str, list[RealMatrix], Tensor | None]]:
    """Names, bases and precisions, None for M = 1."""
    kinds: list[tuple[str, Callable[[int], RealMatrix]]] = [(IDENTITY, np.eye), (WAVELET, haar)]
    kinds += [(name, partial(_levels, branching)) for name, branching in branchings(max(product.sizes))]
    for name, rows in kinds:
        yield name, [_on_cells(product, i, rows(n)) for i, n in enumerate(product.sizes)], None
    if product.threshold is None:
        for name, rows in ((EDGES, np.eye), (GRID, haar)):
            pairs = [_on_edges(product, i, rows(n)) for i, n in enumerate(product.sizes)]
            spread = reduce(np.add.outer, [values for _, values in pairs])
            yield name, [S for S, _ in pairs], np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)


def _levels(branching: int, n: int) -> RealMatrix:
    return np.vstack(hierarchy(n, branching)) if n > 1 else np.eye(1)


def _on_cells(product: ProductProblem, i: int, A: RealMatrix) -> RealMatrix:
    """S with S S^T = A^T A, first columns in the span of the indicators of public components."""
    K = np.linalg.cholesky(A.T @ A)
    return _turned(K, _public_rows(product, i), None)[0]


def _on_edges(product: ProductProblem, i: int, A: RealMatrix) -> tuple[RealMatrix, RealVector]:
    """S with S S^T = A^T A, and the values of L on the columns of S^-T, between which it is diagonal."""
    K, P = np.linalg.cholesky(A.T @ A), incidence(product, i).sparse().toarray().astype(np.float64)
    return _turned(K, _public_rows(product, i), K.T @ (P @ P.T) @ K)


def _public_rows(product: ProductProblem, i: int) -> RealMatrix:
    """Indicators of the components without BOTTOM; of an attribute without edges every value is one."""
    return indicators(product.edges[i], product.sizes[i])


def _turned(K: RealMatrix, C: RealMatrix, G: SquareMatrix | None) -> tuple[RealMatrix, RealVector]:
    """K Q for an orthogonal Q with K^-1 C^T in its first columns, which diagonalises G if given and zero on these.

    The first columns of K Q are made from C itself: equal within a component to the last digit.
    """
    p = len(C)
    Q, R = np.linalg.qr(np.linalg.solve(K, C.T), mode="complete")
    Z = Q[:, p:]
    values = np.zeros(Z.shape[1])
    if G is not None and Z.size:
        values, U = la.eigen(Z.T @ G @ Z)
        values, Z = np.where(values > _STILL * values[-1], values, 0.0), Z @ U
    first = np.linalg.solve(R[:p].T, C).T
    return np.concatenate([first, K @ Z], axis=1), np.concatenate([np.zeros(p), values])


def _floor(family: Bases, name: str, bases: list[RealMatrix], M: Tensor | None) -> Floor | None:
    """Scale to sensitivity 1; None where no edge moves a row or a query is not answered."""
    family.set_bases([[S] for S in bases[: len(family.own)]])
    if M is None:
        M, largest = np.ones(family.shape), _largest_move(family)
    else:
        M = np.where(family.public, 0.0, M)
        largest = max(float(d.max()) for d in family.moves.distances(M))
    noisy = ~family.public & (M > 0)
    if not largest > 0 or np.any(family.v[~noisy]):
        return None
    return Floor(name, largest * float((family.v[noisy] / M[noisy]).sum()), family.sketch(M / largest))


def _largest_move(family: Bases) -> float:
    """The largest d for M = 1, of which public totals have no part: a product of numbers if one attribute changes."""
    if isinstance(family.moves, InBalls):
        return max(float(d.max()) for d in family.moves.distances(np.ones(family.shape)))
    cells = [float(a.C.sum(axis=1).max()) for a in family.attributes]
    moved = [float(a.A.sum(axis=1).max(initial=0.0)) for a in family.attributes]
    return max(m * math.prod(cells[:i] + cells[i + 1 :]) for i, m in enumerate(moved))
