"""The paper's theorems computed exactly on small instances, and two of its sentences that do not hold as written.

`test_paper.py` holds the algebra of Sections 3 and 4; here are privacy losses and orders of error.
Reference: Haney, Machanavajjhala, Ding, "Design of Policy-Aware Differentially Private Algorithms".
"""

import itertools
import math

import networkx as nx
import numpy as np
import pytest
from scipy.optimize import linprog

from experiments.mechanisms.grids import cubes, rows_and_columns
from experiments.mechanisms.mechanism import laplace
from experiments.mechanisms.trees import transformed
from experiments.mechanisms.wavelet import privelet
from hdmm_bf import policy, workload
from hdmm_bf.problem.transform import Problem, to_edges
from tests.support import instances, oracles
from tests.support.noises import noise_map

EPSILON = 0.7


def as_policy(graph):
    u, v = np.array(sorted(tuple(sorted(e)) for e in graph.edges)).T
    return policy.from_edges(u, v, graph.number_of_nodes())


def distances(p):
    return np.stack([p.distances_from(u) for u in range(p.num_cells)])


def softmax_rows(scores):
    weights = np.exp(scores)
    return weights / weights.sum(axis=1, keepdims=True)


def loss(probabilities, pairs):
    """Largest log ratio of two rows over all outcomes and the given pairs of inputs."""
    logs = np.log(probabilities)
    return max(float(np.abs(logs[u] - logs[v]).max()) for u, v in pairs)


# Theorem 4.1: matrix mechanisms, any policy


@instances.given_policies(most_cells=5)
def test_policy_sensitivity_is_ordinary_sensitivity_after_the_transformation(p):
    """Lemma "sensitivity equivalence": by enumeration of neighbours on one side, columns of A P on the other."""
    rng = np.random.default_rng(p.num_edges)
    A = rng.integers(-3, 4, size=(4, p.num_cells)).astype(float)
    A_G = Problem(workload.from_matrix(A), p).W_G()
    expected = oracles.sensitivity(A, p.edges.tolist(), "L1")
    assert np.abs(A_G).sum(axis=0).max(initial=0.0) == pytest.approx(expected)


@instances.given_policies(most_cells=6)
def test_matrix_mechanisms_have_one_error_on_both_sides(p):
    """Theorem 4.1 with more rows than cells: the noise W A^+ under the policy is W_G A_G^+ on the edges."""
    made = Problem(workload.from_matrix(instances.real_matrices(p.num_cells, p.num_edges)), p)
    k = made.grounding.kept.size
    if k == 0 or p.num_edges == 0:
        return
    A = np.random.default_rng(k).normal(size=(k + 2, k))
    W, P = made.W_D(), made.P.dense()
    np.testing.assert_allclose(W @ P @ np.linalg.pinv(A @ P), W @ np.linalg.pinv(A), atol=1e-8)


# Theorem 4.3: trees, any mechanism


@pytest.mark.parametrize("seed", range(3))
def test_neighbours_under_a_large_tree_differ_by_one_in_one_edge(seed):
    tree = instances.random_tree(200, seed)
    made = Problem(workload.identity(200), tree)
    x = np.random.default_rng(seed).integers(1, 9, 200)
    for e, (u, v) in enumerate(tree.edges.tolist()):
        y = x.copy()
        y[u] -= 1
        y[v] += 1
        change = to_edges(made, y) - to_edges(made, x)
        assert np.flatnonzero(change).tolist() == [e]
        assert abs(change[e]) == 1


def largest_edge(flows):
    """A data-dependent mechanism: pick an edge with probability growing with its flow; epsilon-private on flows."""
    return softmax_rows(EPSILON / 2 * np.asarray(flows, dtype=float))


@pytest.mark.parametrize("spec", ["line:4", "star-tree:4", "h-theta:5:2", "unbounded:3"])
def test_a_data_dependent_mechanism_keeps_its_loss_on_trees(spec):
    """Theorem 4.3: all databases of three records, all neighbours; the loss on x_G is the loss under G."""
    p = policy.parse(spec)
    made = Problem(workload.identity(p.domain), p)
    every = [x for x in oracles.databases(p.num_cells, 3) if p.has_bottom or sum(x) == 3]
    place = {x: i for i, x in enumerate(every)}
    flows = np.stack([to_edges(made, np.array(x)) for x in every])
    neighbours = [(place[x], place[y]) for x in every for y in oracles.neighbours(p.edges.tolist(), x) if y in place]
    close = [(i, j) for i, j in itertools.combinations(range(len(every)), 2) if np.abs(flows[i] - flows[j]).sum() == 1]
    outcome = largest_edge(flows)
    assert loss(outcome, neighbours) == loss(outcome, close)
    assert loss(outcome, neighbours) <= EPSILON


