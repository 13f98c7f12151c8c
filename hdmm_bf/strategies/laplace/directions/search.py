"""The search for stars, trees, and rows over several attributes, step by step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf import workload as workloads
from hdmm_bf.matrix import Dense, Matrix
from hdmm_bf.objectives import limits
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.laplace import factors as made
from hdmm_bf.strategies.laplace import joined
from hdmm_bf.strategies.laplace.directions.candidates import Candidates
from hdmm_bf.strategies.laplace.directions.drafts import NAME, SumDraft
from hdmm_bf.strategies.laplace.directions.floors import MOST_CELLS, applies
from hdmm_bf.strategies.laplace.factors import Factor
from hdmm_bf.strategies.laplace.grid import Part
from hdmm_bf.strategies.laplace.kronecker import Attribute, in_turn, rank_one
from hdmm_bf.strategies.laplace.sharing import with_another
from hdmm_bf.strategies.registry import Family

_FEWEST_EDGES = 3
_STALE = 40
"""Steps of a search along a tree without gain after which it ends."""


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


def search(product: ProductProblem, *, seed: int) -> Iterator[SumDraft]:
    """Yield the best noise, for every kind of move by itself, after every step.

    Guarantees:
        Every block has a loss of 1 at most under the moves that it hides, and the error is that of the sum.
    """
    return steps(product, Candidates(product), searches(product, seed), seed)


FAMILY = Family(
    name=NAME,
    noise="laplace",
    structured=True,
    search=search,
    applies=applies,
    balls=True,
    needs=f"needs an attribute with edges and at most {MOST_CELLS} cells",
)
