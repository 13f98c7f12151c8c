"""Gaussian noise: the strategy of least error, with its proof, for any policy.

    primal   minimise tr(V X^-1) * max_e d_e(X)       dual   maximise f(mu)^2 over weights on the edges

Dual ascent. X(mu) minimises tr(V X^-1) + sum_e mu_e d_e, and d(X(mu)) is twice the gradient of f. The classical
map mu <- mu d^2 is a gradient step on log mu; we run Nesterov's method with it, the exponent 2 replaced by the
inverse of the curvature seen by the last secant, and drop the momentum when it points downhill.

Primal rounding. Scaling X(mu) to sensitivity 1 pays for the largest excess max d / f. In the distances of all
pairs of vertices, a linear image of X, the constraint is a box d_e <= c: moving X(mu) into the box pays only the
mu-average of the excess. This brings the proof ten times closer at every step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64

from hdmm_bf._types import RealVector, SquareMatrix
from hdmm_bf.bounds import DualPoint, GramRoot, gram_scale, uniform
from hdmm_bf.laplacian import EdgeForms, edge_forms
from hdmm_bf.strategies.solver import Progress
from hdmm_bf.transform import Problem

_LEVELS = (0.999, 1.0, 1.001, 1.003, 1.01, 1.03)
"""Heights of the box, against f, among which a separable model of the error chooses."""

LIGHTEST = -80.0
"""Smallest log weight: e^-80 of the largest is as good as gone and still finds its way back."""

_FIRST_PRICE = 4.0
_PATIENCE = 10
"""Rounding is first tried when its first-order price is below four gaps. What it leaves falls like price^1.5
to price^2 (measured), which tells when to try again; and it is tried at least every so many steps."""

_MODEL_EDGES = 50_000
"""Edges, at even steps through the list, on which the model that chooses the level is evaluated."""

OVERSHOT = 0.5
"""A bound below this share of the best one means that the last step went too far."""


class Momentum:
    """Nesterov's method on log mu, with the step length from the last secant and restarts."""

    def __init__(self, log_weights: RealVector) -> None:
        self.reset(log_weights, power=2.0)

    def reset(self, log_weights: RealVector, *, power: float) -> None:
        """Start again from a point without momentum."""
        self.at, self.stepped, self.age, self.power = log_weights, log_weights, 0, power
        self.last: tuple[RealVector, RealVector] | None = None

    def weights(self) -> RealVector:
        """Return mu at the current point."""
        self.at = np.maximum(self.at - self.at.max(), LIGHTEST)
        mu = np.exp(self.at)
        return np.asarray(mu / mu.sum())

    def advance(self, mu: RealVector, excess: RealVector) -> None:
        """Step along log(d / f), which is the gradient of log f in the metric of the weights."""
        slope = np.log(np.maximum(excess, 1e-12))
        share = mu * excess  # sums to one, because sum mu d = f
        if self.last is not None:
            self._adapt(share, self.at - self.last[0], slope - self.last[1])
        self.last = (self.at, slope)
        step = self.at + self.power * slope
        if self.age and (share - mu) @ (step - self.stepped) < 0:
            self.age = 0
        self.at = step + self.age / (self.age + 3.0) * (step - self.stepped)
        self.stepped, self.age = step, self.age + 1

    def _adapt(self, share: RealVector, moved: RealVector, turned: RealVector) -> None:
        weighed = share * turned  # covariances under the shares, in few passes over the edges
        mean = weighed.sum()
        bend, size = mean * (share @ moved) - weighed @ moved, weighed @ turned - mean * mean
        if bend > 0 and size > 0:
            self.power = max(1.5, min(2 * self.power, 0.7 * bend / size))


def steps(
    problem: Problem, *, gap: float, start: Float64[np.ndarray, " e"] | None = None
) -> Iterator[Progress[SquareMatrix, RealVector]]:
    """Yield Gram matrices X = A^T A (lower triangles) and weights mu, better and better, for a problem with edges.

    Args:
        problem: the workload under the policy.
        gap: the proven gap aimed at; it decides when rounding is worth its price.
        start: edge weights of an earlier search, to start from.
    """
    scale = gram_scale(problem)
    root, forms = GramRoot(problem, scale), edge_forms(problem.P)
    weights = uniform(forms.num_edges) if start is None else np.maximum(start, 0) / start.sum()
    momentum = Momentum(np.log(np.maximum(weights, math.exp(LIGHTEST))))
    bound, error, proof = 0.0, math.inf, weights
    best: SquareMatrix | None = None
    waited, ready = 0, _FIRST_PRICE * gap
    while True:
        mu = momentum.weights()
        L = forms.laplacian(mu)
        point = root.dual_point(L)
        f = point.root_sum
        if f * f < OVERSHOT * bound:
            momentum.reset(np.log(np.maximum(proof, 1e-35)), power=1.5)
            continue
        d = forms.distances(point.X)
        if f * f > bound:
            bound, proof = f * f, mu
        if point.trace * d.max() < error:
            error, best = point.trace * d.max(), point.X
        waited += 1
        price = mu @ np.maximum(d / f - 1, 0)
        if error > bound * (1 + gap) and (price < ready or waited > _PATIENCE):
            waited = 0
            value, X = rounded(root, forms, point, d, mu, L)
            ready = float(price) * math.sqrt(1.25 * gap / max(value / bound - 1, gap))
            if value < error:
                error, best = value, X
        assert best is not None
        yield Progress(float(error * scale), float(bound * scale), best, proof)
        momentum.advance(mu, d / (mu @ d))


def rounded(
    root: GramRoot, forms: EdgeForms, point: DualPoint, d: RealVector, mu: RealVector, L: SquareMatrix
) -> tuple[float, SquareMatrix]:
    """Move X(mu) into the box d_e <= c: down where it sticks out, up by mu / curvature where there is room."""
    Y = root.pseudo_inverse(point)
    if Y is None:
        return math.inf, point.X
    f = point.root_sum
    bend = np.maximum(forms.curvature(L, Y), 1e-300)
    wish = mu / bend

    some = slice(None, None, -(-mu.size // _MODEL_EDGES))
    share = mu.sum() / mu[some].sum()
    wish_, d_, mu_, bend_ = wish[some], d[some], mu[some] * share, bend[some] * share

    def model(level: float) -> float:
        change = np.minimum(wish_, level * f - d_)
        return float(level * (f - mu_ @ change + 0.5 * (bend_ * change) @ change))

    change = np.minimum(wish, min(_LEVELS, key=model) * f - d)
    X = point.X.copy(order="F")
    forms.shift(X, change)
    X = root.project(X)
    return root.trace(X) * float(forms.distances(X).max()), X
