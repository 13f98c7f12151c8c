"""Flows: noise of tree norms for the moves along every attribute by itself, added up.

Along an attribute i noise flows along the edges of a graph H on its values, drawn for every edge by itself, by the norm
of a tree over values of the other attributes under hidden presence: what p-identities are to Laplace noise on the edges
of a grid. H has the edges of the attribute's policy, or an edge from every value to BOTTOM, at two steps a move. An
attribute with a tree of its own, on lines under thresholds say, may be hidden by that tree in every group instead.

With s steps a move, W_o the queries of the other attributes and c = s^2 tr(M^T V_i M), a part has c times the error of
its tree for W_o under hidden presence, so parts are searched one by one. A tree over one other attribute is drawn for
every combination of values of the rest; trees over several are tried last, where their values are few.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hdmm_bf._types import EdgeArray, Effort
from hdmm_bf.bounds.dense import svd_bound
from hdmm_bf.objectives import limits
from hdmm_bf.objectives.tree_plans import checked_tree
from hdmm_bf.problem.groups import problem_within
from hdmm_bf.problem.slots import (
    all_values,
    columns,
    folded_problem,
    is_small,
    moves_along,
)
from hdmm_bf.problem.slots import steps as path_steps
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.norm import portfolio
from hdmm_bf.strategies.norm.drafts import TreeDraft, tree_draft
from hdmm_bf.strategies.norm.shapes import planted
from hdmm_bf.strategies.registry import Family

NAME = "flows"

LARGEST_TREE, _LARGEST_JOINED = 1024, 128
"""Values of a tree over one attribute, and of one over several, at most."""

_MOST_SINGLE, _MOST_JOINED, _FEW = 8, 4, 12
"""Attributes, and sets of several, that trees are tried over, those with the most values; of how many at most three."""

_LOOK = 3
"""Trees that are searched for a part before the best of its kinds is searched further."""

_BEHIND, _KINDS_BEHIND = 1.05, 1.5
"""Kinds of parts that end so far behind the best are not searched further; those of slots whose plain trees are, not at
all: trees of an attribute's own gain more."""

_LEAST = 0.4
"""Share of the SVD bound below which an error is rounding: no unbiased mechanism is below half of it at small epsilon,
and weights that vanish leave a law without digits."""

_ROUNDING = 1e-5
"""Share to which the errors of drafts are known."""

_ON_SLOTS, _EVEN = (1 / 2, 1 / 8, 1 / 64), 2048
"""Shares of the weight that single slots have in trees with one set, of all; slots over share for which the error of a
draft still has its digits."""

_APART, _FEW_VALUES = 0.25, 64
"""Share of what queries ask below which trees with one set are looked at; values up to which plain trees with a public
total are."""

_MOST_VALUES = 2048
_DIGITS = 9
"""Digits of shares of the Gram matrix to which two attributes are asked for alike."""


class Place(NamedTuple):
    """A kind of part: where its noise is.

    Attributes:
        axes: the attributes of its tree.
        along: the attribute along which it flows; None where the tree hides its own attributes.
        edges: the graph along which it flows.
        steps: the most edges that a move has in the graph.
    """

    axes: tuple[int, ...]
    along: int | None
    edges: EdgeArray
    steps: int


class PartDraft(NamedTuple):
    """A part in floating point: where it is, its tree, whose longest move is 1 over the steps, and its unit error."""

    place: Place
    tree: TreeDraft
    error: float


class FlowsDraft(NamedTuple):
    """Parts for all attributes with edges, and their unit error together."""

    parts: tuple[PartDraft, ...]
    error: float
    origin: str = NAME


def applies(problem: Problem) -> bool:
    """Products of one policy an attribute, several attributes having more than one value, and the total error."""
    policy = problem.policy
    factors, sizes = policy.factors, policy.domain.sizes
    if factors is None or len(factors) != len(sizes) or problem.goal.kind != "total":
        return False
    if not any(own.num_edges for own in factors) or sum(n > 1 for n in sizes) < 2 or max(sizes) > _MOST_VALUES:
        return False
    return all(own.num_edges == 0 or _places(problem, i) for i, own in enumerate(factors))


