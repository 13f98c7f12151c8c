"""Weights for the bound in folded parts: searched on a smaller problem of the same kind, where there is one.

Profiles t^a (1 - t)^b over the cells of every attribute and weights of the attributes are searched together; then, for
the edges of each, equal weights or those of the optimum for this attribute by itself are chosen.
"""

from __future__ import annotations

import math

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf._types import Proof, RealVector
from hdmm_bf.bounds.dense import is_public, uniform
from hdmm_bf.bounds.products.folded import LARGEST, Weights, folded_bound, parities, side, smaller, symmetric_edges
from hdmm_bf.bounds.products.grid import highest, profile
from hdmm_bf.bounds.products.kronecker import moved_attributes
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.gaussian import dense as gaussian
from hdmm_bf.strategies.gaussian.kronecker import attribute_problem
from hdmm_bf.strategies.search import search

_SEARCH_SIDE, _MOST_SEARCHED = 100, 250
"""Side of the parts on which weights are searched, and beyond which none are."""
_SMALLEST = 4
_GAP, _STEPS = 1e-3, 60


def folded_proof(product: ProductProblem) -> Proof | None:
    """Return weights for the bound, or None where its parts are too large or no attribute has edges."""
    if not moved_attributes(product) or side(product) > LARGEST:
        return None
    small = smaller(product, _SEARCH_SIDE, smallest=_SMALLEST)
    knobs = _Knobs(small)
    if side(small) <= _MOST_SEARCHED:
        knobs.search()
    w = knobs.weights(product)
    return {"kind": "folded", "edges": list(w.edges), "cells": list(w.cells), "types": w.types}


class _Knobs:
    """Numbers that are turned: two exponents an attribute, its weight, and which weights its edges have."""

    def __init__(self, product: ProductProblem) -> None:
        d = len(product.sizes)
        self.product, self.moved = product, moved_attributes(product)
        self.tied = [len(bases) > 1 for bases in parities(product)]
        self.exponents, self.logs = np.zeros((d, 2)), np.zeros(d)
        self.own = [False] * d
        self._edges: dict[tuple[int, int], RealVector] = {}

    def weights(self, product: ProductProblem) -> Weights:
        """Return the weights that the numbers stand for, on a problem of any size."""
        cells = [profile(n, *self.exponents[i].tolist()) for i, n in enumerate(product.sizes)]
        edges = tuple(self._edge_weights(product, i) for i in range(len(cells)))
        types = np.array([math.exp(self.logs[i]) if i in self.moved else 0.0 for i in range(len(cells))])
        return Weights(edges, tuple(cells), types)

    def _edge_weights(self, product: ProductProblem, i: int) -> RealVector:
        e = len(product.edges[i])
        if not self.own[i]:
            return np.full(e, 1.0 / max(e, 1))
        key = i, product.sizes[i]
        if key not in self._edges:
            found = _optimal_edges(product, i)
            self._edges[key] = symmetric_edges(product, i, found) if self.tied[i] else found
        return self._edges[key]

    def value(self) -> float:
        """Return the bound at the present numbers."""
        return folded_bound(self.product, self.weights(self.product)) or 0.0

    def search(self) -> None:
        """Turn all exponents and weights together, then choose the edges of each attribute."""
        free = [(i, own) for i, tied in enumerate(self.tied) for own in ([(0, 1)] if tied else [(0,), (1,)])]
        start = np.zeros(len(free) + len(self.moved) - 1)

        def turn(numbers: RealVector) -> float:
            for (i, own), number in zip(free, numbers.tolist(), strict=False):
                self.exponents[i, list(own)] = number
            self.logs[list(self.moved[1:])] = numbers[len(free) :]
            return self.value()

        before = turn(start)
        found = highest(turn, start)
        if turn(found) < before:
            turn(start)
        for i in self.moved:
            before = self.value()
            self.own[i] = True
            self.own[i] = self.value() > before


def _optimal_edges(product: ProductProblem, i: int) -> RealVector:
    """The weights of the Gaussian optimum for one attribute alone, all terms together."""
    problem = attribute_problem(product, i, i)
    if len(product.terms) > 1:
        from hdmm_bf.matrix import Stack, Weighted

        parts = tuple(Weighted(np.array([abs(term.weight)]), term.factors[i]) for term in product.terms)
        problem = Problem(type(problem.workload)(Stack(parts), problem.workload.domain, "factor", str), problem.policy)
    if is_public(problem):
        return uniform(problem.policy.num_edges)
    with la.threads_for(problem.policy.num_cells):
        return search(gaussian.steps(problem, gap=_GAP), gap=_GAP, max_iterations=_STEPS).proof
