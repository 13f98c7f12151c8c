"""Public groups: attributes without edges cut a product into parts that are alike, each hidden by itself.

A record never leaves its group, so noise on the cells can be drawn for every group by itself, always by the same law.
With W_g the columns of a workload in group g, the total squared error of such noise is that of the one form

    sum_g E[z_g^T W_g^T W_g z_g] = E[z^T V z],      V = sum_g W_g^T W_g

over the values of the attributes with edges. For products W = w (W_own (x) W_public) it is w^2 tr(V_public) V_own.
Nothing here has the size of the domain, unless queries are neither products nor boxes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from hdmm_bf import policy as policies
from hdmm_bf._checks import fail
from hdmm_bf._types import IndexArray, RealVector
from hdmm_bf.domain import Domain
from hdmm_bf.matrix import Identity, Kronecker, Matrix, Ones, Sparse, Stack, Weighted
from hdmm_bf.policy import Policy
from hdmm_bf.problem.product import Term, product_terms
from hdmm_bf.problem.transform import Problem
from hdmm_bf.workload import AllRange, Boxes, Prefix, Workload

_ALIKE = Identity, Ones, Prefix, AllRange
"""Matrices that their size alone tells."""

_EVEN = 1e-12
"""Share to which groups count as asked for alike."""


def hidden_axes(policy: Policy) -> tuple[int, ...] | None:
    """Return the attributes with edges, the first one if none has any; None where a policy has no public groups."""
    factors = policy.factors
    if factors is None or len(factors) != policy.domain.num_attributes:
        return None
    axes = tuple(i for i, factor in enumerate(factors) if factor.num_edges) or (0,)
    groups = math.prod(size for i, size in enumerate(policy.domain.sizes) if i not in axes)
    return axes if groups > 1 else None


def policy_within(policy: Policy, axes: Sequence[int]) -> Policy:
    """Return the policy on the values of some attributes, which holds in every group; refused where others have edges.

    Guarantees:
        Every edge of the policy is an edge of the result, within one group; groups are all values of the others.
    """
    factors, count = policy.factors, policy.domain.num_attributes
    proper = list(axes) == sorted(set(axes)) and bool(axes) and min(axes) >= 0 and max(axes) < count
    if factors is None or len(factors) != count or policy.stored is not None or not proper:
        shown = f"{policy.title}, attributes {tuple(axes)}"
        raise fail("problem", shown, "is no product with these attributes", "Use a policy that is a product.")
    moved = [i for i, factor in enumerate(factors) if factor.num_edges and i not in axes]
    if moved:
        name = policy.domain.names[moved[0]]
        raise fail("problem", f"attribute {name}", "has edges, and tells groups apart", "Fit again for this policy.")
    own = [factors[i] for i in axes]
    domain = _domain_within(policy.domain, axes)
    if len(own) == 1:
        return Policy(domain, own[0].spec, own[0].meaning, own[0].edges)
    return policies.product(*own, domain=domain)


def _domain_within(domain: Domain, axes: Sequence[int]) -> Domain:
    parts = (domain.sizes, domain.names, domain.labels, domain.bins, domain.units)
    return Domain(*(tuple(part[i] for i in axes) for part in parts))  # type: ignore[arg-type]


def problem_within(problem: Problem, axes: Sequence[int], *, written: bool = False) -> Problem:
    """Return the problem on the values of some attributes whose total error is that of all groups together.

    Args:
        problem: a workload under a policy with public groups.
        axes: the attributes with edges.
        written: take the queries as written, without their weights.
    """
    policy, workload = policy_within(problem.policy, axes), problem.workload
    matrix = queries_within(workload.matrix if written else workload.objective, problem.policy.domain.sizes, axes)
    return Problem(workload_within(matrix, policy.domain), policy)


def workload_within(matrix: Matrix, domain: Domain) -> Workload:
    """Return queries on the values of the attributes with edges; they have no names of their own."""
    return Workload(matrix, domain, "queries within a group", lambda i: f"query {i}")


def queries_within(matrix: Matrix, sizes: tuple[int, ...], axes: Sequence[int]) -> Matrix:
    """Return U on the values of some attributes with U^T U = sum_g W_g^T W_g."""
    terms = product_terms(matrix, sizes)
    if terms is not None:
        return _terms_within(terms, axes)
    if isinstance(matrix, Stack):
        return Stack(tuple(queries_within(block, sizes, axes) for block in matrix.blocks))
    if isinstance(matrix, Boxes):
        return Weighted(np.sqrt(groups_in(matrix, axes)), box_within(matrix, axes))
    if isinstance(matrix, Weighted) and isinstance(matrix.inner, Boxes):
        return Weighted(matrix.weights * np.sqrt(groups_in(matrix.inner, axes)), box_within(matrix.inner, axes))
    return slices(matrix, sizes, axes).own


def _terms_within(terms: tuple[Term, ...], axes: Sequence[int]) -> Matrix:
    """Return one block for every kind of queries, times the root of what it counts in all groups together."""
    squares: dict[object, float] = {}
    found: dict[object, Matrix] = {}
    for term in terms:
        own = own_factor(term, axes)
        factors = own.factors if isinstance(own, Kronecker) else (own,)
        named = all(isinstance(factor, _ALIKE) for factor in factors)
        key: object = tuple((type(factor), factor.shape[1]) for factor in factors) if named else id(term)
        public = math.prod(_all_squares(f) for i, f in enumerate(term.factors) if i not in axes)
        squares[key] = squares.get(key, 0.0) + term.weight**2 * public
        found[key] = own
    blocks = tuple(Weighted(np.array([math.sqrt(squares[key])]), own) for key, own in found.items())
    return blocks[0] if len(blocks) == 1 else Stack(blocks)


def own_factor(term: Term, axes: Sequence[int]) -> Matrix:
    """Return the queries of a product on the values of some attributes."""
    own = tuple(term.factors[i] for i in axes)
    return own[0] if len(own) == 1 else Kronecker(own)


def _all_squares(factor: Matrix) -> float:
    """Return tr W^T W."""
    return float(factor.nnz if isinstance(factor, _ALIKE) else column_squares(factor).sum())


def column_squares(factor: Matrix) -> RealVector:
    """Return the diagonal of W^T W: how often every value is counted."""
    if isinstance(factor, _ALIKE):  # of zeros and ones
        return np.asarray(factor.rmv(np.ones(factor.shape[0])))
    return np.asarray(factor.sparse().power(2).sum(axis=0), dtype=np.float64).ravel()


def row_squares(factor: Matrix) -> RealVector:
    """Return the diagonal of W W^T: how many values every query counts."""
    if isinstance(factor, _ALIKE):
        return np.asarray(factor.mv(np.ones(factor.shape[1])))
    return np.asarray(factor.sparse().power(2).sum(axis=1), dtype=np.float64).ravel()


def box_within(boxes: Boxes, axes: Sequence[int]) -> Boxes:
    """Return what boxes ask in every group that they hold."""
    chosen = list(axes)
    return Boxes(tuple(boxes.sizes[i] for i in chosen), boxes.low[:, chosen], boxes.high[:, chosen])


def groups_in(boxes: Boxes, axes: Sequence[int]) -> RealVector:
    """Return how many groups every box holds."""
    others = [i for i in range(len(boxes.sizes)) if i not in axes]
    return np.asarray((boxes.high - boxes.low + 1)[:, others].astype(np.float64).prod(axis=1))


class Slices(NamedTuple):
    """Queries cut into what each asks in each group; what asks nothing there is left out.

    Attributes:
        own: one row a query and group.
        query: for every row the query.
    """

    own: Matrix
    query: IndexArray


def slices(matrix: Matrix, sizes: tuple[int, ...], axes: Sequence[int]) -> Slices:
    """Cut any queries into those of single groups; written out."""
    S = matrix.sparse().tocoo()
    values = np.unravel_index(S.col, sizes)
    others = [i for i in range(len(sizes)) if i not in axes]
    own_sizes, other_sizes = tuple(sizes[i] for i in axes), tuple(sizes[i] for i in others)
    own = np.ravel_multi_index(tuple(values[i] for i in axes), own_sizes)
    group = np.ravel_multi_index(tuple(values[i] for i in others), other_sizes)
    rows, place = np.unique(S.row.astype(np.int64) * math.prod(other_sizes) + group, return_inverse=True)
    cut = sp.csr_array((S.data, (place, own)), shape=(max(rows.size, 1), math.prod(own_sizes)))
    return Slices(Sparse(cut), rows // math.prod(other_sizes) if rows.size else np.zeros(1, dtype=np.int64))


def are_alike(problem: Problem, axes: Sequence[int]) -> bool:
    """Whether every group is asked the same, but for how often: then one tree is the best for all.

    Every query is a product, and no two terms weigh the values of an attribute without edges differently.
    """
    terms = product_terms(problem.workload.objective, problem.policy.domain.sizes)
    if terms is None:
        return False
    for i in range(problem.policy.domain.num_attributes):
        if i not in axes:
            squares = [column_squares(term.factors[i]) for term in terms]
            shares = [own / own.sum() for own in squares]
            if any(not np.allclose(share, shares[0], rtol=0.0, atol=_EVEN) for share in shares):
                return False
    return True
