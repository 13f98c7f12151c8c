"""The claims of Sections 3 and 4 of the paper as running checks, and the three places that need care.

Reference: Haney, Machanavajjhala, Ding, "Design of Policy-Aware Differentially Private Algorithms".
"""

import itertools

import networkx as nx
import numpy as np
import pytest

from hdmm_bf import policy, workload
from hdmm_bf.policy import BOTTOM
from hdmm_bf.problem.sensitivity import sensitivity
from hdmm_bf.problem.transform import Problem, ground, to_edges
from tests.support import instances, oracles

TREES = ["line:4", "star-tree:4", "unbounded:3", "h-theta:5:2"]


@pytest.mark.parametrize("spec", TREES)
def test_neighbours_map_to_neighbours_on_trees_and_only_they_do(spec):
    """Lemma "neighbour equality": x_G and y_G differ by 1 in one entry exactly when x and y are neighbours."""
    p = policy.parse(spec)
    made = Problem(workload.identity(p.domain), p)
    all_x = [x for x in oracles.databases(p.num_cells, 3) if p.has_bottom or sum(x) == 3]
    flows = {x: to_edges(made, np.array(x)) for x in all_x}
    for x, y in itertools.combinations(all_x, 2):
        close = int(np.abs(flows[x] - flows[y]).sum()) == 1
        assert close == (y in oracles.neighbours(p.edges.tolist(), x))


def test_off_trees_neighbours_do_not_map_to_neighbours():
    made = Problem(workload.identity(6), policy.cycle(6))
    x, y = np.array([3, 2, 2, 2, 2, 2]), np.array([2, 3, 2, 2, 2, 2])
    assert np.abs(to_edges(made, x) - to_edges(made, y)).sum() == pytest.approx(10 / 6)


def test_the_inverse_of_the_line_is_the_prefix_sum():
    made = Problem(workload.identity(6), policy.line(6))
    np.testing.assert_array_equal(np.linalg.inv(made.P.dense()).round(12), np.tri(5))
    x = np.array([3, 1, 4, 1, 5, 9])
    np.testing.assert_array_equal(to_edges(made, x), np.cumsum(x)[:-1])


def test_star_policy_is_ordinary_dp():
    made = Problem(workload.all_range(5), policy.unbounded(5))
    np.testing.assert_array_equal(made.P.dense(), np.eye(5))
    np.testing.assert_array_equal(made.W_G(), made.workload.matrix.dense())
    x = np.arange(5)
    np.testing.assert_array_equal(to_edges(made, x), x)
    columns = np.abs(made.workload.matrix.dense()).sum(axis=0)
    assert sensitivity(made.workload, made.policy, norm="L1") == columns.max()


def test_cumulative_histogram_under_the_line_is_the_identity():
    """Example "full rank": C'_k P_G = I_{k-1}."""
    W_G = Problem(workload.prefix(6), policy.line(6)).W_G()
    np.testing.assert_array_equal(W_G, np.vstack([np.eye(5), np.zeros((1, 5))]))


@pytest.mark.parametrize("spec", ["line:6", "threshold:2x3:1", "unbounded:6", "bounded:6"])
def test_counting_queries_become_the_edges_with_exactly_one_end_inside(spec):
    """Lemma "query transformation"."""
    p = policy.parse(spec)
    for inside in itertools.chain.from_iterable(itertools.combinations(range(6), r) for r in range(1, 6)):
        q = np.zeros((1, 6))
        q[0, list(inside)] = 1
        touched = np.flatnonzero(Problem(workload.from_matrix(q), p).W_G()[0]).tolist()
        expected = [i for i, edge in enumerate(p.edges.tolist()) if len(set(edge) & set(inside)) == 1]
        assert touched == expected


@pytest.mark.parametrize(
    ("first", "second"), [("line:3", "line:4"), ("bounded:3", "line:2"), ("line:2", "unbounded:3")]
)
def test_product_policies_give_the_column_stack(first, second):
    """W_G = [W1 P1 (x) W2, W1 (x) W2 P2] over the cells, before grounding."""
    p1, p2 = policy.parse(first), policy.parse(second)
    W1, W2 = instances.real_matrices(p1.num_cells, 0), instances.real_matrices(p2.num_cells, 1)
    whole = workload.from_matrix(np.kron(W1, W2))

    def ends(p):
        M = np.zeros((p.num_cells, p.num_edges))
        for e, (u, v) in enumerate(p.edges):
            M[u, e] = 1
            if v != BOTTOM:
                M[v, e] = -1
        return M

    expected = np.hstack([np.kron(W1 @ ends(p1), W2), np.kron(W1, W2 @ ends(p2))])
    made = Problem(whole, policy.product(p1, p2)).W_G()
    signs = np.where(np.isclose(made, expected).all(axis=0), 1, -1)
    np.testing.assert_allclose(made * signs, expected, atol=1e-12)


