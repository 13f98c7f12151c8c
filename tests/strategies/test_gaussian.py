"""Gaussian strategies against the semidefinite programme, closed forms and the promises of the loop."""

import itertools
import math

import cvxpy as cp
import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies import search
from hdmm_bf.strategies.gaussian import dense as gaussian
from hdmm_bf.strategies.search import Progress
from tests.support import instances


def semidefinite_optimum(made):
    """Min tr(V X^-1) subject to p_e^T X p_e <= 1, by cvxpy."""
    W, P = made.W_D(), made.P.dense()
    kept = np.abs(W).sum(axis=1) > 0
    X = cp.Variable((P.shape[0], P.shape[0]), PSD=True)
    constraints = [cp.trace(np.outer(p, p) @ X) <= 1 for p in P.T]
    cp.Problem(cp.Minimize(cp.matrix_frac(W[kept].T, X)), constraints).solve(solver=cp.CLARABEL)
    return np.trace(W @ np.linalg.solve(X.value, W.T)) * max(p @ X.value @ p for p in P.T)


@pytest.mark.parametrize("seed", range(12))
def test_random_policies_reach_the_optimum_of_the_semidefinite_programme(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 9))
    pairs = [(u, v) for u, v in itertools.combinations(range(n), 2) if rng.uniform() < 0.5]
    pairs += [(u, -1) for u in range(n) if rng.uniform() < 0.3] or [(0, 1)]
    u, v = np.array(sorted(set(pairs))).T
    G = policy.from_edges(u, v, n)
    W = rng.integers(0, 2, size=(2 * n, n)) + np.vstack([np.eye(n), np.zeros((n, n))])
    made = bf.fit(W, G, gap=1e-7)
    assert made.certified
    optimum = semidefinite_optimum(made.problem)
    assert made.unit_error == pytest.approx(optimum, rel=1e-5)
    assert made.bounds.lower <= optimum * (1 + 1e-7)


@pytest.mark.parametrize("n", [1, 2, 3, 17, 64])
def test_identity_under_ordinary_dp_costs_one_a_cell(n):
    made = bf.fit(f"identity:{n}", f"unbounded:{n}", gap=1e-6)
    assert made.unit_error == pytest.approx(n, rel=1e-6)
    assert made.bounds.lower == pytest.approx(n, rel=1e-9)


@pytest.mark.parametrize("n", [2, 3, 16, 64])
def test_line_attains_its_closed_forms(n):
    prefix = bf.fit(f"prefix:{n}", f"line:{n}", gap=1e-6)
    assert prefix.unit_error == pytest.approx(n - 1, rel=1e-6)
    ranges = bf.fit(f"all-range:{n}", f"line:{n}", gap=1e-6)
    optimum = ((n - 2) * math.sqrt(n + 1) + math.sqrt(2)) ** 2 / (n - 1)
    assert ranges.unit_error == pytest.approx(optimum, rel=1e-6)
    identity_on_edges = n * (n - 1)
    assert ranges.unit_error <= identity_on_edges * (1 + 1e-6)


def test_bounded_identity_has_its_closed_form():
    """Complete graph, identity: by symmetry X is a multiple of I - J/n; sensitivity 2, error 2 (n - 1)."""
    for n in (3, 8, 20):
        assert bf.fit(f"identity:{n}", f"bounded:{n}", gap=1e-6).unit_error == pytest.approx(2 * (n - 1), rel=1e-5)


WORKLOADS = ["all-range:{n}", "prefix:{n}", "identity:{n}", "random"]
POLICIES = [
    "unbounded:{n}",
    "bounded:{n}",
    "line:{n}",
    "threshold:{n}:4",
    "threshold:{n}:16",
    "cycle:{n}",
    "tree",
    "regular",
    "two components",
]


def instance(W, G, n):
    made = instances.random_workload(n, 3) if W == "random" else workload.parse(W.format(n=n))
    named = {"tree": instances.random_tree, "regular": instances.random_regular, "two components": instances.halves}
    return made, named[G](n, 7) if G in named else policy.parse(G.format(n=n))


@pytest.mark.parametrize("G", POLICIES)
@pytest.mark.parametrize("W", WORKLOADS)
def test_default_fits_are_certified(W, G):
    made = bf.fit(*instance(W, G, 64))
    assert made.certified
    assert made.status == "converged"
    assert -1e-9 <= made.gap <= 1e-3
    assert made.bounds.svd <= made.bounds.lower * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("n", [128, 256])
@pytest.mark.parametrize("G", POLICIES)
@pytest.mark.parametrize("W", WORKLOADS)
def test_a_gap_of_1e_8_is_reached_up_to_256_cells(W, G, n):
    made = bf.fit(*instance(W, G, n), gap=1e-8)
    assert made.certified
    assert made.gap <= 1e-8


