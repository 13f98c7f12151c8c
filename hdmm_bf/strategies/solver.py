"""One loop for all families: run steps, keep the best, stop when it is proven good enough.

A family is a generator of `Progress`; the loop adds the clock, the trace, the callback and the interruption.
Whatever stops it, the best candidate so far is kept, and the outcome says in words why it stopped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar, final

Candidate = TypeVar("Candidate")
Proof = TypeVar("Proof")

Status: TypeAlias = Literal["converged", "finished", "time limit", "iteration limit", "interrupted", "exact"]

SENTENCES: dict[Status, str] = {
    "converged": "The error is proven to be within the requested gap of the best possible.",
    "finished": "The search came to its end.",
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
    """Best error and best bound after one step."""

    seconds: float
    error: float
    bound: float

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
) -> Outcome[Candidate, Proof]:
    """Run a family's steps until the proven gap is reached, a limit is hit, or the user interrupts.

    Guarantees:
        Returns the candidate of least error seen, and the proof of the largest bound seen, however the search ended.
        Without a time limit the result depends on the family's inputs and seed alone.
    """
    started = time.perf_counter()
    first = next(steps)  # a first candidate is worth waiting for
    best, proof, error, bound = first.candidate, first.proof, first.error, first.bound
    trace: list[TracePoint] = []
    status: Status = "finished"
    try:
        while True:
            trace.append(TracePoint(time.perf_counter() - started, error, bound))
            if callback is not None:
                callback(trace[-1])
            if error <= bound * (1 + gap):
                status = "converged"
                break
            if trace[-1].seconds > max_seconds:
                status = "time limit"
                break
            if max_iterations is not None and len(trace) >= max_iterations:
                status = "iteration limit"
                break
            step = next(steps, None)
            if step is None:
                break
            if step.bound > bound:
                proof, bound = step.proof, step.bound
            if step.error < error:
                best, error = step.candidate, step.error
    except KeyboardInterrupt:
        status = "interrupted"
    return Outcome(best, proof, error, bound, status, tuple(trace))
