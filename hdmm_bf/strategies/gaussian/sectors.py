"""One arbitrary attribute, all others permutation-invariant: the best strategy sector by sector, with its proof.

X = sum_T X_T (x) Pi_T over the seen sets T of the others (see `product_bounds.sectors`). With X_T = N Y_T, N the
cells of the others, and the best Y_T = R_T^T (R_T L_T R_T^T)^(-1/2) R_T for given weights,

    error = sum_T m_T tr(V_T Y_T^+),     edge e of the arbitrary attribute: d_e = sum_T m_T p_e^T Y_T p_e,
    move along i at its cell c: d_ic = sum_{T contains i} 2 n_i / (n_i - 1) m_T (Y_T)_cc,    presence: sum_T m_T
    (Y_T)_cc.

Where component totals are public in a sector, R_T is orthogonal to them and they are measured exactly.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf._types import RealMatrix, RealVector
from hdmm_bf.bounds.products import product_svd_bound
from hdmm_bf.bounds.products.sectors import Sectors, arbitrary_attribute, sectors, sectors_bound
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.strategies.gaussian.ascent import Point, ascent
from hdmm_bf.strategies.gaussian.sketch import Found, Sketch, invariant_sketch, with_totals
from hdmm_bf.strategies.registry import Family
from hdmm_bf.strategies.search import Callback, search

_MAX_STEPS = 5000
WHY = "all attributes but one are complete or public with tables on them, so the optimum splits into small exact parts"

Roots: TypeAlias = list[RealMatrix]
"""For every sector a matrix B with B^T B = Y_T."""


def applies(product: ProductProblem) -> bool:
    """Whether at most one attribute is not permutation-invariant."""
    attribute = arbitrary_attribute(product)
    return attribute is not None and sectors(product, attribute) is not None


def fit(
    product: ProductProblem,
    *,
    gap: float,
    max_seconds: float,
    callback: Callback | None,
    max_steps: int | None = None,
) -> Found:
    """Search the weights until the proven gap is reached."""
    attribute = arbitrary_attribute(product)
    parts = None if attribute is None else sectors(product, attribute)
    assert parts is not None
    svd = product_svd_bound(product)
    if not any(len(sector.root) for sector in parts.sectors) or parts.uniform.size == 0:
        none = tuple(np.zeros((0, parts.n)) for _ in parts.sectors)
        proof = {"kind": "sectors", "attribute": parts.attribute, "weights": parts.uniform}
        return Found(_sketches(product, parts, list(none), 1.0), 0.0, 0.0, svd, FAMILY.name, proof, WHY, "exact")
    steps = ascent(lambda mu: evaluate(parts, mu), parts.uniform / parts.uniform.max())
    with la.threads_for(parts.n):
        found = search(
            steps,
            gap=gap,
            max_seconds=max_seconds,
            max_iterations=min(max_steps or _MAX_STEPS, _MAX_STEPS),
            callback=callback,
            whole_steps=True,
        )
    largest = float(_distances(parts, found.best).max())
    sketches = _sketches(product, parts, found.best, 1 / largest)
    bound = sectors_bound(parts, found.proof)
    proof = {"kind": "sectors", "attribute": parts.attribute, "weights": found.proof}
    return Found(sketches, found.error, bound, svd, FAMILY.name, proof, WHY, found.status)


def evaluate(parts: Sectors, mu: RealVector) -> Point[Roots]:
    """Return f(mu) and the best strategy for given weights."""
    f, trace, roots = 0.0, 0.0, []
    for sector in parts.sectors:
        if not len(sector.root):
            roots.append(np.zeros((0, parts.n)))
            continue
        half = sector.root @ la.symmetric(parts.laplacian(sector, mu))
        values, Q = la.eigen(half @ sector.root.T)
        noise = la.EIGENVALUE_ERROR * values.size * values[-1]
        lengths = np.sqrt(np.maximum(values, noise))
        f += sector.multiplicity * la.root_sum_lower(values)
        trace += sector.multiplicity * float(lengths.sum())
        roots.append((Q / np.sqrt(lengths)).T @ sector.root)
    return Point(f, trace, _distances(parts, roots), roots)


def _distances(parts: Sectors, roots: Roots) -> RealVector:
    """All d: edges of the arbitrary attribute, then its cells forevery kind of move."""
    X = np.zeros((parts.n, parts.n), order="F")
    cells = np.zeros((len(parts.kinds), parts.n))
    for sector, B in zip(parts.sectors, roots, strict=True):
        Y = sector.multiplicity * (B.T @ B)
        X += Y
        cells += sector.pulls[:, None] * np.diag(Y)
    return np.concatenate([parts.forms.distances(X), cells.ravel()])


def _sketches(product: ProductProblem, parts: Sectors, roots: Roots, scale: float) -> tuple[Sketch, ...]:
    found = []
    for sector, B in zip(parts.sectors, roots, strict=True):
        own = with_totals(parts.totals if sector.is_public else parts.totals[:0], B)
        if len(own.matrix):
            found.append(invariant_sketch(product.sizes, sector.attributes, scale, {parts.attribute: own}))
    return tuple(found)


FAMILY = Family(name="sectors", noise="gaussian", structured=True, search=fit, applies=applies)
