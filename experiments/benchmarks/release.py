"""Releases: a million counts with exact noise, and dense releases at 4096 cells, from plan to standard deviations.

The million counts are released as they are, under ordinary privacy: nearly all of the time is that of the noise.
"""

from __future__ import annotations

import numpy as np

import hdmm_bf as bf
from experiments.benchmarks.measure import Part, Table, timed

SIDE = 1000
"""Of the square of counts that are released as they are."""

CELLS = 4096
PRIVACY = {"laplace": {"epsilon": 1.0}, "gaussian": {"epsilon": 1.0, "delta": 1e-6}}


def report(*, quick: bool = False) -> list[Part]:
    """Return the table; quick: a tenth of the samples, a quarter of the cells."""
    side, cells = (SIDE * 316 // 1000, CELLS // 4) if quick else (SIDE, CELLS)
    rows = [_noisy(side, noise) for noise in PRIVACY]
    rows += _dense(cells)
    return [Table(["what", "wall s", "CPU s", "limit s"], rows)]


def _noisy(side: int, noise: str) -> list[str]:
    """Noise of whole numbers on every count; the fit is outside the clock."""
    fit = bf.fit(f"identity:{side}x{side}", f"unbounded:{side}x{side}", noise=noise)
    counts = np.zeros(side**2, dtype=np.int64)
    run = timed(lambda: bf.release(fit, counts, **PRIVACY[noise]))
    return [f"{side**2} counts with discrete {noise} noise", f"{run.wall:.2f}", f"{run.cpu:.2f}", "20"]


def _dense(size: int) -> list[list[str]]:
    """The strategy is fitted outside the clock and only roughly: its quality does not matter here, its size does."""
    counts = np.random.default_rng(0).integers(0, 1000, size)
    rows = []
    for workload in (f"random-range:{size}:10000:seed=7", f"all-range:{size}"):
        fit = bf.fit(workload, f"threshold:{size}:4", max_steps=1)
        first = timed(lambda fit=fit: bf.release(fit, counts, epsilon=1.0, delta=1e-6))
        rows.append([f"{workload}, answers and estimate", f"{first.wall:.2f}", f"{first.cpu:.2f}", "2"])
        more = timed(lambda first=first: first.result.interval(0.95))
        rows.append([f"{workload}, standard deviations, intervals", f"{more.wall:.2f}", f"{more.cpu:.2f}", "-"])
    return rows
