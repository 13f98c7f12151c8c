"""The certificate of sums of tree norms: every attribute with edges is hidden by a part, and errors add up.

Noise N = (M (x) I) phi of a part that flows along the edges of a graph H on attribute i (`problem.slots`) hides a move
p = P_H y along that attribute, where y is a path of k edges of H: N + p is N with phi shifted by one unit in k slots,
each drawn by itself, so that k times the longest way from a slot to the root is lost. This is true whatever totals M
keeps: p has none on the components whose totals are public. What the other parts add is independent of all of it.
"""

from __future__ import annotations

import math

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf._types import EdgeArray, Noise, Proof
from hdmm_bf.certificate.certificate import Bounds, Certificate, certify, check_noise, scaled_sensitivity
from hdmm_bf.certificate.exact import exact_sensitivity, grid_bits
from hdmm_bf.certificate.norms import MOST_CELLS
from hdmm_bf.matrix import Identity
from hdmm_bf.policy import BOTTOM, Policy
from hdmm_bf.problem.groups import policy_within, workload_within
from hdmm_bf.problem.slots import (
    LARGEST_DENOMINATOR,
    MOST_EDGES,
    MOST_ENTRIES,
    columns,
    denominator_of,
    folded_problem,
    moves_along,
    slot_policy,
    steps,
)
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.records import GroupedTree, TreePart, TreeSum

_MOST_PARTS = 64


def part_sensitivity(part: TreePart, policy: Policy, sizes: tuple[int, ...]) -> int:
    """Return the exact length of the longest move that a part hides, of its own attributes; times 2^bits."""
    if part.along is None:
        own = policy_within(moves_along(policy, part.axes), part.axes)
        whole = Problem(workload_within(Identity(own.num_cells), own.domain), own)
        return exact_sensitivity(part.tree, whole, "norm")
    assert policy.factors is not None, "checked before"
    own = slot_policy(tuple(sizes[i] for i in part.axes), (0,))
    once = exact_sensitivity(part.tree, Problem(workload_within(Identity(own.num_cells), own.domain), own), "norm")
    return once * steps(policy.factors[part.along].edges, part.edges, sizes[part.along])


def part_problem(part: TreePart, problem: Problem) -> Problem:
    """Return the problem whose error a part has, on its slots."""
    policy = problem.policy
    if part.along is None:
        return Problem(problem.workload, moves_along(policy, part.axes))
    assert policy.factors is not None, "checked before"
    return folded_problem(problem, part.along, part.axes, columns(policy.factors[part.along], part.edges))


def part_tree(part: TreePart, slots: Problem) -> GroupedTree:
    """Return the tree of a part on the slots that its problem has."""
    return GroupedTree(part.tree, part.axes, slots.policy.domain.sizes)


@exact_sensitivity.register
def _(strategy: TreeSum, problem: Problem, noise: Noise) -> int:
    """The longest move: of every attribute with edges, in the part that hides it."""
    check_noise(noise, ("norm",))
    check_sum(strategy, problem)
    return max((part_sensitivity(part, problem.policy, strategy.sizes) for part in strategy.parts), default=0)


@grid_bits.register
def _(strategy: TreeSum) -> int:
    return strategy.parts[0].tree.bits


@certify.register
def _(
    strategy: TreeSum, problem: Problem, *, noise: Noise, proof: Proof | None, bounds: Bounds | None = None
) -> Certificate:
    """Derive the longest move and the error; `bounds` of matrix mechanisms stand beside them.

    Guarantees:
        Every attribute with edges is hidden by a part, and every edge of its policy is a path in the graph along which
        the noise of that part flows. `unit_error` is the sum of those of the parts, each at its own longest move.
    """
    exact = exact_sensitivity(strategy, problem, noise)
    error, bits = 0.0, grid_bits(strategy)
    for part in strategy.parts:
        slots = part_problem(part, problem)
        own = certify(part_tree(part, slots), slots, noise=noise, proof=None)
        times = part_sensitivity(part, problem.policy, strategy.sizes) / max(own.sensitivity_exact, 1)
        error += times**2 * own.unit_error
    svd, lower = (0.0, 0.0) if bounds is None else (bounds.svd or 0.0, bounds.lower or 0.0)
    sensitivity = scaled_sensitivity(exact, bits, noise)
    return Certificate(noise, exact, bits, sensitivity, 0.0, error, svd, 0.0, math.inf, lower, None)


