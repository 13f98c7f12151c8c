"""The portfolio of tree norms: a look at every family that applies, the rest of the good ones, then moves of the best.

What is yielded depends on the problem, the seed and the number of steps alone: a limit on time cuts the sequence short,
it does not change it. It ends by itself when nothing moves any more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from hdmm_bf._types import Effort
from hdmm_bf.objectives import limits
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.laplace.portfolio import Patience
from hdmm_bf.strategies.norm import moves
from hdmm_bf.strategies.norm.drafts import TreeDraft
from hdmm_bf.strategies.registry import Family, families
from hdmm_bf.strategies.registry import family as find

PATIENCE: dict[Effort, Patience] = {
    "quick": Patience(0, 0.0, 1e-3),
    "normal": Patience(4, 0.5, 2e-4),
    "thorough": Patience(20, 2.0, 1e-5),
}
"""By effort, for the moves: quick makes none."""

_BEHIND = 1.1
"""Families whose look ends this far behind the best are not searched further."""


def applicable(problem: Problem, family: str | None = None) -> list[Family]:
    """Return the families that apply to a problem, or the one of a name."""
    if family is not None:
        return [find("norm", family)]
    return [known for known in families("norm", structured=False) if known.applies(problem)]


def steps(
    problem: Problem,
    *,
    seed: int,
    family: str | None = None,
    initial: TreeDraft | None = None,
    effort: Effort = "normal",
) -> Iterator[TreeDraft]:
    """Yield tree norms, each with its unit error; the best of them is the answer so far.

    Args:
        problem: what is searched.
        seed: for random numbers.
        family: search this one alone.
        initial: a tree norm to start the moves from, where it is better than what the families find.
        effort: how long to go on without a gain.
    """
    best = initial
    for found in _of_families(applicable(problem, family), problem, seed):
        best = found if best is None or found.error < best.error else best
        yield found
        limits.keep()
    if best is None or effort == "quick" or not math.isfinite(best.error):
        return
    patience, gained, reached = PATIENCE[effort], 0, best.error
    for count, found in enumerate(moves.improved(problem, best, seed=seed), start=1):
        yield found
        if found.error < reached * (1 - patience.gain):
            gained, reached = count, found.error
        if patience.ends(count, gained):
            return


def _of_families(chosen: list[Family], problem: Problem, seed: int) -> Iterator[TreeDraft]:
    """First a look at every family; then the rest of those that are near the best, the best first."""
    running = {known.name: known.search(problem, seed=seed + i) for i, known in enumerate(chosen)}
    reached = dict.fromkeys(running, math.inf)
    for known in chosen:
        for found in itertools.islice(running[known.name], known.turns.look):
            reached[known.name] = min(reached[known.name], found.error)
            yield found
            if limits.ending():
                return
    least = min(reached.values(), default=math.inf)
    for known in sorted(chosen, key=lambda known: (reached[known.name], known.name)):
        if reached[known.name] > _BEHIND * least:
            continue
        idle = 0
        for found in running[known.name]:
            idle = 0 if found.error < reached[known.name] else idle + 1
            reached[known.name] = min(reached[known.name], found.error)
            yield found
            if limits.ending():
                return
            if idle >= known.turns.stale:
                break
