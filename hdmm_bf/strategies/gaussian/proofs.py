"""Proofs for problems whose optimum is not known: the best of the bounds that can be evaluated exactly."""

from __future__ import annotations

from functools import partial

from hdmm_bf import _linalg as la
from hdmm_bf._types import Proof, RealVector
from hdmm_bf.bounds.dense import is_public, uniform
from hdmm_bf.bounds.products import proof_bound
from hdmm_bf.bounds.products.grid import as_grid
from hdmm_bf.bounds.products.grid import best_weights as grid_weights
from hdmm_bf.bounds.products.kronecker import is_kronecker, moved_attributes, uniform_weights
from hdmm_bf.bounds.products.typed import best_weights, typed
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.strategies.gaussian import dense as gaussian
from hdmm_bf.strategies.gaussian.ball_weights import ball_proof
from hdmm_bf.strategies.gaussian.folded_weights import folded_proof
from hdmm_bf.strategies.gaussian.kronecker import attribute_problem
from hdmm_bf.strategies.search import search

_GAP, _STEPS = 1e-2, 30


def best_proof(product: ProductProblem) -> tuple[float | None, Proof | None]:
    """Return the largest bound among the kinds that fit the problem, and its proof."""
    own = special(product)
    bound = None if own is None else proof_bound(product, own)
    if bound is not None and product.threshold is None:
        return bound, own
    parts = None if is_kronecker(product) else ball_proof(product) or folded_proof(product)
    made = [own, parts, *map(partial(_one_attribute, product), moved_attributes(product))]
    found = [(b, p) for p in made if p is not None and (b := proof_bound(product, p))]
    return max(found, key=lambda pair: pair[0], default=(None, None))


def special(product: ProductProblem) -> Proof | None:
    """Return the proof for tables or grids, without its bound; None for other problems."""
    types = typed(product)
    if types is not None:
        return {"kind": "types", "weights": best_weights(types)}
    if product.threshold is None and as_grid(product) is not None:  # longer edges than a line's have no core
        cells, ratio = grid_weights(product)
        return {"kind": "grid", "cells": list(cells), "types": list(ratio)}
    return None


def _one_attribute(product: ProductProblem, attribute: int) -> Proof:
    """All weight on the edges of one attribute: loose by up to the number of attributes, but always there."""
    weights = uniform_weights(product, attribute)
    if len(product.terms) == 1:
        weights = [_weights(product, i, attribute) for i in range(len(product.sizes))]
    return {"kind": "kronecker", "attribute": attribute, "weights": weights}


def _weights(product: ProductProblem, i: int, attribute: int) -> RealVector:
    problem = attribute_problem(product, i, attribute)
    if is_public(problem):  # no edge moves the queries: no weights prove anything
        return uniform(problem.policy.num_edges)
    with la.threads_for(problem.policy.num_cells):
        return search(gaussian.steps(problem, gap=_GAP), gap=_GAP, max_iterations=_STEPS).proof
