"""One loop for all families.

A family is a generator of `Progress`; the loop adds the clock, the trace, the callback and the interruption.
Whatever stops it, the best candidate so far is kept, and the outcome says in words why it stopped.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeAlias, TypeVar, final

from hdmm_bf.objectives import limits

Candidate = TypeVar("Candidate")
Proof = TypeVar("Proof")

Status: TypeAlias = Literal[
    "converged", "finished", "certified", "time limit", "iteration limit", "interrupted", "exact"
]

SENTENCES: dict[Status, str] = {
    "converged": "The error is proven to be within the requested gap of the best possible.",
    "finished": "The search converged: nothing that it tried made the error smaller any more.",
    "certified": "The strategy was given; nothing was searched but the bound beside it.",
    "time limit": "The time limit stopped the search; this is the best strategy found by then.",
    "iteration limit": "The iteration limit stopped the search; this is the best strategy found by then.",
    "interrupted": "The search was interrupted; this is the best strategy found by then.",
    "exact": "All queries are public under this policy: the answers are exact and need no noise.",
}


@final
@dataclass(frozen=True)
class Progress(Generic[Candidate, Proof]):
    """One step of a family: the candidate with its error, and the proof of a lower bound."""

    error: float
    bound: float
    candidate: Candidate
    proof: Proof


@final
@dataclass(frozen=True)
class TracePoint:
    """Best error and best bound after one step, and a forecast of the seconds left (infinite when there is none)."""

    seconds: float
    error: float
    bound: float
    left: float = math.inf

    @property
    def gap(self) -> float:
        """Proven relative distance to the optimum."""
        return self.error / self.bound - 1 if self.bound > 0 else math.inf


Callback: TypeAlias = Callable[[TracePoint], None]


@final
@dataclass(frozen=True)
class Outcome(Generic[Candidate, Proof]):
    """The best candidate, the best proof, and how the search went."""

    best: Candidate
    proof: Proof
    error: float
    bound: float
    status: Status
    trace: tuple[TracePoint, ...]

    @property
    def sentence(self) -> str:
        """Why the search stopped, for the user."""
        return SENTENCES[self.status]


def search(
    steps: Iterator[Progress[Candidate, Proof]],
    *,
    gap: float,
    max_seconds: float = math.inf,
    max_iterations: int | None = None,
    callback: Callback | None = None,
    clock: Callable[[], float] = limits.now,
    whole_steps: bool = False,
) -> Outcome[Candidate, Proof]:
    """Run a family's steps until the proven gap is reached, a limit is hit, or the user interrupts.

    Args:
        steps: the family.
        gap: the proven gap at which the search is done.
        max_seconds: time limit; one that is set around this call by `limits.limited` counts too.
        max_iterations: limit on the steps.
        callback: called after every step.
        clock: reads the seconds.
        whole_steps: the family cannot end within a step, so a step as long as the longest so far is not begun when the
            time limit comes before its end.

    Guarantees:
        A limit of time or steps, or an interruption, is the status unless the gap was reached.
        Returns the candidate of least error seen, and the proof of the largest bound seen, however the search ended.
        Without a time limit the result depends on the family's inputs and seed alone.
    """
    started = clock()
    max_seconds = min(max_seconds, limits.time_left())
    first = next(steps)  # a first candidate is worth waiting for
    limits.keep()
    best, proof, error, bound = first.candidate, first.proof, first.error, first.bound
    trace: list[TracePoint] = []
    status: Status | None
    try:
        while True:
            now = TracePoint(clock() - started, error, bound)
            left = min(max_seconds - now.seconds, _until_closed(trace, now, gap))
            trace.append(replace(now, left=max(0.0, left)))
            if callback is not None:
                callback(trace[-1])
            if error <= bound * (1 + gap):
                status = "converged"
                break
            status = _limit_hit(now.seconds + (_longest(trace) if whole_steps else 0.0), max_seconds)
            if status is None and max_iterations is not None and len(trace) >= max_iterations:
                status = "iteration limit"
            if status is not None:
                break
            step = next(steps, None)
            if step is None:
                status = _limit_hit(clock() - started, max_seconds) or "finished"
                break
            if step.bound > bound:
                proof, bound = step.proof, step.bound
            if step.error < error:
                best, error = step.candidate, step.error
    except KeyboardInterrupt:
        status = "interrupted"
    return Outcome(best, proof, error, bound, status, tuple(trace))


def _limit_hit(seconds: float, max_seconds: float) -> Status | None:
    if limits.interrupted():
        return "interrupted"
    return "time limit" if seconds > max_seconds or limits.time_is_up() else None


def _longest(trace: list[TracePoint]) -> float:
    """Return the seconds of the longest step after the first, which also prepares the search."""
    seconds = [point.seconds for point in trace]
    return max((after - before for before, after in itertools.pairwise(seconds)), default=0.0)


def _until_closed(trace: list[TracePoint], now: TracePoint, gap: float) -> float:
    """Forecast when the gap will be closed if it goes on falling by the same factor a second as of late."""
    if now.gap <= gap:
        return 0.0
    earlier = trace[len(trace) // 2] if len(trace) > 1 else now
    if not now.gap < earlier.gap < math.inf:
        return math.inf
    return (now.seconds - earlier.seconds) * math.log(now.gap / gap) / math.log(earlier.gap / now.gap)
