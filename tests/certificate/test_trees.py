"""Exact facts about trees: lengths of policy edges, shapes that fit a policy, laws that are proper."""

import numpy as np
import pytest

from hdmm_bf import policy
from hdmm_bf._checks import InputError
from hdmm_bf.certificate import exact_sensitivity
from hdmm_bf.certificate.trees import check_shape, free_nodes, longest_edge
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.records import TreeNorm
from hdmm_bf.workload import identity
from tests.support.forests import exact_norm, lengths, random_forest

RNG = np.random.default_rng(4)
CHAIN = np.array([3, 3, 4, 4, -1])


def edges_with_bottom(cells):
    return np.array([(u, v) for u in range(cells) for v in [*range(u + 1, cells), -1]], dtype=np.int64)


def test_the_longest_edge_is_the_longest_path_in_the_tree():
    """Quotes longest_edge: the length of the longest policy edge in the tree, exactly."""
    for _ in range(150):
        cells = int(RNG.integers(1, 9))
        parents = random_forest(RNG, cells, one_root=bool(RNG.integers(2)))
        weights = RNG.integers(0, 2**40, parents.size)
        edges = edges_with_bottom(cells)
        found, which = longest_edge(parents, weights, edges)
        known = lengths(parents, weights, edges)
        assert found == max(known) == known[which]
    assert longest_edge(CHAIN, np.arange(5), np.empty((0, 2), dtype=np.int64)) == (0, -1)


def test_no_vector_of_noise_changes_its_norm_by_more_than_the_longest_edge():
    for _ in range(30):
        parents = random_forest(RNG, 4)
        weights = RNG.integers(0, 50, parents.size)
        edges = edges_with_bottom(4)
        longest = longest_edge(parents, weights, edges)[0]
        changes = []
        for z in RNG.integers(-3, 4, (40, 4)):
            for u, v in edges.tolist():
                moved = z.copy()
                moved[u] += 1
                if v >= 0:
                    moved[v] -= 1
                changes.append(abs(exact_norm(parents, weights, moved) - exact_norm(parents, weights, z)))
        assert max(changes) <= longest
        zero = np.zeros(4, dtype=np.int64)
        at_zero = [
            exact_norm(
                parents, weights, zero + np.eye(4, dtype=np.int64)[u] - (np.eye(4, dtype=np.int64)[v] if v >= 0 else 0)
            )
            for u, v in edges.tolist()
        ]
        assert max(at_zero) == longest  # so that the condition is also necessary


def test_a_path_of_a_thousand_cells_is_measured_as_exactly_as_a_short_one():
    n = 1000
    parents = np.full(2 * n - 1, -1)
    parents[0] = parents[1] = n
    for k in range(2, n):
        parents[n + k - 2] = parents[k] = n + k - 1
    weights = np.concatenate([np.full(n, 7), np.full(n - 1, 3)])
    threshold = policy.threshold(n, 4)
    assert longest_edge(parents, weights, threshold.edges)[0] == 7 + 7 + 4 * 3


@pytest.mark.parametrize(
    ("parents", "weights", "words"),
    [
        ([3, 3, 4, 4, -1], [1, 1, 1, 1, 1], "its total is public"),
        ([3, 3, -1, -1], [1, 1, 0, 0], "its total is public"),
        ([3, 3, 2, -1], [1, 1, 1, 0], "every parent must be a later node"),
        ([3, 3, 3, 5, -1], [1, 1, 1, 0, 0], "every parent must be a later node"),
        ([3, 3, 3, -2], [1, 1, 1, 0], "every parent must be a later node"),
        ([1, 2, -1], [1, 1, 0], "every parent must be a later node"),
        ([3, 3, 3, -1, -1], [1, 1, 1, 0, 0], "must have children"),
        ([3, 3, 3, -1], [1, 1, -1, 0], "must not be negative"),
        ([3, 3, 3, -1], [2**61, 2**61, 1, 0], "nor add up to"),
        ([-1, -1], [0, 0], "the policy has 3 cells"),
        ([2, 2, -1], [1, 1, 0], "every parent must be a later node"),
    ],
)
def test_what_is_no_tree_of_the_policy_is_refused(parents, weights, words):
    with pytest.raises(InputError, match=words):
        check_shape(np.array(parents), np.array(weights), policy.line(3))


def test_a_tree_across_two_components_is_refused():
    two = policy.from_edges([0, 2], [1, 3], 4)
    check_shape(np.array([4, 4, 5, 5, -1, -1]), np.array([1, 1, 1, 1, 0, 0]), two)
    with pytest.raises(InputError, match="cells of several components"):
        check_shape(np.array([4, 4, 4, 4, -1]), np.array([1, 1, 1, 1, 0]), two)


def test_weights_that_do_not_span_are_refused_and_those_that_do_are_not():
    """Quotes free_nodes: refused where the law would be improper."""
    line, star = policy.line(3), policy.unbounded(3)
    tree = np.array([3, 3, 3, -1])
    assert free_nodes(tree, np.array([1, 1, 0, 0]), line).tolist() == [2, 3]
    assert free_nodes(tree, np.array([1, 1, 0, 1]), star).tolist() == [2]
    for weights, graph in (([1, 0, 0, 0], line), ([1, 0, 0, 1], star), ([1, 1, 0, 0], star), ([0, 0, 0, 5], star)):
        with pytest.raises(InputError, match="the noise would have no bounds"):
            free_nodes(tree, np.array(weights), graph)


def test_isolated_cells_have_no_noise_and_one_cell_needs_a_weight_only_where_presence_is_hidden():
    assert free_nodes(np.array([-1, -1]), np.array([0, 0]), policy.empty(2)).size == 2
    with pytest.raises(InputError, match="the noise would have no bounds"):
        free_nodes(np.array([-1]), np.array([0]), policy.unbounded(1))


def test_the_sensitivity_of_a_tree_is_that_of_its_matrix():
    for _ in range(20):
        parents = random_forest(RNG, 5)
        strategy = TreeNorm(parents, np.append(RNG.integers(1, 9, parents.size - 1), 0), 3, "made up")
        problem = Problem(identity(5), policy.threshold(5, 2))
        A = np.rint(strategy.matrix() * 8)
        moves = [np.abs(A[:, u] - A[:, v]).sum() for u, v in problem.policy.edges]
        assert exact_sensitivity(strategy, problem, "norm") == max(moves)
        with pytest.raises(InputError, match="is not drawn for this kind of strategy"):
            exact_sensitivity(strategy, problem, "laplace")
