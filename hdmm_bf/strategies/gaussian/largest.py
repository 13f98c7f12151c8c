"""Gaussian noise: the strategy whose largest variance is least, with its proof, for any policy and any targets.

    primal   minimise max_g v_g(X^-1) * max_e d_e(X)
    dual     maximise f(lam, mu)^2 over weights lam on queries (or groups of them) and mu on edges, each with sum 1,
             f(lam, mu) = || diag(sqrt lam) W_G diag(sqrt mu) ||_* = tr (R L(mu) R^T)^(1/2),   V(lam) = R^T R

v(X) and d(X) at the minimiser X(lam, mu) of tr(V X^-1) + tr(L X) are twice the gradient of f: log f rises along their
logarithms (`secants`). f is close to its maximum long before the last query and the last edge are below f: `two_boxes`
rounds X(lam, mu) to a strategy that is nearer to it. Ranges and prefixes of a line start from the weights of half as
many cells (`coarse`). Problems that look the same from both ends are searched in two `halves`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hdmm_bf._types import RealVector, SquareMatrix
from hdmm_bf.bounds.dense import uniform
from hdmm_bf.objectives import limits
from hdmm_bf.problem.mirror import mirror
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.gaussian.ascent import LIGHTEST
from hdmm_bf.strategies.gaussian.coarse import halved, intervals, line, stretched
from hdmm_bf.strategies.gaussian.halves import Halved
from hdmm_bf.strategies.gaussian.secants import Secants
from hdmm_bf.strategies.gaussian.two_boxes import TwoBoxes
from hdmm_bf.strategies.gaussian.whole import Found, Kernel, Weights, Whole
from hdmm_bf.strategies.search import Progress

_LIGHTEST_QUERY = 1e-11
"""Smallest weight of a query, against the largest: what has no weight at all would not be answered. Where the optimum
has none, the value stays above it by about the square root of this."""

_OVERSHOT = 0.97
"""A bound below this share of the best one means that the last step went too far."""

_STILL, _STILL_STEPS, _HALF_STEPS = 3e-5, 3, 40
"""A search on half as many cells ends when its bound rose by less than this share in so many steps, or after so many
steps in all."""


class Step(NamedTuple):
    """A step of the ascent: weights, X(lam, mu), and the best f^2 so far."""

    lam: RealVector
    mu: RealVector
    found: Found
    best: float


def steps(problem: Problem, *, gap: float, start: Weights | None = None) -> Iterator[Progress[SquareMatrix, Weights]]:
    """Yield Gram matrices X = A^T A and weights (lam, mu), better and better, for a problem with edges.

    Args:
        problem: the workload under the policy, with a goal other than the total.
        gap: the proven gap aimed at; it decides how X is rounded.
        start: weights of an earlier search, to start from; by default those of the same problem on half as many cells,
            where there is one, else equal weights.
    """
    kernel = kernel_of(problem)
    boxes = TwoBoxes(kernel, gap=gap)
    for lam, mu, found, best in _ascent(kernel, start or _from_half(problem)):
        bound = found.root_sum**2 * kernel.scale
        made = boxes.rounded(found, lam, mu, best)
        yield Progress(made.error * kernel.scale, bound, kernel.grounded(made.X), kernel.unfolded(lam, mu))


def kernel_of(problem: Problem) -> Kernel:
    """Return the matrices of a problem: in two halves where it is its own mirror image, else as a whole."""
    pairs = mirror(problem)
    halved = None if pairs is None else Halved(problem, pairs)
    return halved if halved is not None and halved.has_full_rank else Whole(problem)


def _ascent(kernel: Kernel, start: Weights | None) -> Iterator[Step]:
    """Raise f: yield weights, what they find, and the best f^2 so far."""
    m, e = kernel.counts
    blocks = (slice(0, m), slice(m, m + e))
    proof = np.concatenate((uniform(m), uniform(e)) if start is None else kernel.folded(start))
    secants = Secants(proof, blocks=blocks, lightest=(_LIGHTEST_QUERY, math.exp(LIGHTEST)))
    best, safe = 0.0, proof
    while True:
        weights = secants.weights()
        lam, mu = weights[blocks[0]], weights[blocks[1]]
        found = kernel.at(lam, mu)
        v, d, bound = found.v, found.d, found.root_sum**2
        if not bound > _OVERSHOT * best:
            secants.restart(safe)
            continue
        excess = np.concatenate([v / (lam @ v), d / (mu @ d)])
        if bound > best:
            best, safe = bound, weights * excess  # a step of power 1 does not go too far
        yield Step(lam, mu, found, best)
        secants.advance(weights, excess)


def _from_half(problem: Problem) -> Weights | None:
    """Return the weights of the same problem on half as many cells, stretched; None where there is no such problem."""
    shape = line(problem)
    if shape is None:
        return None
    half = halved(shape)
    kernel = kernel_of(half)
    bounds: list[float] = []
    lam, mu = map(uniform, kernel.counts)
    proof = Weights(lam, mu)
    for lam, mu, found, best in _ascent(kernel, _from_half(half)):
        proof = Weights(lam, mu) if found.root_sum**2 == best else proof
        bounds.append(best)
        still = len(bounds) > _STILL_STEPS and best < (1 + _STILL) * bounds[-1 - _STILL_STEPS]
        if still or len(bounds) == _HALF_STEPS or limits.ending():
            break
    own = intervals(half)
    assert own is not None, "half of a line is a line"
    lam, mu = kernel.unfolded(*proof)
    lam = stretched(lam, own.queries, shape.queries, shape.reach)
    return Weights(lam, stretched(mu, own.edges, shape.edges, shape.reach))
