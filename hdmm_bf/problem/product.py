"""Product structure: a policy with one factor an attribute and a workload that is a union of products, by their parts.

Nothing here has the size of the domain. Edges of type i are (edge of G_i) x (any cell of the other attributes), and
each term of the workload is a weight times W_1 (x) ... (x) W_d; bounds and strategies for large domains need no more.
A distance threshold above 1 is no Cartesian product: balls of cells are neighbours, and edges change several attributes
at once. It is known by its threshold, and only those who ask for balls get to see it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final
from weakref import WeakKeyDictionary

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf._types import EdgeArray, SquareMatrix
from hdmm_bf.matrix import Identity, Incidence, Kronecker, Matrix, Ones, Stack, Weighted
from hdmm_bf.policy import BOTTOM, Policy, threshold
from hdmm_bf.policy.constructors import ball_threshold
from hdmm_bf.problem.transform import Problem


@final
@dataclass(frozen=True, eq=False)
class Term:
    """weight times the Kronecker product of one matrix an attribute."""

    weight: float
    factors: tuple[Matrix, ...]

    @cached_property
    def grams(self) -> tuple[SquareMatrix, ...]:
        """W_i^T W_i, one an attribute; the weight is not in them."""
        return tuple(factor.gram() for factor in self.factors)


@final
@dataclass(frozen=True, eq=False)
class ProductProblem:
    """A workload under a policy, both by their factors.

    Attributes:
        problem: the same thing, whole.
        sizes: number of values of every attribute.
        edges: the edges of every attribute's policy (BOTTOM is -1 and second); empty where it is public.
        terms: the workload, times the weights of its queries, is the stack of these.
        threshold: None for a Cartesian product. Else all cells at L1 distance 1 to this are neighbours, and `edges` are
            those that change one attribute alone: a part of the policy, with the same public totals.
    """

    problem: Problem
    sizes: tuple[int, ...]
    edges: tuple[EdgeArray, ...]
    terms: tuple[Term, ...]
    threshold: int | None = None

    @property
    def has_bottom(self) -> bool:
        """Whether some edge hides the presence of a record."""
        return any(bool(np.any(edges[:, 1] == BOTTOM)) for edges in self.edges)

    def is_public(self, attribute: int) -> bool:
        """Whether no edge moves a record along an attribute."""
        return len(self.edges[attribute]) == 0

    def is_complete(self, attribute: int) -> bool:
        """Whether every two values of an attribute are neighbours, and nothing else."""
        n = self.sizes[attribute]
        edges = self.edges[attribute]
        return n > 1 and len(edges) == n * (n - 1) // 2 and not np.any(edges[:, 1] == BOTTOM)


def incidence(product: ProductProblem, attribute: int) -> Incidence:
    """Return the edges of an attribute as a matrix from edges to values."""
    head, tail = product.edges[attribute].T
    return Incidence(head, tail, product.sizes[attribute])


_VIEWS: WeakKeyDictionary[Problem, ProductProblem | None] = WeakKeyDictionary()


def product_view(problem: Problem, *, balls: bool = False) -> ProductProblem:
    """Return a problem by its factors; refused when it has no product structure."""
    view = as_product(problem, balls=balls)
    if view is None:
        spec = f"{problem.workload.title} under {problem.policy.title}"
        raise fail("problem", spec, "has no product structure", "Use a product policy and a workload of products.")
    return view


def as_product(problem: Problem, *, balls: bool = False) -> ProductProblem | None:
    """Take a problem apart, once, or return None when its policy or its workload has no product structure.

    Args:
        problem: a workload under a policy.
        balls: also take distance thresholds above 1 apart, whose edges change several attributes at once.
    """
    if problem not in _VIEWS:
        _VIEWS[problem] = _apart(problem)
    view = _VIEWS[problem]
    return view if view is None or view.threshold is None or balls else None


def _apart(problem: Problem) -> ProductProblem | None:
    sizes = problem.policy.domain.sizes
    factors, limit = _policy_factors(problem.policy), None
    if factors is None:
        limit = ball_threshold(problem.policy)
        factors = None if limit is None else tuple(threshold(size, limit) for size in sizes)
    terms = None if factors is None else product_terms(problem.workload.objective, sizes)
    if factors is None or terms is None:
        return None
    written = terms if not problem.workload.is_weighted else product_terms(problem.workload.matrix, sizes)
    if written is None or len(written) != len(terms):  # weights that cut across the products
        return None
    return ProductProblem(problem, sizes, tuple(f.edges for f in factors), terms, limit)


def _policy_factors(policy: Policy) -> tuple[Policy, ...] | None:
    if policy.domain.num_attributes == 1:
        return (policy,)
    return policy.factors


def product_terms(matrix: Matrix, sizes: tuple[int, ...]) -> tuple[Term, ...] | None:
    """Return queries as a stack of products over attributes of the given sizes, or None."""
    return _terms(matrix, sizes, 1.0)


def _terms(matrix: Matrix, sizes: tuple[int, ...], weight: float) -> tuple[Term, ...] | None:
    if isinstance(matrix, Stack):
        parts = [_terms(block, sizes, weight) for block in matrix.blocks]
        known = [part for part in parts if part is not None]
        return tuple(term for part in known for term in part) if len(known) == len(parts) else None
    if isinstance(matrix, Weighted) and matrix.weights.size == 1:
        return _terms(matrix.inner, sizes, weight * float(matrix.weights[0]))
    if len(sizes) == 1:
        return (Term(weight, (matrix,)),)
    if isinstance(matrix, Kronecker) and tuple(f.shape[1] for f in matrix.factors) == sizes:
        return (Term(weight, matrix.factors),)
    if isinstance(matrix, Identity | Ones):
        return (Term(weight, tuple(type(matrix)(size) for size in sizes)),)
    return None
