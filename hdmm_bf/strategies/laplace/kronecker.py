"""Kronecker strategies for Laplace noise on large domains: one small matrix an attribute, no matrix over the cells.

A = A_1 (x) ... (x) A_d, every A_i scaled to largest column norm 1, has L1 sensitivity max_i s_i, s_i = the largest
||A_i p_e||_1 over the edges of attribute i, and unit error

    (max_i s_i)^2 prod_i E_i,        E_i = tr(V_i (A_i^T A_i)^-1)

so the attributes meet only in the reach s = max_i s_i (1 under unbounded differential privacy, where they are
independent; at most 2 otherwise). Each attribute is searched for least E_i with s_i <= s, and s is chosen for the
product. No use is made of public totals: `known_totals` says what knowing them would take off the error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar, final

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf import policy as policies
from hdmm_bf import workload as workloads
from hdmm_bf._types import EdgeArray, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.matrix import Matrix
from hdmm_bf.objectives import limits
from hdmm_bf.objectives.descent import minimise, padded
from hdmm_bf.problem.product import ProductProblem, Term
from hdmm_bf.problem.public_totals import indicators
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.laplace.factors import reach
from hdmm_bf.strategies.laplace.grid import Part
from hdmm_bf.strategies.registry import Family

if TYPE_CHECKING:
    from hdmm_bf.objectives.measures import Total

NAME = "kronecker"
Step = TypeVar("Step")

_STALE = 40
"""Steps of a one-attribute search without gain after which it ends."""

_GAIN = 1e-9
_REACHES = (1.75, 1.5, 1.25, 1.0, 0.85, 0.7, 0.55)
"""Values of s < 2 that are tried, downwards, while the product gains."""
_FINER = (0.06, -0.06, 0.025, -0.025, 0.01, -0.01)
"""Relative steps around the best of them."""
_SMOOTHING = ((1e-2, 40.0), (2e-3, 200.0), (3e-4, 1500.0), (3e-5, 8000.0))
"""Rounding of |.| and power of the norm over the columns, sharper and sharper."""
_PADDING, _NEGLIGIBLE = 16, 1e-4
"""Rows are padded to a multiple of the first, and dropped when no entry reaches the second."""


class KroneckerDraft(NamedTuple):
    """Factors r_i x n_i of a strategy of L1 sensitivity at most 1 (0 where all it answers is public), and its error.

    `public` is an attribute whose factor begins with so many rows of public totals, which are measured without noise.
    """

    factors: tuple[RealMatrix, ...]
    error: float
    public: tuple[int, int] = (0, 0)


def applies(product: ProductProblem) -> bool:
    """Whether the workload is one product."""
    return len(product.terms) == 1


def search(product: ProductProblem, *, seed: int) -> Iterator[KroneckerDraft]:
    """Yield the best strategy for a workload that is one product after every step.

    Guarantees:
        The strategy has L1 sensitivity at most 1 under the policy and the unit error it says, and is never worse than
        the identity on the cells.
    """
    (term,) = product.terms
    return steps(term, Attributes(product, seed).of(term))


# ---------------------------------------------------------------- one attribute


class Point(NamedTuple):
    """A strategy for one attribute with largest column norm 1: its reach s_i and error E_i."""

    reach: float
    error: float
    matrix: RealMatrix


@final
class Attribute:
    """The searches of one workload factor under one attribute's policy, and every point they found."""

    def __init__(self, W: Matrix, edges: EdgeArray, *, seed: int) -> None:
        self.V, self.edges = W.gram(), edges
        self.n = len(self.V)
        self.points = [self._point(np.eye(self.n))]
        only = rank_one(self.V)
        if only is not None:  # one query: it is its own best strategy, whatever the reach
            self.points = [self._point(only)]
        searched = only is None and self.n > 1
        self._part = (
            Part(Problem(workloads.from_matrix(W), policies.unbounded(self.n)), seed=seed) if searched else None
        )

    def _point(self, A: RealMatrix) -> Point:
        A = A[np.abs(A).max(axis=1) > 0]  # a row of zeros cannot be scaled to whole numbers
        A = A / np.abs(A).sum(axis=0).max()
        return Point(reach(A, self.edges), _error(A, self.V), A)

    @property
    def bends(self) -> bool:
        """Whether a smaller reach than that of the best strategy can be had at a price."""
        return self._part is not None and bool(np.any(self.edges[:, 1] >= 0))

    def columns(self) -> Iterator[float]:
        """Take the steps of the search for least E_i until it is stale, yielding E_i."""
        idle = 0
        while self._part is not None and idle < _STALE:
            self._part.advance()
            found = self._point(self._part.matrix)
            idle = 0 if found.error < self.points[-1].error * (1 - _GAIN) else idle + 1
            if idle == 0:
                self.points.append(found)
            yield self.points[-1].error

    def approach(self, limit: float) -> None:
        """Search least E_i with reach at most `limit`, from the best point nearby, its total added."""
        near = min(self.points, key=lambda p: (abs(math.log(max(p.reach, 1e-9) / limit)), p.error)).matrix
        A = np.vstack([near[np.abs(near).max(axis=1) > _NEGLIGIBLE], np.full((1, self.n), 0.2)])
        A = padded(A, multiple=_PADDING)  # rows of zeros stay zero
        loss = self._total(limit)
        for eta, power in _SMOOTHING:
            A = np.asarray(minimise(loss.smoothed(eta, power), A, steps=150).parameters)
            A = A / max(float(np.abs(A).sum(axis=0).max()), reach(A, self.edges) / limit)
            self.points.append(self._point(A[np.abs(A).max(axis=1) > _NEGLIGIBLE]))

    @la.in_float64
    def _total(self, limit: float) -> Total:
        """The error with column norms at most 1 and reach at most `limit`: as if every cell could also vanish."""
        import jax.numpy as jnp

        from hdmm_bf.objectives.grams import DenseGram
        from hdmm_bf.objectives.measures import total_of
        from hdmm_bf.objectives.operators import edges_of

        cells, (head, tail) = np.arange(self.n), self.edges.T
        scale = np.repeat([1.0, 1.0 / limit], [self.n, len(self.edges)])
        edges = edges_of(np.append(cells, head), np.append(np.full(self.n, -1), tail), self.n, scale)
        gram = DenseGram(jnp.asarray(self.V / np.trace(self.V) * self.n))
        return total_of(gram, edges)

    def best(self, limit: float) -> Point | None:
        """Return the point of least error within a reach."""
        within = [p for p in self.points if p.reach <= limit * (1 + 1e-12)]
        return min(within, key=lambda p: p.error, default=None)


