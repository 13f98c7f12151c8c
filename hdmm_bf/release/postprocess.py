"""Post-processing of a released histogram: what everybody knows about counts, imposed on the estimate.

It sees only what was published, so it costs no privacy, and it is labelled: the standard deviations and intervals of a
release are those of the unbiased answers, not of these, which have intervals of their own by simulation. Public totals
hold before and after every step. All tables are sums of one histogram, so they agree with each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

import numpy as np
from scipy.optimize import isotonic_regression

from hdmm_bf._checks import fail, fits, nearest
from hdmm_bf._linalg import ROUNDING
from hdmm_bf._types import IndexArray, RealVector, SquareMatrix
from hdmm_bf.policy import Policy
from hdmm_bf.problem.transform import Grounding, Problem
from hdmm_bf.release.intervals import check_level
from hdmm_bf.release.public import with_public_answers
from hdmm_bf.release.reconstruction import Weighing
from hdmm_bf.workload import Workload, identity

if TYPE_CHECKING:
    from hdmm_bf.release.release import Release

_MOST_STEPS = 2000
_SMALL_STEP = 1e-9
_LARGEST_PIVOTING = 1024
_MOST_PIVOTS = 2000
_PATIENCE = 10


@final
@dataclass(frozen=True, eq=False)
class Processed:
    """A histogram after post-processing, and the workload's answers from it.

    Attributes:
        estimate: one number a cell.
        answers: W estimate.
        steps: what was done, in order.
    """

    estimate: RealVector
    answers: RealVector
    steps: tuple[str, ...]
    release: Release | None = field(default=None, repr=False)

    def interval(
        self, level: float, *, queries: Workload | None = None, draws: int = 500
    ) -> tuple[RealVector, RealVector]:
        """Return the ends of intervals around the processed answers, from a simulation of noise and steps together.

        The processed histogram stands for the true one: noise is drawn again and again, added to it, and processed in
        the same steps; half the width is what the error of an answer stays within in a share `level` of the draws. The
        bias of the steps is in it as far as it is the same at the true histogram, so coverage is near the level and not
        certain; intervals of the unbiased answers are.

        Args:
            level: how often the true answer should be inside.
            queries: another workload on the same domain.
            draws: of noise; each is processed like the release.
        """
        assert self.release is not None, "made by postprocess"
        check_draws(level, draws)
        asked = self.release.problem.workload if queries is None else queries
        return simulated(self.release, self, asked, level, draws)

    @property
    def label(self) -> str:
        """What these numbers are."""
        return f"post-processed ({', '.join(self.steps)}): biased, no standard deviation applies"


def postprocess(out: Release, *steps: str) -> Processed:
    """Apply steps in order to a release: "nonnegative", "isotonic" (line policies), "integers".

    Guarantees:
        Uses nothing but the release. Public component totals stay exact. "nonnegative" leaves no negative count and, in
        the norm of what was measured, is the nearest such histogram, exactly up to 1024 cells and closely beyond;
        "integers" leaves whole numbers.
    """
    out.recovery.check_steps(steps)
    estimate = out.estimate
    for step in steps:
        estimate = _STEPS[step](estimate, out)
    return Processed(estimate, processed_answers(out, out.problem.workload, estimate), steps, out)


def check_draws(level: float, draws: int) -> None:
    """Refuse fewer draws of noise than intervals of a level need."""
    check_level(level)
    least = math.ceil(1 / (1 - level))
    if draws < least:
        raise fail("postprocess.interval", f"draws={draws}", "are too few for the level", f"Use at least {least}.")


def simulated(
    out: Release, made: Processed, asked: Workload, level: float, draws: int
) -> tuple[RealVector, RealVector]:
    """Simulate noise and steps at a processed histogram, and return the ends of intervals around its answers."""
    cells = identity(out.problem.policy.domain)
    fits("postprocess.interval", f"{draws} draws", cells.num_cells * draws * 8, advice="Use fewer draws.")
    noise = out.recovery.error_draws(cells, out.plan, draws)
    answers = processed_answers(out, asked, made.estimate)
    errors = np.empty((answers.size, draws))
    for k in range(draws):
        estimate = made.estimate + noise[:, k]
        for step in made.steps:
            estimate = _STEPS[step](estimate, out)
        errors[:, k] = np.abs(processed_answers(out, asked, estimate) - answers)
    rank = min(math.ceil(level * draws), draws - 1)
    width = np.partition(errors, rank, axis=1)[:, rank]
    return answers - width, answers + width


def processed_answers(out: Release, workload: Workload, estimate: RealVector) -> RealVector:
    """Return the answers of a workload from a processed histogram; public ones are exact."""
    answers = np.asarray(workload.matrix.mv(estimate), dtype=np.float64)
    return with_public_answers(workload.matrix, out.problem.grounding, answers, out.totals)


def check_steps(problem: Problem, steps: Sequence[str]) -> None:
    """Refuse steps that do not exist or do not apply to a policy, before anything is spent."""
    for step in steps:
        if step not in _STEPS:
            raise fail("postprocess", repr(step), "is no step", nearest(step, _STEPS))
        if step == "isotonic" and not _is_line(problem.policy):
            raise fail("postprocess", "'isotonic'", f"{problem.policy.spec} is no line", "Use 'nonnegative'.")


def _is_line(policy: Policy) -> bool:
    cells = np.arange(policy.num_cells)
    line = np.column_stack([cells[:-1], cells[1:]])
    return np.array_equal(np.sort(policy.edges, axis=1), line)


def _nonnegative(estimate: RealVector, out: Release) -> RealVector:
    """Minimise (x - estimate)^T M (x - estimate) over counts with the public totals, M the measurement's precision.

    Exactly, by pivoting, where the systems are small; by accelerated projected gradients beyond. Either ends with a
    projection that is exact, so that the result is feasible whatever the search did.
    """
    grounding, totals = out.problem.grounding, out.totals
    if estimate.min(initial=0.0) >= 0:
        return estimate
    precision = out.recovery.precision()
    if isinstance(precision, Weighing):
        return _descended(precision, estimate, grounding, totals)
    M = np.zeros((estimate.size, estimate.size))
    M[np.ix_(grounding.kept, grounding.kept)] = precision
    M /= np.abs(M).max()
    if estimate.size <= _LARGEST_PIVOTING:
        found = _pivoted(M, estimate, grounding, totals)
        if found is not None:
            return _project(found, grounding, totals)
    written = Weighing(lambda x: np.asarray(M @ x), float(np.abs(M).sum(axis=1).max()))
    return _descended(written, estimate, grounding, totals)


def _pivoted(M: SquareMatrix, estimate: RealVector, grounding: Grounding, totals: RealVector) -> RealVector | None:
    """Solve the quadratic programme by block principal pivoting (Judice and Pires, 1994); None if it does not end.

    Cells are free or zero. The free ones solve M (x - estimate) = B^T y with the totals B x = t; cells that turn out
    negative become zero, and zero cells whose gradient is negative become free. When the number of such cells has not
    fallen for a while, one is exchanged at a time, which cannot cycle.
    """
    n, groups = estimate.size, totals.size
    B = np.zeros((groups, n))
    members = grounding.group >= 0
    B[grounding.group[members], np.flatnonzero(members)] = 1.0
    right = M @ estimate
    free, fewest, patience = estimate > 0, n + 1, _PATIENCE
    for _ in range(_MOST_PIVOTS):
        free[grounding.given_up[B[:, free].sum(axis=1) == 0]] = True  # a total needs somewhere to go
        cells = np.flatnonzero(free)
        kkt = np.block([[M[np.ix_(cells, cells)], B[:, cells].T], [B[:, cells], np.zeros((groups, groups))]])
        solved = np.linalg.lstsq(kkt, np.concatenate([right[cells], totals]), rcond=None)[0]
        x = np.zeros(n)
        x[cells] = solved[: cells.size]
        slope = M @ x - right + B.T @ solved[cells.size :]
        room = ROUNDING * (1 + np.abs(x).max())
        wrong = np.flatnonzero(np.where(free, x < -room, slope < -room))
        if wrong.size == 0:
            return x
        if wrong.size < fewest:
            fewest, patience = wrong.size, _PATIENCE
        else:
            patience -= 1
        turned = wrong if patience >= 0 else wrong[-1:]
        free[turned] = ~free[turned]
    return None


def _descended(M: Weighing, estimate: RealVector, grounding: Grounding, totals: RealVector) -> RealVector:
    """Accelerated projected gradient with restarts; every iterate is feasible."""
    x = old = _project(estimate, grounding, totals)
    momentum, pace = x, 1.0
    for _ in range(_MOST_STEPS):
        old, x = x, _project(momentum - M.apply(momentum - estimate) / M.largest, grounding, totals)
        if np.abs(x - old).max() <= _SMALL_STEP * (1 + np.abs(x).max()):
            break
        faster = (1 + np.sqrt(1 + 4 * pace**2)) / 2
        uphill = (momentum - x) @ (x - old) > 0
        momentum, pace = (x, 1.0) if uphill else (x + (pace - 1) / faster * (x - old), faster)
    return x


def _project(x: RealVector, grounding: Grounding, totals: RealVector) -> RealVector:
    """Nearest vector without negative entries and with the public totals: each component's own threshold."""
    projected = np.asarray(np.maximum(x, 0.0))
    for cells, total in zip(_members(grounding), totals, strict=True):
        projected[cells] = _onto_simplex(x[cells], float(total))
    return projected


