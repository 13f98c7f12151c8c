"""Hierarchies: levels of sets with few children each, a weight for every set.

Sets of three cells with pairs above them are best for all ranges under ordinary privacy; sets at the top end up without
weight and are left out, so how many children the upper levels have matters less.
"""

from __future__ import annotations

from collections.abc import Iterator

from hdmm_bf.objectives import limits
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.norm.drafts import TreeDraft, tree_draft
from hdmm_bf.strategies.norm.shapes import LARGEST_COVARIANCE, equal_weights, hierarchy, planted
from hdmm_bf.strategies.norm.weights import FULL, QUICK, optimised
from hdmm_bf.strategies.registry import Family, Turns

NAME = "hierarchy"

_BRANCHINGS = (
    (3, 2),
    (2,),
    (4, 2),
    (2, 2, 2, 8),
    (2, 3, 2),
    (3,),
    (3, 3, 2),
    (4,),
    (5, 2),
    (6, 2),
    (2, 4),
    (8, 2),
    (16,),
)
"""Children from the leaves up; measured on all ranges and prefixes over 64 and 256 cells, the best first."""


def applies(problem: Problem) -> bool:
    """Any problem whose queries need not be sets of the tree."""
    return problem.policy.num_cells <= LARGEST_COVARIANCE


def steps(problem: Problem, *, seed: int) -> Iterator[TreeDraft]:
    """Yield a first answer, then the best weights of one hierarchy after the other."""
    for count, branching in enumerate(_BRANCHINGS):
        if count and limits.ending():
            return
        parents = planted(problem.policy, hierarchy(branching))
        weights = optimised(problem, parents, equal_weights(parents), QUICK)
        first = tree_draft(problem, parents, weights, origin=NAME)
        if count == 0:
            yield first
        weights = optimised(problem, first.parents, first.weights, FULL)
        yield tree_draft(problem, first.parents, weights, origin=NAME)


FAMILY = Family(name=NAME, noise="norm", structured=False, search=steps, applies=applies, turns=Turns(look=3, stale=4))
