"""The policy's own norm: its value against a linear programme, its error against closed forms on trees."""

import numpy as np
import pytest
from scipy.optimize import linprog

import hdmm_bf as bf
from experiments.benchmarks.flow_norm import Chains, flow_norm, flow_unit_error, layers

POLICIES = ["line:5", "star-tree:5", "cycle:5", "cycle:6", "threshold:7:2", "threshold:3x3:1", "bounded:4"]


def centred(rows, cells):
    Z = np.random.default_rng(cells).normal(size=(rows, cells))
    return Z - Z.mean(axis=1, keepdims=True)


def cheapest_flow(policy, z):
    """The definition: least sum of |f_e| over flows with P f = z, each edge both ways."""
    P = np.zeros((policy.num_cells, policy.num_edges))
    for e, (u, v) in enumerate(policy.edges):
        P[u, e], P[v, e] = 1, -1
    return linprog(np.ones(2 * policy.num_edges), A_eq=np.hstack([P, -P]), b_eq=z).fun


@pytest.mark.parametrize("spec", POLICIES)
def test_the_flow_norm_is_the_cost_of_the_cheapest_flow(spec):
    policy = bf.policy.parse(spec)
    Z = centred(6, policy.num_cells)
    expected = [cheapest_flow(policy, z) for z in Z]
    np.testing.assert_allclose(flow_norm(layers(policy), Z), expected, rtol=1e-9)


@pytest.mark.parametrize("spec", ["line:6", "star-tree:6"])
def test_on_trees_the_flow_norm_is_laplace_noise_on_the_edges(spec):
    """There ||P f|| = ||f||_1, so z = P f with independent Laplace f, and the unit error is ||W_G||_F^2."""
    problem = bf.problem("all-range:6", spec)
    exact = float((problem.W_G() ** 2).sum())
    found, stderr = flow_unit_error(problem, Chains(chains=200, steps=900, burn_in=300), seed=7)
    assert stderr < 0.02 * exact
    assert abs(found - exact) < 5 * stderr
    assert abs(found - 1.15 * exact) > 5 * stderr, "the test can tell errors of 15 % apart"


def test_on_a_cycle_the_flow_norm_is_laplace_noise_whose_median_is_zero():
    """||P f|| = min over c of sum |f_i - c|, attained at the median, and P 1 = 0.

    So one of n = 6 edges has f = 0, two have -Exp(1) and three Exp(1), in random order: E f_i^2 = 2 * 5/6 and
    E f_i f_j = (2 * 1 + 3 * 2 - 2 * 2 * 3) / 30, and half their difference, 0.9, times ||W_G||_F^2 is the unit error.
    """
    problem = bf.problem("all-range:6", "cycle:6")
    exact = 0.9 * float((problem.W_G() ** 2).sum())
    found, stderr = flow_unit_error(problem, Chains(chains=400, steps=900, burn_in=300), seed=7)
    assert abs(found - exact) < 5 * stderr < abs(found - exact / 0.9)


def test_off_trees_the_flow_norm_has_less_error_than_laplace_noise_on_the_edges():
    """Bounded privacy on three cells: the ball is a regular hexagon of radius R = sqrt 2.

    A point u uniform on it has E|u|^2 = 5 R^2 / 12, and the unit error is (d + 1) (d + 2) / 2 times that, d = 2.
    """
    problem = bf.problem("identity:3", "bounded:3")
    found, stderr = flow_unit_error(problem, Chains(chains=200, steps=900, burn_in=300), seed=7)
    assert abs(found - 5) < 5 * stderr
    assert found + 5 * stderr < (problem.W_G() ** 2).sum() == 6
