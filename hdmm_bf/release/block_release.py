"""Releases of block strategies: the same order of things as `release`, with a noise scale for every row.

Row J carries integer noise of scale sigma 2^bits / sqrt(M_J) in units of its grid, independent of all others. An edge
moves row J by an integer a_J, which costs a_J^2 / (2 scale_J^2) of rho (Gaussian) or |a_J| / scale_J of epsilon
(Laplace); the certificate's sensitivity bounds the sum over rows for every edge, rounded up.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
from jaxtyping import Int64

from hdmm_bf._checks import fail, fits
from hdmm_bf._types import Noise, RealVector
from hdmm_bf.certificate.exact import GRID_BITS, block_sensitivity
from hdmm_bf.data.tables import Histogram, Records, Tables
from hdmm_bf.domain import Domain
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release import intervals
from hdmm_bf.release import noise as samplers
from hdmm_bf.release.block_recovery import BlockRecovery, row_scales, row_variances
from hdmm_bf.release.coverage import check_covered
from hdmm_bf.release.dense import checked_counts
from hdmm_bf.release.ledger import Account
from hdmm_bf.release.plan import Certified, Plan
from hdmm_bf.release.released import Interval, Released
from hdmm_bf.strategies.blocks import AnyTensor, BlockStrategy
from hdmm_bf.workload import Workload

_MOST_THREADS = 4


@runtime_checkable
class FittedBlocks(Certified, Protocol):
    """What a release needs of a fit with a block strategy."""

    @property
    def strategy(self) -> BlockStrategy:
        """What is measured."""

    @property
    def recovery(self) -> BlockRecovery:
        """How answers of the strategy become answers of the workload."""


@final
@dataclass(frozen=True, eq=False)
class BlockRelease(Released):
    """Private answers for a large domain. Everything in it may be published.

    Attributes:
        measured: the noisy answers of every block.
        recovery: how they become answers.
    """

    measured: tuple[AnyTensor, ...]
    recovery: BlockRecovery

    __repr__ = Released.__repr__

    @cached_property
    def answers(self) -> RealVector:
        """Unbiased answers of the workload; refused when they are too many, then use `answer`."""
        return self.recovery.answers(self.problem.workload, self.measured)

    @cached_property
    def stddev(self) -> RealVector:
        """Standard deviation of every answer."""
        return self._stddev(self.problem.workload, None)

    @cached_property
    def estimate(self) -> RealVector:
        """Unbiased estimate of every cell; refused when they are too many."""
        return self.recovery.estimate(self.measured)

    def _some(self, chosen: Int64[np.ndarray, " q"]) -> tuple[RealVector, RealVector]:
        return self.answers[chosen], self._stddev(self.problem.workload, chosen)

    def answer(self, workload: Workload) -> tuple[RealVector, RealVector]:
        """Return answers and standard deviations of another workload on the same domain, at no further cost."""
        check_covered(self.recovery, workload)
        return self.recovery.answers(workload, self.measured), self._stddev(workload, None)

    def _stddev(self, workload: Workload, chosen: np.ndarray | None) -> RealVector:
        return np.asarray(np.sqrt(self.recovery.variances(workload, chosen, spreads=self._spreads)))

    @cached_property
    def _spreads(self) -> list[AnyTensor]:
        """Variance of every row: that of the discrete noise drawn, which on a coarse grid is less than the ideal."""
        return [row_variances(block, self.plan) for block in self.recovery.strategy.blocks]

    def interval(self, level: float, queries: Sequence[int] | None = None) -> Interval:
        """Return the ends of intervals that cover the true answers, each with probability `level` at least."""
        intervals.check_level(level)
        chosen = self.chosen(queries)
        width = self.half_width(level) * (self.stddev if queries is None else self.stddev[chosen])
        return Interval(self.answers[chosen] - width, self.answers[chosen] + width)

    def interval_method(self, num_queries: int | None = None) -> str:
        """Say how intervals are made."""
        return "normal" if self.plan.noise == "gaussian" else "tail bound"

    def postprocess(self, *steps: str) -> Any:
        """Refuse: post-processing needs the written-out precision of a dense strategy."""
        raise fail("postprocess", ", ".join(steps), "is for domains that fit a dense strategy", "Leave it out.")


def release_blocks(
    settled: Plan,
    fit: FittedBlocks,
    counts: Any,
    *,
    account: Account | None = None,
    callback: Callable[[int], None] | None = None,
) -> BlockRelease:
    """Run a plan of a block strategy on data: a histogram, or `Records` for domains too large for one.

    Guarantees:
        For databases that are neighbours under the policy, the distributions of everything in the result differ by at
        most what the plan promises. The sensitivity is derived once more, from the integers that are used here; a plan
        that was made for another one is refused.
    """
    assert fit.recovery.strategy is fit.strategy, "what is measured is what noise is scaled for"
    derived = block_sensitivity(fit.recovery.product.edges, fit.strategy.blocks, settled.noise)
    settled.check_made_for(fit.certificate, derived, GRID_BITS)
    data = as_tables(fit.problem, counts)
    scales = [row_scales(block, settled) for block in fit.strategy.blocks]
    room = [math.ceil(64 * float(np.max(scale, initial=0.0))) for scale in scales]
    exact = fit.recovery.measure(data, room=room)
    if account is not None:
        account.book(settled, policy=fit.problem.policy.title, data=data)
    measured, done = [], 0
    for block, scale, answers in zip(fit.strategy.blocks, scales, exact, strict=True):
        noise = _draw(settled.noise, scale, None if callback is None else _counting(callback, done))
        done += noise.size
        noisy = np.ldexp((answers + noise).astype(np.float64), -sum(block.bits))
        measured.append(np.where(block.full_precisions > 0, noisy, 0.0))  # rows of precision 0 are not measured
    return BlockRelease(fit.problem, settled, tuple(measured), fit.recovery)


def _counting(callback: Callable[[int], None], before: int) -> Callable[[int], None]:
    return lambda done: callback(before + done)


def as_tables(problem: Problem, counts: Any) -> Tables:
    """Accept a histogram or records."""
    if isinstance(counts, Records):
        if not _same_attributes(counts.domain, problem.policy.domain):
            wanted = problem.policy.domain
            problem_seen = f"the policy is on {', '.join(wanted.names)} with sizes {wanted}"
            shown = f"records on {', '.join(counts.domain.names)} with sizes {counts.domain}"
            raise fail("release", shown, problem_seen, "Make the records on the same domain.")
        return counts
    fits("release", f"a histogram of {problem.policy.domain}", problem.policy.num_cells * 8, advice="Use bf.Records.")
    return Histogram(checked_counts(problem, counts).reshape(problem.policy.domain.sizes))


def _same_attributes(given: Domain, wanted: Domain) -> bool:
    """Whether domains agree on sizes and on what both name: a policy may protect one of two attributes of a size."""
    unnamed = Domain(wanted.sizes).names
    swapped = any(a != b and a in wanted.names for a, b in zip(given.names, wanted.names, strict=False))
    named = given.names == wanted.names or (not swapped and unnamed in (given.names, wanted.names))
    labels = all(a is None or b is None or a == b for a, b in zip(given.labels, wanted.labels, strict=False))
    return given.sizes == wanted.sizes and named and labels


def _draw(noise: Noise, scales: AnyTensor, callback: Callable[[int], None] | None) -> Int64[np.ndarray, ...]:
    """Draw independent noise with one sampler for each different scale."""
    levels, place, counts = np.unique(scales, return_inverse=True, return_counts=True)
    order = np.argsort(place.ravel(), kind="stable")
    drawn, start = np.zeros(scales.size, dtype=np.int64), 0
    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
        for part in pool.map(lambda level, size: _samples(noise, level, size), levels.tolist(), counts.tolist()):
            drawn[order[start : start + part.size]] = part
            start += part.size
            if callback is not None:
                callback(start)
    return drawn.reshape(scales.shape)


def _samples(noise: Noise, scale: float, size: int) -> Int64[np.ndarray, " size"]:
    return samplers.at_scale(noise, scale).draw(size) if scale > 0 else np.zeros(size, dtype=np.int64)
