"""Laplace noise that is added up, one block for every kind of move: the paper's grid mechanism for any product.

An edge of G_1 x ... x G_d moves a record along one attribute i. Noise N_i that hides the moves along i alone knows the
totals over i for every cell of the others, and x + N_1 + ... + N_d is private: whatever the others add, N_i takes the
move up. With a factor A_i for the edges of i and star factors H_j (ordinary privacy) for the other attributes,

    unit error = sum_i sum_t w_t^2 tr(V_ti Y_i) prod_{j != i} tr(V_tj Z_j)

(Y, Z: see `factors`). Identity on the edges is Y_i = P_i P_i^T, H_j = I; rows and columns of wavelets has wavelets for
H_j. All attributes can also be hidden by one block, cell by cell: then only totals over all of them are public.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias, final

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf import workload as workloads
from hdmm_bf._types import RealMatrix, RealVector
from hdmm_bf.bounds.products.kronecker import moved_attributes
from hdmm_bf.matrix import Dense, Matrix
from hdmm_bf.objectives import limits
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.problem.public_totals import has_public_totals, indicators
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.baselines.classical import branchings, haar, hierarchy
from hdmm_bf.strategies.gaussian.sketch import JoinedSketch, Sketch
from hdmm_bf.strategies.laplace import factors as made
from hdmm_bf.strategies.laplace import joined
from hdmm_bf.strategies.laplace.factors import EDGES, IDENTITY, WAVELET, Factor
from hdmm_bf.strategies.laplace.grid import Part
from hdmm_bf.strategies.laplace.kronecker import Attribute, in_turn, rank_one, reaches
from hdmm_bf.strategies.laplace.sharing import with_another
from hdmm_bf.strategies.registry import Family
from hdmm_bf.strategies.search import Callback, Status, best_draft

NAME = "directions"
STEPS = ", step by step"
"""Under distance thresholds above 1: noise that hides single steps, and so, with more of it, several."""
GRID, EACH = "rows and columns of wavelets", "identity on cells, each attribute"

MOST_CELLS = 2**22
"""Cells up to which noise is added to each."""

_FEWEST_EDGES = 3
_MINOR = 0.1
"""Share of the error along another attribute below which rows for an attribute wait for it."""

_STALE = 40
"""Steps of a search along a tree without gain after which it ends."""


class SumDraft(NamedTuple):
    """Sketches of loss 1, their unit error, and their name."""

    sketches: tuple[Sketch | JoinedSketch, ...]
    error: float
    name: str
    status: Status = "finished"


def applies(product: ProductProblem) -> bool:
    """Whether noise can be added to every cell, and some query is moved."""
    return bool(moved_attributes(product)) and math.prod(product.sizes) <= MOST_CELLS


# ---------------------------------------------------------------- one block for all moves


def joint(product: ProductProblem, factors: Sequence[RealMatrix], name: str) -> SumDraft | None:
    """Return rows over the cells that are products of rows, with public totals; None where they have not full rank."""
    loss = float(reaches(product, factors).max())
    inverses = [la.inverse(A.T @ A) if len(A) >= A.shape[1] else None for A in factors]
    known = [la.symmetric(Y) for Y in inverses if Y is not None]
    if len(known) < len(factors) or not loss > 0:
        return None
    totals = [indicators(edges, n) for edges, n in zip(product.edges, product.sizes, strict=True)]
    error = 0.0
    for term in product.terms:
        whole = math.prod(float(np.vdot(V, Y)) for V, Y in zip(term.grams, known, strict=True))
        fall = math.prod(la.conditioning_gain(Y, V, C) for Y, V, C in zip(known, term.grams, totals, strict=True))
        error += term.weight**2 * (whole - fall)
    moved = tuple(moved_attributes(product))
    alone = len(moved) > 1 and has_public_totals(product)
    precisions = np.full((1,) * len(factors), loss**-2)
    if len(moved) == 1 and has_public_totals(product):
        return None  # better by itself, where its own totals are rows
    return SumDraft((Sketch(tuple(factors), precisions, hides=moved if alone else None),), loss**2 * error, name)


def joint_floors(product: ProductProblem) -> Iterator[SumDraft]:
    """Yield the classical mechanisms: identity on the cells, products of wavelets and of hierarchies."""
    sizes = product.sizes
    kinds = [(IDENTITY, [np.eye(n) for n in sizes]), (WAVELET, [haar(n) for n in sizes])]
    for name, branching in branchings(max(sizes)):
        kinds.append((name, [np.vstack(hierarchy(n, branching)) if n > 1 else np.eye(1) for n in sizes]))
    for name, factors in kinds:
        if name != IDENTITY and limits.ending():
            return
        found = joint(product, factors, name)
        if found is not None:
            yield found


# ---------------------------------------------------------------- one block for every attribute


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


def floors(product: ProductProblem, candidates: Candidates) -> Iterator[SumDraft]:
    """Yield the paper's and the classical mechanisms in closed form, by their factors; identity on the cells first."""
    yield from joint_floors(product)
    if not limits.ending():
        yield from sums(candidates)