def steps(problem: Problem, *, seed: int, effort: Effort = "normal") -> Iterator[FlowsDraft]:
    """Yield the best parts so far: plain trees, a look at every kind of part, then the rest of the best kinds."""
    factors = problem.policy.factors
    assert factors is not None, "applies only to products"
    pool = _Pool(seed, effort)
    searches = [_Search(problem, i, pool) for i, own in enumerate(factors) if own.num_edges]
    yield _together(searches)
    for stage in (_Search.look, _Search.rest, _Search.joined):
        for own in searches:
            for _ in stage(own):
                yield _together(searches)
                limits.keep()
                if limits.ending():
                    return


def _together(searches: list[_Search]) -> FlowsDraft:
    parts = tuple(own.best for own in searches)
    return FlowsDraft(parts, sum(part.error for part in parts))


class _Pool:
    """Searches for trees; where two attributes are asked for alike, both take from one."""

    def __init__(self, seed: int, effort: Effort) -> None:
        self._seed, self._effort = seed, effort
        self._running: dict[object, tuple[Iterator[TreeDraft], list[TreeDraft]]] = {}

    def trees(self, own: Problem) -> Iterator[TreeDraft]:
        """Yield trees for a problem, each with its error for it; those that are known first."""
        scale = float(np.trace(own.gram))
        if scale == 0:
            return  # no tree has an error
        shares = np.round(own.gram / scale, _DIGITS) + 0.0
        key = own.policy.edges.tobytes(), own.policy.num_cells, shares.tobytes()
        drafts, known = self._running.setdefault(key, (self._steps(own, scale), []))
        for k in itertools.count():
            if k == len(known):
                fresh = next(drafts, None)
                if fresh is None:
                    return
                known.append(fresh)
            yield known[k]._replace(error=scale * known[k].error)

    def _steps(self, own: Problem, scale: float) -> Iterator[TreeDraft]:
        least, refused = _LEAST * svd_bound(own), 0
        for tree in portfolio.steps(own, seed=self._seed, effort=self._effort):
            refused = 0 if tree.error >= least else refused + 1
            if refused == 0:
                yield tree._replace(error=tree.error / scale)
            elif refused > _LOOK:
                return


class _Search:
    """The search for the part that hides one attribute."""

    def __init__(self, problem: Problem, attribute: int, pool: _Pool) -> None:
        every = [(place, _problem_at(problem, place)) for place in _places(problem, attribute)]
        plain = [_plain(place, own) for place, own in every]
        self.best = min(plain, key=lambda part: part.error)
        most = _KINDS_BEHIND * self.best.error
        pairs = zip(every, plain, strict=True)
        near = [pair for pair, part in pairs if pair[0].along is None or part.error <= most]
        single = [pair for pair in near if len(pair[0].axes) == 1]
        self._running = [self._parts(place, pool.trees(own)) for place, own in single]
        self._joined = [self._parts(place, pool.trees(own)) for place, own in near if len(place.axes) > 1]
        self._reached = [math.inf] * len(self._running)

    @staticmethod
    def _parts(place: Place, trees: Iterator[TreeDraft]) -> Iterator[PartDraft]:
        return (PartDraft(place, tree, place.steps**2 * tree.error) for tree in trees)

    def _take(self, part: PartDraft) -> None:
        if part.error < self.best.error * (1 - _ROUNDING):
            self.best = part

    def look(self) -> Iterator[None]:
        """Take a look at every kind of part whose tree is over one attribute."""
        for k, parts in enumerate(self._running):
            for part in itertools.islice(parts, _LOOK):
                self._reached[k] = min(self._reached[k], part.error)
                self._take(part)
                yield

    def rest(self) -> Iterator[None]:
        """Search on in the kinds that are near the best."""
        for k in np.argsort(self._reached, kind="stable").tolist():
            if self._reached[k] <= _BEHIND * self.best.error:
                for part in self._running[k]:
                    self._take(part)
                    yield

    def joined(self) -> Iterator[None]:
        """Search trees over several attributes, which take longer: on where a look brings a gain."""
        for parts in self._joined:
            before = self.best.error
            for count, part in enumerate(parts, start=1):
                self._take(part)
                yield
                if count >= _LOOK and not self.best.error < before:
                    break


