"""The bound for Laplace strategies: its theorem by brute force, then the search side."""

import numpy as np
import pytest
from scipy.optimize import OptimizeResult

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf.bounds import dual_bound, pairs
from hdmm_bf.bounds.pairs import Pairs, choose_pairs, laplace_bound
from hdmm_bf.certificate.pairs import pairs_bound
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies import search
from hdmm_bf.strategies.gaussian import dense as gaussian
from tests.support import instances, oracles
from tests.support import pairs as oracle

RNG = np.random.default_rng(0)
NOBODY = Pairs(np.zeros((0, 2), dtype=np.int64), np.zeros(0))

TWO_PARTS = ([0, 1, 3, 4, 3, 5], [1, 2, 4, 5, 5, -1])
"""A path, public in total, and a triangle with BOTTOM."""
SPECS = ["line:5", "cycle:5", "bounded:4", "unbounded:5", "threshold:5:2", "star-tree:5", "h-theta:5:2", "two parts"]


def under(spec, rows=None):
    """All ranges, or the rows that are given, under a policy."""
    p = policy.from_edges(*TWO_PARTS, 6) if spec == "two parts" else policy.parse(spec)
    W = oracles.all_range_rows((p.num_cells,)) if rows is None else rows
    return Problem(workload.from_matrix(W), p)


def changed(problem):
    """W_G of a problem, from its rows and the policy's list of edges alone."""
    return oracle.changes(problem.workload.matrix.dense(), problem.policy.edges)


def random_graph(cells):
    """Edges of a random graph, some to BOTTOM, perhaps of several components."""
    vertices = [*range(cells), oracle.BOTTOM] if RNG.random() < 0.6 else [*range(cells)]
    every = [(u, v) for u in range(cells) for v in vertices if v == oracle.BOTTOM or u < v]
    return [every[i] for i in RNG.permutation(len(every))[: RNG.integers(2, 8)]]


def shared_out(mu):
    """Random groups of any size, overlapping, and for each of them shares: together they are mu."""
    chosen = [RNG.random(mu.size) < RNG.random() for _ in range(RNG.integers(1, 6))] + [np.ones(mu.size, dtype=bool)]
    shares = np.array(chosen) * RNG.random((len(chosen), mu.size))
    return mu * shares / shares.sum(axis=0)


def random_strategies(WG, edges, cells):
    """S with columns of L1 length at most 1: over the edges, or A P, which is singular wherever there are cycles."""
    yield oracle.random_rows(len(edges), RNG)
    S = oracle.changes(RNG.normal(size=(cells + 2, cells)), edges)
    yield S / np.abs(S).sum(axis=0).max()


def test_no_strategy_is_below_the_sum_over_groups_of_any_size():
    """||M||^2 >= sum_F tr(C_F diag(mu_F) C_F Y_F^+), for any X with X L X <= V: here N of both signs, and the polar."""
    ranks = set()
    for _ in range(80):
        cells = int(RNG.integers(3, 7))
        edges = random_graph(cells)
        WG = oracle.changes(RNG.normal(size=(RNG.integers(1, 2 * cells), cells)), edges)
        mu = RNG.random(len(edges)) ** RNG.integers(1, 5) * (RNG.random(len(edges)) < 0.8)
        mu[0] += 0.1
        N = RNG.normal(size=(len(WG), len(WG)))
        N /= np.linalg.norm((N + N.T) @ WG * np.sqrt(mu), 2)
        for C in (WG.T @ (N + N.T) @ WG, oracle.entries(WG, mu)):
            for S in random_strategies(WG, edges, cells):
                M = WG @ np.linalg.pinv(S, rcond=1e-10)
                assert np.allclose(M @ S, WG)
                Y, total = S.T @ S, 0.0
                for share in shared_out(mu):
                    F = np.flatnonzero(share)
                    K = C[np.ix_(F, F)] * share[F] @ C[np.ix_(F, F)]
                    total += np.trace(K @ np.linalg.pinv(Y[np.ix_(F, F)], rcond=1e-9, hermitian=True))
                    ranks.add((len(F), int(np.linalg.matrix_rank(Y[np.ix_(F, F)], tol=1e-9))))
                assert np.linalg.norm(M) ** 2 >= total * (1 - 1e-7)
    assert any(rank < size for size, rank in ranks), "singular Y were among them"


def test_one_group_with_all_edges_is_the_error_itself_for_the_best_weights():
    """Nothing is lost but by groups: where W_G is square and invertible, the sum for one group is ||M||^2."""
    WG = RNG.normal(size=(4, 4))
    mu = RNG.random(4)
    C, S = oracle.entries(WG, mu), oracle.random_rows(4, RNG)
    Y = S.T @ S
    assert np.trace(C * mu @ C @ np.linalg.inv(Y)) == pytest.approx(np.linalg.norm(WG @ np.linalg.pinv(S)) ** 2)


# The bound


def solved(problem):
    """The edge weights of the dual bound, nearly the best."""
    return search(gaussian.steps(problem, gap=1e-6), gap=1e-6, max_iterations=300).proof


