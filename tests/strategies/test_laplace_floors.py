"""Laplace strategies: the paper's and the classical mechanisms, and dictionaries."""

import math

import cvxpy as cp
import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.baselines import classical, paper
from hdmm_bf.strategies.drafts import column_norms, edge_gram
from hdmm_bf.strategies.laplace import dictionary, portfolio
from tests.support.laplace import exact_error, problem

RNG = np.random.default_rng(5)


# ---------------------------------------------------------------- floors


@pytest.mark.parametrize(
    ("W", "G", "name", "ratio"),
    [
        ("all-range:64", "threshold:64:4", "identity on H^theta", 9.35),
        ("all-range:64", "threshold:64:4", "identity on edges", 4.06),
        ("all-range:64", "bounded:64", "identity", 5.118),
        ("all-range:8x8", "threshold:8x8:1", "rows and columns of wavelets", 7.217),
        ("all-range:8x8", "threshold:8x8:1", "identity on edges", 2.316),
        ("all-range:64", "line:64", "identity on edges", 1.011),
    ],
)
def test_the_papers_and_classical_mechanisms_have_their_known_ratios(W, G, name, ratio):
    made = problem(W, G)
    table = portfolio.Table()
    drafts = {d.origin: d for d in portfolio.Floors(made, table, "L1")}
    lower = bf.bound(made.workload, made.policy, gap=1e-5).lower
    assert drafts[name].error / lower == pytest.approx(ratio, abs=0.005)
    assert table.errors[name] == drafts[name].error


@pytest.mark.parametrize("G", ["unbounded:9", "threshold:9:2", "cycle:9", "threshold:3x3:1", "bounded:9"])
def test_every_floor_has_the_error_of_its_definition(G):
    made = problem(workload.all_range(policy.parse(G).domain), G)
    for module in (paper, classical):
        for found in module.floors(made, "L1"):
            assert found.error == pytest.approx(exact_error(made, found.kind, found.matrix), rel=1e-8), found.origin
            assert column_norms(made, found.kind, found.matrix, norm="L1").max() == pytest.approx(1)


def test_the_subgraph_mechanism_is_at_least_as_good_as_its_stretch_promises():
    made = problem("all-range:16", "threshold:16:4")
    spanner = policy.h_theta(16, 4)
    inverse = paper.tree_inverse(spanner)
    tree_error = np.linalg.norm(Problem(made.workload, spanner).W_G()) ** 2
    promised = policy.stretch(made.policy, spanner) ** 2 * tree_error
    assert exact_error(made, "vertex", inverse) <= promised * (1 + 1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_wavelets_and_hierarchies_have_their_shape(size):
    H = classical.haar(size)
    assert H.shape == (size, size)
    assert np.linalg.matrix_rank(H) == size
    np.testing.assert_array_equal(H @ H.T, np.diag(np.diag(H @ H.T)) if size in (1, 2, 8) else H @ H.T)
    levels = classical.hierarchy(size, 2)
    assert len(levels) == 1 + math.ceil(math.log2(size))
    assert all(np.array_equal(level.sum(axis=0), np.ones(size)) for level in levels)


# ---------------------------------------------------------------- dictionaries


def test_decompositions_are_the_exact_sensitivity():
    """Quotes decompositions: sum_j w_j |y_je| is the exact L1 sensitivity of the edge, by cvxpy."""
    made = problem("all-range:5", "threshold:5:2")
    P = made.P.dense()
    D = np.hstack([P, np.eye(4)])
    w = RNG.uniform(0.3, 2, size=D.shape[1])
    Y = dictionary.decompositions(made, D, w)
    np.testing.assert_array_equal(D @ Y, P)
    for e in range(P.shape[1]):
        y = cp.Variable(D.shape[1])
        cp.Problem(cp.Minimize(w @ cp.abs(y)), [D @ y == P[:, e]]).solve(solver=cp.CLARABEL)
        assert w @ np.abs(Y[:, e]) == pytest.approx(w @ np.abs(y.value), rel=1e-6)


def test_best_scales_solve_the_convex_problem():
    M, c = RNG.integers(0, 3, size=(6, 9)).astype(float), RNG.uniform(0.5, 3, size=6)
    w = dictionary.best_scales(M, c)
    assert (M.T @ w).max() == pytest.approx(1)
    x = cp.Variable(6, pos=True)
    optimum = cp.Problem(cp.Minimize(c @ cp.power(x, -2)), [M.T @ x <= 1]).solve(solver=cp.CLARABEL)
    assert (c / w**2).sum() == pytest.approx(optimum, rel=1e-4)


def test_alternating_never_gets_worse():
    made = problem("all-range:7", "threshold:7:2")
    errors = [d.error for d in dictionary.steps(made, seed=0)]
    assert errors == sorted(errors, reverse=True)
    identity_on_edges = np.trace(edge_gram(made))
    assert errors[-1] <= identity_on_edges * (1 + 1e-6)
