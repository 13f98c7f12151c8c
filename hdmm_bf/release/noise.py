"""Exact noise: whole numbers with the laws of discrete Laplace, rounded normal and discrete Gaussian variables.

The only home of opendp, and short on purpose. Noise is calibrated to an exact integer sensitivity, and its privacy map,
which rounds up, must confirm the request before a single number is drawn: OpenDP's for discrete noise, the enclosures
of `analytic` for rounded normal noise. Discrete Gaussian noise, drawn by OpenDP, is for accounting in zCDP alone.
Nothing here sees data: noise is drawn first and added by the caller.

Guarantees:
    The noise of `laplace(s, epsilon)` makes integer answers of L1 sensitivity s epsilon-private, and that of
    `gaussian(t, rho)` makes integer answers of squared L2 sensitivity t rho-zCDP, on a real computer: integers in,
    integers out, and no floating point between the sampler's random bits and its result. The noise of `rounded(t, rho)`
    does the same and is sqrt(2 rho)-GDP; that of `rounded_for(t, epsilon, delta)` makes them (epsilon, delta)-private.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias, final

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf._types import AnyArray, Noise
from hdmm_bf.release import analytic, discrete_laplace, rounded_normal

Law: TypeAlias = Literal["discrete", "rounded"]
"""Probabilities exp(-|k| / scale) or exp(-k^2 / (2 scale^2)) on the integers; or a normal variable, rounded."""

_CHUNK = 8192
"""Samples drawn at a time: progress is shown between chunks."""

_MOST_THREADS = 4
_SMOOTH = 5
"""Scales from which the variance of the discrete Gaussian is its scale squared, to a relative 1e-200."""
LARGEST = 2**62
"""Noise is not drawn at scales whose samples could leave 64 bits."""

_TAIL = 64
"""Scales that a sample does not exceed except with probability e^-64 (Laplace) or less (Gaussian)."""


@final
@dataclass(frozen=True)
class Sampler:
    """Discrete noise of one scale, in units of the grid.

    Attributes:
        noise: "laplace" or "gaussian".
        scale: the parameter of the distribution; sigma of a normal variable before rounding.
        loss: epsilon (Laplace) or rho (Gaussian) that the privacy map states for the calibrated sensitivity.
        law: "discrete" has weights exp(-|k| / scale) or exp(-k^2 / (2 scale^2)) on all integers k; "rounded", for
            Gaussian noise, has the probabilities of round(N(0, scale^2)).
    """

    noise: Noise
    scale: float
    loss: float
    law: Law = "discrete"

    @property
    def variance(self) -> float:
        """Variance of one sample, from the distribution on whole numbers."""
        if self.law == "rounded":
            return rounded_normal.variance(self.scale)
        if self.noise == "laplace":
            return 2 * math.exp(-1 / self.scale) / math.expm1(-1 / self.scale) ** 2
        if self.scale > _SMOOTH:
            return self.scale**2
        weights = [math.exp(-((k / self.scale) ** 2) / 2) for k in range(1, 20 * _SMOOTH)]
        return sum(2 * k * k * w for k, w in enumerate(weights, 1)) / (1 + 2 * sum(weights))

    @property
    def reach(self) -> int:
        """A size that no sample exceeds in practice; used to refuse what could overflow."""
        return math.ceil(_TAIL * self.scale)

    def draw(self, size: int, *, callback: Callable[[int], None] | None = None) -> AnyArray:
        """Draw independent samples; `callback` is told how many are done."""
        sizes = [min(_CHUNK, size - start) for start in range(0, size, _CHUNK)]
        if len(sizes) == 1 and callback is None:
            return self._samples(size)
        parts: list[AnyArray] = []
        with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
            for part in pool.map(self._samples, sizes):
                parts.append(part)
                if callback is not None:
                    callback(sum(map(len, parts)))
        return np.concatenate([np.empty(0, dtype=np.int64), *parts])

    def _samples(self, count: int) -> AnyArray:
        scale = _checked_scale(self.scale)
        if self.law == "rounded":
            return rounded_normal.draw(scale, count)
        if self.noise == "laplace":
            return discrete_laplace.draw(scale, count)
        return np.asarray(_measurement("gaussian", scale)([0] * count), dtype=np.int64)


def laplace(sensitivity: int, epsilon: float) -> Sampler:
    """Return the least discrete Laplace noise that makes answers of that L1 sensitivity epsilon-private."""
    if not 0 < sensitivity < LARGEST:
        raise fail("noise", f"sensitivity of {sensitivity}", "does not fit in 64 bits", "Use a coarser grid.")
    scale = _checked_scale(sensitivity / epsilon)
    while _measurement("laplace", scale).map(sensitivity) > epsilon:
        scale = math.nextafter(scale, math.inf)
    return Sampler("laplace", scale, float(_measurement("laplace", scale).map(sensitivity)))


def privacy_loss(sampler: Sampler, sensitivity: int) -> float:
    """Return what the privacy map states: epsilon at an L1 sensitivity, or rho at a squared L2 sensitivity."""
    if sampler.law == "rounded" and sampler.noise != "gaussian":
        return math.inf  # a normal variable has no epsilon
    if sampler.law == "rounded":
        return analytic.up(Fraction(sensitivity) / (2 * Fraction(_checked_scale(sampler.scale)) ** 2))
    distance = sensitivity if sampler.noise == "laplace" else _root_up(sensitivity)
    return float(_measurement(sampler.noise, _checked_scale(sampler.scale)).map(distance))


def gaussian(sensitivity_squared: int, rho: float) -> Sampler:
    """Return the least discrete Gaussian noise that makes answers of that squared L2 sensitivity rho-zCDP."""
    distance = _root_up(sensitivity_squared)
    scale = _checked_scale(distance / math.sqrt(2 * rho))
    while _measurement("gaussian", scale).map(distance) > rho:
        scale = math.nextafter(scale, math.inf)
    return Sampler("gaussian", scale, float(_measurement("gaussian", scale).map(distance)))


def rounded(sensitivity_squared: int, rho: float) -> Sampler:
    """Return the least rounded normal noise that makes answers of that squared L2 sensitivity rho-zCDP."""
    scale = _checked_scale(math.sqrt(sensitivity_squared) / math.sqrt(2 * rho))
    while Fraction(sensitivity_squared) > 2 * Fraction(rho) * Fraction(scale) ** 2:
        scale = math.nextafter(scale, math.inf)
    return _rounded_at(scale, sensitivity_squared)


def rounded_for(sensitivity_squared: int, epsilon: float, delta: float) -> Sampler:
    """Return the least rounded normal noise that makes answers of that L2 sensitivity (epsilon, delta)-private."""
    return _rounded_at(_checked_scale(analytic.sigma_for(sensitivity_squared, epsilon, delta)), sensitivity_squared)


def _rounded_at(scale: float, sensitivity_squared: int) -> Sampler:
    made = Sampler("gaussian", scale, math.inf, "rounded")
    return Sampler("gaussian", scale, privacy_loss(made, sensitivity_squared), "rounded")


def keeps(sampler: Sampler, sensitivity_squared: int, epsilon: float, delta: float) -> bool:
    """Whether Gaussian noise is confirmed to be (epsilon, delta)-private."""
    if sampler.law == "rounded":
        return analytic.keeps(analytic.mu_above(sensitivity_squared, sampler.scale), epsilon, delta)
    return approximate_epsilon(sampler, sensitivity_squared, delta) <= epsilon


def at_scale(noise: Noise, scale: float, law: Law = "discrete") -> Sampler:
    """Return noise of a given scale; its loss is that of a shift by one."""
    made = Sampler(noise, _checked_scale(scale), math.inf, law)
    return Sampler(noise, scale, privacy_loss(made, 1), law)


def approximate_epsilon(sampler: Sampler, sensitivity_squared: int, delta: float) -> float:
    """Return OpenDP's epsilon at that delta for discrete Gaussian noise: the check of our own conversion."""
    dp = _opendp()
    converted = dp.c.make_zCDP_to_approxDP(_measurement("gaussian", sampler.scale))
    return float(converted.map(_root_up(sensitivity_squared)).epsilon(delta))


def _root_up(square: int) -> float:
    """Return a float that is at least the square root of a whole number."""
    root = math.sqrt(square)
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root


def _checked_scale(scale: float) -> float:
    """Refuse noise of scale zero, which OpenDP accepts, and noise whose samples would not fit in 64 bits."""
    if not scale > 0 or not math.isfinite(scale) or _TAIL * scale >= LARGEST:
        advice = "Use a larger epsilon, or a strategy on a coarser grid."
        raise fail("noise", f"scale {scale:.3g}", "must be positive, and its samples must fit in 64 bits", advice)
    return scale


@functools.lru_cache(maxsize=32)
def _measurement(noise: Noise, scale: float) -> Any:
    dp = _opendp()
    integers = dp.vector_domain(dp.atom_domain(T="i64"))
    if noise == "laplace":
        return dp.m.make_laplace(integers, dp.l1_distance(T="i64"), scale)
    return dp.m.make_gaussian(integers, dp.l2_distance(T="f64"), scale)


@functools.cache
def _opendp() -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib")  # global in OpenDP; discrete samplers are behind it
    return dp
