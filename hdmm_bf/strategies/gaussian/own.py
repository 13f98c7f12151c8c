"""Gaussian noise: the strategy that makes the user's own function phi of the variances small, with a bound if convex.

At a reference point r of variances let a = grad phi(r). If phi is convex, for every strategy of sensitivity 1

    phi(v) >= phi(r) + a . (v - r) >= phi(r) - a . r + f(a, mu)^2

with f as in `largest`. If phi is convex in log v only, with b = r a and B = sum b,

    phi(v) >= phi(r) + b . (log v - log r) >= phi(r) + b . log(v0 / r) - B log rho

where v0 are the variances of any X0, and rho is the largest eigenvalue of X0^-1 V(b / (B v0)) X0^-1 against L(mu):
1 / v_i <= y_i^T X y_i for y_i = X0^-1 w_i / v0_i, then Jensen's inequality, and tr(L X) <= 1. Both are tight at the
optimum, where r are its variances. The search moves r towards the variances of X(a, mu), and mu as for the total.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, final

import numpy as np
from scipy.linalg import eigh

from hdmm_bf import _linalg as la
from hdmm_bf._checks import fail
from hdmm_bf._types import RealVector, SquareMatrix
from hdmm_bf.bounds.dense import uniform
from hdmm_bf.problem.goal import Function, is_public_query
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.gaussian.ascent import Momentum
from hdmm_bf.strategies.gaussian.whole import Found, Whole
from hdmm_bf.strategies.search import Progress

if TYPE_CHECKING:
    from jax import Array

Shape: TypeAlias = Literal["convex", "convex in the logarithms", "neither"]

_TRIALS = 64
_ROOM = 1e-9
"""Pairs of points on which convexity is tried, and the share by which rounding may break it."""

_WAYS, _WAY, _WAY_STEPS = 16, 0.5, 64
_TURNED, _JUMP = 0.25, 0.15
"""Ways on which derivatives are watched, their length in log v, their steps; the share of the derivatives by which they
must turn on the whole way to be looked at, and the share of that turn in one step, of 64, that is a jump."""

_LEAST_WEIGHT = 1e-12
"""Derivatives below this share of the largest are raised to it: every query is to be answered."""

_STILL = 1e-3
"""Change of log r, on average, below which the bound for logarithms is worth its two eigendecompositions."""


class Proof(NamedTuple):
    """Derivatives and weights that prove a bound, and the shape that it hangs on."""

    queries: RealVector
    edges: RealVector
    shape: Shape


class Valued(NamedTuple):
    """A function of the variances and its derivatives."""

    value: float
    slope: RealVector


@final
class OwnFunction:
    """The user's function, in float64, refused where it is not finite or falls; public queries do not count."""

    def __init__(self, problem: Problem) -> None:
        assert problem.goal.function is not None
        self._function: Function = problem.goal.function
        self.secret = ~is_public_query(problem.workload, problem.policy)
        self._both: Callable[[Array], tuple[Array, Array]] | None = None

    def at(self, v: RealVector) -> Valued:
        """Return value and derivatives."""
        value, slope = self._evaluate(v)
        slope = np.where(self.secret, slope, 0.0)
        advice = "Use an increasing function of the variances, such as lambda v: jnp.sqrt(v).mean()."
        if not math.isfinite(value) or not np.all(np.isfinite(slope)):
            raise fail("fit", f"objective with value {value}", "it or its gradient is not finite", advice)
        if slope.min() < 0 or not slope.max() > 0:
            worst = f"derivative {slope.min():.3g} by query {int(slope.argmin())}"
            raise fail("fit", f"objective with {worst}", "must increase with the variances", advice)
        if not value > 0:
            told = "must be positive, because gaps are shares of it"
            raise fail("fit", f"objective with value {value}", told, "Add a constant, or take jnp.exp of it.")
        return Valued(value, slope)

    def _evaluate(self, v: RealVector) -> tuple[float, RealVector]:
        advice = "Return one number, made with jax.numpy from the vector of variances."
        try:
            return la.in_float64(self._run)(v)
        except (TypeError, IndexError) as error:  # JAX raises IndexError for masks
            raise fail("fit", "objective", f"could not be differentiated ({error})", advice) from None

    def _run(self, v: RealVector) -> tuple[float, RealVector]:
        import jax

        if self._both is None:
            self._both = jax.jit(jax.value_and_grad(self._function))
        value, slope = self._both(jax.numpy.asarray(v))
        return float(np.asarray(value)), np.asarray(slope, dtype=np.float64)

    def shape(self, v: RealVector, seed: int = 0) -> Shape:
        """Try convexity on random pairs around a point: in the variances first, then in their logarithms."""
        rng = np.random.default_rng(seed)
        in_v = in_logs = True
        for size in np.geomspace(0.01, 1.0, _TRIALS):
            a, b = (v * np.exp(size * rng.standard_normal(v.size)) for _ in range(2))
            ends = [self._evaluate(point)[0] for point in (a, b)]
            room = _ROOM * max(map(abs, ends))
            in_v &= self._evaluate((a + b) / 2)[0] <= sum(ends) / 2 + room
            in_logs &= self._evaluate(np.sqrt(a * b))[0] <= sum(ends) / 2 + room
        return "convex" if in_v else "convex in the logarithms" if in_logs else "neither"

    def jumps(self, v: RealVector, seed: int = 0) -> bool:
        """Whether derivatives jump on some way from a point to others near it, as those of v.max() do.

        On a way of many small steps smooth derivatives change little in each; where they jump, one step is most of all.
        """
        rng = np.random.default_rng(seed)
        for _ in range(_WAYS):
            end = _WAY * rng.standard_normal(v.size)
            slopes = np.array([self._evaluate(v * np.exp(t * end))[1] for t in np.linspace(0, 1, _WAY_STEPS + 1)])
            turned = np.abs(np.diff(slopes, axis=0)).sum(axis=1)
            if turned.sum() > _TURNED * np.abs(slopes).sum(axis=1).mean() and turned.max() > _JUMP * turned.sum():
                return True
        return False