def has_light_sets(found: FlowsDraft, least: float) -> bool:
    """Whether some set has a weight, and less than so much."""
    return any(np.any((tree.weights > 0) & (tree.weights < least)) for _, tree, _ in found.parts)


def held(problem: Problem, found: FlowsDraft, least: float) -> FlowsDraft:
    """Give every set of every part a weight that bounds its noise."""
    parts = []
    for place, tree, _ in found.parts:
        own = _problem_at(problem, place)
        tree = tree_draft(own, tree.parents, np.maximum(tree.weights, least), origin=tree.origin)
        parts.append(PartDraft(place, tree, place.steps**2 * tree.error))
    return FlowsDraft(tuple(parts), sum(part.error for part in parts))


def _places(problem: Problem, attribute: int) -> list[Place]:
    """Return all kinds of parts that can hide an attribute, those with the smallest trees first."""
    policy = problem.policy
    assert policy.factors is not None, "applies only to products"
    own, sizes = policy.factors[attribute], policy.domain.sizes
    others = [i for i in range(len(sizes)) if i != attribute and sizes[i] > 1]
    small = [i for i in others if sizes[i] <= LARGEST_TREE]
    axes: list[tuple[int, ...]] = [(i,) for i in sorted(small, key=lambda i: -sizes[i])[:_MOST_SINGLE]]
    sets = itertools.chain(itertools.combinations(others, 2), itertools.combinations(others[:_FEW], 3))
    several = [(math.prod(sizes[i] for i in them), them) for them in sets]
    axes += [them for _, them in sorted(them for them in several if them[0] <= _LARGEST_JOINED)[-_MOST_JOINED:]]
    graphs = [edges for edges in (own.edges, all_values(own)) if is_small(own, edges)]
    counts = [path_steps(own.edges, edges, own.num_cells) for edges in graphs]
    found = [Place(them, attribute, e, s) for them in axes for e, s in zip(graphs, counts, strict=True)]
    if sizes[attribute] <= LARGEST_TREE:
        found.append(Place((attribute,), None, np.empty((0, 2), dtype=np.int64), 1))
    return sorted(found, key=lambda place: math.prod(sizes[i] for i in place.axes))


def _problem_at(problem: Problem, place: Place) -> Problem:
    """Return the problem of the tree of a part: the queries of a slot, with the error of all slots together."""
    policy = problem.policy
    if place.along is None:
        return problem_within(Problem(problem.workload, moves_along(policy, place.axes)), place.axes)
    assert policy.factors is not None, "applies only to products"
    M = columns(policy.factors[place.along], place.edges)
    return problem_within(folded_problem(problem, place.along, place.axes, M), place.axes)


def _plain(place: Place, own: Problem) -> PartDraft:
    """Return the best of trees that need no search: noise on every slot, and less of it than on all slots together.

    Where presence is hidden, noise on every slot is discrete Laplace noise: its unit error is tr V.
    """
    n, V = own.policy.num_cells, own.gram
    if own.policy.has_bottom:
        drafts = [TreeDraft(np.full(n, -1), np.ones(n), float(np.trace(V)), "star")]
        apart = float(np.trace(V) - V.sum() / n)  # what queries see of anything but the total
        parents = np.append(np.full(n, n), -1)
        shares = [share for share in _ON_SLOTS if n / share <= _EVEN and apart < _APART * drafts[0].error]
        for share in shares:
            drafts.append(tree_draft(own, parents, np.append(np.full(n, share), 1 - share), origin="total"))
    else:  # a root of weight zero: the total is public
        parents = planted(own.policy, lambda trees, cells: trees.join(cells))
        alone = checked_tree(own.policy, parents).public  # values by themselves are roots too
        weights = np.where((np.arange(parents.size) < n) & ~alone, 0.5, 0.0)
        seen = np.any(V)
        drafts = [TreeDraft(parents, weights, math.inf if seen else 0.0, "star")]
        if seen and n <= _FEW_VALUES:
            drafts.append(tree_draft(own, parents, weights, origin="star"))
    tree = min(drafts, key=lambda draft: draft.error)
    return PartDraft(place, tree, place.steps**2 * tree.error)


FAMILY = Family(name=NAME, noise="norm", structured=True, search=steps, applies=applies, needs="needs a product policy")
