"""Descents over layers, one spine and one number of bumps after the other."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf.objectives import limits
from hdmm_bf.objectives.descent import descending
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.strategies.laplace.directions import SumDraft
from hdmm_bf.strategies.laplace.layers.error import NAME, SCHEDULE, Layers, Schedule
from hdmm_bf.strategies.laplace.layers.tables import MOST_OUTSIDE, MOST_VALUES, applies, spines
from hdmm_bf.strategies.registry import Family

_MOST_SPINES = 2
"""Spines that are tried."""

_MEMORY = 20
"""Corrections that a descent remembers."""


def steps(product: ProductProblem, *, seed: int, schedule: Schedule = SCHEDULE) -> Iterator[SumDraft]:
    """Yield the best layers after every part of a descent, one spine and one number of bumps after the other.

    Guarantees:
        Every edge of the policy loses at most 1, and the error is that of least squares.
    """
    rng = np.random.default_rng(seed)
    best: SumDraft | None = None
    tried = set()
    for spine, bump in itertools.product(spines(product)[:_MOST_SPINES], schedule.bumps):
        problem = Layers(product, spine, schedule, bump=bump)
        kind = spine, tuple(layer.bumps.shape for layer in problem.layers)
        if kind in tried:
            continue
        tried.add(kind)
        for draft in _descents(problem, rng):
            if 0 < draft.error < (math.inf if best is None else best.error):
                best = draft
            if best is not None:
                yield best
        if limits.ending():
            return


def _descents(problem: Layers, rng: np.random.Generator) -> Iterator[SumDraft]:
    """Yield where a descent is after every part, with less and less smoothing."""
    schedule, roots = problem.schedule, problem.start(rng)
    for power, smooth in zip(schedule.powers, schedule.smooth, strict=True):
        last, loss = math.inf, problem.loss(roots)
        roots = roots / math.sqrt(loss)
        parts = descending(
            functools.partial(problem.value_and_slope, power=power, smooth=smooth),
            roots,
            parts=schedule.parts,
            nonnegative=False,
            tolerance=1e-9,
            memory=_MEMORY,
        )
        while True:
            with la.threads_for(1):
                found = next(parts, None)
            if found is None:
                break
            roots = np.asarray(found.parameters)
            yield problem.draft(roots)
            if limits.ending() or found.value > last + math.log(1 - schedule.least_gain):
                break
            last = found.value


FAMILY = Family(
    name=NAME,
    noise="laplace",
    structured=True,
    search=steps,
    applies=applies,
    needs=f"needs an attribute of at most {MOST_VALUES} values, at most {MOST_OUTSIDE} others, and edges",
)