def check_sum(strategy: TreeSum, problem: Problem) -> None:
    """Refuse parts that are not of this domain, or leave a move open."""
    policy, sizes = problem.policy, strategy.sizes
    domain, factors = policy.domain.sizes, policy.factors
    if factors is None or len(factors) != len(domain) or policy.stored is not None:
        raise fail("certificate", policy.title, "is no product of one policy an attribute", "Fit again.")
    if tuple(sizes) != tuple(domain):
        shown = f"parts of a domain of {'x'.join(map(str, sizes))}"
        raise fail("certificate", shown, f"the policy is on {policy.domain}", "Fit again.")
    if not 0 < len(strategy.parts) <= _MOST_PARTS:
        raise fail("certificate", f"{len(strategy.parts)} parts", f"must be 1 to {_MOST_PARTS}", "Fit again.")
    if len({part.tree.bits for part in strategy.parts}) > 1:
        raise fail("certificate", "parts", "have weights on several grids", "Fit again.")
    for number, part in enumerate(strategy.parts):
        _check_part(part, sizes, f"part {number + 1}")
        if part.along is not None:
            _check_graph(part.edges, factors[part.along], f"part {number + 1}")
    hidden = [i for part in strategy.parts for i in part.hides]
    moved = [i for i, own in enumerate(factors) if own.num_edges]
    idle = any(not set(part.hides) & set(moved) for part in strategy.parts)
    if idle or len(set(hidden)) < len(hidden) or not set(moved) <= set(hidden):
        shown = f"attributes {', '.join(str(i + 1) for i in moved)}"
        raise fail("certificate", shown, "have edges, and must be hidden by one part each", "Fit again.")


def _check_part(part: TreePart, sizes: tuple[int, ...], name: str) -> None:
    axes, along = part.axes, part.along
    proper = list(axes) == sorted(set(axes)) and bool(axes) and min(axes) >= 0 and max(axes) < len(sizes)
    if not proper or (along is not None and (not 0 <= along < len(sizes) or along in axes)):
        shown = f"{name}, along {along}, tree on {axes}"
        raise fail("certificate", shown, "must name an attribute and others, ascending", "Fit again.")
    cells = math.prod(sizes[i] for i in axes)
    if part.tree.num_cells != cells or cells > MOST_CELLS:
        shown = f"{name}, a tree over {part.tree.num_cells} values"
        raise fail("certificate", shown, f"its attributes have {cells}, and at most {MOST_CELLS} can be", "Fit again.")
    if along is None and len(part.edges):
        raise fail("certificate", name, "has edges, and no attribute along which noise flows", "Fit again.")


def _check_graph(edges: EdgeArray, own: Policy, name: str) -> None:
    """Refuse what is no graph on the values of an attribute, or too large to be added exactly."""
    n = own.num_cells
    good = edges.ndim == 2 and edges.shape[1] == 2 and edges.dtype == np.int64 and 0 < len(edges) <= MOST_EDGES
    good = good and n * len(edges) <= MOST_ENTRIES
    if not good or edges[:, 0].min() < 0 or edges.max() >= n or edges[:, 1].min() < BOTTOM:
        shown = f"{name}, {len(edges)} edges on {n} values"
        advice = f"Use pairs of values, at most {MOST_EDGES}, and {MOST_ENTRIES} times values."
        raise fail("certificate", shown, "are no graph that noise can flow along", advice)
    if np.any(edges[:, 0] == edges[:, 1]) or len(np.unique(np.sort(edges, axis=1), axis=0)) < len(edges):
        raise fail("certificate", name, "has an edge twice, or from a value to itself", "Fit again.")
    if denominator_of(own, edges) > LARGEST_DENOMINATOR:
        shown = f"{name}, public totals over components of many sizes"
        raise fail("certificate", shown, "cannot be kept exactly", "Use a graph that stays in them, or other noise.")