def sums(candidates: Candidates) -> Iterator[SumDraft]:
    """Yield the paper's mechanisms that add up noise for every attribute, and identity on the cells of each."""
    named = [(EDGES, IDENTITY, EDGES), (EDGES, WAVELET, GRID), (IDENTITY, IDENTITY, EACH)]
    for own, star, name in named:
        found = candidates.best(own, star, name)
        if found is not None:
            yield found


def floor_kind(name: str) -> str:
    """Say whose a mechanism is: the paper's, classical, or ours."""
    if name.removesuffix(STEPS) in (EDGES, GRID):
        return "paper"
    return "classical" if name in (IDENTITY, WAVELET) or name.startswith(("hierarchy", "HB")) else "ours"


# ---------------------------------------------------------------- search


def summed(product: ProductProblem, attribute: int) -> Matrix:
    """Return queries over one attribute for all terms, each with its weight and the sizes of its other factors."""
    if len(product.terms) == 1:
        return product.terms[0].factors[attribute]
    V = np.zeros((product.sizes[attribute],) * 2)
    for term in product.terms:
        others = [float(np.trace(g)) / n for g, n in zip(term.grams, product.sizes, strict=True)]
        V += term.weight**2 * math.prod(others[:attribute] + others[attribute + 1 :]) * term.grams[attribute]
    values, U = la.eigen(V)
    return Dense(np.ascontiguousarray((U * np.sqrt(np.maximum(values, 0.0))).T))


def steps(
    product: ProductProblem,
    candidates: Candidates,
    searched: Sequence[Attribute],
    seed: int,
    *,
    together: bool = True,
) -> Iterator[SumDraft]:
    """Yield the best sum after every step of the searches for stars, trees, and rows over several attributes.

    Args:
        product: the problem by its factors.
        candidates: what was found before; gets what is found.
        searched: for every attribute the search for rows of least error under ordinary privacy.
        seed: for random numbers.
        together: whether rows over several attributes at once are searched for too.
    """
    trees = [_tree_steps(product, candidates, i, seed) for i in candidates.moved]
    rows = [_star_steps(candidates, i, search_) for i, search_ in enumerate(searched)]
    over_several = _all_joined_steps(product, candidates, seed) if together else []
    yield from _bests(candidates, itertools.chain([0.0], in_turn([*rows, *trees, *over_several])))


def steps_over_several(product: ProductProblem, candidates: Candidates, seed: int) -> Iterator[SumDraft]:
    """Yield the best sum after every step of the searches for rows over several attributes, and of no other."""
    yield from _bests(candidates, in_turn(_all_joined_steps(product, candidates, seed)))


def _bests(candidates: Candidates, searched: Iterator[float]) -> Iterator[SumDraft]:
    best: SumDraft | None = None
    for _ in searched:
        found = candidates.best()
        if found is not None and (best is None or found.error < best.error):
            best = found
        if best is not None:
            yield best


