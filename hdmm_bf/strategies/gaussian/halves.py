"""Matrices over the cells that are their own mirror images, as two blocks of half the size.

A database is the sum of an even part (the same from both ends) and an odd one (its negative). Forms x^T A x that do not
change when x is reversed never mix the two: in an orthonormal basis of pairs of cells, (e_i + e_-i) / sqrt 2, the
middle cell if there is one, and (e_i - e_-i) / sqrt 2, they have two blocks. Factorisations of both cost a quarter.

Where the total is public, databases of sum zero are all there is. Their odd parts are free; the last coordinate of
an even part follows from the others. *Forms* act on databases (V, X); *spreads* are sums of x x^T (L, Y = X^-1).

Matrices that come in hold their lower triangle, those over the cells that go out are whole.
"""

from __future__ import annotations

import math
from typing import TypeAlias, final

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf._types import RealVector, SquareMatrix
from hdmm_bf.bounds.dense import GramRoot, uniform
from hdmm_bf.matrix import Incidence
from hdmm_bf.problem.forms import edge_forms
from hdmm_bf.problem.mirror import Mirror
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.gaussian.whole import Found, Weights

Blocks: TypeAlias = tuple[SquareMatrix, SquareMatrix]
"""The even block and the odd one."""


@final
class Halves:
    """The change of coordinates.

    Args:
        n: number of cells.
        public: whether the total is public.
    """

    def __init__(self, n: int, *, public: bool) -> None:
        self.n, self.public = n, public
        sums = np.ones(n - n // 2)  # of the basis of even parts, over sqrt 2
        if n % 2:
            sums[-1] = math.sqrt(0.5)
        self.ratio = sums[:-1] / sums[-1]

    def forms(self, A: SquareMatrix) -> Blocks:
        """Return the blocks of a form over the cells."""
        even, odd = self._fold(A)
        if not self.public:
            return even, odd
        last = np.outer(even[-1, :-1] - even[-1, -1] / 2 * self.ratio, self.ratio)
        return np.asfortranarray(even[:-1, :-1] - last - last.T), odd

    def spreads(self, A: SquareMatrix) -> Blocks:
        """Return the blocks of a spread over the cells."""
        even, odd = self._fold(A)
        return (np.asfortranarray(even[:-1, :-1]) if self.public else even), odd

    def whole_form(self, blocks: Blocks) -> SquareMatrix:
        """Return a form over the cells with these blocks."""
        even, odd = map(la.symmetric, blocks)
        return self._unfold(np.pad(even, (0, 1)) if self.public else even, odd)

    def whole_spread(self, blocks: Blocks) -> SquareMatrix:
        """Return the spread over the cells with these blocks."""
        even, odd = map(la.symmetric, blocks)
        if self.public:
            last = -(even @ self.ratio)
            even = np.block([[even, last[:, None]], [last, -last @ self.ratio]])
        return self._unfold(even, odd)

    def _fold(self, A: SquareMatrix) -> Blocks:
        h = self.n // 2
        near, far = A[:h, :h] + A[-h:, -h:][::-1, ::-1].T, A[-h:, :h][::-1]
        far = far + far.T
        odd = np.asfortranarray((near - far) / 2)
        even = np.empty((self.n - h, self.n - h), order="F")
        even[:h, :h] = (near + far) / 2
        if self.n % 2:
            even[h, :h] = (A[h, :h] + A[-h:, h][::-1]) * math.sqrt(0.5)
            even[h, h] = A[h, h]
        return even, odd

    def _unfold(self, even: SquareMatrix, odd: SquareMatrix) -> SquareMatrix:
        h = self.n // 2
        A = np.empty((self.n, self.n), order="F")
        near, far = (even[:h, :h] + odd) / 2, (even[:h, :h] - odd) / 2
        A[:h, :h], A[-h:, -h:] = near, near[::-1, ::-1]
        A[:h, -h:], A[-h:, :h] = far[:, ::-1], far[::-1]
        if self.n % 2:
            middle = even[h, :h] * math.sqrt(0.5)
            A[h, :h] = A[:h, h] = middle
            A[h, -h:] = A[-h:, h] = middle[::-1]
            A[h, h] = even[h, h]
        return A


@final
class Halved:
    """What the search does with matrices, for a problem that is its own mirror image: one weight for every pair.

    Matrices X and Y are over all the cells.
    """

    def __init__(self, problem: Problem, mirror: Mirror) -> None:
        self.mirror, self.grounding, self.matrix = mirror, problem.grounding, problem.workload.matrix
        n = problem.policy.num_cells
        self.scales = problem.goal.scales(problem.workload)
        self.edges = edge_forms(Incidence(*problem.oriented, n))
        self.halves = Halves(n, public=problem.grounding.given_up.size > 0)
        V = self.halves.forms(self._gram(uniform(mirror.queries.count)))
        self.scale = sum(map(np.trace, V)) / problem.grounding.kept.size
        self.has_full_rank = all(GramRoot.of(block / self.scale).basis is None for block in V)

    @property
    def counts(self) -> tuple[int, int]:
        """How many weights there are on queries and on edges."""
        return self.mirror.queries.count, self.mirror.edges.count

    def folded(self, weights: Weights) -> Weights:
        """Return the weights of the pairs."""
        return Weights(self.mirror.queries.gathered(weights.queries), self.mirror.edges.gathered(weights.edges))

    def unfolded(self, lam: RealVector, mu: RealVector) -> Weights:
        """Return the weights of all queries and edges."""
        return Weights(self.mirror.queries.spread(lam), self.mirror.edges.spread(mu))

    def _gram(self, lam: RealVector) -> SquareMatrix:
        return self.matrix.weighted_gram(self.mirror.queries.spread(lam) * self.scales)

    def at(self, lam: RealVector, mu: RealVector) -> Found:
        """Return X(lam, mu)."""
        V = self.halves.forms(self._gram(lam) / self.scale)
        L = self.halves.spreads(self.edges.laplacian(self.mirror.edges.spread(mu)))
        roots = [GramRoot.of(block) for block in V]
        duals = [root.dual_point(block) for root, block in zip(roots, L, strict=True)]
        Y = [root.pseudo_inverse(dual) for root, dual in zip(roots, duals, strict=True)]
        even, odd = duals
        X = self.halves.whole_form((even.X, odd.X))
        v = np.full(lam.size, math.inf)
        if Y[0] is not None and Y[1] is not None:
            v = self.variances(self.halves.whole_spread((Y[0], Y[1])))
        return Found(even.root_sum + odd.root_sum, X, v, self.distances(X))

    def distances(self, X: SquareMatrix) -> RealVector:
        """Return d_e of X, one for every pair of edges."""
        return np.asarray(self.edges.distances(X)[self.mirror.edges.first])

    def variances(self, Y: SquareMatrix) -> RealVector:
        """Return v_i of Y, one for every pair of queries."""
        first = self.mirror.queries.first
        return np.asarray(np.maximum(self.matrix.quadratic(Y)[first], 0.0) * self.scales[first] / self.scale)

    def move_distances(self, X: SquareMatrix, change: RealVector) -> SquareMatrix:
        """Return X with every d_e moved, lower triangle."""
        moved = X.copy(order="F")
        self.edges.shift(moved, change[self.mirror.edges.of])
        return moved

    def move_variances(self, Y: SquareMatrix, change: RealVector) -> SquareMatrix | None:
        """Return Y with every v_i moved, where the workload has a closed form for it."""
        C = self.matrix.from_quadratic(change[self.mirror.queries.of] * self.scale / self.scales)
        if C is None or not self.halves.public:
            return None if C is None else np.asarray(Y + C)
        kept = self.grounding.kept
        return np.asarray(Y + self.grounding.expand(self.grounding.expand(C[np.ix_(kept, kept)]).T))

    def covariance(self, X: SquareMatrix) -> SquareMatrix | None:
        """Return X^-1, or None where X is not positive."""
        even, odd = map(la.inverse, self.halves.forms(X))
        return None if even is None or odd is None else self.halves.whole_spread((even, odd))

    def metric(self, Y: SquareMatrix) -> SquareMatrix | None:
        """Return Y^-1, or None where Y is not positive."""
        even, odd = map(la.inverse, self.halves.spreads(Y))
        return None if even is None or odd is None else self.halves.whole_form((even, odd))

    def grounded(self, X: SquareMatrix) -> SquareMatrix:
        """Return X over the kept cells."""
        return self.grounding.gram(la.symmetric(X))
