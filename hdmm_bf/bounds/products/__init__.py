"""Lower bounds for large product domains, where they can be evaluated exactly without writing the domain out.

Every bound is f(mu)^2 for weights mu on the edges (see `hdmm_bf.bounds`), of a form that makes f computable. A
*proof* is a plain dictionary of numbers and arrays that the search evaluates with `product_bound`, and the certificate
again with code of its own (`certificate.duals`):

    kind "types"      weights: one a type of edge (attributes with edges, then BOTTOM)
    kind "sectors"    attribute, weights: on its edges, then one a cell for every kind of move of the others
    kind "kronecker"  attribute, weights: a list, on its edges and on the cells of every other attribute
    kind "grid"       cells: two profiles over the cells, types: two weights
    kind "folded"     edges, cells: a list each, on the edges and on the cells of every attribute; types: a weight each
    kind "balls"      scales: one a class of edges; pairs: a list, on the pairs of values of every class and attribute

All weights but the last are on edges that change one attribute. Under a distance threshold above 1 there are others
too, and these bounds hold all the more: a policy of fewer edges has no larger error. Kind "balls" is on all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf._types import EdgeArray, Proof, RealVector
from hdmm_bf.bounds.products import balls, folded, grid, kronecker, sectors, typed
from hdmm_bf.matrix import Identity
from hdmm_bf.policy import BOTTOM
from hdmm_bf.problem.product import ProductProblem, Term


class ProductBounds(NamedTuple):
    """What no strategy can beat, for sensitivity 1; None where it cannot be evaluated."""

    svd: float | None
    """The paper's SVD bound: equal weights on all edges."""
    lower: float | None
    """The best bound known: the proof's, or the SVD bound."""


def product_bound(product: ProductProblem, proof: Proof | None = None) -> ProductBounds:
    """Evaluate the SVD bound and the bound of a proof, rounded down.

    Guarantees:
        No strategy of L2 (hence of L1) sensitivity 1 has a smaller unit error than `lower`. Nothing is estimated by
        sampling.
    """
    if is_public(product):
        return ProductBounds(0.0, 0.0)
    svd = product_svd_bound(product)
    found = [b for b in (svd, None if proof is None else proof_bound(product, proof)) if b is not None]
    return ProductBounds(svd, max(found, default=None))


def is_public(product: ProductProblem) -> bool:
    """Whether no edge moves any query, exactly: rounded eigenvalues of zero would prove a bound above it."""
    moving = (
        moves(term, i, edges)
        for term in product.terms
        if term.weight != 0
        for i, edges in enumerate(product.edges)
        if len(edges)
    )
    return not any(moving)


def moves(term: Term, attribute: int, edges: EdgeArray) -> bool:
    """Whether an edge changes the factor of an attribute: d^T V d for d = e_u - e_v, or e_u where v is BOTTOM."""
    if isinstance(term.factors[attribute], Identity):
        return True
    V = term.grams[attribute]
    u, v = edges.T
    paired = v != BOTTOM
    squares = V[u, u].copy()
    squares[paired] += V[v[paired], v[paired]] - 2 * V[u[paired], v[paired]]
    return bool(np.any(squares != 0))


def proof_bound(product: ProductProblem, proof: Proof) -> float | None:
    """Return the bound that a proof's weights give; None where its kind does not fit the problem."""
    kind = proof.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        advice = "Use types, sectors, kronecker, grid, folded or balls."
        raise fail("bounds.proof", f"kind={kind!r}", "is not a kind of proof", advice)
    return _KINDS[kind](product, proof)


def _of_types(product: ProductProblem, proof: Proof) -> float | None:
    types = typed.typed(product)
    return None if types is None else typed.typed_bound(types, _vector(proof["weights"], len(types.attributes)))


def _of_sectors(product: ProductProblem, proof: Proof) -> float | None:
    parts = sectors.sectors(product, int(proof["attribute"]))
    return None if parts is None else sectors.sectors_bound(parts, _vector(proof["weights"], parts.uniform.size))


def _of_kronecker(product: ProductProblem, proof: Proof) -> float | None:
    attribute = int(proof["attribute"])
    sizes = [mu.size for mu in kronecker.uniform_weights(product, attribute)]
    weights = [_vector(mu, size) for mu, size in zip(proof["weights"], sizes, strict=True)]
    if not all(mu.any() for mu in weights):  # which are scaled to sum 1
        raise fail("bounds.proof", "weights of zero", "prove nothing", "Use the weights of the proof.")
    return kronecker.kronecker_bound(product, attribute, weights)


def _of_grid(product: ProductProblem, proof: Proof) -> float | None:
    parts = grid.as_grid(product)
    first, second = (_vector(d, n) for d, n in zip(proof["cells"], product.sizes, strict=True))
    one, two = map(float, proof["types"])
    return None if parts is None else grid.grid_bound(parts, (first, second), (one, two))


def _of_folded(product: ProductProblem, proof: Proof) -> float | None:
    edges = tuple(_vector(mu, len(e)) for mu, e in zip(proof["edges"], product.edges, strict=True))
    cells = tuple(_vector(d, n) for d, n in zip(proof["cells"], product.sizes, strict=True))
    return folded.folded_bound(product, folded.Weights(edges, cells, _vector(proof["types"], len(cells))))


def _of_balls(product: ProductProblem, proof: Proof) -> float | None:
    if product.threshold is None:
        return None
    far, d = balls.classes(product), len(product.sizes)
    sizes = [n - s for own in far for n, s in zip(product.sizes, own, strict=True)]
    pairs = [_vector(b, size) for b, size in zip(proof["pairs"], sizes, strict=True)]
    own = tuple(tuple(pairs[k * d : (k + 1) * d]) for k in range(len(far)))
    return balls.ball_bound(product, balls.PairWeights(_vector(proof["scales"], len(far)), own))


_KINDS = {
    "types": _of_types,
    "sectors": _of_sectors,
    "kronecker": _of_kronecker,
    "grid": _of_grid,
    "folded": _of_folded,
    "balls": _of_balls,
}


def _vector(weights: object, size: int) -> RealVector:
    mu = np.asarray(weights, dtype=np.float64)
    if mu.shape != (size,) or not np.all(np.isfinite(mu)) or mu.min(initial=0.0) < 0:
        shown = f"weights of shape {mu.shape}"
        raise fail("bounds.proof", shown, f"must be {size} numbers, none negative", "Use the weights of the proof.")
    return mu


def product_svd_bound(product: ProductProblem) -> float | None:
    """Return the SVD bound from the factors, or None where the problem has none of the forms above."""
    if is_public(product):
        return 0.0
    if product.threshold is not None:
        return balls.ball_bound(product, balls.equal_weights(product))
    if kronecker.is_kronecker(product):
        attribute = kronecker.moved_attributes(product)[0]
        return kronecker.kronecker_bound(product, attribute, kronecker.uniform_weights(product, attribute))
    types = typed.typed(product)
    if types is not None:
        return typed.typed_bound(types, types.edges)
    attribute_or_none = sectors.arbitrary_attribute(product)
    problem = None if attribute_or_none is None else sectors.sectors(product, attribute_or_none)
    if problem is not None:
        return sectors.sectors_bound(problem, problem.uniform)
    parts = grid.as_grid(product)
    if parts is not None:
        first, second = product.sizes
        return grid.grid_bound(parts, (np.ones(first), np.ones(second)))
    return None
