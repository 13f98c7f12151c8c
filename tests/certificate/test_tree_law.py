"""The law of tree-norm noise against brute force over all whole-number vectors in a box, and known limits."""

import time

import numpy as np
import pytest
import scipy.sparse as sp

import hdmm_bf as bf
from hdmm_bf.certificate import tree_law
from hdmm_bf.certificate.norms import set_queries
from hdmm_bf.certificate.ordered_law import children_in_order, expected_form, ordered
from hdmm_bf.certificate.set_law import Slots, proper_reach, set_variances
from hdmm_bf.certificate.tree_law import TreeLaw, binary, limit
from hdmm_bf.matrix import Identity, Ones, Stack, Weighted
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.records import TreeNorm
from tests.support.fits import shipped
from tests.support.forests import brute_covariance, random_forest

RNG = np.random.default_rng(6)


def chain(n, cell, cut):
    """Return a caterpillar with equal weights on the cells and on the sets {1..k}; the root has none."""
    parents, weights = np.full(2 * n - 1, -1), np.zeros(2 * n - 1)
    weights[:n] = cell
    weights[0] += cut
    previous = 0
    for k in range(1, n):
        node = n + k - 1
        parents[previous] = parents[k] = node
        weights[node], previous = cut, node
    weights[-1] = 0.0
    return parents, weights


@pytest.mark.parametrize("fixed", [False, True])
def test_covariances_are_those_of_the_definition(fixed):
    for _ in range(12):
        cells = int(RNG.integers(1, 4))
        parents = random_forest(RNG, cells)
        rates = RNG.uniform(0.9, 1.8, parents.size)
        is_fixed = np.zeros(parents.size, dtype=bool)
        if fixed:
            is_fixed[-1], rates[-1] = True, 0.0
        found = TreeLaw(parents, rates, is_fixed, cells).covariance()
        known = brute_covariance(parents, rates, is_fixed, cells, reach={1: 40, 2: 30, 3: 15}[cells])
        np.testing.assert_allclose(found, known, atol=2e-8)


def test_several_trees_are_independent():
    parents = np.array([3, 3, -1, -1])
    rates = np.array([1.0, 1.3, 1.5, 0.7])
    found = TreeLaw(parents, rates, np.zeros(4, dtype=bool), 3).covariance()
    known = brute_covariance(parents, rates, np.zeros(4, dtype=bool), 3, reach=18)
    np.testing.assert_allclose(found, known, atol=1e-5)
    assert np.all(found[:2, 2] == 0)


def test_a_cell_without_weight_takes_what_its_set_leaves_over():
    parents, rates = np.array([2, 2, -1]), np.array([1.1, 0.0, 1.4])
    found = TreeLaw(parents, rates, np.zeros(3, dtype=bool), 2).covariance()
    q, p = np.exp(-1.1), np.exp(-1.4)
    cell, whole = 2 * q / (1 - q) ** 2, 2 * p / (1 - p) ** 2  # independent, by their own geometric laws
    np.testing.assert_allclose(found, [[cell, -cell], [-cell, cell + whole]], rtol=1e-9)


def test_the_variance_of_a_set_is_that_of_the_sum_of_its_cells():
    parents, weights = chain(9, 0.3, 0.2)
    fixed = np.zeros(parents.size, dtype=bool)
    fixed[-1] = True
    law = TreeLaw(parents, weights, fixed, 9)
    C, sets = law.covariance(), law.node_variances()
    for k in range(2, 10):
        assert sets[9 + k - 2] == pytest.approx(C[:k, :k].sum(), rel=1e-9, abs=1e-9)


def test_one_discrete_laplace_variable_tends_to_its_density():
    rates = np.array([0.8])
    found = limit(rates, lambda h: TreeLaw(np.array([-1]), h * rates, np.zeros(1, dtype=bool), 1).node_variances())
    assert found[0] == pytest.approx(2 / 0.8**2, rel=1e-7)