@pytest.mark.parametrize("spec", SPECS)
def test_the_bound_is_that_of_the_definition_on_both_sides(spec):
    for seed in range(3):
        made = under(spec, None if seed == 0 else RNG.normal(size=(seed * 4, under(spec).policy.num_cells)))
        weights = RNG.random(made.policy.num_edges) + 0.01
        mu = weights / weights.sum()
        for ends, shares in (oracle.random_pairs(mu, RNG), choose_pairs(made, weights)):
            expected = oracle.paired(changed(made), mu, ends, shares)
            own = laplace_bound(made, weights, Pairs(ends, shares))
            other = pairs_bound(made, made.gram, weights, {"partners": ends, "shares": shares})
            assert own == pytest.approx(expected, rel=1e-7)
            assert other == pytest.approx(own, rel=1e-7)
            assert own <= expected * (1 + 1e-9)


@instances.given_policies(most_cells=6)
def test_both_sides_agree_on_random_policies(p):
    made = Problem(workload.from_matrix(instances.real_matrices(p.num_cells, seed=3)), p)
    if not p.num_edges:
        assert laplace_bound(made, np.zeros(0), NOBODY) == 0
        return
    rng = np.random.default_rng(p.num_edges)
    weights = rng.random(p.num_edges) + 0.01
    ends, shares = oracle.random_pairs(weights / weights.sum(), rng)
    if not len(ends):  # one edge
        return
    own = laplace_bound(made, weights, Pairs(ends, shares))
    assert pairs_bound(made, made.gram, weights, {"partners": ends, "shares": shares}) == pytest.approx(own, rel=1e-6)


def test_no_strategy_that_descent_finds_is_below_the_bound():
    """Quotes laplace_bound: no strategy of L1 sensitivity 1, whether over the cells or the edges, has less error."""
    close = 0
    for _ in range(20):
        cells = int(RNG.integers(3, 6))
        ends = np.array(random_graph(cells)[:5])
        W = RNG.integers(-1, 2, size=(cells + 1, cells)).astype(float)
        made = Problem(workload.from_matrix(W), policy.from_edges(*ends.T, cells))
        if not np.any(changed(made)):
            continue
        reached = oracle.smallest_error(changed(made), RNG)
        for weights in (solved(made), RNG.random(len(ends)) + 1e-3):
            mu = weights / weights.sum()
            for found in (choose_pairs(made, weights), Pairs(*oracle.random_pairs(mu, RNG)), NOBODY):
                bound = laplace_bound(made, weights, found)
                assert bound <= reached * (1 + 1e-9)
                close += bound > 0.98 * reached
    assert close, "the bound is nearly attained here and there"


def test_two_cells_that_are_hardly_tied_have_a_proven_best_strategy():
    """Under ordinary privacy C^2 = 2 V: for |b| <= 0.962 min(a, c) the bound is the error of the identity."""
    made = under("unbounded:2", np.array([[1.0, 0.0], [0.0, 1.2], [4.0, 4.0]]))
    V = made.gram
    assert abs(V[0, 1]) <= 0.962 * V.diagonal().min()
    weights = np.ones(2)
    assert dual_bound(made, weights) < 0.7 * np.trace(V)
    assert laplace_bound(made, weights, choose_pairs(made, weights)) == pytest.approx(np.trace(V), rel=1e-8)
    assert oracle.smallest_error(changed(made), RNG) == pytest.approx(np.trace(V), rel=1e-6)


@pytest.mark.parametrize("spec", SPECS)
def test_without_pairs_it_is_at_least_the_dual_bound_and_binds_gaussian_strategies(spec):
    """A group of one edge only uses lengths, which L2 strategies have as well."""
    made = under(spec)
    reached = bf.fit(made.workload, made.policy, gap=1e-4).unit_error
    for weights in (solved(made), RNG.random(made.policy.num_edges) + 1e-2):
        bound = laplace_bound(made, weights, NOBODY)
        assert dual_bound(made, weights) * (1 - 1e-5) <= bound <= reached * (1 + 1e-9)


def test_weights_on_an_edge_that_no_query_sees_prove_nothing_that_is_not_so():
    W = np.array([[0.0, 1, 0, 1], [0, 1, 0, 1], [0, 0, 0, 1], [1, 1, 1, 1], [1, 1, 1, 0]])
    made = Problem(workload.from_matrix(W), policy.from_edges([0, 1, 1, 2], [2, 2, 3, 3], 4))
    reached = oracle.smallest_error(changed(made), RNG)
    assert not np.any(changed(made)[:, 0])
    assert laplace_bound(made, np.array([1.0, 1e-20, 1e-20, 1e-20]), NOBODY) <= reached * (1 + 1e-9)


def test_weights_count_relative_to_their_sum():
    made = under("cycle:5")
    weights = RNG.random(5)
    chosen = choose_pairs(made, weights)
    assert len(chosen.edges)
    assert laplace_bound(made, 7 * weights, chosen) == pytest.approx(laplace_bound(made, weights, chosen), rel=1e-12)


