"""The certificate of sums of tree norms: privacy by brute force over slots, errors written out, what is refused."""

import itertools
import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy as policies
from hdmm_bf._checks import InputError
from hdmm_bf.certificate import certify, exact_sensitivity
from hdmm_bf.problem.slots import all_values
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release.calibration import noise_for, privacy_loss
from hdmm_bf.strategies.records import TreePart, TreeSum
from tests.support.tree_sums import spread_of, trees_of
from tests.support.trees import binary, chain, norm, star

NONE = np.empty((0, 2), dtype=np.int64)
SET = norm([2, 2, -1], [4, 3, 2])
"""Two values, and a set of both."""


def grid(first, second):
    """Parts for a domain of two values an attribute, along the edges of both."""
    line = policies.line(2).edges
    return TreeSum((TreePart(first, (1,), 0, line), TreePart(second, (0,), 1, line)), (2, 2), "test")


def value_part(n, axes, along, tree):
    return TreePart(tree, axes, along, all_values(policies.bounded(n)))


SMALL = {
    "a grid": (grid(SET, norm([-1, -1], [5, 3])), policies.product(policies.line(2), policies.line(2))),
    "every value of one, edges of the other": (
        TreeSum((value_part(2, (1,), 0, SET), TreePart(SET, (0,), 1, policies.line(2).edges)), (2, 2), "test"),
        policies.product(policies.bounded(2), policies.line(2)),
    ),
    "a tree of its own": (
        TreeSum((TreePart(norm([2, 2, -1], [4, 3, 0]), (0,), None, NONE), value_part(2, (0,), 1, SET)), (2, 2), "test"),
        policies.product(policies.line(2), policies.bounded(2)),
    ),
    "presence hidden": (
        TreeSum((TreePart(SET, (1,), 0, policies.unbounded(2).edges), grid(SET, SET).parts[1]), (2, 2), "test"),
        policies.product(policies.unbounded(2), policies.line(2)),
    ),
    "a path through a hub": (
        TreeSum((TreePart(SET, (1,), 0, policies.line(3).edges),), (3, 2), "test"),
        policies.product(policies.bounded(3), policies.empty(2)),
    ),
}


def problem_of(policy):
    return Problem(bf.workload.identity(policy.domain.sizes), policy)


def log_weight(tree, ratios, phi):
    """Log of prod_v q_v^|phi(v)| over all slots of a part."""
    sums, total = [*phi, *[0] * (tree.parents.size - len(phi))], mpmath.mpf(0)
    for node, above in enumerate(tree.parents.tolist()):
        total += abs(sums[node]) * mpmath.log(mpmath.mpf(ratios[node]))
        if above >= 0:
            sums[above] += sums[node]
    return total


def ratios_of(sampler, tree, part, sizes):
    """The ratio of every node of a part's trees, written out as the trees are."""
    own, groups = sampler.tree.ratios, part.grouped(sizes).cells
    leaves = part.tree.num_cells
    found = np.ones(tree.parents.size)
    for g, cells in enumerate(groups):
        found[cells] = own[:leaves]
        inner = own.size - leaves
        found[groups.size + g * inner : groups.size + (g + 1) * inner] = own[leaves:]
    return found.tolist()


@pytest.mark.parametrize("case", SMALL)
def test_every_move_is_some_shift_of_the_slots_that_loses_no_more_than_epsilon(case):
    """For every edge p a y with (M (x) I) y = p, found by trying; over a box of noise the loss of y is at most epsilon.

    Control: noise for 1 % more epsilon loses more than epsilon.
    """
    (strategy, policy), epsilon = SMALL[case], 0.8
    problem, sizes = problem_of(policy), strategy.sizes
    exact = exact_sensitivity(strategy, problem, "norm")
    sampler = noise_for(strategy, problem, exact, epsilon)
    worst = mpmath.mpf(0)
    trees = trees_of(strategy)
    with mpmath.workdps(30):
        for u, v in policy.edges.tolist():
            p = [int(k == u) - int(k == v) for k in range(policy.num_cells)]
            losses = []
            for part, own, tree in zip(strategy.parts, sampler.parts, trees, strict=True):
                spread = spread_of(part, policy, sizes)
                for y in itertools.product((-1, 0, 1), repeat=len(spread[0])):
                    if all(
                        sum(a * b for a, b in zip(row, y, strict=True)) == c for row, c in zip(spread, p, strict=True)
                    ):
                        losses.append(shift_loss(tree, ratios_of(own, tree, part, sizes), y))
            assert losses, "no part hides the move"
            worst = max(worst, min(losses))
    stated = privacy_loss(sampler, exact, problem)
    assert worst <= stated <= epsilon
    assert 1.01 * worst > epsilon