def rank_one(V: SquareMatrix) -> RealMatrix | None:
    """Return w as a row if V = w^T w."""
    j = int(np.argmax(np.diag(V)))
    w = V[j] / math.sqrt(V[j, j]) if V[j, j] > 0 else np.ones(len(V))
    return w[None] if np.allclose(np.outer(w, w), V, rtol=1e-12, atol=1e-13 * V[j, j]) and np.any(w) else None


def _error(A: RealMatrix, V: SquareMatrix) -> float:
    """tr(V (A^T A)^+) for full column rank, or for a single row that the workload is a multiple of."""
    if len(A) == 1:
        return float(np.trace(V) / np.vdot(A, A))
    return la.trace_of_inverse(A, V)


# ---------------------------------------------------------------- one term


class Attributes(dict[bytes, Attribute]):
    """Searches that several terms and like attributes share."""

    def __init__(self, product: ProductProblem, seed: int) -> None:
        super().__init__()
        self.product, self.seed = product, seed

    def of(self, term: Term) -> list[Attribute]:
        """Return one search an attribute."""
        found = []
        for W, gram, edges in zip(term.factors, term.grams, self.product.edges, strict=True):
            key = edges.tobytes() + gram.tobytes()
            if key not in self:
                self[key] = Attribute(W, edges, seed=self.seed)
            found.append(self[key])
        return found


