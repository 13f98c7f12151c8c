"""Quadratic forms over the queries, by the closed forms of the workload: never m x n where it has one.

With w_i the queries over the kept cells (rows of W D), s_i their scales and g(i) their groups,

    V(lam) = sum_i lam_g(i) / |g(i)| s_i w_i w_i^T      the Gram matrix of the queries so weighted
    v_g(Y) = mean over i in g of s_i w_i^T Y w_i        what the goal takes the largest of

the same pair as L(mu) and d_e(X) for the edges (`forms`): v is twice the gradient of f along lam.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float64, Int

from hdmm_bf._types import RealVector, SquareMatrix
from hdmm_bf.matrix import Matrix
from hdmm_bf.problem.transform import Grounding, Problem


@final
@dataclass(frozen=True, eq=False)
class QueryForms:
    """The two forms for one goal; make it with `query_forms`.

    Attributes:
        matrix: the queries as written, m x n.
        grounding: the kept cells.
        scales: s_i / |g(i)|, or s_i where every query is its own group.
        groups: the group of every query, or None.
        count: number of groups.
    """

    matrix: Matrix
    grounding: Grounding
    scales: Float64[np.ndarray, " m"]
    groups: Int[np.ndarray, " m"] | None
    count: int

    def gram(self, lam: Float64[np.ndarray, " g"]) -> SquareMatrix:
        """Return V(lam), k x k."""
        each = lam if self.groups is None else lam[self.groups]
        return self.grounding.gram(self.matrix.weighted_gram(each * self.scales))

    def variances(self, Y: SquareMatrix) -> RealVector:
        """Return v_g(Y) for a symmetric covariance of the kept cells, both triangles filled."""
        half = self.grounding.expand(Y)
        each = self.scales * np.maximum(self.matrix.quadratic(self.grounding.expand(half.T)), 0.0)
        return each if self.groups is None else np.bincount(self.groups, each, self.count)

    def shifted(self, Y: SquareMatrix, change: Float64[np.ndarray, " g"]) -> SquareMatrix | None:
        """Return a covariance whose v_g is moved by change_g, or None where the workload has no closed form for it.

        Under a policy with several public components what moves is near it.
        """
        C = None if self.groups is not None else self.matrix.from_quadratic(change / self.scales)
        kept = self.grounding.kept
        return None if C is None else np.asarray(Y + C[np.ix_(kept, kept)])


def query_forms(problem: Problem) -> QueryForms:
    """Prepare the forms of a problem whose goal is the largest of variances, or of their means by group."""
    scales, groups = problem.goal.scales(problem.workload), problem.goal.groups
    count = problem.workload.num_queries
    if groups is not None:
        sizes = np.bincount(groups)
        scales, count = scales / sizes[groups], sizes.size
    return QueryForms(problem.workload.matrix, problem.grounding, scales, groups, count)
