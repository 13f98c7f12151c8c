"""Unit error of a strategy before it is shipped: the exact dense formula, whatever the search minimised.

vertex   max_e ||A p_e||^2 * tr(V (A^T A)^-1)            A over the kept cells
edge     max_e ||S_e||^2 * tr(V_G (S^T S)^-1)            S over the edges, V_G = P^T V P
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from scipy.linalg import blas

from hdmm_bf import _linalg as la
from hdmm_bf._types import Norm, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.problem.transform import Problem

Kind: TypeAlias = Literal["vertex", "edge"]

_CHOLESKY_PIVOT, _RANK_PIVOT = 1e-4, 1e-11
"""Smallest pivots, against the largest: below the first QR is used, below the second A counts as rank deficient."""


class Draft(NamedTuple):
    """A strategy in floating point, of full column rank, with where it came from and its exact unit error."""

    kind: Kind
    matrix: RealMatrix
    origin: str
    error: float


def draft(problem: Problem, kind: Kind, matrix: RealMatrix, *, norm: Norm, origin: str) -> Draft:
    """Scale a strategy to sensitivity 1 and compute its unit error; infinite where it lacks full column rank."""
    largest = float(column_norms(problem, kind, matrix, norm=norm).max())
    if not largest > 0:
        return Draft(kind, matrix, origin, math.inf)
    scaled = matrix / largest
    V = problem.gram if kind == "vertex" else edge_gram(problem)
    return Draft(kind, scaled, origin, trace_of_inverse(scaled, V))


def column_norms(problem: Problem, kind: Kind, matrix: RealMatrix, *, norm: Norm) -> RealVector:
    """Return ||A p_e|| (vertex) or ||S_e|| (edge) for every edge."""
    columns = edge_columns(problem, matrix) if kind == "vertex" else matrix
    return np.asarray(np.abs(columns).sum(axis=0) if norm == "L1" else np.sqrt((columns**2).sum(axis=0)))


def edge_columns(problem: Problem, matrix: RealMatrix) -> RealMatrix:
    """Return A P for a matrix over the kept cells, without forming P."""
    return problem.P.differences(matrix)


def edge_gram(problem: Problem) -> SquareMatrix:
    """Return V_G = P^T V P, e x e."""
    return edge_columns(problem, edge_columns(problem, problem.gram).T)


def trace_of_inverse(A: RealMatrix, V: SquareMatrix) -> float:
    """Return tr(V (A^T A)^-1), infinite if A has not full column rank.

    By Cholesky of A^T A, which squares the condition number, and by QR of A where that would cost digits.
    """
    C = la.cholesky(A.T @ A)
    if C is None or np.diag(C).min() < _CHOLESKY_PIVOT * np.diag(C).max():
        if len(A) < A.shape[1]:
            return math.inf
        C = np.asfortranarray(np.asarray(np.linalg.qr(A, mode="r")).T)
        pivots = np.abs(np.diag(C))
        if pivots.min() <= _RANK_PIVOT * pivots.max():
            return math.inf
    half = blas.dtrsm(1.0, C, np.asfortranarray(V), lower=1)
    return float(np.trace(blas.dtrsm(1.0, C, half.T, lower=1)))