def test_the_same_mechanism_loses_more_through_a_cycle():
    """Off trees it gets worse than epsilon: the preimages of neighbours are up to n - 1 edges apart."""
    n = 8
    p = policy.cycle(n)
    path = Problem(workload.identity(n), policy.line(n))
    flows = np.stack([to_edges(path, 10 * np.eye(n, dtype=int)[0] + np.eye(n, dtype=int)[u]) for u in range(n)])
    picky = softmax_rows(EPSILON / 2 * np.concatenate([flows.sum(axis=1, keepdims=True), 0 * flows], axis=1))
    assert loss(picky, policy.line(n).edges.tolist()) <= EPSILON
    assert loss(picky, p.edges.tolist()) > EPSILON


# Theorem 4.4: impossibility in general


def exponential(metric):
    """The theorem's mechanism: output y on input x with probability proportional to exp(-epsilon d(x, y))."""
    return softmax_rows(-EPSILON * metric)


@pytest.mark.parametrize("n", [4, 5, 6, 9])
def test_on_a_cycle_the_exponential_mechanism_tells_the_policy_from_the_transformation(n):
    """Databases of one record. Private under G, epsilon exactly; and on x_G by L1 distance; but not the other way."""
    p = policy.cycle(n)
    made = Problem(workload.identity(n), p)
    flows = np.stack([to_edges(made, unit) for unit in np.eye(n, dtype=int)])
    shift = np.abs(flows[:, None] - flows[None]).sum(axis=2)
    edges = p.edges.tolist()
    assert loss(exponential(distances(p)), edges) == pytest.approx(EPSILON)
    by_flow = exponential(shift)
    every = itertools.combinations(range(n), 2)
    assert all(loss(by_flow, [(u, v)]) <= EPSILON * shift[u, v] * (1 + 1e-12) for u, v in every)
    assert loss(by_flow, edges) == pytest.approx(EPSILON * 2 * (n - 1) / n)  # case 2 of the proof: more than epsilon


def cut_cone_feasible(metric):
    """Whether a metric embeds isometrically into L1: whether it is a nonnegative combination of cuts."""
    n = len(metric)
    pairs = list(itertools.combinations(range(n), 2))
    sides = [np.array([(bits >> i) & 1 for i in range(n)]) for bits in range(1, 2 ** (n - 1))]
    cuts = np.array([[side[u] != side[v] for side in sides] for u, v in pairs], dtype=float)
    found = linprog(np.zeros(len(sides)), A_eq=cuts, b_eq=[metric[u, v] for u, v in pairs], method="highs")
    return found.status == 0


@pytest.mark.parametrize("n", [4, 5, 6, 7])
def test_cycles_embed_isometrically_so_they_are_no_example_of_the_theorem(n):
    """The paper names the cycle as a graph without isometric embedding into L1; half-cuts give one. A path does too."""
    assert cut_cone_feasible(distances(policy.cycle(n)))
    assert cut_cone_feasible(distances(policy.line(n)))


def test_the_complete_bipartite_graph_of_two_and_three_is_an_example_of_the_theorem():
    assert not cut_cone_feasible(distances(as_policy(nx.complete_bipartite_graph(2, 3))))


def test_the_exponential_mechanism_is_private_with_epsilon_only_where_the_normaliser_is_constant():
    """The proof takes e^(-epsilon d) for probabilities. Off vertex-transitive graphs normalising costs more."""
    p = as_policy(nx.complete_bipartite_graph(2, 3))
    assert loss(exponential(distances(p)), p.edges.tolist()) > EPSILON * 1.01
    assert loss(softmax_rows(-EPSILON / 2 * distances(p)), p.edges.tolist()) <= EPSILON


# Lemma 4.5: subgraph approximation

SPANNED = [
    (policy.cycle(7), policy.line(7)),
    (policy.threshold(20, 4), policy.h_theta(20, 4)),
    (policy.threshold(20, 7), policy.h_theta(20, 7)),
    (policy.threshold("6x6", 4), policy.h_theta("6x6", 4)),
    (policy.bounded(6), policy.star_tree(6)),
    (instances.random_regular(10, 0), policy.spanning_tree(instances.random_regular(10, 0))),
]


@pytest.mark.parametrize(("p", "spanner"), SPANNED, ids=lambda p: p.spec)
def test_a_mechanism_for_the_subgraph_loses_at_most_stretch_times_as_much(p, spanner):
    """Lemma "subgraph approximation", with the exact losses of a mechanism that depends on distances in H."""
    made = softmax_rows(-EPSILON / 2 * distances(spanner))
    own = loss(made, spanner.edges.tolist())
    assert own <= EPSILON
    assert loss(made, p.edges.tolist()) <= policy.stretch(p, spanner) * own * (1 + 1e-12)