def test_equal_weights_on_a_chain_have_the_known_error_under_threshold_4():
    """All ranges of 64 cells with equal weights inside: 2.566 times the dual bound (two prototypes agreed on it)."""
    parents, weights = chain(64, 0.2846, 0.1077)
    weights /= 2 * 0.2846 + 4 * 0.1077
    fixed = np.zeros(parents.size, dtype=bool)
    fixed[-1] = True
    V = bf.workload.parse("all-range:64").matrix.gram()
    found = limit(weights, lambda h: np.array([(V * TreeLaw(parents, h * weights, fixed, 64).covariance()).sum() / 2]))
    assert found[0] / bf.bound("all-range:64", "threshold:64:4").lower == pytest.approx(2.567, abs=2e-3)


def test_a_tree_becomes_binary_with_a_place_for_every_node():
    for _ in range(20):
        parents = random_forest(RNG, 7, one_root=False, most_children=5)
        tree = binary(parents)
        assert len(set(tree.node.tolist())) == parents.size
        used = tree.children[tree.children >= 0]
        assert len(set(used.tolist())) == used.size
        assert np.all(tree.children.max(axis=1) < np.arange(len(tree.children)))


def test_queries_that_are_sets_of_the_tree_are_found_and_others_are_not():
    parents = np.array([4, 4, 5, 5, 6, 6, -1])
    W = np.array([[1, 1, 0, 0], [0, 0, 0, 2], [1, 1, 1, 1.0]])
    node, scale = set_queries(bf.workload.from_matrix(W).matrix, parents, 4)
    assert node.tolist() == [4, 3, 6]
    assert scale.tolist() == [1, 2, 1]
    for other in ([0, 1, 1, 0], [1, 2, 0, 0]):
        assert set_queries(bf.workload.from_matrix(np.array([other], dtype=float)).matrix, parents, 4) is None


TAKEN = [2, 4, 6, 9, 19, 21, 24, 30, 34, 39, 40, 41, 52, 53, 54, 57]
PUT = [64, 65, 76, 77, 82, 88, 89, 90, 96, 100, 102, 108, 120, 124, 125, 126]
"""Cells whose 64-bit labels by `default_rng(0)` have equal sums: found in half a minute."""


def test_a_query_is_not_taken_for_a_set_by_numbers_that_anybody_can_know():
    """Half of a public component and half of another: it is not public, and was once told to have no error."""
    labels = np.random.default_rng(0).integers(0, 2**64, 128, dtype=np.uint64)
    assert labels[TAKEN].sum() == labels[PUT].sum()
    cells = np.flatnonzero(np.arange(127) % 64 < 63)
    query = np.zeros((1, 128))
    query[0, :64] = 1
    query[0, TAKEN], query[0, PUT] = 0, 1
    parents = np.append(np.repeat([128, 129], 64), [-1, -1])
    assert set_queries(bf.workload.from_matrix(query).matrix, parents, 128) is None
    two_lines = bf.policy.from_edges(cells, cells + 1, 128)
    strategy = TreeNorm(parents, np.append(np.ones(128, dtype=np.int64), [0, 0]), 0, "test")
    made = shipped(Problem(bf.workload.from_matrix(query), two_lines), strategy, "norm")
    assert made.unit_error > 1


def test_long_tables_have_the_moments_of_direct_sums_and_do_not_take_for_ever(monkeypatch):
    """A weight of a hundred times another asks for tables of 20 000 sums: direct sums took many minutes, and 4 GB."""
    parents = np.array([8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, -1])
    weights = np.where(np.isin(np.arange(15), [0, 3, 9]), 7.0, 1.0)
    fixed = np.arange(15) == 14
    laws = []
    for long in (10**9, 8):
        monkeypatch.setattr(tree_law, "_LONG", long)
        law = TreeLaw(parents, 0.04 * weights, fixed, 8)
        laws.append((law.covariance(), law.node_variances()[:-1]))
    for direct, quick in zip(*laws, strict=True):
        assert quick == pytest.approx(direct, rel=1e-11)
    monkeypatch.undo()
    integers = np.where(np.isin(np.arange(15), [0, 3, 9]), 100, 1) * ~fixed
    problem = Problem(bf.workload.parse("all-range:8"), bf.policy.bounded(8))
    start = time.perf_counter()
    assert shipped(problem, TreeNorm(parents, integers, 0, "test"), "norm").unit_error == pytest.approx(576149.75)
    assert time.perf_counter() - start < 30