def shift_loss(tree, ratios, y):
    """The most that a shift of the slots changes the logarithm of the weight, over a box that has all signs."""
    found = mpmath.mpf(0)
    moved = [k for k, value in enumerate(y) if value]
    others = [k for k in range(len(y)) if k not in moved]
    for signs in itertools.product((-3, 3), repeat=len(moved)):
        for rest in ((0,) * len(others), (-9,) * len(others), (9,) * len(others)):
            phi = [0] * len(y)
            for k, value in [*zip(moved, signs, strict=True), *zip(others, rest, strict=True)]:
                phi[k] = value
            there = [a + b for a, b in zip(phi, y, strict=True)]
            found = max(found, abs(log_weight(tree, ratios, phi) - log_weight(tree, ratios, there)))
    return found


LARGER = {
    "ranges on a grid": ("product:line:4,line:3", [(binary(4, 0.25), (0,), 1), (chain(3, 0.3, 0.2), (1,), 0)]),
    "three attributes": (
        "product:line:3,bounded:3,line:2",
        [(norm([-1, -1, -1], [7, 7, 6]), (1,), 0), (binary(2, 0.5), (2,), 1), (star(9, 0.5), (0, 1), 2)],
    ),
}
WORKLOADS = {
    "ranges": bf.workload.all_range,
    "boxes": lambda sizes: bf.workload.random_range(sizes, 40, seed=2),
    "weighted tables": lambda sizes: bf.workload.weighted(
        bf.workload.marginals(sizes, 1), np.arange(1.0, sum(sizes) + 1)
    ),
    "any matrix": lambda sizes: bf.workload.from_matrix(
        np.random.default_rng(1).normal(size=(7, math.prod(sizes))), domain=sizes
    ),
}


def hidden(tree):
    """The same tree with a weight at every root, as trees of slots need it."""
    integers = tree.integers.copy()
    roots = (tree.parents < 0) & (integers == 0)
    integers[roots] = 3
    return replace(tree, integers=integers, bits=3) if tree.bits == 3 else norm(tree.parents, np.where(roots, 3, 2))


def larger(case):
    spec, given = LARGER[case]
    policy = policies.parse(spec)
    parts = []
    for tree, axes, along in given:
        own = policy.factors[along]
        edges = own.edges if own.is_forest else all_values(own)
        parts.append(TreePart(hidden(tree), axes, along, edges))
    return TreeSum(tuple(parts), policy.domain.sizes, "test"), policy


@pytest.mark.parametrize("queries", WORKLOADS)
@pytest.mark.parametrize("case", LARGER)
def test_the_error_is_that_of_all_parts_written_out(case, queries):
    """Quotes the certificate: `unit_error` is the sum of those of the parts, each at its own longest move."""
    strategy, policy = larger(case)
    sizes = strategy.sizes
    problem = Problem(WORKLOADS[queries](sizes), policy)
    expected, rows = 0.0, problem.workload.objective.dense()
    for part, tree in zip(strategy.parts, trees_of(strategy), strict=True):
        spread = np.array(spread_of(part, policy, sizes), dtype=np.float64)
        slots = policies.unbounded(spread.shape[1])
        own = certify(tree, Problem(bf.workload.from_matrix(rows @ spread), slots), noise="norm", proof=None)
        steps = 2 if part.edges[0, 1] < 0 else 1
        expected += steps**2 * own.unit_error
    found = certify(strategy, problem, noise="norm", proof=None)
    assert found.unit_error == pytest.approx(expected, rel=1e-7)


def test_noise_on_every_slot_has_the_error_of_laplace_noise_on_the_edges():
    """One root a slot: the unit error is the sum of squares of the queries of all edges."""
    trees = [norm([-1] * n, [8] * n) for n in (3, 4)]
    parts = (TreePart(trees[0], (1,), 0, policies.line(4).edges), TreePart(trees[1], (0,), 1, policies.line(3).edges))
    problem = bf.problem("all-range:4x3", "product:line:4,line:3")
    found = certify(TreeSum(parts, (4, 3), "test"), problem, noise="norm", proof=None)
    W = problem.workload.matrix.dense()
    moved = sum(float(((W[:, u] - W[:, v]) ** 2).sum()) for u, v in problem.policy.edges.tolist())
    assert found.unit_error == pytest.approx(moved, rel=1e-6)
    assert (found.sensitivity_exact, found.bits, found.sensitivity) == (8, 3, 1.0)


