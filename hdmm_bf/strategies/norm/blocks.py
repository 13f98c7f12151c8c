"""Chains of blocks: small hierarchies of neighbouring cells, and all blocks up to one.

For thresholds that are not small against the domain, between chains (blocks of one cell) and hierarchies (one block).
"""

from __future__ import annotations

from collections.abc import Iterator

from hdmm_bf.objectives import limits
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.norm import chain as chains
from hdmm_bf.strategies.norm.drafts import TreeDraft, tree_draft
from hdmm_bf.strategies.norm.shapes import chain, equal_weights, hierarchy, planted
from hdmm_bf.strategies.norm.weights import FULL, QUICK, optimised
from hdmm_bf.strategies.registry import Family, Turns

NAME = "blocks"

_BRANCHINGS = ((2,), (2, 2), (3,), (4,), (2, 2, 2), (3, 2), (4, 2), (2, 2, 2, 2))
"""Children from the cells up to the blocks; measured on thresholds 4 to 16 over 64 cells, the best first."""

_SHARE = 0.1
"""Of a longest edge, for the sets of a start above the cells."""


def applies(problem: Problem) -> bool:
    """Problems for chains whose edges reach over more than two cells, up to 2048 cells."""
    return chains.applies(problem) and chains.longest_span(problem.policy) > 2 and problem.policy.num_cells <= 2**11


def steps(problem: Problem, *, seed: int) -> Iterator[TreeDraft]:
    """Yield the best weights of one chain of blocks after the other."""
    span = chains.longest_span(problem.policy)
    for count, branching in enumerate(_BRANCHINGS):
        if count and limits.ending():
            return
        parents = planted(problem.policy, hierarchy(branching, top=chain))
        weights = equal_weights(parents)
        weights[: problem.policy.num_cells] = 0.2
        weights[problem.policy.num_cells :] = max(_SHARE, 0.5 / max(span, 1))
        weights = optimised(problem, parents, weights, QUICK)
        yield tree_draft(problem, parents, optimised(problem, parents, weights, FULL), origin=NAME)


FAMILY = Family(name=NAME, noise="norm", structured=False, search=steps, applies=applies, turns=Turns(look=1, stale=3))