def test_entries_that_are_stored_twice_or_are_zero_are_one_entry():
    """A sparse matrix from a stranger: 1 + 1 at the first cell is no set of three cells."""
    parents = np.array([3, 3, 3, -1])
    twice = sp.csr_array((np.ones(3), np.array([0, 0, 2]), np.array([0, 3])), shape=(1, 3))
    assert set_queries(bf.workload.from_matrix(twice).matrix, parents, 3) is None
    none = sp.csr_array((np.array([1.0, 0, 0]), np.array([0, 1, 2]), np.array([0, 3])), shape=(1, 3))
    node, _ = set_queries(bf.workload.from_matrix(none).matrix, parents, 3)
    assert node.tolist() == [0]


def test_sets_are_found_in_any_forest_and_order_of_cells():
    for _ in range(50):
        parents = random_forest(RNG, 7, one_root=False, most_children=4)
        sets = np.zeros((parents.size, 7))
        sets[:7] = np.eye(7)
        for node, parent in enumerate(parents.tolist()):
            if parent >= 0:
                sets[parent] += sets[node]
        node, scale = set_queries(bf.workload.from_matrix(3 * sets).matrix, parents, 7)
        assert np.array_equal(sets[node], sets)
        assert np.all(scale == 3)
        W = RNG.integers(0, 2, (1, 7)).astype(float)
        W[0, 0] = 1
        known = {tuple(row) for row in sets.tolist()}
        assert (set_queries(bf.workload.from_matrix(W).matrix, parents, 7) is not None) == (tuple(W[0]) in known)


def alike(rng, cells, most):
    """Return a random forest in which few weights occur, so that many subtrees are equal."""
    parents = random_forest(rng, cells, one_root=False, most_children=most)
    return parents, rng.choice([0.2, 0.5, 0.07], parents.size)


@pytest.mark.parametrize("fixed", [False, True])
def test_variances_with_equal_subtrees_once_are_those_of_all_nodes(fixed):
    rng = np.random.default_rng(17)
    for _ in range(25):
        parents, rates = alike(rng, int(rng.integers(2, 30)), int(rng.integers(2, 9)))
        is_fixed = (parents < 0) & (np.arange(parents.size) >= np.sum(~np.isin(np.arange(parents.size), parents)))
        is_fixed &= fixed
        rates = np.where(is_fixed, 0.0, rates)
        cells = int(np.sum(~np.isin(np.arange(parents.size), parents)))
        found, known = set_variances(parents, rates, is_fixed), TreeLaw(parents, rates, is_fixed, cells)
        np.testing.assert_allclose(found, known.node_variances(), rtol=1e-9, atol=1e-9)


def test_equal_subtrees_have_one_table_and_sums_of_some_children_are_not_cut_off():
    """A root that is held tightly: sums over half of its children are far wider than any set."""
    parents, rates = np.append(np.full(200, 200), -1), np.full(201, 0.25)
    assert len(Slots(parents, rates).all) < 25
    found = set_variances(parents, rates, np.zeros(201, dtype=bool))
    known = TreeLaw(parents, rates, np.zeros(201, dtype=bool), 200).node_variances()
    np.testing.assert_allclose(found, known, rtol=1e-9)