A, B = grid(SET, SET).parts
BAD = {
    "another domain": (grid(SET, SET), "product:line:2,line:3", "parts of a domain of 2x2"),
    "no product": (grid(SET, SET), "threshold:2x2:2", "is no product"),
    "a move left open": (TreeSum((A,), (2, 2), "test"), "product:line:2,line:2", "must be hidden by one part each"),
    "a move hidden twice": (TreeSum((A, A, B), (2, 2), "test"), "product:line:2,line:2", "one part each"),
    "a part that hides nothing": (grid(SET, SET), "product:line:2,empty:2", "one part each"),
    "no parts": (TreeSum((), (2, 2), "test"), "product:line:2,line:2", "must be 1 to"),
    "several grids": (grid(SET, norm([-1, -1], [5, 3], bits=4)), "product:line:2,line:2", "several grids"),
    "an attribute along itself": (
        TreeSum((replace(A, axes=(0,)), B), (2, 2), "test"),
        "product:line:2,line:2",
        "must name an attribute and others",
    ),
    "a tree of another size": (grid(norm([-1] * 3, [5] * 3), SET), "product:line:2,line:2", "a tree over 3 values"),
    "edges without an attribute": (
        TreeSum((replace(A, along=None), B), (2, 2), "test"),
        "product:line:2,line:2",
        "no attribute along which",
    ),
    "no edges": (TreeSum((replace(A, edges=NONE), B), (2, 2), "test"), "product:line:2,line:2", "no graph that noise"),
    "edges of other values": (
        TreeSum((replace(A, edges=np.array([[0, 2]])), B), (2, 2), "test"),
        "product:line:2,line:2",
        "no graph that noise",
    ),
    "an edge from a value to itself": (
        TreeSum((replace(A, edges=np.array([[0, 1], [1, 1]])), B), (2, 2), "test"),
        "product:line:2,line:2",
        "an edge twice, or from a value to itself",
    ),
    "an edge in both directions": (
        TreeSum((replace(A, edges=np.array([[0, 1], [1, 0]])), B), (2, 2), "test"),
        "product:line:2,line:2",
        "an edge twice",
    ),
    "a move that is no path": (
        TreeSum((replace(A, edges=np.array([[0, -1]])), B), (2, 2), "test"),
        "product:line:2,line:2",
        "is no path",
    ),
    "slots that nothing holds": (
        grid(norm([-1, -1], [5, 0]), SET),
        "product:line:2,line:2",
        "no weight|without weight|nothing holds|weight",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_sums_that_do_not_hide_every_move_are_refused_in_a_sentence(name):
    """Quotes the certificate: Every attribute with edges is hidden by a part, and every edge [...] is a path [...]."""
    strategy, spec, words = BAD[name]
    policy = policies.parse(spec)
    problem = Problem(bf.workload.identity(policy.domain.sizes), policy)
    with pytest.raises(InputError, match=words):
        certify(strategy, problem, noise="norm", proof=None)


def test_only_tree_norm_noise_is_drawn_for_it():
    strategy, policy = SMALL["a grid"]
    with pytest.raises(InputError, match="is not drawn for this kind of strategy"):
        certify(strategy, problem_of(policy), noise="laplace", proof=None)


def test_public_totals_of_too_many_sizes_are_refused():
    sizes = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
    starts = np.cumsum((0, *sizes[:-1]))
    heads = np.concatenate([start + np.arange(size - 1) for start, size in zip(starts, sizes, strict=True)])
    own = policies.from_edges(heads, heads + 1, sum(sizes))
    policy = policies.product(own, policies.empty(2))
    strategy = TreeSum((TreePart(SET, (1,), 0, all_values(own)),), policy.domain.sizes, "test")
    with pytest.raises(InputError, match="components of many sizes.*cannot be kept exactly"):
        exact_sensitivity(strategy, problem_of(policy), "norm")
    within = TreeSum((TreePart(SET, (1,), 0, own.edges),), policy.domain.sizes, "test")  # no total is disturbed
    assert exact_sensitivity(within, problem_of(policy), "norm") == 6