def _members(grounding: Grounding) -> list[IndexArray]:
    """Cells of every public component."""
    order = np.argsort(grounding.group, kind="stable")
    starts = np.searchsorted(grounding.group[order], np.arange(grounding.given_up.size + 1))
    return [order[a:b] for a, b in itertools.pairwise(starts.tolist())]


def _onto_simplex(x: RealVector, total: float) -> RealVector:
    """Nearest vector without negative entries that sums to `total`: max(x - theta, 0) for the right theta."""
    falling = np.sort(x)[::-1]
    thresholds = (np.cumsum(falling) - total) / np.arange(1, x.size + 1)
    last = int(np.flatnonzero(falling >= thresholds)[-1])
    return np.asarray(np.maximum(x - thresholds[last], 0.0))


def _isotonic(estimate: RealVector, out: Release) -> RealVector:
    """Make the cumulative counts along a line non-decreasing, from 0 to the public total (Hay et al., 2010)."""
    total = float(out.totals[0])
    sums = np.cumsum(estimate)[:-1]
    if sums.size:
        sums = np.clip(isotonic_regression(sums).x, 0.0, total)
    return np.diff(np.concatenate([[0.0], sums, [total]]))


def _integers(estimate: RealVector, out: Release) -> RealVector:
    """Round to whole numbers; within a component of public total the largest remainders are rounded up.

    On a domain by factors, where cells are many and tables are asked for, sums along the cells are rounded instead.
    """
    if out.recovery.by_factors:
        return _rounded_sums(estimate, out)
    rounded = np.asarray(np.rint(estimate))
    for cells, total in zip(_members(out.problem.grounding), out.totals, strict=True):
        below = np.floor(estimate[cells])
        missing = round(float(total) - below.sum())
        up = np.argsort(below - estimate[cells], kind="stable")[:missing]
        below[up] += 1
        rounded[cells] = below
    return rounded


def _rounded_sums(estimate: RealVector, out: Release) -> RealVector:
    """Whole numbers whose sums over the first cells of each component are those of the estimate, rounded."""
    rounded = np.zeros_like(estimate)
    hidden = np.flatnonzero(out.problem.grounding.group < 0)
    for cells in [hidden, *_members(out.problem.grounding)]:
        rounded[cells] = np.diff(np.rint(np.cumsum(estimate[cells])), prepend=0.0)
    return rounded


_STEPS: dict[str, Callable[[RealVector, Release], RealVector]] = {
    "nonnegative": _nonnegative,
    "isotonic": _isotonic,
    "integers": _integers,
}
