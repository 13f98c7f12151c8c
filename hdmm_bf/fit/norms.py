"""Fits of tree norms: pure epsilon, noise on the cells, a search over trees and their weights, then the certificate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from hdmm_bf._checks import InputError, fail
from hdmm_bf._linalg import threads_for
from hdmm_bf._types import Effort, JsonObject, Proof, RealVector
from hdmm_bf.bounds.dense import is_public, uniform
from hdmm_bf.certificate.norms import MOST_CELLS, fixed_roots, set_queries
from hdmm_bf.fit.certified import certified
from hdmm_bf.fit.dense import BOUND_GAP, BOUND_STEPS, default_seconds
from hdmm_bf.fit.fit import Fit
from hdmm_bf.fit.flows import LEAST_WEIGHT, SHARE, better, fit_flows
from hdmm_bf.fit.options import FitOptions
from hdmm_bf.fit.reserve import LARGEST_YARDSTICK, norm_seconds
from hdmm_bf.policy import BOTTOM
from hdmm_bf.problem.groups import problem_within
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release.tree_noise import tree_sampler
from hdmm_bf.strategies import Progress, limits, search
from hdmm_bf.strategies.gaussian import dense as gaussian
from hdmm_bf.strategies.norm import flows, portfolio
from hdmm_bf.strategies.norm.drafts import TreeDraft, tree_draft
from hdmm_bf.strategies.norm.groups import grouped_axes, searched
from hdmm_bf.strategies.norm.queries import tree_of_queries
from hdmm_bf.strategies.norm.shapes import equal_weights, planted
from hdmm_bf.strategies.records import GroupedTree
from hdmm_bf.strategies.rounding import from_tree

_YARDSTICK_SHARE = 0.25
"""Of the time limit, at most, for the bound on matrix mechanisms that stands beside the error."""


_FEW_CELLS = 64
"""Cells of products up to which one tree for all of them is searched beside sums of trees."""

_PLAIN_BEHIND = 1.5
"""One tree is looked at where noise on every cell is no further behind a sum; the gain of a tree is hardly more."""

_LOOK_SECONDS = 3.5
"""A look at one tree for `_FEW_CELLS` cells takes at most so long, and grows with their square."""

_LOOK, _BEHIND = 3, 1.1
"""Drafts after which one tree is given up, and how far behind it is then."""

_GROUP_SECONDS = 40.0
"""Limit of a search for public groups where none is given: long lines are as good after a fraction of it."""


def fit_norm(problem: Problem, options: FitOptions) -> Fit:
    """Search tree norms: sums of them, one part an attribute, under products; one tree for all cells; or both."""
    if options.family == flows.NAME:
        return fit_flows(problem, options)
    if options.family is not None or not flows.applies(problem):
        return _fit_tree(problem, options)
    if not _may_have_rival(problem):
        return fit_flows(problem, options)
    made = fit_flows(problem, options, share=SHARE)
    left = options.until(norm_seconds(problem)) - limits.now()
    look = _LOOK_SECONDS * (searched(problem).policy.num_cells / _FEW_CELLS) ** 2
    if made.unit_error == 0 or left < look or not _plain_error(problem) <= _PLAIN_BEHIND * made.unit_error:
        return made
    try:
        return better(made, _fit_tree(problem, options, beat=made.unit_error))
    except InputError:  # too large for one tree
        return made


def _may_have_rival(problem: Problem) -> bool:
    """Whether one tree for all cells, or for several attributes in every group, can be searched beside sums."""
    axes = grouped_axes(problem)
    return problem.policy.num_cells <= MOST_CELLS if axes is None else len(axes) > 1


def _plain_error(problem: Problem) -> float:
    """Return the unit error of noise on every cell, which hides all moves at once: two paths to the root, or one.

    On grids, where moves are short and queries count many cells, it is far behind, and so are trees over all cells.
    """
    own = searched(problem)
    if own.policy.num_cells <= _FEW_CELLS:
        return 0.0
    loss = 1.0 if np.all(own.policy.edges[:, 1] == BOTTOM) else 2.0
    total = 0.0 if own.policy.has_bottom else float(own.gram.sum()) / own.policy.num_cells  # public, and not disturbed
    return loss**2 * (float(np.trace(own.gram)) - total)


def _fit_tree(problem: Problem, options: FitOptions, *, beat: float = math.inf) -> Fit:
    """Search one tree and its weights, put the best on a grid, and certify it; with public groups, one for all.

    Args:
        problem: a workload under a policy.
        options: of the fit.
        beat: an error that is there already; trees far behind it after a look are not searched further.
    """
    axes = grouped_axes(problem)
    own = problem if axes is None else problem_within(problem, axes)
    cells = own.policy.num_cells

    def certified_tree(draft: TreeDraft, proof: Proof | None, **told: Any) -> Fit:
        tree = from_tree(draft)
        if axes is None:
            return certified(problem, tree, proof, options, **told)
        return certified(problem, GroupedTree(tree, axes, problem.policy.domain.sizes), None, options, **told)

    with threads_for(min(cells, MOST_CELLS)):
        if cells <= MOST_CELLS and is_public(own):
            equal: Proof = {"kind": "edges", "weights": uniform(own.policy.num_edges)}
            return certified_tree(_any_tree(own), equal, status="exact")
        if cells > MOST_CELLS:
            _check_queries(own)
        most = math.inf if axes is None else _GROUP_SECONDS
        limit = math.inf if options.limited else min(default_seconds(own), most)
        reserve = 0.0 if options.max_seconds is None else norm_seconds(own)
        with limits.limited(min(options.until(reserve), limits.now() + limit)):
            known = axes is None and cells <= LARGEST_YARDSTICK  # that of groups is derived by factors
            proof: Proof | None = {"kind": "edges", "weights": _yardstick(own)} if known else None
            reached: dict[str, float] = {}
            drafts = portfolio.steps(own, seed=options.seed, family=options.family, effort=_effort(own, options))
            found = search(
                _progress(_near(drafts, beat), reached, own),
                gap=options.gap,
                max_iterations=options.max_steps,
                callback=options.callback,
            )
        told: JsonObject = {"status": found.status, "reached": reached}
        try:
            tree_sampler(from_tree(found.best), own.policy, 1.0)
            return certified_tree(found.best, proof, **told)
        except InputError:  # queries that hold hardly a cell leave others without a weight to speak of
            return certified_tree(_held(own, found.best), proof, **told)


def _effort(problem: Problem, options: FitOptions) -> Effort:
    """Moves would break the sets that a certificate needs on large domains: there are none."""
    return "quick" if problem.policy.num_cells > MOST_CELLS else cast(Effort, options.effort)


def _check_queries(problem: Problem) -> None:
    """Refuse what no certificate could be had for, before the search."""
    if tree_of_queries(problem) is None:
        seen = f"{problem.policy.num_cells} cells"
        told = f"tree norms for more than {MOST_CELLS} need public attributes or queries that are nested sets"
        advice = "Use sums of cells, any two nested or disjoint, few around a cell; a smaller domain; or another noise."
        raise fail("fit", seen, told, advice)


def _near(drafts: Iterator[TreeDraft], beat: float) -> Iterator[TreeDraft]:
    """Yield drafts for as long as the best is not far behind an error; at least a look."""
    best = math.inf
    for count, found in enumerate(drafts, start=1):
        best = min(best, found.error)
        yield found
        if count >= _LOOK and best > _BEHIND * beat:
            return


def _has_law(problem: Problem, draft: TreeDraft) -> bool:
    """Whether the certificate can compute the error."""
    if not math.isfinite(draft.error):
        return False
    n = problem.policy.num_cells
    return n <= MOST_CELLS or set_queries(problem.workload.objective, draft.parents, n) is not None


def _progress(
    drafts: Iterator[TreeDraft], reached: dict[str, float], problem: Problem
) -> Iterator[Progress[TreeDraft, None]]:
    """Note what every family reached; no bound binds tree norms.

    Where no family has a proper law, because the queries hold hardly a cell, all cells hang on their roots.
    """
    for found in drafts:
        if _has_law(problem, found):
            reached[found.origin] = min(found.error, reached.get(found.origin, math.inf))
            yield Progress(found.error, 0.0, found, None)
    if not reached:
        plain = _plain_tree(problem)
        reached[plain.origin] = plain.error
        yield Progress(plain.error, 0.0, plain, None)


def _any_tree(problem: Problem) -> TreeDraft:
    """All cells of a component under one root: for answers that are public whatever the noise."""
    parents = planted(problem.policy, lambda trees, cells: trees.join(cells))
    weights = np.where(fixed_roots(parents, problem.policy), 0.0, 1.0)
    return TreeDraft(parents, weights, 0.0, "public")


def _held(problem: Problem, draft: TreeDraft) -> TreeDraft:
    """Give every set a weight that bounds its noise."""
    return tree_draft(problem, draft.parents, np.maximum(draft.weights, LEAST_WEIGHT), origin=draft.origin)


def _plain_tree(problem: Problem) -> TreeDraft:
    """All cells of a component under one root, with equal weights; half of them on the root where it has one.

    On large domains, the tree of the queries.
    """
    tree = tree_of_queries(problem) if problem.policy.num_cells > MOST_CELLS else None
    parents = planted(problem.policy, lambda trees, cells: trees.join(cells)) if tree is None else tree.parents
    return tree_draft(problem, parents, equal_weights(parents), origin="star")


def _yardstick(problem: Problem) -> RealVector:
    """Return edge weights that prove a bound on matrix mechanisms."""
    with limits.limited(limits.now() + _YARDSTICK_SHARE * limits.time_left()):
        steps = gaussian.steps(problem, gap=BOUND_GAP)
        return search(steps, gap=BOUND_GAP, max_iterations=BOUND_STEPS, whole_steps=True).proof
