"""Confidence intervals: quantiles of the noise in an answer, which is a weighted sum of independent samples.

Gaussian noise gives normal answers. A sum of Laplace variables sum_j c_j L_j has the characteristic function
prod_j 1 / (1 + c_j^2 t^2); its distribution comes from Fourier inversion on a lattice (Davies, 1973), to about 1e-6 in
probability. The largest coefficients are used one by one and the rest through their power sums. Where the coefficients
are too many to write out, the log-concavity of such sums gives an interval that is a little too wide but certain.

The noise drawn is discrete; its grid is far finer than its scale, and the difference is below that of the inversion.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64
from scipy.special import ndtri

from hdmm_bf._checks import fail
from hdmm_bf._types import Noise, RealMatrix, RealVector

_TOP = 32
_POWERS = 10
_SERIES_END = 0.9
"""Coefficients beyond the largest 32 enter as a power series in (c t)^2, cut where c t = 0.9: there the first 32
factors have brought the characteristic function below 1e-8."""

_STEP = 2 * math.pi / 60
"""Lattice step: what lies 60 standard deviations minus the quantile away is counted twice, and weighs nothing."""

_SMALL = 1e-4
"""Below, 1 - (1 + a) e^-a is taken from its series."""

_NEGLIGIBLE = 1e-8
_REACHES = (8.0, 16.0, 32.0, 64.0, 128.0, 512.0, 2048.0, 8192.0)
_BLOCK = 2**22


def check_level(level: float) -> None:
    """Refuse a coverage that is none."""
    if not 0 < level < 1:
        raise fail("release.interval", f"level={level}", "must be between 0 and 1", "Use for example 0.95.")


def normal_quantile(level: float) -> float:
    """Return z such that a standard normal variable is within -z and z with probability `level`."""
    check_level(level)
    return float(ndtri(0.5 + level / 2))


def laplace_bound(level: float) -> float:
    """Return a z that every sum of Laplace variables of variance 1 stays within with probability at least `level`.

    Guarantees:
        z = a / sqrt(2 (1 - (1 + a) e^-a)) with a = -log(1 - level). S is symmetric with a log-concave density, so that
        G(x) = P(|S| > x) is log-concave too. If G(z) = e^-a, then G(x) >= e^(-a x / z) for x <= z, and
        1 = E S^2 = int 2 x G(x) dx >= (z / a)^2 2 (1 - (1 + a) e^-a). No z for variance 1 alone is much
        smaller: one Laplace variable needs 1.63 at 0.9, where this is 1.99, and 3.26 at 0.99, where it is 3.35.
    """
    check_level(level)
    a = -math.log1p(-level)
    share = -math.expm1(-a) - a * math.exp(-a) if a > _SMALL else a * a * (0.5 - a / 3)  # of 1 - (1 + a) e^-a
    return a / math.sqrt(2 * share)


def half_width(noise: Noise, level: float) -> float:
    """Return half the width of an interval for any answer, in standard deviations; a little wide for Laplace noise."""
    return normal_quantile(level) if noise == "gaussian" else laplace_bound(level)


def laplace_quantiles(coefficients: RealMatrix, level: float) -> RealVector:
    """Return, for every row c, the z for which |sum_j c_j L_j| <= z with probability `level`, L_j of scale 1.

    Guarantees:
        The probability is `level` within 1e-5.
    """
    check_level(level)
    stddev = np.sqrt(2 * (coefficients**2).sum(axis=1))
    live = np.flatnonzero(stddev > 0)
    quantiles = np.zeros(len(coefficients))
    if live.size:
        squares = (coefficients[live] / stddev[live, None]) ** 2
        quantiles[live] = stddev[live] * _standard_quantiles(squares, level)
    return np.asarray(quantiles)


def _standard_quantiles(squares: RealMatrix, level: float) -> RealVector:
    """Quantiles for rows of squared coefficients with sum 1/2, group by group of equal reach in t."""
    top, powers = _summary(squares)
    alone = top[:, 0] >= 0.5 * (1 - 1e-9)  # one Laplace variable: closed form
    quantiles = np.full(len(top), -math.log1p(-level) / math.sqrt(2))
    reach = np.full(len(top), _REACHES[-1])
    for t in reversed(_REACHES[:-1]):
        reach[_log_transform(top, powers, np.array([t]))[:, 0] < math.log(_NEGLIGIBLE)] = t
    for t in _REACHES:
        group = np.flatnonzero((reach == t) & ~alone)
        size = max(1, _BLOCK // math.ceil(t / _STEP))
        for block in (group[i : i + size] for i in range(0, group.size, size)):
            quantiles[block] = _invert(top[block], powers[block], t, level)
    return quantiles


def _summary(squares: RealMatrix) -> tuple[RealMatrix, RealMatrix]:
    """The largest squares in falling order, and power sums of the others."""
    count = min(_TOP, squares.shape[1])
    parted = np.partition(squares, squares.shape[1] - count, axis=1)
    top = np.sort(parted[:, squares.shape[1] - count :], axis=1)[:, ::-1]
    rest = parted[:, : squares.shape[1] - count]
    powers, current = np.zeros((len(squares), _POWERS)), np.ones_like(rest)
    for k in range(_POWERS):
        current = current * rest
        powers[:, k] = current.sum(axis=1)
    return top, powers


def _log_transform(top: RealMatrix, powers: RealMatrix, t: RealVector) -> RealMatrix:
    """Log of the characteristic function, queries x nodes; minus infinity where it is negligible."""
    squared = t**2
    logs = np.zeros((len(top), t.size))
    for j in range(top.shape[1]):
        logs -= np.log1p(top[:, j, None] * squared)
    for k in range(_POWERS):
        logs += (-1) ** (k + 1) * powers[:, k, None] * squared ** (k + 1) / (k + 1)
    if top.shape[1] == _TOP:
        logs[top[:, -1, None] * squared > _SERIES_END**2] = -np.inf
    return logs


def _invert(top: RealMatrix, powers: RealMatrix, reach: float, level: float) -> RealVector:
    """Solve P(|S| <= z) = level by Newton's method, kept inside a bracket."""
    k = np.arange(1, math.ceil(reach / _STEP) + 1)
    transform = np.exp(_log_transform(top, powers, k * _STEP))
    low, high = np.zeros(len(top)), np.full(len(top), 30.0)
    z = np.full(len(top), normal_quantile(level))
    for _ in range(60):
        covered, density = _coverage(transform, k, z)
        low, high = np.where(covered < level, z, low), np.where(covered < level, high, z)
        step = z - (covered - level) / np.maximum(density, 1e-300)
        fresh = np.where((step > low) & (step < high), step, (low + high) / 2)
        if np.all(np.abs(fresh - z) <= 1e-9 * high):
            break
        z = fresh
    return np.asarray(z)


def _coverage(transform: Float64[np.ndarray, "q k"], k: np.ndarray, z: RealVector) -> tuple[RealVector, RealVector]:
    """P(|S| <= z) and its derivative, from the lattice sums."""
    angles = k * (_STEP * z[:, None])
    covered = _STEP * z / math.pi + (2 / math.pi) * (np.sin(angles) / k * transform).sum(axis=1)
    density = _STEP / math.pi + (2 * _STEP / math.pi) * (np.cos(angles) * transform).sum(axis=1)
    return covered, density
