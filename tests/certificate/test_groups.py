"""The certificate of tree norms within public groups: by brute force over all cells, and against one tree a group."""

import itertools
import math

import mpmath
import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy as policies
from hdmm_bf._checks import InputError
from hdmm_bf.certificate import certify, exact_sensitivity
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release.calibration import noise_for, privacy_loss
from hdmm_bf.strategies.records import GroupedTree
from tests.support.groups import cells_of_groups, written_out
from tests.support.trees import TINY, binary, chain, norm, star

SMALL = {
    "a chain in two groups": ("a chain", (0,), (3, 2), 0),
    "groups before the chain": ("a chain", (1,), (2, 3), 1),
    "presence hidden": ("two cells, presence hidden", (0,), (2, 2), 0),
    "two trees in a group": ("two trees", (1,), (2, 2), 1),
    "a free cell": ("a free cell", (0,), (3, 2), 0),
}


def small(case):
    name, axes, sizes, place = SMALL[case]
    tree, own = TINY[name]
    factors = [policies.empty(size) for size in sizes]
    factors[place] = own
    problem = Problem(bf.workload.identity(sizes), policies.product(*factors))
    return GroupedTree(tree, axes, sizes), problem


def log_weight(strategy, ratios, z):
    """The logarithm of the product over groups and nodes v of q_v^|z(v)|."""
    total = mpmath.mpf(0)
    for cells in cells_of_groups(strategy.sizes, strategy.axes):
        sums = [z[cell] for cell in cells] + [0] * (len(ratios) - len(cells))
        for node, above in enumerate(strategy.tree.parents.tolist()):
            total += abs(sums[node]) * mpmath.log(mpmath.mpf(ratios[node]))
            if above >= 0:
                sums[above] += sums[node]
    return total


@pytest.mark.parametrize("case", SMALL)
def test_no_edge_of_the_whole_policy_loses_more_than_epsilon_whatever_the_noise(case):
    """All vectors of a small box, all edges: log P(z) - log P(z + p); the control draws 1 % too little."""
    (strategy, problem), epsilon = small(case), 0.8
    exact = exact_sensitivity(strategy, problem, "norm")
    sampler = noise_for(strategy, problem, exact, epsilon)
    fixed = [[group[leaf] for leaf in range(len(group))] for group in cells_of_groups(strategy.sizes, strategy.axes)]
    public = not problem.policy.has_bottom
    worst = mpmath.mpf(0)
    with mpmath.workdps(40):
        for z in itertools.product((-2, 0, 1), repeat=problem.policy.num_cells):
            if public and any(sum(z[cell] for cell in cells) for cells in fixed):
                continue
            here = log_weight(strategy, sampler.ratios.tolist(), z)
            for u, v in problem.policy.edges.tolist():
                moved = list(z)
                moved[u] += 1
                if v >= 0:
                    moved[v] -= 1
                worst = max(worst, abs(here - log_weight(strategy, sampler.ratios.tolist(), moved)))
    stated = privacy_loss(sampler, exact, problem)
    assert worst <= stated <= epsilon
    assert 1.01 * worst > epsilon
    assert sampler.axes == strategy.axes


@pytest.mark.parametrize("case", SMALL)
def test_the_sensitivity_is_the_longest_edge_of_the_whole(case):
    strategy, problem = small(case)
    out = written_out(strategy)

    def above(node):
        return set() if node < 0 else {node} | above(int(out.parents[node]))

    longest = max(sum(int(out.integers[v]) for v in above(u) ^ above(w)) for u, w in problem.policy.edges.tolist())
    assert exact_sensitivity(strategy, problem, "norm") == longest