@pytest.mark.parametrize(("p", "spanner"), [s for s in SPANNED if s[1].is_forest], ids=lambda p: p.spec)
def test_the_stretch_is_attained_by_laplace_noise_on_the_tree(p, spanner):
    """Its loss for a pair is epsilon times their L1 distance on the tree's edges, which is their distance in H."""
    made = Problem(workload.identity(p.domain), spanner)
    flows = [to_edges(made, unit) for unit in np.eye(p.num_cells, dtype=int)]
    losses = [EPSILON * np.abs(flows[u] - flows[v]).sum() for u, v in p.edges.tolist()]
    assert max(losses) == pytest.approx(EPSILON * policy.stretch(p, spanner))


def test_the_spanner_of_a_line_has_stretch_three_and_that_of_a_plane_more():
    assert {policy.stretch(policy.threshold(60, t), policy.h_theta(60, t)) for t in range(3, 12)} == {3}
    plane = {t: policy.stretch(policy.threshold("12x12", t), policy.h_theta("12x12", t)) for t in (2, 4, 6, 8)}
    assert plane == {2: 2, 4: 5, 6: 5, 8: 5}


def test_dropping_an_edge_of_a_cycle_at_random_stretches_by_two_on_average():
    """Section 4.3's remark, exactly: over all spanning trees of the cycle, the ends of an edge are 2 - 2/n apart."""
    n = 9
    edges = policy.cycle(n).edges
    trees = [policy.from_edges(*np.delete(edges, dropped, axis=0).T, n) for dropped in range(n)]
    assert np.mean([tree.distance(0, 1) for tree in trees]) == pytest.approx(2 * (n - 1) / n)
    assert {policy.stretch(policy.cycle(n), tree) for tree in trees} == {n - 1}


# Figure "summary": orders of error per query, from exact expected errors of all ranges


def per_query(mechanism, sizes):
    """Mean expected squared error of all range queries at epsilon 1."""
    W = workload.all_range(sizes)
    B, scales = noise_map(mechanism, W.num_cells)
    return 2 * float(((W.gram @ B) * B).sum(axis=0) @ scales**2) / W.num_queries


def test_ranges_under_the_line_have_constant_error_and_privelet_grows_as_the_cube_of_the_logarithm():
    sizes = [16, 32, 64, 128, 256]
    line = [per_query(transformed(laplace(), policy.line(n)), n) for n in sizes]
    ordinary = np.array([per_query(privelet(n), n) for n in sizes])
    assert line == sorted(line)
    assert line[-1] < 4.0 < line[0] * 1.3
    cubes_of_logs = np.log2(sizes) ** 3
    assert np.all(np.diff(ordinary / cubes_of_logs) < 0), "no faster than the cube"
    assert np.all(np.diff(ordinary / np.log2(sizes) ** 2) > 0), "faster than the square"


def test_ranges_under_a_threshold_depend_on_the_threshold_and_not_on_the_domain():
    """O(log^3 theta / epsilon^2), with the factor of nine that epsilon / 3 costs."""
    by_size = [per_query(cubes(policy.threshold(n, 8), side=8), n) for n in (64, 128, 256)]
    assert by_size[-1] / by_size[0] < 1.1
    limits = [4, 8, 16, 32]
    by_limit = np.array([per_query(cubes(policy.threshold(128, t), side=t), 128) for t in limits])
    assert np.all(np.diff(by_limit) > 0)
    assert np.all(by_limit < 9 * 4 * (1 + np.log2(limits)) ** 3)


def test_ranges_on_a_grid_gain_a_cube_of_the_logarithm_over_privelet():
    """O(d log^(3(d-1)) k) against O(log^(3d) k), for d = 2."""
    sides = [4, 8, 16, 32]
    grid = np.array([per_query(rows_and_columns(policy.threshold((k, k), 1)), (k, k)) for k in sides])
    ordinary = np.array([per_query(privelet((k, k)), (k, k)) for k in sides])
    assert np.all(np.diff(grid / np.log2(sides) ** 3) < 0), "no faster than the cube"
    assert np.all(np.diff(ordinary / grid) > 0)
    gain = ordinary / grid
    assert gain[-1] / gain[0] > 2
    assert np.all(np.diff(ordinary / np.log2(sides) ** 6) < 0)


def test_ranges_in_a_plane_under_a_threshold_grow_as_a_power_of_the_logarithm():
    """O(d^3 log^(3(d-1)) k log^3 theta): with theta = 4 fixed, no faster than the cube of the logarithm."""
    sides = [8, 16]  # with fewer cubes the stretch is smaller
    found = np.array([per_query(cubes(policy.threshold((k, k), 4), side=2), (k, k)) for k in sides])
    assert np.all(np.diff(found / np.log2(sides) ** 3) < 0)
    assert np.all(np.diff(found) > 0)
    assert math.isfinite(found[-1])
