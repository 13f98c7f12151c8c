"""Factors for every attribute, and blocks that join several: which of them hide every move once at the least error."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias, final

import numpy as np

from hdmm_bf._types import RealVector
from hdmm_bf.bounds.products.kronecker import moved_attributes
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.strategies.gaussian.sketch import JoinedSketch, Sketch
from hdmm_bf.strategies.laplace import factors as made
from hdmm_bf.strategies.laplace.directions.drafts import NAME, SumDraft
from hdmm_bf.strategies.laplace.factors import Factor

_MINOR = 0.1
"""Share of the error along another attribute below which rows for an attribute wait for it."""


@final
class Candidates:
    """Factors for every attribute, as its own and as a star, with their errors in every term of the workload."""

    def __init__(self, product: ProductProblem) -> None:
        self.product, self.moved = product, moved_attributes(product)
        self.squares = np.array([term.weight**2 for term in product.terms])
        self.stars: list[list[Factor]] = [[] for _ in product.sizes]
        self.owns: list[list[Factor]] = [[] for _ in product.sizes]
        self._errors: dict[int, tuple[Factor, RealVector]] = {}
        self.joined: dict[tuple[int, ...], tuple[JoinedSketch, float]] = {}
        self._searched: dict[tuple[int, ...], int] = {}
        self.searching: set[int] = set()
        for i, (edges, n) in enumerate(zip(product.edges, product.sizes, strict=True)):
            self.stars[i] += made.stars(n)
            self.owns[i] += made.owns(edges, n) if i in self.moved else []

    def errors(self, attribute: int, factor: Factor) -> RealVector:
        """Return tr(V_t Y) for every term; what is below zero is rounding."""
        if id(factor) not in self._errors:
            found = [max(float(np.vdot(t.grams[attribute], factor.covariance)), 0.0) for t in self.product.terms]
            self._errors[id(factor)] = factor, np.array(found)
        return self._errors[id(factor)][1]

    def offer(self, attribute: int, sketch: JoinedSketch, error: float) -> None:
        """Keep a joined block that a search for one attribute found, if it is the best for what it hides."""
        known = self.joined.get(sketch.hides)
        if error > 0 and (known is None or error < known[1]):
            self.joined[sketch.hides], self._searched[sketch.hides] = (sketch, error), attribute

    def is_taken_in(self, attribute: int) -> bool:
        """Whether the moves along an attribute are hidden best by what a search for another one found."""
        found = self.best()
        blocks = () if found is None else found.sketches
        own = [sketch.hides for sketch in blocks if isinstance(sketch, JoinedSketch) and attribute in sketch.hides]
        return any(self._searched[hides] != attribute for hides in own)

    def is_minor(self, attribute: int) -> bool:
        """Whether little error is left along an attribute while rows are searched for another one that has far more."""
        left = {i: self._least_alone(i) for i in self.moved}
        others = [left[i] for i in self.searching - {attribute}]
        return left[attribute] < _MINOR * max(others, default=0.0)

    def _least_alone(self, attribute: int) -> float:
        """The least error of a block that hides one attribute alone."""
        known = [self._block(attribute, None, None), self.joined.get((attribute,))]
        return min((part[1] for part in known if part is not None), default=math.inf)

    def best(self, own: str | None = None, star: str | None = None, name: str = NAME) -> SumDraft | None:
        """Return the sum of the best blocks, of factors of given names or of any; None where there are none."""
        alone = {i: self._block(i, own, star) for i in self.moved}
        parts: dict[tuple[int, ...], tuple[Sketch | JoinedSketch, float]] = {
            (i,): part for i, part in alone.items() if part is not None
        }
        if own is None and star is None:
            parts |= {h: part for h, part in self.joined.items() if h not in parts or part[1] < parts[h][1]}
        found = _cheapest(parts, frozenset(self.moved))
        return None if found is None else SumDraft(tuple(part[0] for part in found), _sum(found), name)

    def _block(self, i: int, own: str | None, star: str | None) -> tuple[Sketch, float] | None:
        """The best factors for the moves along one attribute, one attribute after the other until nothing changes."""
        wanted = [
            [f for f in (self.owns[k] if k == i else self.stars[k]) if (own if k == i else star) in (None, f.name)]
            for k in range(len(self.product.sizes))
        ]
        if not all(wanted):
            return None
        chosen = [self.least(k, those) for k, those in enumerate(wanted)]
        least = math.inf
        while (error := self._error(chosen)) < least * (1 - 1e-12):
            least = error
            for k, those in enumerate(wanted):
                options = [[*chosen[:k], factor, *chosen[k + 1 :]] for factor in those]
                chosen = min(options, key=self._error)
        return _sketch(chosen, i, alone=len(self.moved) == 1), least

    def least(self, attribute: int, those: Sequence[Factor]) -> Factor:
        """Return the factor of least error over all terms."""
        return min(those, key=lambda factor: float(self.errors(attribute, factor).sum()))

    def _error(self, chosen: Sequence[Factor]) -> float:
        every = [self.errors(k, factor) for k, factor in enumerate(chosen)]
        return float((self.squares * np.prod(every, axis=0)).sum())


_Part: TypeAlias = tuple[Sketch | JoinedSketch, float]


def _cheapest(parts: Mapping[tuple[int, ...], _Part], moved: frozenset[int]) -> list[_Part] | None:
    """Return the parts of least error in all that hide every attribute once; None where there are none."""
    if not moved:
        return []
    first, best = min(moved), None
    for hides, part in parts.items():
        if first in hides and moved.issuperset(hides):
            rest = _cheapest(parts, moved - set(hides))
            if rest is not None and (best is None or _sum([part, *rest]) < _sum(best)):
                best = [part, *rest]
    return best


def _sum(parts: Sequence[_Part]) -> float:
    return sum(error for _, error in parts)


def _sketch(chosen: Sequence[Factor], i: int, *, alone: bool) -> Sketch:
    """Rows that are products of rows, at loss 1; where one attribute alone has edges they can be measured."""
    own = chosen[i]
    rows = np.concatenate([np.full(own.public, math.inf), np.ones(len(own.matrix) - own.public)])
    shape = [-1 if k == i else 1 for k in range(len(chosen))]
    precisions = rows.reshape(shape) / math.prod(factor.loss for factor in chosen) ** 2
    measured = alone and not own.over_edges
    return Sketch(
        tuple(factor.matrix for factor in chosen),
        precisions,
        hides=None if measured else (i,),
        over=i if own.over_edges else None,
    )
