"""Dual ascent on edge weights with Nesterov's method, for any family whose best member for given weights is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar, final

import numpy as np

from hdmm_bf._types import RealVector
from hdmm_bf.strategies.gaussian.dense import LIGHTEST, OVERSHOT, Momentum
from hdmm_bf.strategies.search import Progress

Candidate = TypeVar("Candidate")


@final
@dataclass(frozen=True, eq=False)
class Point(Generic[Candidate]):
    """The best member for given weights, before it is scaled to sensitivity 1."""

    root_sum: float
    """f(mu), rounded down where it is a proof; its square bounds the error of the family."""
    trace: float
    """The member's error at its own scale."""
    distances: RealVector
    """Its d_e, one a weight; the largest is the squared sensitivity."""
    candidate: Candidate


def ascent(
    evaluate: Callable[[RealVector], Point[Candidate]], start: RealVector
) -> Iterator[Progress[Candidate, RealVector]]:
    """Yield error, bound, best member (not scaled) and weights, better and better."""
    momentum = Momentum(np.log(np.maximum(start / start.max(), math.exp(LIGHTEST))))
    bound, error, proof = 0.0, math.inf, start
    best: Candidate | None = None
    while True:
        mu = momentum.weights()
        point = evaluate(mu)
        f, d = point.root_sum, point.distances
        if f * f < OVERSHOT * bound:
            momentum.reset(np.log(np.maximum(proof, 1e-35)), power=1.5)
            continue
        if f * f > bound:
            bound, proof = f * f, mu
        if point.trace * d.max() < error:
            error, best = point.trace * float(d.max()), point.candidate
        assert best is not None
        yield Progress(error, bound, best, proof)
        momentum.advance(mu, d / (mu @ d))
