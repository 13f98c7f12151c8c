"""Noise of strategies by factors: one scale for every row, never less than the sensitivity was derived for.

Privacy-critical and short on purpose: what is drawn for a row is decided here, in exact arithmetic.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction

import numpy as np

from hdmm_bf._types import AnyArray, Noise
from hdmm_bf.certificate.exact import row_weight
from hdmm_bf.release import noise as samplers
from hdmm_bf.release.noise import Sampler
from hdmm_bf.release.plan import Plan
from hdmm_bf.strategies.records import AnyTensor, Block

_MOST_THREADS = 4
_FEW = 10_000
"""Rows up to which starting threads takes longer than drawing."""


def row_scales(block: Block, settled: Plan) -> AnyTensor:
    """Return the scale of the noise of every row, in units of its integers; 0 for rows that need none.

    Guarantees:
        A row of precision M has a scale s with s^2 M >= (scale 2^bits)^2 (Gaussian) or s row_weight(M) >= scale 2^bits
        (Laplace), in exact arithmetic: never less noise than the sensitivity was derived for.
    """
    if settled.row_sampler is None:
        return np.zeros(block.shape)
    unit = Fraction(settled.row_sampler.scale) * Fraction(2) ** (sum(block.bits) - settled.bits)
    levels, place = np.unique(block.precisions, return_inverse=True)
    scales = np.array([_row_scale(settled.noise, unit, level) for level in levels.tolist()])
    return np.broadcast_to(scales[place].reshape(block.precisions.shape), block.shape)


def _row_scale(noise: Noise, unit: Fraction, precision: float) -> float:
    """Return the least float, to rounding, that is enough for a row; 0 for rows not measured and for public ones."""
    if precision == 0 or precision == math.inf:
        return 0.0
    weight = row_weight(precision)
    scale = float(unit) / weight
    while (
        Fraction(scale) * Fraction(weight) < unit
        if noise == "laplace"
        else Fraction(scale) ** 2 * Fraction(precision) < unit**2
    ):
        scale = math.nextafter(scale, math.inf)
    return scale


def row_variances(block: Block, settled: Plan) -> AnyTensor:
    """Return the variance of the noise of every row, in units of the rows; 0 for rows that have none."""
    scales = row_scales(block, settled)
    levels, place = np.unique(scales, return_inverse=True)
    own = settled.row_sampler
    found = [0.0 if own is None or level == 0 else replace(own, scale=level).variance for level in levels.tolist()]
    return np.asarray(np.ldexp(np.array(found)[place].reshape(scales.shape), -2 * sum(block.bits)))


def draw_rows(sampler: Sampler | None, scales: AnyTensor, callback: Callable[[int], None] | None) -> AnyArray:
    """Draw independent noise of a sampler's law, with one of its own for each different scale."""
    levels, place, counts = np.unique(scales, return_inverse=True, return_counts=True)
    order = np.argsort(place.ravel(), kind="stable")
    drawn: AnyArray = np.zeros(scales.size, dtype=np.int64)
    start, threads = 0, min(_MOST_THREADS, os.cpu_count() or 1) if scales.size > _FEW else 1
    with contextlib.ExitStack() as stack:
        every = map if threads == 1 else stack.enter_context(ThreadPoolExecutor(threads)).map
        for part in every(lambda level, size: _samples(sampler, level, size), levels.tolist(), counts.tolist()):
            drawn = drawn.astype(object) if part.dtype == object else drawn
            drawn[order[start : start + part.size]] = part
            start += part.size
            if callback is not None:
                callback(start)
    return drawn.reshape(scales.shape)


def _samples(sampler: Sampler | None, scale: float, size: int) -> AnyArray:
    if sampler is None or scale == 0:
        return np.zeros(size, dtype=np.int64)
    return samplers.at_scale(sampler.noise, scale, sampler.law).draw(size)