@pytest.mark.parametrize("spec", ["line:5", "cycle:5", "threshold:6:2", "bounded:4"])
def test_subgraph_approximation_multiplies_sensitivity_by_at_most_the_stretch(spec):
    """Lemma "subgraph approximation", for the sensitivity of any matrix."""
    p = policy.parse(spec)
    tree = policy.spanning_tree(p)
    factor = policy.stretch(p, tree)
    for seed in range(5):
        W = instances.real_matrices(p.num_cells, seed)
        assert sensitivity(W, p, norm="L1") <= factor * sensitivity(W, tree, norm="L1") + 1e-12


def test_the_public_constant_is_the_total_times_the_column_given_up():
    """The appendix says "-n on the affected rows"; for W that is not 0/1 that is wrong, and so is the sign."""
    p = policy.line(3)
    W = np.array([[1.0, 2.0, 0.5], [1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    x = np.array([4, 1, 2])
    made = Problem(workload.from_matrix(W), p)
    kept, totals = x[made.grounding.kept], made.grounding.totals(x)
    np.testing.assert_allclose(made.W_D() @ kept + made.constants(totals), W @ x)
    np.testing.assert_allclose(made.constants(totals), 7 * W[:, 2])
    as_printed = np.where(W[:, 2] != 0, -7.0, 0.0)
    assert not np.allclose(made.W_D() @ kept + as_printed, W @ x)


def test_the_pseudo_inverse_of_the_product_is_not_the_product_of_pseudo_inverses():
    """Theorem 4.1's proof uses (A P)^+ = P^+ A^+: false without full column rank. Its conclusion holds."""
    P = Problem(workload.identity(4), policy.cycle(4)).P.dense()
    A = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    pinv = np.linalg.pinv
    assert not np.allclose(pinv(A @ P), pinv(P) @ pinv(A))
    W = np.array([[2.0, 3.0, 1.0], [1.0, 0.0, -1.0]])
    np.testing.assert_allclose(W @ pinv(A) @ A, W, atol=1e-12)
    np.testing.assert_allclose(W @ P @ pinv(A @ P), W @ pinv(A), atol=1e-12)


@instances.given_policies()
def test_matrix_mechanisms_have_the_same_noise_before_and_after_the_transformation(p):
    """Theorem 4.1: W_G (A P)^+ = W A^+ whenever A supports W, whatever its rank."""
    g = ground(p)
    k = g.kept.size
    rng = np.random.default_rng(p.num_edges)
    A = rng.normal(size=(max(1, k - 1), k))
    W = rng.normal(size=(3, A.shape[0])) @ A
    P = Problem(workload.identity(p.domain), p).P.dense()
    np.testing.assert_allclose(W @ P @ np.linalg.pinv(A @ P), W @ np.linalg.pinv(A), atol=1e-8)


def preimage_shifts(n, flows):
    """L1 distance of the edge vectors of all single-record neighbours on a cycle."""
    units = np.eye(n, dtype=int)
    return [np.abs(flows(units[i]) - flows(units[(i + 1) % n])).sum() for i in range(n)]


def test_raw_answers_of_an_edge_strategy_are_not_private_off_trees():
    """6-cycle, identity on the edges: L1 shift 1.67 with the Moore-Penrose preimage, 5 with a spanning-tree one."""
    p = policy.cycle(6)
    made = Problem(workload.identity(6), p)
    assert max(preimage_shifts(6, lambda x: to_edges(made, x))) == pytest.approx(10 / 6)
    path = Problem(workload.identity(6), policy.line(6))
    assert max(preimage_shifts(6, lambda x: to_edges(path, x))) == 5
    # what is published, W x + W_G A_G^+ noise with A_G = I, moves by one column of A_G: one unit
    W_G = made.W_G()
    for e, (u, v) in enumerate(p.edges):
        shift = made.workload.matrix.dense()[:, u] - made.workload.matrix.dense()[:, v]
        unit = np.zeros(6)
        unit[e] = 1
        assert np.allclose(W_G @ unit, shift) or np.allclose(W_G @ unit, -shift)


def test_distance_in_the_policy_graph_is_the_privacy_metric():
    """Equation "metric" on the cycle: shortest paths, both ways round."""
    p = policy.cycle(7)
    for u, v in itertools.product(range(7), repeat=2):
        assert p.distance(u, v) == nx.shortest_path_length(nx.cycle_graph(7), u, v)
