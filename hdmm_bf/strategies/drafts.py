"""Unit error of a strategy before it is shipped: the exact dense formula, whatever the search minimised.

vertex   max_e ||A p_e||^2 * tr(V (A^T A)^-1)            A over the kept cells
edge     max_e ||S_e||^2 * tr(V_G (S^T S)^-1)            S over the edges, V_G = P^T V P
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf._types import Norm, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.records import Kind


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
    V = _GRAM[kind](problem)
    return Draft(kind, scaled, origin, la.trace_of_inverse(scaled, V))


def column_norms(problem: Problem, kind: Kind, matrix: RealMatrix, *, norm: Norm) -> RealVector:
    """Return ||A p_e|| (vertex) or ||S_e|| (edge) for every edge."""
    columns = _EDGE_COLUMNS[kind](problem, matrix)
    return np.asarray(np.abs(columns).sum(axis=0) if norm == "L1" else np.sqrt((columns**2).sum(axis=0)))


def edge_columns(problem: Problem, matrix: RealMatrix) -> RealMatrix:
    """Return A P for a matrix over the kept cells, without forming P."""
    return problem.P.differences(matrix)


def edge_gram(problem: Problem) -> SquareMatrix:
    """Return V_G = P^T V P, e x e."""
    return edge_columns(problem, edge_columns(problem, problem.gram).T)


_GRAM: dict[Kind, Callable[[Problem], SquareMatrix]] = {"vertex": lambda problem: problem.gram, "edge": edge_gram}
_EDGE_COLUMNS: dict[Kind, Callable[[Problem, RealMatrix], RealMatrix]] = {
    "vertex": edge_columns,
    "edge": lambda _, matrix: matrix,
}
