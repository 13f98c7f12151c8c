"""Product bases: the search for S_1, ..., S_d and M (see `family`), coarse to fine.

On small sides descent starts from the basis that diagonalises queries and policy. Larger sides of range-like workloads
start from the optimum at half the size: in the coordinates of that start basis, whose columns are the same functions at
every size, the best bases hardly change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from hdmm_bf import _linalg as la
from hdmm_bf._checks import fits
from hdmm_bf._types import EdgeArray, Proof, RealMatrix
from hdmm_bf.bounds.products import product_svd_bound
from hdmm_bf.bounds.products.invariant import gram_eigenvalues, unique_factors
from hdmm_bf.bounds.products.resizing import resized_product
from hdmm_bf.objectives import limits
from hdmm_bf.objectives.descent import descend
from hdmm_bf.policy import line
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.problem.public_totals import has_public_totals, indicators
from hdmm_bf.strategies.gaussian.attribute import Attribute, Blocks
from hdmm_bf.strategies.gaussian.family import Bases, Member
from hdmm_bf.strategies.gaussian.moves import AlongOne, InBalls
from hdmm_bf.strategies.gaussian.proofs import best_proof, special
from hdmm_bf.strategies.gaussian.sketch import Found, Sketch
from hdmm_bf.strategies.registry import Family
from hdmm_bf.strategies.search import Callback, Progress, Status, search

WHY = "several attributes with edges and general queries: a search over product bases, checked against a proven bound"

_COARSE_SIDE = 96
_LARGE_SIDE = 400
_SMALL, _TRIALS, _GROWTH = 48, 9, 2.5
"""Side of the grid on which weights of the bound are tried, how often, and by which power of the side time grows."""
_TENSORS = 85
"""Tensors over the cells that the search keeps, one for every correction of L-BFGS among them; from measured peaks on
grids of side 64 to 1000."""
_COARSE_SHARE = 0.6
"""Share of a time limit that coarse levels may use."""


class Schedule(NamedTuple):
    """Powers of the smoothed maximum with descent steps for each, and how far precisions are solved after each."""

    powers: tuple[tuple[float, int], ...]
    gap: float
    steps: int
    memory: int


_FIRST = Schedule(((8.0, 150), (32.0, 150), (128.0, 150)), 1e-3, 60, 15)
_ONLY = Schedule(((8.0, 200), (32.0, 200), (128.0, 200), (512.0, 200)), 1e-4, 150, 15)
_MIDDLE = Schedule(((64.0, 60), (256.0, 60)), 1e-3, 60, 10)
_LARGE = Schedule(((128.0, 25),), 1e-3, 30, 10)


def fit(
    product: ProductProblem,
    *,
    gap: float,
    max_seconds: float,
    callback: Callback | None,
    max_steps: int | None = None,
) -> Found:
    """Search the bases of least error; the bound is proven apart, and may be missing or loose."""
    started = limits.now()
    svd = product_svd_bound(product)
    family = build(product)
    if not family.moves.shapes or not np.any(_seen(family, product)):
        return Found(_totals(product), 0.0, 0.0, svd, FAMILY.name, None, WHY, "exact")
    bound, proof, again = _proved(product)
    left = _search_seconds(max_seconds - (limits.now() - started), again)
    short: list[int] = []
    with limits.limited(limits.now() + left):
        members = steps(product, bound=bound or 0.0, max_seconds=left, out_of_time=short)
        found = search(members, gap=gap, max_iterations=max_steps, callback=callback)
    status: Status = "time limit" if short and found.status == "finished" else found.status
    sketch = to_sketch(family, found.best)
    return Found((sketch,), found.error, bound, svd, FAMILY.name, proof, WHY, status)


def _proved(product: ProductProblem) -> tuple[float | None, Proof | None, float]:
    """Return the bound, its proof, and the seconds that evaluating it again will take.

    At a time limit a bound that the certificate evaluates anyway is not evaluated before.
    """
    started = limits.now()
    if limits.time_left() < math.inf:
        proof = special(product)
        if proof is not None:
            growth = max(1.0, max(product.sizes) / _SMALL) ** _GROWTH
            return None, proof, (limits.now() - started) / _TRIALS * growth
    bound, proof = best_proof(product)
    return bound, proof, limits.now() - started


def _search_seconds(max_seconds: float, reserve: float) -> float:
    """What is left for the search, at least a quarter: the certificate will evaluate the bound once more."""
    left = min(max_seconds, limits.time_left())
    return max(left - reserve, left / 4, 0.0)


def _totals(product: ProductProblem) -> tuple[Sketch, ...]:
    """The public totals and nothing else: all that a workload without noise needs."""
    rows = tuple(indicators(e, n) for e, n in zip(product.edges, product.sizes, strict=True))
    return (Sketch(rows, np.full((1,) * len(rows), math.inf)),) if all(map(len, rows)) else ()


def _seen(family: Bases, product: ProductProblem) -> Bool[np.ndarray, ...]:
    family.set(_start(family, product))
    return family.v > 0


def steps(
    product: ProductProblem, *, bound: float, max_seconds: float = math.inf, out_of_time: list[int] | None = None
) -> Iterator[Progress[Member, Proof | None]]:
    """Yield members at full size, better and better; `out_of_time` gets the sides of the levels that were cut short."""
    started = limits.now()
    levels, shared = [product], are_equal(product)
    while (coarse := coarser(levels[0])) is not None:
        levels.insert(0, coarse)
    blocks: list[Blocks] | None = None
    for depth, level in enumerate(levels):
        is_last, side = depth == len(levels) - 1, max(level.sizes)
        schedule = (_ONLY if is_last else _FIRST) if blocks is None else _MIDDLE if side < _LARGE_SIDE else _LARGE
        until = started + max_seconds * (1.0 if is_last else _COARSE_SHARE)
        family = build(level, shared=shared)
        flat = _start(family, level)
        if blocks is not None:
            below = levels[depth - 1]
            before = _start_of(build(below, shared=shared), below)
            flat = family.pack(transferred(family, family.unpack(flat), before, blocks))
        best: Member | None = None
        for member in _improve(family, flat, schedule, until):
            best = member
            if is_last:
                yield Progress(member.error, bound, member, None)
        assert best is not None
        blocks = family.unpack(best.flat)
        if limits.now() > until and out_of_time is not None:
            out_of_time.append(side)


def _improve(family: Bases, flat: np.ndarray, schedule: Schedule, until: float) -> Iterator[Member]:
    """Yield the best member so far after every power."""
    with limits.limited(until), la.threads_for(1 if max(family.shape) < _LARGE_SIDE else max(family.shape) ** 2):
        family.set(flat)
        best = family.best_precisions(flat, family.uniform, gap=1e-2, steps=30)
    yield best
    both, mu = np.concatenate([flat, _logs(best.M)]), best.mu
    for power, iterations in schedule.powers:
        if limits.now() > until or limits.ending():
            return
        with limits.limited(until), la.threads_for(1 if max(family.shape) < _LARGE_SIDE else max(family.shape) ** 2):
            both = descend(
                partial(family.loss, power=power),
                both,
                steps=iterations,
                tolerance=1e-14,
                memory=schedule.memory,
            ).parameters
            solved = family.best_precisions(both[: family.num_free], mu, gap=schedule.gap, steps=schedule.steps)
            mu = solved.mu
            best = min(best, solved, _as_found(family, both, mu), key=lambda member: member.error)
        yield best


def _as_found(family: Bases, both: np.ndarray, mu: np.ndarray) -> Member:
    """The member that descent itself ended at: at high powers it can beat the solved precisions."""
    M, W = family.precisions(both)
    largest = max(float(d.max()) for d in family.moves.distances(M))
    return Member(float((family.v * W).sum()) * largest, both[: family.num_free].copy(), M / largest, mu)


def _logs(M: np.ndarray) -> np.ndarray:
    return np.log(np.where(M > 0, M, 1.0)).ravel()


def build(product: ProductProblem, *, fold: bool = True, shared: bool | None = None) -> Bases:
    """Make the family of a problem, in even and odd blocks if `fold`.

    Two attributes share one basis if `shared`, or where that is left open, if they are equal: on a coarser level sides
    may be equal that are not on the finest.
    """
    attributes, numbers = [], []
    for i in range(len(product.sizes)):
        factors, which = unique_factors(product, i)
        grams = [f.gram() for f in factors]
        size = max(len(product.edges[i]), 1) * product.sizes[i] * 8
        fits("fit", f"attribute {i} with {len(product.edges[i])} edges", size, advice="Use a sparser policy.")
        attributes.append(Attribute(grams, _steps_of(product, i), pinned(product, i), fold=fold))
        numbers.append(np.array(which))
    if are_equal(product) if shared is None else shared:
        attributes[1] = attributes[0]
    squares = np.array([term.weight**2 for term in product.terms])
    moves = AlongOne(attributes) if product.threshold is None else InBalls(attributes, product.threshold)
    return Bases(moves, numbers, squares, _public(product))


def _steps_of(product: ProductProblem, attribute: int) -> EdgeArray:
    """The edges that a start basis goes by: in balls the shortest, whose basis is the better start."""
    return product.edges[attribute] if product.threshold is None else line(product.sizes[attribute]).edges


def are_equal(product: ProductProblem) -> bool:
    """Whether there are two attributes, with the same policy and the same queries in every term."""
    if len(product.sizes) != 2 or product.sizes[0] != product.sizes[1]:
        return False
    (first, numbers), (second, others) = unique_factors(product, 0), unique_factors(product, 1)
    return (
        np.array_equal(product.edges[0], product.edges[1])
        and np.array_equal(numbers, others)
        and all(np.array_equal(a.gram(), b.gram()) for a, b in zip(first, second, strict=True))
    )


def pinned(product: ProductProblem, attribute: int) -> RealMatrix:
    """Return the rows that are columns of S: public components, or the ones where some query is a total."""
    n, edges = product.sizes[attribute], product.edges[attribute]
    if len(edges) and has_public_totals(product):
        return indicators(edges, n)
    eigenvalues = [gram_eigenvalues(f) for f in unique_factors(product, attribute)[0]]
    return np.ones((int(any(e is not None and e.contrasts == 0 for e in eigenvalues)), n))


def _public(product: ProductProblem) -> Bool[np.ndarray, ...]:
    """Products of pinned columns on every attribute with edges."""
    mask = np.zeros(product.sizes, dtype=bool)
    counts = [len(indicators(e, n)) for e, n in zip(product.edges, product.sizes, strict=True)]
    mask[tuple(slice(0, c) for c in counts)] = True
    return mask


def _start(family: Bases, product: ProductProblem) -> np.ndarray:
    return family.pack(_start_of(family, product))


def _start_of(family: Bases, product: ProductProblem) -> list[Blocks]:
    """Start bases: a term's Gram matrix counts with its weight and the mean diagonals of its other factors."""
    found = []
    means = [
        np.array([float(np.trace(f.gram())) / n for f in unique_factors(product, i)[0]])
        for i, n in enumerate(product.sizes)
    ]
    for i, a in enumerate(family.own):
        shares = family.squares.copy()
        for k, (mean, which) in enumerate(zip(means, family.numbers, strict=True)):
            if k != i:
                shares = shares * mean[which]
        found.append(a.start(np.bincount(family.numbers[i], shares, means[i].size)))
    return found


