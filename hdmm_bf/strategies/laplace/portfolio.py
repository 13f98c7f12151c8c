"""The portfolio for Laplace noise: a first good answer at once, then the floors, then every family in turns.

The floors, the paper's and the classical mechanisms, are kept as candidates, so a search that is not cut short is never
worse than any of them. Families take turns in an order that depends on their results alone, not on the clock: a limit
on time cuts the sequence short, it does not change it. When nothing moves any more the sequence ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import final

from hdmm_bf import _linalg as la
from hdmm_bf._types import Effort, Norm, RealVector
from hdmm_bf.objectives import limits
from hdmm_bf.parallel.devices import Mesh
from hdmm_bf.parallel.workers import Job, side_by_side
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.baselines import classical, paper
from hdmm_bf.strategies.drafts import Draft
from hdmm_bf.strategies.laplace import p_identity, vertex
from hdmm_bf.strategies.registry import Family, Turns, families
from hdmm_bf.strategies.registry import family as find
from hdmm_bf.strategies.search import Progress

_POLISH = "polish"
_APART = 1000
"""Between the seeds of searches in different processes."""

_LEADER_TURNS = 6
"""Steps of the leader for one of each other family."""


@final
@dataclass(frozen=True)
class Patience:
    """When a search is over: as many steps without a gain as it took to get there, and a few more.

    Attributes:
        least: steps without a gain, at the least.
        share: of the steps up to the last gain.
        gain: the share of the error that counts as one.
    """

    least: int
    share: float
    gain: float

    def ends(self, steps: int, last_gain: int, looks: int = 0) -> bool:
        """Whether to stop after some steps, the last gain being at one of them; looks at families do not count."""
        return steps - max(last_gain, looks) >= self.least + self.share * last_gain


PATIENCE: dict[Effort, Patience] = {
    "quick": Patience(0, 0.0, 1e-3),
    "normal": Patience(12, 1.0, 1e-4),
    "thorough": Patience(60, 4.0, 1e-6),
}
"""By effort: quick ends after the look at every family."""


@final
@dataclass
class Table:
    """What every mechanism and family reached: name to least unit error."""

    errors: dict[str, float] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)

    def note(self, name: str, error: float, kind: str) -> None:
        """Remember an error if it is the least under that name."""
        if error < self.errors.get(name, math.inf):
            self.errors[name], self.kinds[name] = error, kind


@final
class Floors:
    """The paper's and the classical mechanisms, computed once, one after the other.

    At a time limit or an interruption the rest is left out.
    """

    def __init__(self, problem: Problem, table: Table, norm: Norm) -> None:
        self._left = self._every(problem, table, norm)
        self.drafts: list[Draft] = []

    def first(self) -> Draft:
        """Return one, whatever the time: identity on the cells is always among them."""
        self.drafts.append(next(self._left))
        return self.drafts[0]

    def __iter__(self) -> Iterator[Draft]:
        """Yield those that were not computed before, as long as there is time."""
        while (found := self.next()) is not None:
            yield found

    def next(self) -> Draft | None:
        """Return the next, or None if there are no more or time is up."""
        found = None if limits.ending() else next(self._left, None)
        if found is not None:
            self.drafts.append(found)
        return found

    def _every(self, problem: Problem, table: Table, norm: Norm) -> Iterator[Draft]:
        for kind, module in (("paper", paper), ("classical", classical)):
            for found in module.floors(problem, norm):
                if found.error < math.inf:
                    table.note(found.origin, found.error, kind)
                    yield found


def applicable(problem: Problem, family: str | None) -> list[Family]:
    """Return the families that apply to a problem, or the one of a name."""
    if family is not None:
        return [find("laplace", family)]
    chosen = [known for known in families("laplace", structured=False) if known.applies(problem)]
    alone = [known for known in chosen if known.alone(problem)]
    return alone[:1] or chosen


def steps(
    problem: Problem,
    *,
    bound: float,
    weights: RealVector,
    seed: int,
    table: Table,
    floors: Floors,
    family: str | None = None,
    initial: Draft | None = None,
    workers: int = 1,
    in_turn: bool = False,
    mesh: Mesh | None = None,
    effort: Effort = "normal",
) -> Iterator[Progress[Draft, RealVector]]:
    """Yield what is known, a look at every family, the floors, then steps of the families; the loop keeps the best.

    With several workers, other processes search the same with other seeds once the look is over. On a mesh only
    p-identity is searched, the one family that is spread.

    Args:
        problem: what is searched.
        bound: the proven bound, for the record.
        weights: its proof.
        seed: for random numbers.
        table: gets what every mechanism and family reached.
        floors: the paper's and the classical mechanisms.
        family: search this one alone.
        initial: a strategy to start from.
        workers: processes that search, this one among them.
        in_turn: take the steps of all processes in turn, so that they do not depend on the clock.
        mesh: devices to spread p-identity over.
        effort: how long to go on without a gain.

    Guarantees:
        The first candidate is the initial strategy, or the first floor.
    """
    best = floors.first() if initial is None else initial
    limits.keep()
    yield Progress(best.error, bound, best, weights)
    own = searched(problem, seed=seed, family=family, best=best, mesh=mesh, floors=floors, effort=effort)
    seeds = [seed + _APART * k for k in range(1, 1 if mesh is not None else workers)]
    others = [job(problem, seed=other, family=family, best=best, effort=effort) for other in seeds]
    for found in side_by_side(own, others, in_turn=in_turn, after=_looks(problem, family)):
        table.note(found.origin, found.error, "ours")
        yield Progress(found.error, bound, found, weights)


def searched(
    problem: Problem,
    *,
    seed: int,
    family: str | None,
    best: Draft,
    mesh: Mesh | None = None,
    floors: Floors | None = None,
    effort: Effort = "normal",
) -> Iterator[Draft]:
    """Yield what every step of every family found, in turns that depend on their results alone."""
    chosen = applicable(problem, family) if mesh is None else [p_identity.FAMILY]
    options = {} if mesh is None else {"mesh": mesh}
    running = {known.name: known.search(problem, seed=seed + i, **options) for i, known in enumerate(chosen)}
    turns = {known.name: known.turns for known in chosen}
    if family is None and vertex.NAME in running:
        running[_POLISH], turns[_POLISH] = _polish(problem, lambda: best), vertex.POLISH
    patience = PATIENCE[effort]
    gained = 0
    looks = sum(turn.look for turn in turns.values())
    for count, found in enumerate(_taken(running, turns), start=1):
        if found.error < best.error * (1 - patience.gain):
            gained = count
        best = found if found.error < best.error else best
        yield found
        if count < looks:
            continue
        if patience.ends(count, gained, looks if len(chosen) > 1 else 0):
            return  # floors that are left are computed after the search
        floor = None if floors is None else floors.next()
        if floor is not None:
            best = floor if floor.error < best.error else best
            yield floor


def _looks(problem: Problem, family: str | None) -> int:
    """Steps after which other processes are started: before, they would take from the first answer."""
    return sum(known.turns.look for known in applicable(problem, family))


def job(problem: Problem, *, seed: int, family: str | None, best: Draft, effort: Effort) -> Job[Draft]:
    """Return the same search for another process; names of queries are not searched and stay here."""
    plain = Problem(replace(problem.workload, namer=str), problem.policy)
    return Job(searched, {"problem": plain, "seed": seed, "family": family, "best": best, "effort": effort}, best)


def _taken(running: dict[str, Iterator[Draft]], turns: dict[str, Turns]) -> Iterator[Draft]:
    """Take the turns of the families; one that ends or gains no more is dropped."""
    reached = dict.fromkeys(running, math.inf)
    idle = dict.fromkeys(running, 0)
    for name in _turns(running, turns, reached):
        found = next(running[name], None)
        if found is None:
            del running[name]
            continue
        idle[name] = 0 if found.error < reached[name] * (1 - la.AGREEMENT) else idle[name] + 1
        reached[name] = min(reached[name], found.error)
        if idle[name] >= turns[name].stale:
            del running[name]
        yield found


def _polish(problem: Problem, current: Callable[[], Draft | None]) -> Iterator[Draft]:
    """After the look at every family: one polish of the best strategy so far in the vertex family, if it can be."""
    found = current()
    if found is not None and found.kind == "vertex" and found.origin != vertex.NAME:
        yield vertex.polish(problem, found)


def _turns(running: dict[str, Iterator[Draft]], turns: dict[str, Turns], reached: dict[str, float]) -> Iterator[str]:
    """First looks at every family, in rounds; then mostly the leader, while it gains, with one turn of the others."""
    for done in range(max(turns[name].look for name in running)):
        for name in list(running):
            if name in running and done < turns[name].look:
                yield name
    while running:
        leader = min(running, key=lambda name: (reached[name], name))
        for _ in range(_LEADER_TURNS):
            if leader in running:
                yield leader
        for name in list(running):
            if name != leader and reached[name] < 1.1 * reached[leader]:
                yield name
            elif name != leader:
                del running[name]  # more than a tenth behind after its look: its turns are better spent elsewhere
