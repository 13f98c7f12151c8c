"""`fit` for every kind of input: what users hand in, what is degenerate, what is badly scaled."""

import math
import subprocess
import sys

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf._checks import InputError
from tests.support import instances


def test_workloads_and_policies_in_every_form_give_the_same_fit(tmp_path):
    W = np.tri(5)
    np.save(tmp_path / "W.npy", W)
    (tmp_path / "G.csv").write_text("0,1\n1,2\n2,3\n3,4\n")
    graph = nx.path_graph(5)
    expected = bf.fit("prefix:5", "line:5").unit_error
    for form in (W, W.tolist(), sp.csr_array(W), workload.prefix(5), str(tmp_path / "W.npy"), tmp_path / "W.npy"):
        assert bf.fit(form, "line:5").unit_error == pytest.approx(expected)
    for form in (policy.line(5), graph, tmp_path / "G.csv"):
        assert bf.fit("prefix:5", form).unit_error == pytest.approx(expected)


@instances.given_policies()
def test_random_policies_and_workloads_are_certified(p):
    made = bf.fit(instances.real_matrices(p.num_cells, seed=p.num_edges), p)
    assert made.certified
    A, W = made.problem.grounding.columns(made.strategy.matrix()), made.problem.W_D()
    np.testing.assert_allclose(W @ np.linalg.pinv(A) @ A, W, atol=1e-6 * np.abs(W).max(initial=1.0))


RNG = np.random.default_rng(11)
SINGULAR = {
    "one query": np.array([[1, 1, 0, 0, 1, 0]]),
    "fewer queries than cells": RNG.integers(0, 2, size=(3, 6)),
    "real and rank deficient": RNG.normal(size=(4, 2)) @ RNG.normal(size=(2, 6)),
    "repeated queries": np.repeat(np.eye(6)[:3], 4, axis=0),
    "zero queries among others": np.vstack([np.zeros((3, 6)), np.tri(6)]),
    "unused cells": np.hstack([np.tri(3), np.zeros((3, 3))]),
    "the total twice": np.vstack([np.ones((2, 6)), np.eye(6)]),
}
POLICIES = {
    "unbounded": policy.unbounded(6),
    "bounded": policy.bounded(6),
    "line": policy.line(6),
    "threshold": policy.threshold(6, 2),
    "components and bottom": policy.from_edges([0, 1, 3, 4], [1, 2, 4, -1], 6),
    "one edge": policy.from_edges([2], [3], 6),
}


@pytest.mark.parametrize("G", POLICIES)
@pytest.mark.parametrize("W", SINGULAR)
def test_singular_workloads_are_certified_and_supported(W, G):
    made = bf.fit(SINGULAR[W], POLICIES[G])
    assert made.certified
    A, W_D = made.problem.grounding.columns(made.strategy.matrix()), made.problem.W_D()
    if made.status == "exact":
        assert not np.any(W_D)
        return
    np.testing.assert_allclose(W_D @ np.linalg.pinv(A) @ A, W_D, atol=1e-8 * np.abs(W_D).max())


def test_tables_of_counts_get_rows_that_combine_them_in_integers():
    made = bf.fit("marginals:2x3x4:1", "unbounded:2x3x4")
    assert made.strategy.num_rows == 1 + 2 + 3 + 1 == 7
    assert made.certificate.support < 1e-14
    assert made.certified


@pytest.mark.parametrize("spread", [4, 8])
@pytest.mark.parametrize("G", ["bounded:8", "unbounded:8", "threshold:8:2", "line:8"])
def test_weights_from_tiny_to_huge_are_certified(G, spread):
    rng = np.random.default_rng(spread)
    weights = 10.0 ** rng.uniform(-spread, spread, size=(24, 1))
    W = np.vstack([np.eye(8), rng.integers(0, 2, size=(16, 8))]) * weights
    made = bf.fit(W, G)
    assert made.certified
    A, W_D = made.problem.grounding.columns(made.strategy.matrix()), made.problem.W_D()
    left_over = np.linalg.norm(W_D - W_D @ np.linalg.pinv(A) @ A, axis=1)
    assert np.all(left_over <= 1e-6 * np.linalg.norm(W_D, axis=1))


def test_a_heavy_public_total_does_not_drown_a_light_query():
    """The total is public under a line; grounding must remove it exactly, whatever its weight."""
    light = workload.weighted(workload.identity(6), 1e-8)
    heavy = workload.weighted(workload.from_matrix(np.ones((1, 6))), 1e8)
    alone, both = bf.fit(light, "line:6"), bf.fit(workload.union(heavy, light), "line:6")
    assert both.unit_error / alone.unit_error == pytest.approx(1, rel=1e-9)
    dense = np.vstack([1e8 * np.ones((1, 6)), 1e-8 * np.eye(6)])
    assert bf.fit(dense, "line:6").unit_error / alone.unit_error == pytest.approx(1, rel=1e-9)