def _star_steps(candidates: Candidates, i: int, attribute: Attribute) -> Iterator[float]:
    """Take the steps of the search for star rows; what it finds also hides the attribute's own edges, with totals."""
    if rank_one(attribute.V) is not None:
        return
    last: float | None = None
    for error in attribute.columns():
        if error != last:
            A = attribute.points[-1].matrix
            _replaced(candidates.stars[i], made.on_star(A, "p-identity"))
            if i in candidates.moved:
                _replaced(candidates.owns[i], made.on_cells(A, attribute.edges, "p-identity"))
        last = error
        yield error


def _tree_steps(product: ProductProblem, candidates: Candidates, i: int, seed: int) -> Iterator[float]:
    """Search rows over the edges of a tree."""
    policy = made.own_policy(product.edges[i], product.sizes[i])
    if not policy.is_forest or policy.num_edges < _FEWEST_EDGES:
        return
    part = Part(Problem(workloads.from_matrix(summed(product, i)), policy), seed=seed)
    inverse = made.tree_rows(policy)
    idle, least = 0, math.inf
    while idle < _STALE and not limits.ending():
        part.advance()
        if part.best.error < least * (1 - 1e-9):
            least, idle = part.best.error, 0
            _replaced(candidates.owns[i], made.on_cells(part.matrix @ inverse, product.edges[i], "p-identity on edges"))
        else:
            idle += 1
        yield least


def _all_joined_steps(product: ProductProblem, candidates: Candidates, seed: int) -> list[Iterator[float]]:
    """Return the searches for rows over several attributes, one for the moves along each."""

    def steps_of(i: int) -> Iterator[float]:
        yield from _joined_steps(product, candidates, i, seed)
        candidates.searching.discard(i)

    candidates.searching.update(i for i in candidates.moved if len(joined.joined_axes(product, i)) > 1)
    return [steps_of(i) for i in candidates.moved]


def _joined_steps(product: ProductProblem, candidates: Candidates, i: int, seed: int) -> Iterator[float]:
    """Search rows over several attributes at once; others may take in the moves along this one, and it theirs."""
    axes = joined.joined_axes(product, i)
    problem = joined.Joined(product, i, axes) if len(axes) > 1 else None
    while problem is not None and candidates.is_minor(i):
        yield math.inf
    for sketch, error in joined.steps(product, i, seed=seed):
        candidates.offer(i, sketch, error)
        for shared in [] if problem is None else with_another(problem, sketch):
            candidates.offer(i, *shared)
        yield error
        if candidates.is_taken_in(i):
            return


def _replaced(those: list[Factor], factor: Factor | None) -> None:
    """Put a factor in the place of the one of its name."""
    if factor is not None:
        those[:] = [*(other for other in those if other.name != factor.name), factor]


def searches(product: ProductProblem, seed: int) -> list[Attribute]:
    """Return the searches of `steps` for a workload of several terms."""
    return [Attribute(summed(product, i), edges, seed=seed) for i, edges in enumerate(product.edges)]


def fit_directions(
    product: ProductProblem,
    *,
    seed: int = 0,
    max_seconds: float = math.inf,
    callback: Callback | None = None,
    max_steps: int | None = None,
    bound: float = 0.0,
    gap: float = 0.0,
) -> SumDraft:
    """Search noise for every kind of move by itself.

    Guarantees:
        Every block has a loss of 1 at most under the moves that it hides, and the error is that of the sum.
    """
    candidates = Candidates(product)
    drafts = steps(product, candidates, searches(product, seed), seed)
    return best_draft(drafts, bound=bound, gap=gap, max_seconds=max_seconds, max_steps=max_steps, callback=callback)


FAMILY = Family(
    name=NAME,
    noise="laplace",
    structured=True,
    search=fit_directions,
    applies=applies,
    balls=True,
    needs=f"needs an attribute with edges and at most {MOST_CELLS} cells",
)
