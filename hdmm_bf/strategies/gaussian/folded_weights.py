"""Weights for the bound in folded parts: searched on a smaller problem of the same kind, where there is one.

Three choices, one number after the other: profiles t^a (1 - t)^b over the cells of every attribute, weights of the
attributes, and, for the edges of each, equal weights or those of the optimum for this attribute by itself.
"""

from __future__ import annotations

import math

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf._types import Proof, RealVector
from hdmm_bf.bounds.dense import is_public, uniform
from hdmm_bf.bounds.products.folded import LARGEST, Weights, folded_bound, parities, side, smaller, symmetric_edges
from hdmm_bf.bounds.products.grid import golden, profile
from hdmm_bf.bounds.products.kronecker import moved_attributes
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.gaussian import dense as gaussian
from hdmm_bf.strategies.gaussian.kronecker import attribute_problem
from hdmm_bf.strategies.search import search

_SEARCH_SIDE, _MOST_SEARCHED = 100, 250
"""Side of the parts on which weights are searched, and beyond which none are."""
_SMALLEST = 4
_ROUNDS = 2
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
        """Turn one number after the other."""
        for _ in range(_ROUNDS):
            for i in range(len(self.tied)):
                self._turn_exponents(i)
            for i in self.moved[1:]:
                self._turn(self.logs, (i,))
        for i in self.moved:
            before = self.value()
            self.own[i] = True
            self.own[i] = self.value() > before

    def _turn_exponents(self, i: int) -> None:
        for side_ in [(i,)] if self.tied[i] else [(i, 1), (i, 0)]:
            self._turn(self.exponents, side_)

    def _turn(self, numbers: np.ndarray, place: tuple[int, ...]) -> None:
        before, value = numbers[place].copy(), self.value()

        def at(number: float) -> float:
            numbers[place] = number
            return self.value()

        numbers[place] = golden(at)
        if self.value() < value:
            numbers[place] = before


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
