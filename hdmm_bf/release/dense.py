"""Release: measure the strategy with exact noise, reconstruct, and say how good the answers are.

The only place where data meet noise; privacy-critical and short on purpose. The order of things is the argument:

1. the plan: the noise is settled and OpenDP's privacy map has confirmed it; no data yet;
2. the data are checked, and what they could do to 64-bit integers;
3. the ledger, if there is one, counts the loss as spent;
4. noise is drawn, and only the sum of data and noise goes on.

Guarantees:
    Vertex strategies publish integers A x + noise; edge strategies off trees publish x + P S^+ noise on a grid, never
    the raw answers S x_G + noise. Besides them only what the policy makes public is used: component totals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Int64

from hdmm_bf._checks import fail
from hdmm_bf._types import RealVector
from hdmm_bf.certificate.dense import exact_sensitivity
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release import intervals
from hdmm_bf.release.exact import ExactSums, exact_product
from hdmm_bf.release.ledger import Account
from hdmm_bf.release.noise import LARGEST
from hdmm_bf.release.plan import Fitted, Plan
from hdmm_bf.release.postprocess import Processed, postprocess
from hdmm_bf.release.reconstruction import Reconstruction, public_queries, with_public_answers
from hdmm_bf.release.released import Interval, Released
from hdmm_bf.workload import Workload

_MOST_COEFFICIENTS = 2**28
"""Queries times strategy rows up to which Laplace intervals are computed and not bounded."""

_LARGEST_COUNT = 2**53


@final
@dataclass(frozen=True, eq=False)
class Release(Released):
    """Private answers and how good they are. Everything in it may be published.

    Attributes:
        answers: unbiased answers of the workload.
        estimate: unbiased estimate of every cell (of least norm, if the strategy cannot tell all cells apart).
        totals: exact totals of the policy's public components.
        recovery: how the noise of the measurements became noise in the answers.
    """

    answers: RealVector
    estimate: RealVector
    totals: RealVector
    recovery: Reconstruction

    __repr__ = Released.__repr__

    @cached_property
    def stddev(self) -> RealVector:
        """Standard deviation of every answer."""
        return np.asarray(self.plan.stddev * np.sqrt(self.recovery.variances()))

    def _some(self, chosen: Int64[np.ndarray, " q"]) -> tuple[RealVector, RealVector]:
        return self.answers[chosen], np.asarray(self.plan.stddev * np.sqrt(self.recovery.variances(chosen)))

    def interval(self, level: float, queries: Sequence[int] | None = None) -> Interval:
        """Return the ends of intervals that cover the true answers, each with probability `level`.

        Guarantees:
            Gaussian noise: normal quantiles. Laplace noise: quantiles of the sum of Laplace variables in each answer,
            or wider ends from a tail bound when there are too many to compute; `interval_method` says which.
        """
        intervals.check_level(level)
        chosen = self.chosen(queries)
        width = self._half_width(level, chosen, every=queries is None)
        return Interval(self.answers[chosen] - width, self.answers[chosen] + width)

    def interval_method(self, num_queries: int | None = None) -> str:
        """Say how intervals for that many queries are made: "normal", "exact Laplace sums" or "tail bound"."""
        if self.plan.noise == "gaussian":
            return "normal"
        m = self.problem.workload.num_queries if num_queries is None else num_queries
        few = m * max(1, self.recovery.matrix.shape[0]) <= _MOST_COEFFICIENTS
        return "exact Laplace sums" if few else "tail bound"

    def _half_width(self, level: float, chosen: Int64[np.ndarray, " q"], *, every: bool) -> RealVector:
        if self.interval_method(chosen.size) == "exact Laplace sums":
            scale = self.plan.stddev / math.sqrt(2)
            blocks = self.recovery.blocks(chosen)
            found = [intervals.laplace_quantiles(scale * self.recovery.queries(block), level) for block in blocks]
            return np.concatenate([np.empty(0), *found])
        stddev = self.stddev if every else self._some(chosen)[1]
        return np.asarray(self.half_width(level) * stddev)

    def answer(self, workload: Workload) -> tuple[RealVector, RealVector]:
        """Return answers and standard deviations of another workload on the same domain, at no further cost."""
        if workload.num_cells != self.problem.policy.num_cells or not self.recovery.covers(workload):
            problem = "is on another domain, or asks what the strategy does not measure"
            raise fail("release.answer", f"workload {workload.title}", problem, "Fit a strategy for it.")
        matrix, grounding = workload.matrix, self.problem.grounding
        variances = np.maximum(matrix.quadratic(self.recovery.covariance), 0.0)
        variances[public_queries(matrix, grounding)] = 0.0
        answers = np.asarray(matrix.mv(self.estimate), dtype=np.float64)
        answers = with_public_answers(matrix, grounding, answers, self.totals)
        return answers, np.asarray(self.plan.stddev * np.sqrt(variances))

    def postprocess(self, *steps: str) -> Processed:
        """Return the histogram and answers after "nonnegative", "isotonic" (lines) or "integers", in that order."""
        return postprocess(self, *steps)


def carry_out(
    settled: Plan,
    fit: Fitted,
    counts: Any,
    *,
    account: Account | None = None,
    callback: Callable[[int], None] | None = None,
) -> Release:
    """Run a plan on data.

    Guarantees:
        For databases that are neighbours under the policy, the distributions of everything in the result differ by at
        most what the plan promises. The distributions are those of exact integer noise, not of floating-point noise.
        The sensitivity is derived once more, from the integers that are used here; a plan that was made for another one
        is refused.
    """
    problem, strategy = fit.problem, fit.strategy
    assert fit.recovery.strategy is strategy, "what is measured is what noise is scaled for"
    derived = exact_sensitivity(strategy.integers, problem, settled.noise, kind=strategy.kind)
    settled.check_made_for(fit.certificate, derived, strategy.bits)
    x = checked_counts(problem, counts)
    totals = problem.grounding.totals(x)
    sums = ExactSums(fit.recovery) if strategy.kind == "edge" else None
    room = 0 if settled.sampler is None else settled.sampler.reach
    measured = x[problem.grounding.kept]
    if sums is None:
        grounded = x.copy()
        grounded[problem.grounding.given_up] -= totals  # what public totals add to the answers is taken off
        measured = exact_product(strategy.integers, grounded, room=room)
    if account is not None:
        account.book(settled, policy=problem.policy.title, data=x)
    noise = _noise(settled, strategy.num_rows, callback)
    if sums is not None:
        estimate = sums.private_sum(measured, noise)
    else:
        estimate = fit.recovery.solve(np.ldexp((measured + noise).astype(np.float64), -settled.bits))
    cells = np.asarray(problem.grounding.expand(estimate, totals), dtype=np.float64)
    matrix = problem.workload.matrix
    answers = np.asarray(matrix.mv(cells), dtype=np.float64)
    answers = with_public_answers(matrix, problem.grounding, answers, totals)
    return Release(problem, settled, answers, cells, totals.astype(np.float64), fit.recovery)


def _noise(settled: Plan, size: int, callback: Callable[[int], None] | None) -> Int64[np.ndarray, " size"]:
    if settled.sampler is None:  # sensitivity zero: every answer is public
        return np.zeros(size, dtype=np.int64)
    return settled.sampler.draw(size, callback=callback)


def checked_counts(problem: Problem, counts: Any) -> Int64[np.ndarray, " n"]:
    """Return the histogram as int64, one entry a cell; refusals say what is wrong but show no count."""
    if isinstance(counts, np.ma.MaskedArray):
        raise fail("release", "counts", "are a masked array", "Fill the masked cells, for example with 0.")
    try:
        array = np.asarray(counts)
    except (ValueError, TypeError):  # the usual message would show the counts
        raise fail("release", "counts", "are not an array", "Give one whole number for each cell.") from None
    sizes, n = problem.policy.domain.sizes, problem.policy.num_cells
    if array.shape not in ((n,), sizes, problem.workload.domain.sizes):
        advice = f"Give one count for each of the {n} cells, in row-major order."
        raise fail("release", f"counts of shape {array.shape}", f"the domain is {problem.policy.domain}", advice)
    if array.dtype.kind not in "biuf":
        raise fail("release", f"counts of type {array.dtype}", "must be whole numbers", "Convert them to int64.")
    advice = "Correct the histogram; counts are whole numbers from 0 to 2^53."
    if array.dtype.kind == "f":
        array = array.astype(np.float64)
    if array.dtype.kind == "f" and not np.all(np.isfinite(array) & (array == np.rint(array))):
        raise fail("release", "counts", "hold a number that is not whole", advice)
    if np.any(array < 0) or np.any(array > _LARGEST_COUNT):
        raise fail("release", "counts", "hold a number that is negative or too large", advice)
    x = array.ravel().astype(np.int64)
    if float(x.sum(dtype=np.float64)) >= LARGEST:
        raise fail("release", "counts", "have a total that does not fit in 64 bits", "Use a share of the data.")
    return x
