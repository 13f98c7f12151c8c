"""Releases: a million numbers of exact noise, and dense releases at 4096 cells, from plan to standard deviations."""

from __future__ import annotations

import numpy as np

import hdmm_bf as bf
from experiments.benchmarks.measure import Part, Table, timed
from hdmm_bf.release import noise

MANY = 10**6
CELLS = 4096


def report(*, quick: bool = False) -> list[Part]:
    """Return the table; quick: a tenth of the samples, a quarter of the cells."""
    rows = []
    many, cells = (MANY // 10, CELLS // 4) if quick else (MANY, CELLS)
    for sampler in (noise.laplace(2**30, 1.0), noise.gaussian(2**60, 0.5)):
        run = timed(lambda sampler=sampler: sampler.draw(many))
        rows.append([f"{many} samples, discrete {sampler.noise}", f"{run.wall:.2f}", f"{run.cpu:.2f}", "20"])
    rows += _dense(cells)
    return [Table(["what", "wall s", "CPU s", "limit s"], rows)]


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