def steps(problem: Problem, *, gap: float) -> Iterator[Progress[SquareMatrix, Proof]]:
    """Yield Gram matrices, values and bounds of phi, and the weights (a, mu), for a problem with edges.

    Args:
        problem: the workload under the policy, with a goal of the user's own.
        gap: the proven gap aimed at.
    """
    phi = OwnFunction(problem)
    kernel = Whole(problem)
    momentum = Momentum(np.log(uniform(kernel.edges.num_edges)))
    found = kernel.at(uniform(kernel.queries.count), momentum.weights())
    log_r = np.log(_variances(kernel, found.v, found.d))
    shape = phi.shape(np.exp(log_r))
    value, slope = phi.at(np.exp(log_r))  # kept where derivatives lead nowhere, as those of a largest variance do
    yield Progress(value, 0.0, kernel.inside.grow(found.X), Proof(_raised(slope), momentum.weights(), shape))
    share, change = 0.5, np.zeros_like(log_r)
    while True:
        mu, r = momentum.weights(), np.exp(log_r)
        value, slope = phi.at(r)
        a = _raised(slope)
        found = kernel.at(a, mu)
        v = _variances(kernel, found.v, found.d)
        bound = -math.inf
        if shape == "convex":
            bound = (
                value - slope @ r + _root_sum(kernel, found, slope, phi.secret & (a > slope), mu) ** 2 * kernel.scale
            )
        elif shape == "convex in the logarithms" and np.abs(change).mean() < _STILL:
            bound = _log_bound(kernel, value, slope * r, log_r, v, found.X / found.d.max(), mu)
        yield Progress(phi.at(v).value, max(float(bound), 0.0), kernel.inside.grow(found.X), Proof(a, mu, shape))
        momentum.advance(mu, found.d / (mu @ found.d))
        last, change = change, phi.secret * (np.log(v) - log_r)
        share = max(0.02, share / 2) if last @ change < 0 else min(1.0, 1.2 * share)
        log_r = log_r + share * change


def _raised(slope: RealVector) -> RealVector:
    """Return weights with which every query is answered."""
    return np.asarray(np.maximum(slope, _LEAST_WEIGHT * slope.max()))


def _root_sum(kernel: Whole, found: Found, slope: RealVector, raised: np.ndarray, mu: RealVector) -> float:
    """f(slope, mu): that of the weights in use, unless some were raised; f of raised weights proves too much."""
    return kernel.dual(slope, mu).root_sum if np.any(raised) else found.root_sum


def _variances(kernel: Whole, v: RealVector, d: RealVector) -> RealVector:
    """Variances at sensitivity 1."""
    return seen(v * float(d.max()) * kernel.scale)


def seen(v: RealVector) -> RealVector:
    """Return variances as an objective sees them: those of public queries are next to nothing, not zero."""
    return np.asarray(np.maximum(v, 1e-15 * v.max()))


def _log_bound(
    kernel: Whole,
    value: float,
    b: RealVector,
    log_r: RealVector,
    v0: RealVector,
    X0: SquareMatrix,
    mu: RealVector,
) -> float:
    """The bound for functions that are convex in log v, from X0 at sensitivity 1 and its variances v0."""
    total = b.sum()
    Y = la.inverse(X0)
    if Y is None:
        return -math.inf
    Y, inside = la.symmetric(Y), kernel.inside
    M = Y @ inside.shrink(kernel.queries.gram(b / (total * v0))) @ Y
    L = inside.shrink(la.symmetric(kernel.edges.laplacian(mu)))
    rho = float(eigh(la.symmetric(M), L, eigvals_only=True)[-1])
    return float(value + b @ (np.log(v0) - log_r) - total * math.log(rho * (1 + 1e-12)))
