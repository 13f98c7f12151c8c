"""Dual bound where one attribute is arbitrary and the values of all others can be permuted.

For every seen set T of the other attributes (see `invariant`) the problem is one over the arbitrary attribute, with n
cells:

    V_T = sum_t share_tT V_t,     L_T(mu) = L(mu_edges) + diag( sum_{i in T} 2 n_i / (n_i - 1) mu_i + mu_0 )
    f(mu) = sum_T m_T tr (V_T^(1/2) L_T V_T^(1/2))^(1/2),         f(mu)^2 <= unit error of every strategy

with weights mu_edges on the edges of the arbitrary attribute and mu_i, one a cell, on moves along i (mu_0: to BOTTOM).
Where no sensitive attribute is in T and nothing leads to BOTTOM, the totals of the components are public: V_T is taken
orthogonally to their indicators. The best weights are attained by a Gaussian strategy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from hdmm_bf import _linalg as la
from hdmm_bf._types import RealMatrix, RealVector, SquareMatrix
from hdmm_bf.bounds.products.invariant import has_star, inner, is_invariant, seen_sets, unique_factors
from hdmm_bf.matrix import Incidence
from hdmm_bf.problem.forms import EdgeForms, edge_forms
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.problem.public_totals import indicators


class Sector(NamedTuple):
    """One set T.

    Attributes:
        attributes: T.
        multiplicity: m_T.
        root: R with R^T R = V_T, rank x n.
        pulls: how the cell weights of every kind enter L_T.
        is_public: whether component totals are public in this sector; then R is orthogonal to their indicators.
    """

    attributes: tuple[int, ...]
    multiplicity: float
    root: RealMatrix
    pulls: RealVector
    is_public: bool


class Sectors(NamedTuple):
    """The whole problem.

    Attributes:
        attribute: the arbitrary one.
        forms: its edges, those to BOTTOM included.
        kinds: attributes whose moves have cell weights; -1 for BOTTOM.
        sectors: the sets T.
        totals: indicators of the arbitrary attribute's public components, one a row.
        edges: number of edges that share the weight of one edge, then of one cell of every kind, over the cells of the
            other attributes.
    """

    attribute: int
    forms: EdgeForms
    kinds: tuple[int, ...]
    sectors: tuple[Sector, ...]
    totals: RealMatrix
    edges: RealVector

    @property
    def n(self) -> int:
        """Number of values of the arbitrary attribute."""
        return self.forms.n

    def laplacian(self, sector: Sector, mu: RealVector) -> SquareMatrix:
        """Return L_T(mu), lower triangle."""
        e = self.forms.num_edges
        L = self.forms.laplacian(mu[:e])
        L[np.diag_indices(self.n)] += sector.pulls @ mu[e:].reshape(len(self.kinds), self.n)
        return L

    @property
    def uniform(self) -> RealVector:
        """Equal weights on all edges of the policy, sum 1."""
        sizes = [self.forms.num_edges, *[self.n] * len(self.kinds)]
        mu = np.repeat(self.edges, sizes)
        return np.asarray(mu / mu.sum())


def arbitrary_attribute(product: ProductProblem) -> int | None:
    """Return the one attribute that is not invariant (the last one if all are), or None where there are several."""
    others = [i for i in range(len(product.sizes)) if not is_invariant(product, i)]
    return None if len(others) > 1 else (others or [len(product.sizes) - 1])[0]


def sectors(product: ProductProblem, attribute: int) -> Sectors | None:
    """Prepare f(mu), or return None where other attributes are not invariant."""
    others = [i for i in range(len(product.sizes)) if i != attribute]
    sets = seen_sets(product, others) if all(is_invariant(product, i) for i in others) else None
    if sets is None:
        return None
    moved = tuple(i for i in others if len(inner(product.edges[i])))
    kinds = (*moved, -1) if any(has_star(product, i) for i in others) else moved
    totals = indicators(product.edges[attribute], product.sizes[attribute])
    factors, numbers = unique_factors(product, attribute)
    grams = np.array([factor.gram() for factor in factors])
    apart = np.array([_without(gram, totals) for gram in grams])  # before they are added: a heavy total drowns nothing
    found = []
    for T in sets:
        pulls = [_pull(product, i, T.attributes) for i in kinds]
        is_public = not any(pulls)
        V = np.tensordot(np.bincount(numbers, T.shares, len(factors)), apart if is_public else grams, axes=1)
        R = _root(V)
        found.append(Sector(T.attributes, T.multiplicity, R, np.array(pulls, dtype=np.float64), is_public))
    own = product.edges[attribute]
    forms = edge_forms(Incidence(own[:, 0], own[:, 1], product.sizes[attribute]))
    counts = [1.0, *(1.0 if i < 0 else len(inner(product.edges[i])) / product.sizes[i] for i in kinds)]
    return Sectors(attribute, forms, kinds, tuple(found), totals, np.array(counts))


def _pull(product: ProductProblem, kind: int, T: tuple[int, ...]) -> float:
    if kind < 0:
        return 1.0
    n = product.sizes[kind]
    return 2.0 * n / (n - 1) if kind in T else 0.0


def _without(V: SquareMatrix, rows: RealMatrix) -> SquareMatrix:
    """Return V between vectors orthogonal to the rows, which have disjoint supports."""
    U = rows / np.linalg.norm(rows, axis=1)[:, None]
    half = V - U.T @ (U @ V)
    found = half - (half @ U.T) @ U
    is_rounding = np.abs(found).max() <= la.RANK_TOLERANCE * len(V) * np.abs(V).max()
    return np.zeros_like(V) if is_rounding else np.asarray((found + found.T) / 2)


def _root(V: SquareMatrix) -> RealMatrix:
    """R with R^T R = V, rank x n; eigenvalues that are rounding are left out."""
    values, U = la.eigen(V)
    kept = values > la.RANK_TOLERANCE * len(V) * max(float(values[-1]), 0.0)
    return np.asarray((U[:, kept] * np.sqrt(values[kept])).T)


def sectors_bound(problem: Sectors, weights: Float64[np.ndarray, " w"]) -> float:
    """Return f(mu)^2, rounded down; weights are on the edges, then on the cells of every kind, and scaled to sum 1."""
    mu = np.maximum(weights, 0.0)
    total = float(mu.sum())
    if not total > 0:
        return 0.0
    f = 0.0
    for sector in problem.sectors:
        if len(sector.root):
            half = sector.root @ la.symmetric(problem.laplacian(sector, mu / total))
            values, _ = la.eigen(half @ sector.root.T)
            f += sector.multiplicity * la.root_sum_lower(values)
    return f * f