@pytest.mark.parametrize(
    ("W", "G"), [("all-range:{n}", "threshold:{n}:4"), ("prefix:{n}", "bounded:{n}"), ("random", "tree")]
)
def test_a_gap_of_1e_8_is_reached(W, G):
    made = bf.fit(*instance(W, G, 48), gap=1e-8)
    assert made.certified
    assert made.gap <= 1e-8


def test_the_same_inputs_give_the_same_bits():
    """Quotes fit: the same inputs and seed give the same strategy on the same machine, bit by bit."""
    first, second = (bf.fit("prefix:40", "threshold:40:3") for _ in range(2))
    assert np.array_equal(first.strategy.integers, second.strategy.integers)
    assert np.array_equal(first.weights, second.weights)
    assert first.certificate == second.certificate


def test_a_warm_start_continues_where_the_earlier_fit_stopped():
    coarse = bf.fit("prefix:64", "bounded:64", gap=1e-3)
    cold = bf.fit("prefix:64", "bounded:64", gap=1e-5)
    warm = bf.fit("prefix:64", "bounded:64", gap=1e-5, start=coarse)
    assert warm.certified
    assert warm.trace[0].bound >= coarse.bounds.lower * (1 - 1e-6)
    assert warm.trace[0].bound > cold.trace[0].bound
    again = bf.fit("prefix:64", "bounded:64", gap=1e-5, start=cold.weights)
    assert len(again.trace) < len(cold.trace) / 2


def test_the_trace_tightens_from_both_sides_and_the_callback_sees_it():
    seen = []
    made = bf.fit("all-range:64", "threshold:64:8", gap=1e-6, callback=seen.append)
    assert tuple(seen) == made.trace
    errors, bounds = [t.error for t in seen], [t.bound for t in seen]
    assert errors == sorted(errors, reverse=True)
    assert bounds == sorted(bounds)
    assert all(t.error >= t.bound * (1 - 1e-9) for t in seen)


def test_a_time_limit_returns_the_best_so_far_and_says_so():
    made = bf.fit("prefix:64", "bounded:64", gap=1e-12, max_seconds=0.01)
    assert made.status == "time limit"
    assert not made.certified
    assert "time limit" in made.sentence
    assert made.unit_error >= made.bounds.lower


def test_an_interruption_keeps_the_best_so_far():
    calls = []

    def stop(point):
        calls.append(point)
        if len(calls) == 4:
            raise KeyboardInterrupt

    made = bf.fit("prefix:64", "bounded:64", gap=1e-12, callback=stop)
    assert made.status == "interrupted"
    assert made.unit_error == pytest.approx(calls[-1].error, rel=1e-4)


def test_the_loop_keeps_the_best_candidate_and_the_best_proof():
    """Quotes search: Returns the candidate of least error seen, and the proof of the largest bound seen."""
    steps = [Progress(9.0, 1.0, "a", "A"), Progress(5.0, 3.0, "b", "B"), Progress(7.0, 2.0, "c", "C")]
    outcome = search(iter(steps), gap=1e-3)
    assert (outcome.best, outcome.proof, outcome.error, outcome.bound) == ("b", "B", 5.0, 3.0)
    assert outcome.status == "finished"
    limited = search(iter(steps), gap=1e-3, max_iterations=1)
    assert (limited.best, limited.status) == ("a", "iteration limit")
    converged = search(iter([*steps, Progress(3.0, 3.0, "d", "D"), steps[0]]), gap=1e-3)
    assert (converged.best, converged.status, len(converged.trace)) == ("d", "converged", 4)


def test_the_loop_forecasts_its_end_by_the_clock_and_by_the_gap():
    seconds = itertools.count(0.0).__next__
    halving = [Progress(1 + 2.0**-k, 1.0, k, k) for k in range(20)]
    outcome = search(iter(halving), gap=2.0**-10, clock=seconds)
    lefts = [point.left for point in outcome.trace]
    assert lefts[0] == lefts[1] == math.inf  # nothing to go by yet
    assert lefts[2:] == pytest.approx([10 - k for k in range(2, 11)])  # a step a second, a halving a step
    limited = search(iter(halving), gap=2.0**-10, max_seconds=4.5, clock=seconds)
    assert [point.left for point in limited.trace] == pytest.approx([3.5, 2.5, 1.5, 0.5, 0.0])


def test_rounding_into_the_box_keeps_the_sensitivity_and_helps():
    made = Problem(workload.parse("prefix:48"), policy.parse("threshold:48:6"))
    steps = gaussian.steps(made, gap=1e-4)
    with_rounding = [next(steps).error for _ in range(12)]
    without = gaussian.steps(made, gap=1e9)
    plain = [next(without).error for _ in range(12)]
    bound = bf.bound("prefix:48", "threshold:48:6", gap=1e-7).lower
    assert min(with_rounding) - bound < 0.5 * (min(plain) - bound)