def test_queries_with_other_weights_have_the_bound_of_their_own_gram_matrix():
    W = RNG.normal(size=(6, 5))
    heavy = np.sqrt(RNG.random(6) + 0.1)[:, None] * W
    made, weighted = under("cycle:5", W), under("cycle:5", heavy)
    weights = RNG.random(5) + 0.1
    chosen = choose_pairs(made, weights, weighted.gram)
    other = choose_pairs(weighted, weights)
    bound = laplace_bound(made, weights, chosen, weighted.gram)
    assert bound == pytest.approx(laplace_bound(weighted, weights, other), rel=1e-7)
    assert bound != pytest.approx(laplace_bound(made, weights, choose_pairs(made, weights)), rel=1e-3)


def test_where_everything_is_public_there_are_no_pairs_and_the_bound_is_zero():
    made = under("empty:3", np.eye(3))
    assert len(choose_pairs(made, np.zeros(0)).edges) == 0
    assert laplace_bound(made, np.zeros(0), NOBODY) == 0
    blind = under("line:3", np.ones((1, 3)))
    assert len(choose_pairs(blind, np.ones(2)).edges) == 0
    assert laplace_bound(blind, np.ones(2), NOBODY) == 0


# Which pairs


@pytest.mark.parametrize("spec", [*SPECS, "bounded:9", "threshold:4x4:2"])
def test_chosen_pairs_take_no_more_than_there_is_and_gain(spec):
    made = under(spec) if "x" not in spec else Problem(workload.parse("all-range:4x4"), policy.parse(spec))
    edges = made.policy.num_edges
    for weights in (solved(made), RNG.random(edges), RNG.random(edges) * (RNG.random(edges) < 0.5) + 1e-9):
        found = choose_pairs(made, weights)
        taken = np.bincount(found.edges.ravel(), np.repeat(found.shares, 2), edges)
        assert np.all(taken <= weights / weights.sum() * (1 + 1e-9))
        assert np.all(found.shares > 0)
        assert np.all(found.edges[:, 0] != found.edges[:, 1])
        assert found.edges.min(initial=0) >= 0
        assert found.edges.max(initial=0) < edges
        assert laplace_bound(made, weights, found) >= laplace_bound(made, weights, NOBODY)


def test_edges_without_weight_are_left_alone():
    made = under("bounded:4")
    weights = np.array([1.0, 0.0, 1.0, 1e-12, 1.0, 1.0])
    found = choose_pairs(made, weights)
    assert len(found.edges)
    assert not {1, 3} & set(found.edges.ravel().tolist())


def test_one_edge_has_no_partner():
    assert len(choose_pairs(under("line:2", np.eye(2)), np.ones(1)).edges) == 0


def test_the_same_pairs_are_chosen_every_time():
    made = Problem(workload.parse("all-range:4x4"), policy.parse("threshold:4x4:1"))  # with many ties
    first, second = (choose_pairs(made, np.ones(made.policy.num_edges)) for _ in range(2))
    assert np.array_equal(first.edges, second.edges)
    assert np.array_equal(first.shares, second.shares)


def test_many_edges_find_partners_among_those_near_them_in_the_list(monkeypatch):
    made = under("bounded:6")
    weights = RNG.random(15) + 0.5
    everywhere = laplace_bound(made, weights, choose_pairs(made, weights))
    monkeypatch.setattr(pairs, "MOST_LOOKED_AT", 15 * 5)
    found = choose_pairs(made, weights)
    assert len(found.edges)
    assert np.all(found.edges[:, 0] // 5 == found.edges[:, 1] // 5)
    assert laplace_bound(made, weights, NOBODY) < laplace_bound(made, weights, found) <= everywhere * (1 + 1e-9)


def test_too_many_cells_have_no_pairs(monkeypatch):
    monkeypatch.setattr(pairs, "MOST_CELLS", 4)
    assert len(choose_pairs(under("unbounded:5"), np.ones(5)).edges) == 0
    assert len(choose_pairs(under("unbounded:4"), np.ones(4)).edges) > 0


def test_too_much_work_is_not_begun(monkeypatch):
    made = under("threshold:5:2")
    assert len(choose_pairs(made, solved(made)).edges)
    k, e = made.grounding.kept.size, made.policy.num_edges
    monkeypatch.setattr(pairs, "MOST_WORK", k * k * e - 1)
    assert len(choose_pairs(made, solved(made)).edges) == 0
    bounds = bf.bound("all-range:5", "threshold:5:2")
    assert bounds.laplace == bounds.lower > 0


def test_edges_stay_alone_where_the_programme_cannot_be_solved(monkeypatch):
    made = under("threshold:5:2")
    weights = solved(made)
    monkeypatch.setattr(pairs, "linprog", lambda *_, **__: OptimizeResult(success=False, x=None))
    assert len(choose_pairs(made, weights).edges) == 0