def steps(term: Term, attributes: Sequence[Attribute]) -> Iterator[KroneckerDraft]:
    """Yield the best strategy after every step: each attribute is searched by itself, then the reach they share."""
    limits.keep()  # the identity on every attribute is there from the start
    distinct = list({id(attribute): attribute for attribute in attributes}.values())
    searched = False
    for _ in in_turn([attribute.columns() for attribute in distinct]):
        searched = True
        yield combined(term, attributes)
    if not searched:
        yield combined(term, attributes)
    if any(attribute.bends for attribute in attributes):
        yield from _lower_reach(term, attributes, distinct)


def in_turn(searches: list[Iterator[Step]]) -> Iterator[Step]:
    """Take one step of every search in turn, so that a time limit serves all alike."""
    going = list(searches)
    while going:
        for steps in list(going):
            step = next(steps, None)
            if step is None:
                going.remove(steps)
            else:
                yield step


def _lower_reach(
    term: Term, attributes: Sequence[Attribute], distinct: Sequence[Attribute]
) -> Iterator[KroneckerDraft]:
    """Try smaller and smaller reaches while the product gains, then finer steps around the best."""

    def approach(limit: float) -> KroneckerDraft:
        for attribute in distinct:
            if attribute.bends:
                attribute.approach(limit)
        return combined(term, attributes)

    least, idle = combined(term, attributes).error, 0
    for limit in _REACHES:
        if idle > 1:
            break
        draft = approach(limit)
        yield draft
        least, idle = min(least, draft.error), 0 if draft.error < least * (1 - _GAIN) else idle + 1
    for step in _FINER:
        best = _limit(attributes)
        if not best > 0:
            break
        yield approach(best * (1 + step))


def _limit(attributes: Sequence[Attribute]) -> float:
    """Return the reach s that gives the product least error, out of those of the points found."""
    reaches = sorted({p.reach for a in attributes for p in a.points})
    return min(reaches, key=lambda s: _product_error(attributes, s))


def _product_error(attributes: Sequence[Attribute], limit: float) -> float:
    chosen = [a.best(limit) for a in attributes]
    known = [p.error for p in chosen if p is not None]
    return math.prod(known) * limit**2 if len(known) == len(chosen) else math.inf


def combined(term: Term, attributes: Sequence[Attribute]) -> KroneckerDraft:
    """Return the product of the attributes' points at the reach that gives it least error."""
    limit = _limit(attributes)
    points = [p for p in (a.best(limit) for a in attributes) if p is not None]
    largest = max(p.reach for p in points)
    error = term.weight**2 * math.prod(p.error for p in points) * largest**2
    first, *others = (p.matrix for p in points)
    return KroneckerDraft((first / largest if largest > 0 else first, *others), error)


def reaches(product: ProductProblem, factors: Sequence[RealMatrix]) -> RealVector:
    """Return, for every attribute, the L1 sensitivity of a Kronecker strategy along that attribute's edges."""
    norms = [float(np.abs(A).sum(axis=0).max()) for A in factors]
    moved = [reach(A, edges) for A, edges in zip(factors, product.edges, strict=True)]
    return np.array([m * math.prod(norms[:i] + norms[i + 1 :]) for i, m in enumerate(moved)])


# ---------------------------------------------------------------- public totals


def known_totals(product: ProductProblem, term: Term, factors: Sequence[RealMatrix]) -> float:
    """Return what the error falls by when the public totals are used with a strategy of full column rank.

    Conditioning on C x takes tr((C Y C^T)^-1 C Y V Y C^T) off tr(V Y), Y = (A^T A)^-1; all are Kronecker products, C of
    the components of the attributes' policies. Nothing is public where presence is hidden.
    """
    if product.has_bottom:
        return 0.0
    fall = term.weight**2
    for A, V, edges in zip(factors, term.grams, product.edges, strict=True):
        Y = la.inverse(A.T @ A)
        assert Y is not None, "the strategy has full column rank"
        C = indicators(edges, len(V))
        fall *= la.conditioning_gain(la.symmetric(Y), V, C)
    return fall


FAMILY = Family(
    name=NAME,
    noise="laplace",
    structured=True,
    search=search,
    applies=applies,
    needs="needs one product of queries",
)