LARGER = {
    "a chain": (chain(16, 0.2, 0.1), "product:threshold:16:4,empty:4,empty:2", (0,)),
    "a tree in the middle": (binary(8, 0.25), "product:empty:3,unbounded:8,empty:2", (1,)),
    "two attributes": (star(12, 0.5), "product:bounded:3,empty:5,bounded:4", (0, 2)),
}
MANY = {"64 groups": (chain(16, 0.2, 0.1), "product:empty:64,threshold:16:4", (1,))}
"""1024 cells, whose covariances take long."""

WORKLOADS = {
    "ranges": lambda sizes: bf.workload.all_range(sizes),
    "identity and marginals": lambda sizes: bf.workload.union(
        bf.workload.identity(sizes), bf.workload.marginals(sizes, 1)
    ),
    "boxes": lambda sizes: bf.workload.random_range(sizes, 200, seed=2),
    "weighted boxes": lambda sizes: bf.workload.weighted(
        bf.workload.random_range(sizes, 50, seed=2), np.linspace(1, 3, 50)
    ),
    "any matrix": lambda sizes: bf.workload.from_matrix(
        np.random.default_rng(1).normal(size=(7, math.prod(sizes))), domain=sizes
    ),
}


@pytest.mark.parametrize("queries", WORKLOADS)
@pytest.mark.parametrize("case", [*LARGER, pytest.param("64 groups", marks=pytest.mark.slow)])
def test_everything_is_that_of_one_tree_a_group_over_all_cells(case, queries):
    """Quotes the certificate: What holds for the certificate of a tree norm holds for `sensitivity_exact` [...]."""
    tree, spec, axes = (LARGER | MANY)[case]
    policy = policies.parse(spec)
    problem = Problem(WORKLOADS[queries](policy.domain.sizes), policy)
    strategy = GroupedTree(tree, axes, policy.domain.sizes)
    by_groups = certify(strategy, problem, noise="norm", proof=None)
    dense = certify(written_out(strategy), problem, noise="norm", proof=None)
    assert by_groups.sensitivity_exact == dense.sensitivity_exact
    assert by_groups.bits == dense.bits
    assert by_groups.unit_error == pytest.approx(dense.unit_error, rel=1e-9)


@pytest.mark.parametrize(
    ("strategy", "spec", "words"),
    [
        (GroupedTree(chain(4, 0.2, 0.1), (0,), (4, 3)), "product:line:4,empty:2", "groups of a domain of 4x3"),
        (GroupedTree(chain(4, 0.2, 0.1), (0,), (4, 2)), "product:line:4,bounded:2", "tells groups apart"),
        (GroupedTree(chain(4, 0.2, 0.1), (1,), (4, 2)), "product:line:4,empty:2", "tells groups apart"),
        (GroupedTree(chain(5, 0.2, 0.1), (0,), (4, 2)), "product:line:4,empty:2", "must have children"),
        (GroupedTree(chain(3, 0.2, 0.1), (0,), (4, 2)), "product:line:4,empty:2", "no cell"),
        (GroupedTree(chain(4, 0.2, 0.1), (0,), (4, 2)), "product:unbounded:4,empty:2", ""),
        (GroupedTree(norm([2, 2, -1], [1, 1, 1]), (0,), (2, 2)), "product:line:2,empty:2", "its total is public"),
    ],
)
def test_trees_that_do_not_fit_the_groups_are_refused(strategy, spec, words):
    """Quotes the certificate: Attributes that tell groups apart have no edges, and the tree is over all [...]."""
    policy = policies.parse(spec)
    problem = Problem(bf.workload.identity(policy.domain.sizes), policy)
    if not words:  # trees of hidden presence may have a root without weight
        assert certify(strategy, problem, noise="norm", proof=None).unit_error > 0
        return
    with pytest.raises(InputError, match=words):
        certify(strategy, problem, noise="norm", proof=None)


def test_only_tree_norm_noise_is_drawn_for_it():
    strategy, problem = small("a chain in two groups")
    with pytest.raises(InputError, match="is not drawn for this kind of strategy"):
        certify(strategy, problem, noise="laplace", proof=None)
