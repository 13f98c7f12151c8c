"""Dual ascent on edge weights: one for all families whose best member for given weights is known.

    maximise f(mu)^2 over weights on the edges,       2 f(mu) = min over members X of tr(V X^-1) + sum_e mu_e d_e(X)

d(X(mu)) is twice the gradient of f. The classical map mu <- mu d^2 is a gradient step on log mu; we run Nesterov's
method with it, the exponent 2 replaced by the inverse of the curvature seen by the last secant, and drop the momentum
when it points downhill. A family may offer to round its member: see `dense`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, final

import numpy as np

from hdmm_bf._types import RealVector
from hdmm_bf.strategies.search import Progress

Candidate = TypeVar("Candidate")

LIGHTEST = -80.0
"""Smallest log weight: e^-80 of the largest is as good as gone and still finds its way back."""

_OVERSHOT = 0.5
"""A bound below this share of the best one means that the last step went too far."""

_MOST_RAISED, _REGAINED = 10.0, 1.1
"""Weights that are far too small are raised by at most this power; less after a step that went too far, then more."""

_FIRST_PRICE = 4.0
_PATIENCE = 10
"""Rounding is first tried when its first-order price is below four gaps. What it leaves falls like price^1.5
to price^2 (measured), which tells when to try again; and it is tried at least every so many steps."""


@final
@dataclass(frozen=True, eq=False)
class Point(Generic[Candidate]):
    """The best member for given weights, before it is scaled to sensitivity 1.

    Attributes:
        root_sum: f(mu), rounded down where it is a proof; its square bounds the error of the family.
        trace: the member's error at its own scale.
        distances: its d_e, one per weight; the largest is the squared sensitivity.
        candidate: the member.
        rounded: makes a better member of it, if the family knows how, from the weights; returns its error too.
    """

    root_sum: float
    trace: float
    distances: RealVector
    candidate: Candidate
    rounded: Callable[[RealVector], tuple[float, Candidate]] | None = None


class Momentum:
    """Nesterov's method on logarithms of weights, with the step length from the last secant and restarts.

    Weights come in blocks, each with sum 1: the edges alone, or the queries and the edges. With two blocks the map
    w <- w excess^power is safe for power 1 and may cycle for 2 (`least`); `trust` is how much of the length that the
    secant suggests is taken. Weights that are too small and far from the
    average would take long to come back: they are raised by a larger power, up to ten times (`raising`). No weight is
    less than `lightest` times the largest of its block.
    """

    def __init__(
        self,
        log_weights: RealVector,
        *,
        blocks: Sequence[slice] = (slice(None),),
        lightest: Sequence[float] = (0.0,),
        least: float = 1.5,
        trust: float = 0.7,
        raising: bool = False,
    ) -> None:
        self.blocks, self.lightest, self.least, self.trust, self.raising = blocks, lightest, least, trust, raising
        self.most_raised = _MOST_RAISED
        self.reset(log_weights, power=max(least, 2.0 if len(blocks) == 1 else 1.5))

    def reset(self, log_weights: RealVector, *, power: float) -> None:
        """Start again from a point without momentum."""
        self.at, self.stepped, self.age, self.power = log_weights, log_weights, 0, power
        self.last: tuple[RealVector, RealVector] | None = None

    def overshot(self, log_weights: RealVector) -> None:
        """Go back after a step that went too far; with power 1 and nothing raised the next one cannot."""
        self.most_raised = max(1.0, self.most_raised / 4)
        self.reset(log_weights, power=1.0)

    def weights(self) -> RealVector:
        """Return the weights at the current point."""
        logs = [np.maximum(self.at[block] - self.at[block].max(), LIGHTEST) for block in self.blocks]
        self.at = np.concatenate(logs)
        weights = [np.maximum(np.exp(log), least) for log, least in zip(logs, self.lightest, strict=True)]
        return np.concatenate([part / part.sum() for part in weights])

    def advance(self, weights: RealVector, excess: RealVector) -> None:
        """Step along log(d / f), which is the gradient of log f in the metric of the weights."""
        slope = np.log(np.maximum(excess, 1e-12))
        share = weights * excess  # sums to one in every block, because sum mu d = f
        if self.last is not None:
            self._adapt(share, self.at - self.last[0], slope - self.last[1])
        self.last = (self.at, slope)
        step = self.at + (self.power * self._raised(weights, slope) if self.raising else self.power * slope)
        if self.age and (share - weights) @ (step - self.stepped) < 0:
            self.age = 0
        self.at = step + self.age / (self.age + 3.0) * (step - self.stepped)
        self.stepped, self.age = step, self.age + 1

    def _raised(self, weights: RealVector, slope: RealVector) -> RealVector:
        sizes = np.concatenate([np.full(weights[block].size, weights[block].size) for block in self.blocks])
        factor = np.clip((sizes * weights) ** -0.25, 1.0, self.most_raised)
        self.most_raised = min(_MOST_RAISED, _REGAINED * self.most_raised)
        return np.where(slope > 0, factor * slope, slope)

    def _adapt(self, share: RealVector, moved: RealVector, turned: RealVector) -> None:
        bend = size = 0.0
        for block in self.blocks:
            weighed = share[block] * turned[block]  # covariances under the shares, in few passes over the weights
            mean = weighed.sum()
            bend += mean * (share[block] @ moved[block]) - weighed @ moved[block]
            size += weighed @ turned[block] - mean * mean
        if bend > 0 and size > 0:
            self.power = max(self.least, min(2 * self.power, self.trust * bend / size))


def ascent(
    evaluate: Callable[[RealVector], Point[Candidate]],
    start: RealVector,
    *,
    gap: float = 0.0,
    scale: float = 1.0,
) -> Iterator[Progress[Candidate, RealVector]]:
    """Yield error, bound, member (not scaled) and weights of every step; the loop keeps the best of each.

    Args:
        evaluate: returns the best member for given weights.
        start: weights to start from.
        gap: the proven gap aimed at; it decides when rounding is worth its price.
        scale: what errors and bounds are multiplied by.
    """
    momentum = Momentum(np.log(np.maximum(start, math.exp(LIGHTEST))))
    best_bound, least_error, proof = 0.0, math.inf, start
    waited, ready = 0, _FIRST_PRICE * gap
    while True:
        mu = momentum.weights()
        point = evaluate(mu)
        f, d = point.root_sum, point.distances
        if f * f < _OVERSHOT * best_bound:
            momentum.reset(np.log(np.maximum(proof, 1e-35)), power=1.5)
            continue
        if f * f > best_bound:
            best_bound, proof = f * f, mu
        error, candidate = float(point.trace * d.max()), point.candidate
        least_error = min(least_error, error)
        if point.rounded is not None:
            waited += 1
            price = mu @ np.maximum(d / f - 1, 0)
            if least_error > best_bound * (1 + gap) and (price < ready or waited > _PATIENCE):
                waited = 0
                value, X = point.rounded(mu)
                ready = float(price) * math.sqrt(1.25 * gap / max(value / best_bound - 1, gap))
                if value < error:
                    error, candidate = value, X
                    least_error = min(least_error, error)
        yield Progress(float(error * scale), float(f * f * scale), candidate, mu)
        momentum.advance(mu, d / (mu @ d))