@pytest.mark.parametrize("workload", ["all-range:9", "prefix:9", "both"])
def test_forms_over_ordered_cells_are_those_of_all_covariances(workload):
    rng = np.random.default_rng(4)
    W = bf.workload.parse("prefix:9" if workload == "both" else workload).matrix
    W = Stack((Weighted(np.array([2.0]), W), Identity(9), Ones(9))) if workload == "both" else W
    for fixed in (False, True):
        parents, _ = chain(9, 0.3, 0.2)
        rates = rng.uniform(0.1, 0.5, parents.size)
        is_fixed = np.zeros(parents.size, dtype=bool)
        is_fixed[-1] = fixed
        rates[-1] = 0.0 if fixed else rates[-1]
        reach = proper_reach(parents, rates, is_fixed)
        found = expected_form(ordered(W), children_in_order(parents, 9), rates, is_fixed, reach)
        C = TreeLaw(parents, rates, is_fixed, 9).covariance()
        assert found == pytest.approx(float((W.gram() * C).sum()), rel=1e-9)


def test_sets_that_are_no_intervals_have_no_ordered_form():
    assert children_in_order(np.array([3, 4, 3, 4, -1]), 3) is None
    assert ordered(bf.workload.from_matrix(np.eye(3)[::-1] + 1).matrix) is None


def test_laplace_noise_on_the_edges_of_a_line_is_a_strict_local_optimum_for_all_ranges():
    """A weight w on a cell takes w from the cuts beside it, and the sum of squared errors rises by (1.5 n - 2.5) w.

    X, Y independent, of density exp(-|x|) / 2, on the cuts: d E[Q] / dw is the covariance of n (X^2 + Y^2) - 2 X Y and
    |X| + |Y| - |X - Y|, by E|X|^k = k!, E[X^2 |X - Y|] = 6.25, E|X - Y| = 1.5, E[X Y |X - Y|] = -1.25.
    """
    n, V = 9, bf.workload.parse("all-range:9").matrix.gram()
    slope = n * (8 - 2 * 6.25 + 4 * 1.5) - 2 * 1.25
    assert slope == 1.5 * n - 2.5

    def error(cell, w):
        parents, weights = chain(n, 0.0, 1.0)
        weights[cell] += w
        for cut in (cell - 1, cell):
            weights[0 if cut == 0 else n + cut - 1] -= w
        fixed = np.arange(parents.size) == parents.size - 1
        return limit(weights, lambda h: np.array([(V * TreeLaw(parents, h * weights, fixed, n).covariance()).sum()]))[0]

    plain = error(4, 0.0)
    assert plain == pytest.approx(2 * n * (n - 1), rel=1e-6)
    for cell in (1, 4, 7):
        half, whole = error(cell, 0.01) - plain, error(cell, 0.02) - plain
        assert (4 * half - whole) / 0.02 == pytest.approx(slope, rel=5e-3)


def test_no_set_of_a_line_is_worth_what_it_takes_from_the_cuts():
    """Sets that cross k edges: Cov(n sum X_j^2 - 2 sum_{j<l} X_j X_l, sum |X_j| - |sum +-X_j|) > 0, by quadrature."""
    x = 0.02 * np.arange(-1500, 1501)
    law = np.exp(-np.abs(x))
    law /= law.sum()
    sums = [np.where(x == 0, 1.0, 0.0)]
    for _ in range(5):
        sums.append(np.convolve(sums[-1], law, mode="same"))
    for k, n in ((2, 3), (2, 64), (3, 64), (4, 64), (5, 64)):
        mean = np.array([sums[k - 1] @ np.abs(at + x) for at in x])
        square = law @ (x**2 * mean)
        product = (sums[k] @ np.abs(x) ** 3 - k * square) / (k * (k - 1))
        signs = (k % 2 - k) / 2  # sum of the products of signs that alternate
        slope = n * k * (4 - (square - 2 * (law @ mean))) + 2 * signs * product
        assert slope > 0
        if k == 2:
            assert slope == pytest.approx(1.5 * n - 2.5, rel=0.02)