def coarser(product: ProductProblem) -> ProductProblem | None:
    """Return the problem with its large sides halved, or None where there are none or their kind has no small version.

    Only sizes, edges and terms of the result have a meaning; its `problem` is the fine one.
    """
    if max(product.sizes) <= _COARSE_SIDE:
        return None
    sizes = tuple(n // 2 if n > _COARSE_SIDE else n for n in product.sizes)
    return resized_product(product, sizes)


def transferred(family: Bases, start: list[Blocks], coarse_start: list[Blocks], found: list[Blocks]) -> list[Blocks]:
    """Carry bases to a finer level: the same coordinates in the start basis, new columns as they are there."""
    return [
        [
            _carried(fine, coarse, block, kept.shape[1])
            for fine, coarse, block, kept in zip(f, c, b, a.pinned, strict=True)
        ]
        for a, f, c, b in zip(family.own, start, coarse_start, found, strict=True)
    ]


def _carried(fine: RealMatrix, coarse: RealMatrix, block: RealMatrix, kept: int) -> RealMatrix:
    from scipy.optimize import linear_sum_assignment

    coordinates = np.linalg.solve(coarse, block)
    rest = np.abs(coordinates[kept:, kept:])
    _, columns = linear_sum_assignment(-rest / rest.max(axis=0))
    coordinates = coordinates[:, np.concatenate([np.arange(kept), kept + columns])]
    full = np.eye(fine.shape[1])
    full[: len(coordinates), : len(coordinates)] = coordinates / np.diag(coordinates)
    return np.asarray(fine @ full)


def to_sketch(family: Bases, member: Member) -> Sketch:
    """Return a member as rows with largest entry 1."""
    family.set(member.flat)
    return family.sketch(member.M)


FAMILY = Family(name="bases", noise="gaussian", structured=True, search=fit, balls=True, tensors=_TENSORS)