def test_scaling_the_workload_scales_the_error_and_nothing_else():
    plain = bf.fit(np.tri(9), "threshold:9:2")
    scaled = bf.fit(1e-7 * np.tri(9), "threshold:9:2")
    assert scaled.unit_error / plain.unit_error == pytest.approx(1e-14, rel=1e-6, abs=0)
    assert scaled.gap == pytest.approx(plain.gap, rel=1e-3)


@pytest.mark.parametrize(
    ("W", "G"),
    [
        ("identity:8", "empty:8"),
        (np.ones((2, 5)), "bounded:5"),
        (np.ones((1, 1)), "line:1"),
        (np.array([[0.1, 0.1, 0.3]]), policy.from_edges([0], [1], 3)),
        (np.zeros((2, 4)), "unbounded:4"),
    ],
)
def test_where_all_queries_are_public_the_answer_is_exact_and_says_so(W, G):
    made = bf.fit(W, G)
    assert made.status == "exact"
    assert (made.unit_error, made.gap, made.bounds.lower, made.strategy.num_rows) == (0.0, 0.0, 0.0, 0)
    assert made.certified
    assert "exact" in made.sentence
    assert bf.bound(W, G).lower == 0.0
    assert made.expected_error(epsilon=1.0, delta=1e-6) == 0.0


def test_edges_that_no_query_touches_cost_nothing():
    W = np.zeros((3, 9))
    W[:, :3] = np.tri(3)
    whole = bf.fit(W, policy.threshold(9, 1), gap=1e-6)
    part = bf.fit(np.hstack([np.tri(3), np.zeros((3, 1))]), policy.line(4), gap=1e-6)
    assert whole.unit_error == pytest.approx(part.unit_error, rel=1e-5)


def test_components_decouple():
    """Two components, each with its own queries: the error is the sum of two problems solved together."""
    halves = policy.from_edges([0, 1, 3, 4], [1, 2, 4, 5], 6)
    W = np.kron(np.eye(2), np.tri(3))
    both = bf.fit(W, halves, gap=1e-6)
    one = bf.fit(np.tri(3), "line:3", gap=1e-6)
    assert both.unit_error == pytest.approx(2 * one.unit_error, rel=1e-5)


def test_errors_before_spending_follow_from_the_strategy():
    made = bf.fit("all-range:9", "threshold:9:2")
    total = made.expected_error(epsilon=0.5, delta=1e-6)
    deviations = made.per_query_stddev(epsilon=0.5, delta=1e-6)
    assert (deviations**2).sum() == pytest.approx(total, rel=1e-10)
    assert made.rmse(epsilon=0.5, delta=1e-6) == pytest.approx(math.sqrt(total / 45))
    assert made.rmse(rho=0.5) == pytest.approx(math.sqrt(made.unit_error / 45))
    np.testing.assert_allclose(made.per_query_stddev(epsilon=0.5, delta=1e-6, queries=[7, 3]), deviations[[7, 3]])
    B = made.reconstruction()
    A_D = made.problem.grounding.columns(made.strategy.matrix())
    np.testing.assert_allclose(B @ A_D, made.problem.W_D(), atol=1e-9)


def test_a_bound_needs_no_strategy_and_agrees_with_the_fit():
    bounds, made = bf.bound("prefix:20", "threshold:20:3", gap=1e-6), bf.fit("prefix:20", "threshold:20:3", gap=1e-6)
    assert bounds.lower == pytest.approx(made.bounds.lower, rel=1e-6)
    assert bounds.svd == pytest.approx(made.bounds.svd, rel=1e-9)
    assert bounds.svd < bounds.lower <= made.unit_error


