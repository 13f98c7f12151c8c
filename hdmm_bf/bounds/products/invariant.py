"""Attributes whose values can be permuted: what the algebra of I and J = 1 1^T sees of them.

A Gram matrix a I + b J has two eigenvalues, one on the ones vector and one on its complement, the contrasts.
Averaging a strategy over the permutations of an attribute's values changes neither error nor sensitivity where the
policy and all Gram matrices are invariant. Hence the best strategy is a sum over sets T of attributes of something
(x) Pi_T,

    Pi_T = (x)_{i in T} (I - J / n_i)  (x)_{i not in T} J / n_i,      rank m_T = prod_{i in T} (n_i - 1),

and only the sets T that some query sees matter. All numbers here are divided by N = prod n_i: none is huge.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from hdmm_bf._linalg import ROUNDING
from hdmm_bf._types import EdgeArray, RealVector
from hdmm_bf.matrix import Identity, Matrix, Ones
from hdmm_bf.policy import BOTTOM
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.workload.boxes import AllRange, Prefix

_MOST_SETS = 100_000


class Eigenvalues(NamedTuple):
    """Of a I + b J: on the contrasts (a) and on the ones vector (a + n b)."""

    contrasts: float
    ones: float


def gram_eigenvalues(factor: Matrix) -> Eigenvalues | None:
    """Return the eigenvalues of a permutation-invariant Gram matrix, or None where it is not invariant."""
    n = factor.shape[1]
    if isinstance(factor, Identity):
        return Eigenvalues(1.0, 1.0)
    if isinstance(factor, Ones):
        return Eigenvalues(0.0, float(n))
    V = factor.gram()
    b = float(V[0, 1]) if n > 1 else 0.0
    a = float(V[0, 0]) - b
    same = np.abs(V - (a * np.eye(n) + b)).max() <= ROUNDING * np.abs(V).max()
    return Eigenvalues(a, a + n * b) if same else None


def inner(edges: EdgeArray) -> EdgeArray:
    """Return the edges between two values."""
    return np.asarray(edges[edges[:, 1] != BOTTOM])


def has_star(product: ProductProblem, attribute: int) -> bool:
    """Whether every value of an attribute has an edge to BOTTOM, so that every record's presence is hidden."""
    return len(product.edges[attribute]) - len(inner(product.edges[attribute])) == product.sizes[attribute]


def is_even(product: ProductProblem, attribute: int) -> bool:
    """Whether BOTTOM is tied to all values of an attribute or to none."""
    return has_star(product, attribute) or not np.any(product.edges[attribute][:, 1] == BOTTOM)


def is_invariant_policy(product: ProductProblem, attribute: int) -> bool:
    """Whether an attribute's policy is complete or empty, with or without BOTTOM tied to every value."""
    n, count = product.sizes[attribute], len(inner(product.edges[attribute]))
    return is_even(product, attribute) and count in (0, n * (n - 1) // 2)


def is_invariant(product: ProductProblem, attribute: int) -> bool:
    """Whether nothing in the policy or the workload changes when an attribute's values are permuted."""
    factors, _ = unique_factors(product, attribute)
    return is_invariant_policy(product, attribute) and all(gram_eigenvalues(f) is not None for f in factors)


def unique_factors(product: ProductProblem, attribute: int) -> tuple[list[Matrix], list[int]]:
    """Return the different factors of an attribute and, for every term, which of them it has."""
    found: dict[object, int] = {}
    factors: list[Matrix] = []
    numbers: list[int] = []
    for term in product.terms:
        factor = term.factors[attribute]
        key = factor if isinstance(factor, Identity | Ones | AllRange | Prefix) else id(factor)
        if key not in found:
            found[key] = len(factors)
            factors.append(factor)
        numbers.append(found[key])
    return factors, numbers


class SeenSet(NamedTuple):
    """A set T of attributes that some query sees.

    Attributes:
        attributes: T.
        multiplicity: m_T.
        shares: for every term of the workload its weight^2 prod_{i in T} a_i / n_i prod_{i not in T} (a_i / n_i + b_i).
    """

    attributes: tuple[int, ...]
    multiplicity: float
    shares: RealVector


def seen_sets(product: ProductProblem, attributes: Iterable[int]) -> list[SeenSet] | None:
    """Return the sets T of invariant attributes that some term sees; None where they are too many to list."""
    own = tuple(attributes)
    columns = [_eigenvalues(product, i) for i in own]
    known = [c for c in columns if c is not None]
    if len(known) < len(own):
        return None
    contrasts = np.array([c for c, _ in known]).reshape(len(own), len(product.terms))
    ones = np.array([o for _, o in known]).reshape(len(own), len(product.terms))
    tables = {tuple(np.flatnonzero(seen).tolist()) for seen in (contrasts > 0).T}
    if sum(2 ** len(table) for table in tables) > _MOST_SETS:
        return None
    squares = np.array([term.weight**2 for term in product.terms])
    found = []
    for T in sorted({T for table in tables for T in _below(table)}, key=lambda T: (len(T), T)):
        inside = np.isin(np.arange(len(own)), T)[:, None]
        shares = squares * np.where(inside, contrasts, ones).prod(axis=0)
        chosen = tuple(own[i] for i in T)
        found.append(SeenSet(chosen, float(np.prod([product.sizes[i] - 1.0 for i in chosen])), shares))
    return found


def _eigenvalues(product: ProductProblem, attribute: int) -> tuple[RealVector, RealVector] | None:
    """Eigenvalues over n, for every term, on the contrasts and on the ones; one value has no contrasts."""
    n = product.sizes[attribute]
    factors, numbers = unique_factors(product, attribute)
    pairs = [gram_eigenvalues(f) for f in factors]
    known = [p for p in pairs if p is not None]
    if len(known) < len(pairs):
        return None
    contrasts, ones = np.array(known).T / n
    return contrasts[numbers] * (n > 1), ones[numbers]


def _below(table: tuple[int, ...]) -> Iterable[tuple[int, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(table, k) for k in range(len(table) + 1))
