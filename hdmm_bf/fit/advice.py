"""`advise`: noises and policies side by side at one budget, for every published table, before anything is decided.

The given policy stands beside ordinary privacy, of both kinds: one hides whether a record is there at all, the other
which value it has. Fits are quick ones: they say what is worth fitting with care.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from hdmm_bf import _display
from hdmm_bf import policy as policies
from hdmm_bf._checks import InputError, fail
from hdmm_bf._types import JsonObject, Noise, Number
from hdmm_bf.data.frames import frame
from hdmm_bf.domain import DomainLike
from hdmm_bf.fit.fit import Fit
from hdmm_bf.fit.noises import ASKED, NoiseRow, noise_row
from hdmm_bf.fit.reserve import norm_fit_seconds
from hdmm_bf.fit.run import fit, structured
from hdmm_bf.fit.worst import deviations
from hdmm_bf.policy import BOTTOM, Policy
from hdmm_bf.problem import inputs
from hdmm_bf.problem.goal import Function, Groups, Targets
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release.plan import MOST_LISTED, Plan, plan
from hdmm_bf.release.privacy import noise_variance
from hdmm_bf.strategies import Callback, limits
from hdmm_bf.workload import Workload

GIVEN = "given"
ALL = "all answers"
_NOISES: tuple[Noise, ...] = ("gaussian", "laplace", "norm")
"""In the order they are fitted: the first takes seconds, the last may take more than its time for its certificate."""
_GAP = 1e-2
_LEAST_SECONDS = 0.5
_MOST_COMPLETE = 4096
"""Cells up to which the complete graph is no burden; beyond, no noise has a fast search under it."""
_SPAN = 2.0 ** np.arange(-3, 4)
"""Epsilons of a picture, as multiples of the one that was asked for."""


class TableError(NamedTuple):
    """What a release has of one table.

    Attributes:
        table: its name; `all answers` for all tables together.
        num_queries: how many counts it has.
        rmse: root mean squared error of a count.
        worst: largest standard deviation of a count; None where there are too many to look at each.
        wanted: the standard deviation that was asked of it at most, or None.
    """

    table: str
    num_queries: int
    rmse: float
    worst: float | None
    wanted: float | None = None


class Candidate(NamedTuple):
    """One policy with one noise.

    Attributes:
        policy: the name of the policy among the candidates.
        noise: "gaussian", "laplace" or "norm".
        promise: what is promised, in words.
        tables: all answers, then every table where there are several.
        asked: what a release has of the goal; for the total, the root mean squared error.
        fit: the quick fit behind the numbers.
    """

    policy: str
    noise: Noise
    promise: str
    tables: tuple[TableError, ...]
    asked: float
    fit: Fit


class PolicyWords(NamedTuple):
    """What a policy promises, in words.

    Attributes:
        name: among the candidates.
        title: the spec string, or what else it is called.
        hides: what nobody can tell.
        discloses: what becomes public; empty where nothing does.
    """

    name: str
    title: str
    hides: str
    discloses: list[str]


class LeftOut(NamedTuple):
    """A policy and a noise that were not fitted, and why."""

    policy: str
    noise: Noise
    why: str


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Advice:
    """Candidates at one budget; `to_frame()` for a frame, `curves()` for the error at other epsilons.

    Attributes:
        workload: what is published.
        epsilon: the privacy loss.
        delta: the probability that Gaussian noise exceeds it, or None.
        goal: what candidates are ranked by, in words.
        candidates: those that were fitted: by policy, and for each policy best first.
        policies: what each policy hides and makes public, the given one first.
        left_out: what was not fitted, and why.
    """

    workload: Workload
    epsilon: float
    delta: float | None
    goal: str
    candidates: tuple[Candidate, ...]
    policies: tuple[PolicyWords, ...]
    left_out: tuple[LeftOut, ...]

    def best(self, policy: str = GIVEN) -> Candidate:
        """Return the noise that has least of the goal under a policy."""
        found = [one for one in self.candidates if one.policy == policy]
        if not found:
            known = ", ".join(sorted({one.policy for one in self.candidates}))
            raise fail("advice.best", f"policy={policy!r}", f"has no candidate; there are {known}", "Choose one.")
        return found[0]

    def curves(self, epsilons: Iterable[float] | None = None) -> dict[tuple[str, Noise], list[float]]:
        """Return the root mean squared error of every candidate at other epsilons, by policy and noise.

        Args:
            epsilons: where; by default those of `epsilons`.

        Guarantees:
            Each is what `plan` says of a release at that epsilon, at the same delta.
        """
        places = list(self.epsilons if epsilons is None else epsilons)
        return {(one.policy, one.noise): [self._plan(one, e).rmse for e in places] for one in self.candidates}

    @property
    def epsilons(self) -> list[float]:
        """Seven epsilons from an eighth of the one that was asked for to eight times that."""
        return [float(e) for e in self.epsilon * _SPAN]

    def _plan(self, one: Candidate, epsilon: float) -> Plan:
        return plan(one.fit, epsilon=epsilon, delta=self.delta if one.noise == "gaussian" else None)

    def to_frame(self, library: str | None = None) -> Any:
        """Return one row a candidate and table, as a frame of pandas, polars or pyarrow."""
        return frame(self.columns(), library, where="advice.to_frame")

    def columns(self) -> dict[str, list[Any]]:
        """Return policy, noise, promise and what a release has of each table, in columns."""
        rows = [(one, table) for one in self.candidates for table in one.tables]
        head = ("policy", "noise", "promise")
        found: dict[str, list[Any]] = {name: [getattr(one, name) for one, _ in rows] for name in head}
        return found | {name: [getattr(table, name) for _, table in rows] for name in TableError._fields}

    def summary(self) -> JsonObject:
        """Return all of it as plain values."""
        return {
            "workload": self.workload.title,
            "num_queries": self.workload.num_queries,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "goal": self.goal,
            "candidates": [
                {
                    "policy": one.policy,
                    "noise": one.noise,
                    "family": one.fit.family,
                    "promise": one.promise,
                    "asked": one.asked,
                    "tables": [table._asdict() for table in one.tables],
                }
                for one in self.candidates
            ],
            "policies": [words._asdict() for words in self.policies],
            "left_out": [one._asdict() for one in self.left_out],
        }

    def __repr__(self) -> str:
        at = f"epsilon {self.epsilon:g}{'' if self.delta is None else f', delta {self.delta:g}'}"
        return f"Advice({self.workload.title}, {at}, {len(self.candidates)} candidates)"

    def _repr_html_(self) -> str:
        rows = [(c.policy, c.noise, c.promise, t.table, f"{t.rmse:.4g}", _shown(t)) for c, t in self._pairs()]
        words = [(p.name, f"{p.hides} Public: {'; '.join(p.discloses) or 'nothing'}.") for p in self.policies]
        head = ("policy", "noise", "promise", "table", "rmse", "worst stddev")
        return _display.card("Advice", self.workload.title, _display.table(head, rows), _display.facts_table(words))

    def _pairs(self) -> Iterator[tuple[Candidate, TableError]]:
        return ((one, table) for one in self.candidates for table in one.tables)


def _shown(table: TableError) -> str:
    return "-" if table.worst is None else f"{table.worst:.4g}"


def advise(
    workload: object,
    policy: object,
    *,
    epsilon: Number,
    delta: Number | None = None,
    beside: Mapping[str, object] | Sequence[object] = (),
    domain: DomainLike | None = None,
    objective: str | Function = "total",
    targets: Targets | None = None,
    groups: Groups | None = None,
    max_seconds: Number = 60.0,
    seed: int = 0,
    callback: Callback | None = None,
) -> Advice:
    """Set noises and policies side by side: the error of every published table, and what each policy makes public.

    Args:
        workload: as for `fit`.
        policy: the policy that is thought of, as for `fit`; it is called "given".
        epsilon: the privacy loss, the same for all.
        delta: the probability that it is exceeded; without one, Gaussian noise is left out.
        beside: further policies, by name or in a list; ordinary privacy, "unbounded" and "bounded", is always there.
        domain: the attributes, as for `fit`.
        objective, targets, groups: what is to be small, as for `fit`.
        max_seconds: time for all fits together. What is not reached by then is left out and named, and so are tree
            norms that would take longer; a fit that is under way then may end a little later.
        seed: for families that draw random numbers.
        callback: called with the error and bound after every step of every search.

    Example:
        >>> import hdmm_bf as bf
        >>> advice = bf.advise("prefix:16", "line:16", epsilon=1.0, delta=1e-6, max_seconds=5)
        >>> [words.name for words in advice.policies]
        ['given', 'unbounded', 'bounded']
        >>> advice.best().tables[0].rmse < advice.best("unbounded").tables[0].rmse
        True

    Guarantees:
        Errors are those that `plan` predicts of a release of the fits that `candidates` hold.
    """
    if not (isinstance(max_seconds, int | float) and 0 < max_seconds < math.inf):
        raise fail("advise", f"max_seconds={max_seconds}", "must be a positive number", "Use for example 60.")
    noise_variance("laplace" if delta is None else "gaussian", epsilon=epsilon, delta=delta)  # refuses what is none
    wanted: dict[str, Any] = {"objective": objective, "targets": targets, "groups": groups}
    problem = inputs.problem(workload, policy, domain=domain, **wanted)
    graphs, too_large = _policies(problem.policy, beside)
    asked = _Asked(problem.workload, graphs, float(epsilon), None if delta is None else float(delta), wanted)
    fitted, refused = _fitted(asked, max_seconds, {"seed": seed, "callback": callback})
    order = list(graphs)
    return Advice(
        workload=problem.workload,
        epsilon=asked.epsilon,
        delta=asked.delta,
        goal=ASKED[problem.goal.name],
        candidates=tuple(sorted(fitted, key=lambda one: (order.index(one.policy), one.asked))),
        policies=tuple(_words(name, graph) for name, graph in graphs.items()),
        left_out=(*refused, *(LeftOut("bounded", noise, too_large) for noise in _NOISES if too_large)),
    )


class _Asked(NamedTuple):
    """What candidates are fitted for."""

    workload: Workload
    policies: dict[str, Policy]
    epsilon: float
    delta: float | None
    goal: dict[str, Any]

    def problem(self, name: str) -> Problem:
        """Return the workload under one policy."""
        return inputs.problem(self.workload, self.policies[name], **self.goal)

    def candidate(self, name: str, noise: Noise, options: JsonObject) -> Candidate:
        """Fit one policy with one noise."""
        problem = self.problem(name)
        with limits.counting_from(limits.now()):
            made = fit(self.workload, problem.policy, noise=noise, **self.goal, **_quick(problem, noise), **options)
        budget = {"epsilon": self.epsilon}
        if noise == "gaussian" and self.delta is not None:
            budget["delta"] = self.delta
        row = noise_row(problem, made, budget)
        together = TableError(ALL, self.workload.num_queries, row.rmse, row.worst_stddev)
        return Candidate(name, noise, row.promise, (together, *_tables(self.workload, row)), row.asked, made)


def _fitted(asked: _Asked, max_seconds: Number, options: JsonObject) -> tuple[list[Candidate], list[LeftOut]]:
    """Fit all noises for all policies within a time; return those that were fitted, and why others were not."""
    fitted: list[Candidate] = []
    refused: list[LeftOut] = []
    until = limits.origin() + max_seconds
    noises = [noise for noise in _NOISES if noise != "gaussian" or asked.delta is not None]
    turns = [(name, noise) for noise in noises for name in asked.policies]
    for done, (name, noise) in enumerate(turns):
        left = max(until - limits.now(), 0.0)
        if fitted and (left < _LEAST_SECONDS or limits.interrupted()):
            refused.append(LeftOut(name, noise, f"the {max_seconds:g} s for all were over before its turn"))
            continue
        own = max(left, _LEAST_SECONDS) / (len(turns) - done)
        try:
            if fitted and noise == "norm" and (needed := norm_fit_seconds(asked.problem(name))) > left:
                why = f"it would take about {needed:.0f} s, more than is left of {max_seconds:g} s for all"
                refused.append(LeftOut(name, noise, why))
                continue
            fitted.append(asked.candidate(name, noise, {**options, "max_seconds": own}))
        except InputError as why:
            refused.append(LeftOut(name, noise, str(why)))
    if not any(one.policy == GIVEN for one in fitted):
        raise InputError(next(one.why for one in refused if one.policy == GIVEN))
    if asked.delta is None:
        refused += [LeftOut(name, "gaussian", "it needs a delta") for name in asked.policies]
    return fitted, refused


def _quick(problem: Problem, noise: Noise) -> JsonObject:
    """Return the options of a quick fit: a wide gap, one look at every family, one process."""
    dense = noise == "norm" or structured(problem, noise, None) is None
    if noise == "gaussian" or not dense:
        return {"gap": _GAP}
    return {"effort": "quick"} | ({"workers": 1} if noise == "laplace" else {})


def _policies(given: Policy, beside: Mapping[str, object] | Sequence[object]) -> tuple[dict[str, Policy], str]:
    """Return the candidates by name: the given one, the user's others, and ordinary privacy of both kinds.

    And why bounded privacy is left out; nothing where it is not.
    """
    found = {GIVEN: given}
    listed = [(None, one) for one in beside] if not isinstance(beside, Mapping) else list(beside.items())
    for name, other in listed:
        made = inputs.as_policy(other, domain=given.domain)
        if made.domain.sizes != given.domain.sizes:
            problem = f"is on {made.domain}, the given policy on {given.domain}"
            raise fail("advise", made.title, problem, "Compare policies on the same cells.")
        key = made.title if name is None else str(name)
        if key in found:
            raise fail("advise", f"policy {key!r}", "is there twice", "Give each policy another name.")
        found[key] = made
    cells = given.domain
    if not any(_hides_presence(one) for one in found.values()):
        found.setdefault("unbounded", policies.unbounded(cells))
    if not any(_hides_any_value(one) for one in found.values()):
        if cells.num_cells > _MOST_COMPLETE:
            return found, f"{cells.num_cells} cells are more than {_MOST_COMPLETE}, up to which all pairs are searched"
        found.setdefault("bounded", policies.bounded(cells))
    return found, ""


def _hides_presence(policy: Policy) -> bool:
    """Whether a policy is the star around BOTTOM."""
    if policy.num_edges != policy.num_cells or not policy.has_bottom:
        return False
    return bool(np.all(policy.edges[:, 1] == BOTTOM))


def _hides_any_value(policy: Policy) -> bool:
    """Whether a policy is the complete graph: no other without BOTTOM has as many edges."""
    return policy.num_edges == math.comb(policy.num_cells, 2) and not policy.has_bottom


def _words(name: str, policy: Policy) -> PolicyWords:
    return PolicyWords(name, policy.title, policies.hides(policy), policies.discloses(policy))


def _tables(workload: Workload, row: NoiseRow) -> list[TableError]:
    """Return what every table has; none where there is one alone, or where there are too many queries."""
    blocks = () if workload.layout is None else workload.layout.blocks
    if len(blocks) < 2 or workload.num_queries > MOST_LISTED:
        return []
    stddev = deviations(row.plan)
    parts = np.split(stddev, np.cumsum([block.num_queries for block in blocks])[:-1])
    return [
        TableError(b.name, b.num_queries, math.sqrt(float(np.mean(part**2))), float(part.max()), b.stddev)
        for b, part in zip(blocks, parts, strict=True)
    ]
