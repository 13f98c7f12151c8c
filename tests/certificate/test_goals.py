"""Bounds of goals hold for every strategy and all weights, by brute force."""

import jax.numpy as jnp
import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.certificate import certify
from hdmm_bf.certificate.edge_bounds import dual_bound
from hdmm_bf.certificate.goals import weighted_gram
from hdmm_bf.problem.inputs import problem
from hdmm_bf.strategies import from_gram
from tests.support import goals
from tests.support.mistakes import _as_users_run_it  # noqa: F401

KINDS = ("connected", "parts", "bottom")


def instance(seed):
    rng = np.random.default_rng(seed)
    n, edges = goals.random_edges(rng, KINDS[seed % 3])
    W = goals.random_queries(rng, n)
    return rng, W, bf.policy.from_edges(*np.array(edges).T, n), *goals.grounded(W, edges)


def goal_of(rng, m):
    """One goal of each kind, with its value written out."""
    c, group = np.exp(rng.uniform(-1, 1, m)), rng.permutation(np.arange(m) % 3)
    return [
        ({"objective": "largest"}, lambda v: v.max(), m),
        ({"targets": c}, lambda v: (v / c**2).max(), m),
        ({"objective": "largest", "groups": group}, lambda v: max(v[group == g].mean() for g in set(group)), 3),
    ]


@pytest.mark.parametrize("seed", range(6))
def test_no_weights_prove_more_than_any_strategy_reaches(seed):
    rng, W, G, W_D, P = instance(seed)
    for asked, value, count in goal_of(rng, len(W)):
        made = problem(W, G, **asked)
        for _ in range(10):
            lam, mu = rng.exponential(size=count) ** 3, rng.exponential(size=P.shape[1]) ** 3
            bound = dual_bound(made, weighted_gram(made, lam), mu)
            reached = [value(goals.variances(W_D, P, goals.random_precision(rng, len(P)))) for _ in range(5)]
            assert 0 < bound <= min(reached)


@pytest.mark.parametrize("seed", range(3))
def test_the_certificate_tells_the_value_of_a_strategy_written_out(seed):
    rng, W, G, W_D, P = instance(seed)
    X = goals.random_precision(rng, len(P))
    for asked, value, count in goal_of(rng, len(W)):
        made = problem(W, G, **asked)
        strategy = from_gram(made, X, gap=1e-6, family="gaussian")
        proof = {"kind": "edges", "weights": np.ones(P.shape[1]), "queries": np.ones(count)}
        found = certify(strategy, made, noise="gaussian", proof=proof)
        v = goals.variances(W_D, P, X)
        assert found.objective_value == pytest.approx(value(v), rel=1e-5)
        assert found.worst_variance == pytest.approx(v.max(), rel=1e-5)
        assert found.objective_bound <= value(v)


@pytest.mark.parametrize("weights", [[1.0] * 3, [np.nan] * 4, [-1.0, 1, 1, 1], [0.0] * 4], ids=str)
def test_weights_of_queries_that_prove_nothing_are_refused(weights):
    made = problem("prefix:4", "unbounded:4", objective="largest")
    with pytest.raises(bf.InputError, match="weights of queries"):
        weighted_gram(made, np.array(weights))


@pytest.mark.parametrize("function", [lambda v: jnp.sqrt(v).mean(), lambda v: jnp.exp(jnp.log(v).mean())])
@pytest.mark.parametrize("seed", range(2))
def test_bounds_of_functions_convex_in_logarithms_hold_near_the_optimum(function, seed):
    """Strategies around the best one found, where a bound that says too much would show."""
    rng, W, G, W_D, P = instance(seed)
    made = bf.fit(W, G, objective=function, gap=1e-6)
    assert made.own.shape == "convex in the logarithms"
    assert made.certified
    D = np.linalg.pinv(W_D)
    R = made.reconstruction()
    Y = D @ (R @ R.T) @ D.T
    own = goals.variances(W_D, P, np.linalg.inv(Y))
    np.testing.assert_allclose(own, made.unit_variances(), rtol=1e-6)
    assert float(function(own)) == pytest.approx(made.objective_value, rel=1e-6)
    for size in np.geomspace(1e-4, 1, 30):
        A = np.linalg.cholesky(np.linalg.inv(Y)).T @ (np.eye(len(P)) + size * rng.standard_normal((len(P), len(P))))
        assert float(function(goals.variances(W_D, P, A.T @ A))) >= made.objective_bound * (1 - 1e-7)
