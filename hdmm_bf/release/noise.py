"""Exact noise: whole numbers from OpenDP's discrete Laplace and discrete Gaussian samplers.

The only home of opendp, and short on purpose. A measurement is calibrated to an exact integer sensitivity, and its own
privacy map, which rounds up, must confirm the request before a single number is drawn. Nothing here sees data: noise
is drawn first and added by the caller.

Guarantees:
    The noise of `laplace(s, epsilon)` makes integer answers of L1 sensitivity s epsilon-private, and that of
    `gaussian(t, rho)` makes integer answers of squared L2 sensitivity t rho-zCDP, on a real computer: integers in,
    integers out, and no floating point between the sampler's random bits and its result.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

import numpy as np
from jaxtyping import Int64

from hdmm_bf._checks import fail
from hdmm_bf._types import Noise

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
        noise: "laplace" has weights exp(-|k| / scale), "gaussian" exp(-k^2 / (2 scale^2)), on all integers k.
        scale: the parameter of the distribution.
        loss: epsilon (Laplace) or rho (Gaussian) that OpenDP's privacy map states for the calibrated sensitivity.
    """

    noise: Noise
    scale: float
    loss: float

    @property
    def variance(self) -> float:
        """Variance of one sample, from the discrete distribution."""
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

    def draw(self, size: int, *, callback: Callable[[int], None] | None = None) -> Int64[np.ndarray, " size"]:
        """Draw independent samples; `callback` is told how many are done."""
        measure = _measurement(self.noise, self.scale)
        sizes = [min(_CHUNK, size - start) for start in range(0, size, _CHUNK)]
        parts: list[np.ndarray] = []
        if len(sizes) == 1 and callback is None:
            return np.asarray(measure([0] * size), dtype=np.int64)
        with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
            for part in pool.map(lambda count: measure([0] * count), sizes):
                parts.append(np.asarray(part, dtype=np.int64))
                if callback is not None:
                    callback(sum(map(len, parts)))
        return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def laplace(sensitivity: int, epsilon: float) -> Sampler:
    """Return the least discrete Laplace noise that makes answers of that L1 sensitivity epsilon-private."""
    if not 0 < sensitivity < LARGEST:
        raise fail("noise", f"sensitivity of {sensitivity}", "does not fit in 64 bits", "Use a coarser grid.")
    scale = _checked_scale(sensitivity / epsilon)
    while _measurement("laplace", scale).map(sensitivity) > epsilon:
        scale = math.nextafter(scale, math.inf)
    return Sampler("laplace", scale, float(_measurement("laplace", scale).map(sensitivity)))


def privacy_loss(sampler: Sampler, sensitivity: int) -> float:
    """Return what OpenDP's privacy map states: epsilon at an L1 sensitivity, or rho at a squared L2 sensitivity."""
    distance = sensitivity if sampler.noise == "laplace" else _root_up(sensitivity)
    return float(_measurement(sampler.noise, _checked_scale(sampler.scale)).map(distance))


def gaussian(sensitivity_squared: int, rho: float) -> Sampler:
    """Return the least discrete Gaussian noise that makes answers of that squared L2 sensitivity rho-zCDP."""
    distance = _root_up(sensitivity_squared)
    scale = _checked_scale(distance / math.sqrt(2 * rho))
    while _measurement("gaussian", scale).map(distance) > rho:
        scale = math.nextafter(scale, math.inf)
    return Sampler("gaussian", scale, float(_measurement("gaussian", scale).map(distance)))


def at_scale(noise: Noise, scale: float) -> Sampler:
    """Return discrete noise of a given scale; its loss is that of a shift by one."""
    distance: int | float = 1 if noise == "laplace" else 1.0
    checked = _checked_scale(scale)
    return Sampler(noise, checked, float(_measurement(noise, checked).map(distance)))


def approximate_epsilon(sampler: Sampler, sensitivity_squared: int, delta: float) -> float:
    """Return OpenDP's epsilon at that delta for Gaussian noise: the check of our own conversion."""
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