@pytest.mark.parametrize("caller", [True, False])
def test_fits_are_the_same_whether_or_not_the_caller_enabled_x64(caller):
    script = f"""
import jax
jax.config.update("jax_enable_x64", {caller})
import hdmm_bf as bf
print(repr(bf.fit("prefix:12", "threshold:12:2").unit_error), jax.config.jax_enable_x64)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == f"{bf.fit('prefix:12', 'threshold:12:2').unit_error!r} {caller}\n"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bf.fit("prefix:4", "line:5"), "4 columns.*5 cells.*same domain"),
        (lambda: bf.fit("prefix:4", 7), "policy of type int.*spec string"),
        (lambda: bf.fit("prefix:4", "line:4", gap=0.0), "gap=0.0.*positive"),
        (lambda: bf.fit("prefix:4", "line:4", max_seconds=-1.0), "max_seconds=-1.0.*positive"),
        (lambda: bf.fit("prefix:4", "line:4", noise="uniform"), "noise='uniform'"),
        (lambda: bf.fit("prefix:4", "line:4", start=np.ones(9)), "start with 9 weights.*same policy"),
        (lambda: bf.fit("prefix:4", "line:4").rmse(epsilon=1.0), "epsilon and delta, or rho"),
        (lambda: bf.fit("prefix:4", "line:4").rmse(epsilon=-1.0, delta=0.1), "epsilon=-1.0.*positive"),
        (lambda: bf.fit("prefix:4", "line:4").rmse(epsilon=1.0, delta=2.0), "delta=2.0.*between 0 and 1"),
        (lambda: bf.fit("prefix:4", "line:4").per_query_stddev(rho=1.0, queries=[9]), "query 9.*0 to 3"),
    ],
)
def test_mistakes_are_explained(call, words, monkeypatch):
    from jaxtyping import config

    monkeypatch.setattr(config, "jaxtyping_disable", True)
    with pytest.raises(InputError, match=words):
        call()


def test_representations_say_what_matters():
    made = bf.fit("prefix:8", "line:8")
    assert repr(made).startswith("Fit(prefix:8 under line:8, gaussian, unit error 7")
    assert repr(made.strategy).startswith("CellStrategy(gaussian, 7 x 8")


LIGHT = {
    "a diagonal from 1e8 to 1e-8": np.diag([1e8, 1.0, 1e-8, 1.0]),
    "a heavy total and a light contrast": np.vstack([np.ones((1, 4)), 1e-7 * np.array([[1.0, -1, 1, -1]])]),
    "a heavy total and light cells": np.vstack([np.ones((1, 4)), 1e-7 * np.eye(4)]),
    "one heavy cell": np.diag([1.0, 1e-7, 1e-7, 1e-7]),
    "a heavier total": workload.union(
        workload.from_matrix(np.ones((1, 4))), workload.weighted(workload.identity(4), 1e-9)
    ),
}


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("W", LIGHT)
def test_light_queries_beside_heavy_ones_are_answered_without_bias(W, noise):
    """Every single query must lie in the strategy's row space, measured against its own size."""
    made = bf.fit(LIGHT[W], "unbounded:4", noise=noise, max_steps=40)
    A, rows = made.problem.grounding.columns(made.strategy.matrix()), made.problem.W_D()
    left_over = rows - rows @ np.linalg.pinv(A) @ A
    assert np.all(np.linalg.norm(left_over, axis=1) <= 1e-6 * np.linalg.norm(rows, axis=1))
    assert np.all(made.per_query_stddev(**({"rho": 0.5} if noise == "gaussian" else {"epsilon": 1.0})) > 0)
    assert made.gap >= -1e-9
    assert made.certified or noise == "laplace"


@pytest.mark.parametrize("size", [1e-170, 1e-200, 1e170, 1e200])
def test_workloads_whose_squares_leave_the_floating_range_are_refused(size):
    for call in (bf.fit, bf.bound):
        with pytest.raises(InputError, match=r"too small or too large to square.*Multiply the workload"):
            call(size * np.eye(4), "unbounded:4")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bf.fit("prefix:4", "line:4", seed=-1), "seed=-1"),
        (lambda: bf.fit("prefix:4", "line:4", max_steps=0), "max_steps=0.*at least one step"),
        (lambda: bf.fit("prefix:4", "line:4").per_query_stddev(rho=1.0, queries=[0.9]), "whole numbers"),
        (lambda: bf.fit("prefix:4", "line:4", family="vertex"), "is for Laplace noise"),
        (lambda: bf.fit("prefix:4", "line:4", noise="laplace", family="vertx"), "Did you mean 'vertex'"),
    ],
)
def test_more_mistakes_are_explained(call, words, monkeypatch):
    from jaxtyping import config

    monkeypatch.setattr(config, "jaxtyping_disable", True)
    with pytest.raises(InputError, match=words):
        call()


@pytest.mark.parametrize(
    ("noise", "family", "said"),
    [
        ("gaussian", "base", "is not a family for Gaussian noise. Did you mean 'bases'?"),
        ("gaussian", "vertex", "is for Laplace noise. Leave the family out"),
        ("laplace", "vertx", "is not a family for Laplace noise. Did you mean 'vertex'?"),
    ],
)
def test_a_mistyped_family_is_answered_with_the_nearest(noise, family, said):
    with pytest.raises(InputError) as caught:
        bf.fit("all-range:8", "line:8", noise=noise, family=family)
    assert said in str(caught.value)
