"""What is to be small: the total of the queries' variances, the largest of them, or the farthest from its target.

With v_i the variance of query i at sensitivity 1, a goal other than the total is the largest of weighted means::

    max over groups g of  sum_{i in g} s_i v_i / |g|

s_i is the squared weight of the query ("largest"), or 1 / c_i^2 for a target c_i, a standard deviation ("targets"). By
default every query is a group of its own. "own" is an increasing function of the variances that the user wrote.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, final, get_args

import numpy as np

from hdmm_bf._checks import fail, listed, nearest, numbers
from hdmm_bf._types import AnyArray, IndexArray, Number, RealVector, SquareMatrix
from hdmm_bf.policy import BOTTOM, Policy
from hdmm_bf.workload import Workload

Kind: TypeAlias = Literal["total", "largest", "targets", "own"]
Targets: TypeAlias = Number | Sequence[Number] | AnyArray | Mapping[str, Number]
Groups: TypeAlias = Sequence[object] | AnyArray
Function: TypeAlias = Callable[[RealVector], Number]

UNASKED = 100.0
"""A query without a target may be this many times worse than the largest target; it is still answered."""

_MOST_CELLS = 4096
_PUBLIC = 1e-12
"""Squared share of a query that is left after public totals are taken out, below which it is rounding."""


@final
@dataclass(frozen=True, eq=False)
class Goal:
    """What a search makes small; make it with `goal`.

    Attributes:
        kind: "total", "largest", "targets" or "own".
        targets: for "targets", the standard deviation that every query may have; NaN where none is asked.
        groups: the number of every query's group, from 0, or None where each is its own.
        function: for "own", from the variances to a number; None where it is not known any more (in a bundle).
    """

    kind: Kind = "total"
    targets: RealVector | None = None
    groups: IndexArray | None = None
    function: Function | None = None

    @property
    def name(self) -> str:
        """The goal in a word or two."""
        return "worst group" if self.groups is not None else self.kind

    @cached_property
    def allowed(self) -> RealVector:
        """The standard deviation that every query may have; UNASKED times the largest target where none is asked."""
        assert self.targets is not None
        none = np.isnan(self.targets)
        return np.where(none, UNASKED * self.targets[~none].max(initial=0.0) or 1.0, self.targets)

    def scales(self, workload: Workload) -> RealVector:
        """Return s_i of every query."""
        if self.kind == "targets":
            return 1.0 / self.allowed**2
        return workload.weights() ** 2


TOTAL = Goal()


def goal(
    workload: Workload,
    policy: Policy,
    *,
    objective: str | Function = "total",
    targets: Targets | None = None,
    groups: Groups | None = None,
) -> Goal:
    """Check what is asked for and return it as a goal.

    Args:
        workload: the queries.
        policy: says which of them are public.
        objective: "total", "largest", "targets" (implied by `targets`), or an increasing function of the variances.
        targets: standard deviations: one for all queries, one for each (NaN: none asked), or one for each group.
        groups: for "largest", the group of every query: the worst group's mean variance is to be small. For targets by
            group, the name of every query's group.
    """
    if callable(objective):
        if targets is not None or groups is not None:
            raise fail("fit", "objective of one's own", "goes with neither targets nor groups", "Leave them out.")
        return Goal("own", function=objective)
    if objective not in get_args(Kind) or objective == "own":
        names = ("total", "largest", "targets")
        raise fail("fit", f"objective={objective!r}", "is not an objective", nearest(str(objective), names))
    if targets is not None and objective == "largest":
        advice = 'Use objective="targets", or leave the targets out.'
        raise fail("fit", "objective='largest' with targets", "asks for two things", advice)
    if targets is None and objective == "targets":
        raise fail("fit", "objective='targets'", "needs targets", "Give one standard deviation for each query.")
    if targets is not None:
        return Goal("targets", _targets(workload, policy, targets, groups))
    if objective == "total" and groups is not None:
        raise fail("fit", "groups", "the total needs none", 'Use objective="largest" for the worst group.')
    return TOTAL if objective == "total" else Goal("largest", groups=_groups(workload, policy, groups))


def _targets(workload: Workload, policy: Policy, targets: Targets, groups: Groups | None) -> RealVector:
    m = workload.num_queries
    if isinstance(targets, Mapping):
        vector = _by_group(workload, targets, groups)
    elif groups is not None:
        raise fail("fit", "groups with one target per query", "contradict each other", "Give {group: target}.")
    else:
        vector = np.asarray(numbers("fit", "targets", targets), dtype=np.float64)
        vector = np.full(m, float(vector.ravel()[0])) if vector.size == 1 else vector
    if vector.ndim != 1:
        shown = f"targets of shape {' x '.join(map(str, vector.shape))}"
        raise fail("fit", shown, "must be one list", "Give one for each query, or one for all.")
    if vector.shape != (m,):
        raise fail(
            "fit", f"{vector.size} targets", f"there are {m} queries", "Give one for each query, or one for all."
        )
    asked = ~np.isnan(vector)
    is_public = is_public_query(workload, policy)
    if not np.any(asked) and not np.all(is_public):
        raise fail("fit", "targets", "are all missing", "Give at least one standard deviation.")
    bad = np.flatnonzero(asked & ~((vector > 0) & (vector < math.inf)))
    if bad.size:
        shown = f"target {vector[bad[0]]:g} of query {bad[0]} ({workload.name(int(bad[0]))})"
        raise fail("fit", shown, "must be a positive standard deviation", "Use for example 5; NaN asks for none.")
    public = np.flatnonzero(asked & is_public)
    if public.size and not _is_scalar(targets):
        named = f"a target for query {public[0]} ({workload.name(int(public[0]))})"
        raise fail("fit", named, "is public under this policy and has no error", "Put NaN there: it needs none.")
    return np.where(is_public, math.nan, vector)


def _is_scalar(targets: Targets) -> bool:
    return not isinstance(targets, Mapping) and np.ndim(np.asarray(targets, dtype=object)) == 0


def _by_group(workload: Workload, targets: Mapping[str, Number], groups: Groups | None) -> RealVector:
    if groups is None:
        raise fail("fit", "targets by group", "need the group of every query", "Give groups=[...], one name a query.")
    names = _names(workload, groups)
    unknown = next((name for name in targets if str(name) not in set(names)), None)
    if unknown is not None:
        raise fail(
            "fit", f"a target for group {unknown!r}", "no query is in it", nearest(str(unknown), sorted(set(names)))
        )
    values = np.asarray(numbers("fit", "targets by group", list(targets.values())), dtype=np.float64)
    by_name = dict(zip(map(str, targets), values.tolist(), strict=True))
    return np.array([by_name.get(name, math.nan) for name in names])


def _groups(workload: Workload, policy: Policy, groups: Groups | None) -> IndexArray | None:
    if groups is None:
        return None
    names = _names(workload, groups)
    places = {name: i for i, name in enumerate(dict.fromkeys(names))}  # by first place: numbers keep their order
    group = np.array([places[name] for name in names], dtype=np.int64)
    secret = ~is_public_query(workload, policy)
    empty = np.flatnonzero(np.bincount(group, secret) == 0)
    if empty.size and np.any(secret):
        first = names[int(np.flatnonzero(group == empty[0])[0])]
        raise fail("fit", f"group {first!r}", "holds public queries alone and has no error", "Leave its queries out.")
    return group


def _names(workload: Workload, groups: Groups) -> list[str]:
    advice = "Name the group of every query."
    names = [str(name) for name in listed("fit", "groups", groups, advice=advice)]
    if len(names) != workload.num_queries:
        raise fail("fit", f"groups of {len(names)} queries", f"there are {workload.num_queries} queries", advice)
    return names


def is_public_query(workload: Workload, policy: Policy) -> np.ndarray:
    """Say of every query whether its answer follows from public totals: it is constant on every public component.

    ||D^T w||^2 is computed from W alone; what is left of a query whose entries cancel is rounding. On large domains no
    query is looked at: their variance will be zero.
    """
    components = policy.components
    hidden = np.isin(components.labels, np.flatnonzero(components.ground == BOTTOM))
    if (np.all(hidden) and policy.num_edges) or workload.num_cells > _MOST_CELLS:
        return np.zeros(workload.num_queries, dtype=bool)
    left = workload.matrix.quadratic(_projection(components.labels, hidden))
    whole = workload.matrix.quadratic(np.eye(workload.num_cells))
    return np.asarray(left <= _PUBLIC * whole)


def _projection(labels: IndexArray, hidden: np.ndarray) -> SquareMatrix:
    """The covariance that sees no public total: identity minus the mean of every public component."""
    same = labels[:, None] == labels[None, :]
    sizes = same.sum(axis=1)
    mean = np.where(same & ~hidden[:, None], 1.0 / sizes[:, None], 0.0)
    return np.asarray(np.eye(labels.size) - mean)
