"""Fits for goals other than the total: budgets that meet targets, promises, other noises, mistakes."""

import importlib
import itertools

import cvxpy as cp
import jax.numpy as jnp
import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.strategies.gaussian.own import OwnFunction
from tests.support.mistakes import _as_users_run_it, assert_refused, table  # noqa: F401

DELTA = 1e-6
C = np.array([1.0, 2.0, np.nan, 0.5, 3.0])
ASKED = ~np.isnan(C)
ROOTS = lambda v: jnp.sqrt(v).mean()


@pytest.fixture(scope="module")
def fits():
    """One fit for the same targets and each noise, with the rest of the budget."""
    options = {
        "gaussian": {},
        "laplace": {"max_steps": 1},
        "norm": {"max_steps": 1},
    }
    return {noise: bf.fit("prefix:5", "unbounded:5", targets=C, noise=noise, **o) for noise, o in options.items()}


# The budget


MEASURES = {
    "stddev": (C, lambda fit, budget: (fit.per_query_stddev(**budget)[ASKED] / C[ASKED]).max()),
    "largest": (3.0, lambda fit, budget: fit.per_query_stddev(**budget).max() / 3.0),
    "rmse": (3.0, lambda fit, budget: fit.rmse(**budget) / 3.0),
}


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "norm"])
@pytest.mark.parametrize("measure", MEASURES)
def test_the_epsilon_for_a_goal_is_the_smallest_that_meets_it(fits, noise, measure):
    """Quotes Fit.epsilon_for: A release at this epsilon has it, as `per_query_stddev` and `plan` tell."""
    wanted, excess = MEASURES[measure]
    delta = {"delta": DELTA} if noise == "gaussian" else {}
    epsilon = fits[noise].epsilon_for(**{measure: wanted}, **delta)
    assert excess(fits[noise], {"epsilon": epsilon, **delta}) == pytest.approx(1, rel=1e-6)
    assert excess(fits[noise], {"epsilon": 0.999 * epsilon, **delta}) > 1 + 1e-5


def test_a_release_at_that_epsilon_meets_every_target(fits):
    epsilon = fits["gaussian"].epsilon_for(stddev=C, delta=DELTA)
    released = bf.release(fits["gaussian"], np.arange(5), epsilon=epsilon, delta=DELTA)
    share = released.stddev[ASKED] / C[ASKED]
    assert share.max() == pytest.approx(1, rel=1e-6)


def test_the_epsilon_for_targets_by_group_is_that_for_each_query(fits):
    names = list("aabba")
    by_group = fits["gaussian"].epsilon_for(stddev={"a": 10.0, "b": 20.0}, groups=names, delta=DELTA)
    each = fits["gaussian"].epsilon_for(stddev=[10, 10, 20, 20, 10], delta=DELTA)
    assert by_group == each


def test_the_fit_for_targets_needs_the_smallest_epsilon(fits):
    for other in (bf.fit("prefix:5", "unbounded:5"), bf.fit("prefix:5", "unbounded:5", objective="largest")):
        needed = [fit.epsilon_for(stddev=C, delta=DELTA) for fit in (fits["gaussian"], other)]
        assert needed[0] < needed[1]


@table(
    ({"rmse": 1.0, "largest": 1.0, "delta": DELTA}, "three ways to ask", "Give exactly one of them."),
    ({"delta": DELTA}, "three ways to ask", "Give exactly one of them."),
    ({"largest": 0.0, "delta": DELTA}, "largest=0.0", "Use for example 5.0."),
    ({"largest": float("nan"), "delta": DELTA}, "largest=nan", "Use for example 5.0."),
    ({"largest": "x", "delta": DELTA}, "largest=x", "Use for example 5.0."),
    ({"stddev": -1.0, "delta": DELTA}, "target -1", "Use for example 5"),
    ({"stddev": [1.0], "delta": DELTA, "groups": list("aabba")}, "groups", "Leave them out."),
    ({"stddev": {"c": 1.0}, "delta": DELTA, "groups": list("aabba")}, "group 'c'", "Known: a, b."),
    ({"stddev": {"a": 1.0}, "delta": DELTA}, "targets by group", "Give groups=[...]"),
    ({"stddev": 1.0}, "delta=None", "Give delta for Gaussian noise"),
)
def test_mistakes_about_the_budget_are_told_in_words(fits, case):
    asked, seen, advice = case
    assert_refused(lambda: fits["gaussian"].epsilon_for(**asked), seen, advice)


@table(
    ({"largest": 1e10, "delta": DELTA}, "an error of 1e+10", "Ask for a smaller one."),
    ({"rmse": 1e200, "delta": DELTA}, "an error of 1e+200", "Ask for a smaller one."),
    ({"stddev": 1e9, "delta": DELTA}, "these targets", "Ask for a smaller one."),
    ({"largest": 1e-9, "delta": DELTA}, "an error of 1e-09", "Ask for a larger one."),
)
def test_what_plan_would_refuse_is_refused(fits, case):
    """Quotes epsilon_for: noise so large, or so small, that it cannot be drawn has no epsilon."""
    asked, seen, advice = case
    assert_refused(lambda: fits["gaussian"].epsilon_for(**asked), seen, advice)


@pytest.mark.parametrize("wanted", [1e6, 10.0])
def test_plan_takes_the_epsilon_of_an_error_that_is_far_out(fits, wanted):
    made = fits["gaussian"]
    epsilon = made.epsilon_for(largest=wanted, delta=DELTA)
    assert bf.plan(made, epsilon=epsilon, delta=DELTA).worst_stddev == pytest.approx(wanted, rel=1e-6)


# Promises


def test_the_same_inputs_give_the_same_bits():
    for asked in ({"objective": "largest"}, {"targets": C}, {"objective": ROOTS}):
        one, two = (bf.fit("prefix:5", "unbounded:5", seed=3, **asked) for _ in range(2))
        np.testing.assert_array_equal(one.strategy.integers, two.strategy.integers)
        assert one.certificate == two.certificate


def test_only_the_proportions_of_targets_count(fits):
    scaled = bf.fit("prefix:5", "unbounded:5", targets=4 * C)
    np.testing.assert_array_equal(scaled.strategy.integers, fits["gaussian"].strategy.integers)
    assert scaled.objective_value == pytest.approx(fits["gaussian"].objective_value / 16, rel=1e-12)


def test_weights_of_queries_scale_the_largest_variance_and_targets_do_not_see_them():
    queries = bf.workload.prefix(5)
    heavy = bf.workload.union(queries, bf.workload.weighted(bf.workload.identity(5), 3.0))
    made = bf.fit(heavy, "unbounded:5", objective="largest")
    weights = np.repeat([1.0, 3.0], 5)
    assert made.objective_value == pytest.approx((weights**2 * made.unit_variances()).max(), rel=1e-9)
    assert made.worst_variance == pytest.approx(made.unit_variances().max(), rel=1e-9)
    c = np.arange(1.0, 11.0)
    by_targets = bf.fit(heavy, "unbounded:5", targets=c)
    assert by_targets.objective_value == pytest.approx((by_targets.unit_variances() / c**2).max(), rel=1e-9)


@pytest.mark.parametrize("graph", ["unbounded:6", "threshold:6:2", "line:6"])
def test_each_fit_is_the_better_one_for_its_own_goal(graph):
    total, largest = (bf.fit("all-range:6", graph, objective=goal) for goal in ("total", "largest"))
    assert largest.worst_variance <= total.worst_variance * (1 + 1e-3)
    assert total.unit_error <= largest.unit_error * (1 + 1e-3)
    assert total.objective_value == total.unit_error
    assert total.objective_bound == total.certificate.lower_bound
    assert total.worst_variance == pytest.approx(total.unit_variances().max(), rel=1e-9)


def test_one_group_for_all_is_the_mean_and_one_each_is_the_largest():
    whole = bf.fit("prefix:6", "line:6", objective="largest", groups=["all"] * 6)
    assert whole.objective_value == pytest.approx(bf.fit("prefix:6", "line:6").unit_error / 6, rel=2e-3)
    each = bf.fit("prefix:6", "unbounded:6", objective="largest", groups=range(6))
    alone = bf.fit("prefix:6", "unbounded:6", objective="largest")
    assert each.objective_value == pytest.approx(alone.objective_value, rel=1e-3)  # the gap that both are proven to


def test_a_sum_of_ones_own_is_the_total():
    own = bf.fit("prefix:6", "threshold:6:2", objective=lambda v: v.sum())
    total = bf.fit("prefix:6", "threshold:6:2")
    assert own.certified
    assert own.objective_value == pytest.approx(total.unit_error, rel=1e-3)
    assert own.objective_bound <= total.unit_error
    assert total.certificate.lower_bound <= own.objective_value


def test_a_function_that_is_neither_convex_is_made_small_without_a_bound():
    made = bf.fit("prefix:4", "unbounded:4", objective=lambda v: jnp.log1p(jnp.log1p(v)).sum(), max_steps=5)
    assert (made.own.shape, made.objective_bound, made.certified) == ("neither", None, False)
    assert "convex neither" in made.why


def test_a_largest_variance_of_ones_own_is_no_disaster():
    """Its derivative is that of one query alone, and leads nowhere; what the search began with is kept."""
    made = bf.fit("prefix:6", "unbounded:6", objective=lambda v: v.max(), max_steps=20)
    best = bf.fit("prefix:6", "unbounded:6", objective="largest")
    assert best.objective_bound <= made.objective_value < 3 * best.objective_bound
    assert made.objective_bound <= best.objective_value
    assert "its derivatives jump" in made.why


@pytest.mark.parametrize(
    ("function", "jumps"),
    [
        (lambda v: v.max(), True),
        (lambda v: jnp.sort(v)[-3:].sum(), True),
        (lambda v: v.sum(), False),
        (lambda v: (v**16).sum() ** (1 / 16), False),
        (lambda v: jnp.log(v).sum() + 40, False),
    ],
    ids=["largest", "three largest", "sum", "norm", "logarithms"],
)
def test_derivatives_that_jump_are_told_from_smooth_ones(function, jumps):
    problem = bf.fit("prefix:12", "unbounded:12", objective=function, max_steps=1).problem
    v = np.exp(np.random.default_rng(1).normal(0, 0.1, 12))
    assert OwnFunction(problem).jumps(v) == jumps


def test_public_problems_have_no_error_whatever_is_asked_for():
    for asked in ({"objective": "largest"}, {"targets": 2.0}, {"objective": ROOTS}):
        made = bf.fit("prefix:4", "empty:4", **asked)
        assert (made.objective_value, made.status) == (0.0, "exact")


def test_steps_that_did_not_prove_the_gap_are_told(monkeypatch):
    monkeypatch.setattr(importlib.import_module("hdmm_bf.fit.dense"), "MOST_GOAL_STEPS", 2)
    made = bf.fit("all-range:6", "threshold:6:2", objective="largest", gap=1e-9)
    assert not made.certified
    assert made.status == "finished"
    assert "did not prove the requested gap" in made.why


# Other noises and strategies by factors


def goal_value(fit, c):
    return (fit.unit_variances()[ASKED] / c[ASKED] ** 2).max()


@pytest.mark.parametrize("noise", ["laplace", "norm"])
def test_pure_epsilon_fits_for_targets_are_not_worse_than_those_for_the_total(fits, noise):
    total = bf.fit("prefix:5", "unbounded:5", noise=noise, max_steps=1)
    made = fits[noise]
    assert goal_value(made, C) <= goal_value(total, C) * (1 + 1e-9)
    assert made.objective_value == pytest.approx(goal_value(made, C), rel=1e-6)


def test_the_bound_for_gaussian_noise_holds_for_laplace_noise_and_none_is_claimed_for_norms(fits):
    proven = fits["gaussian"].objective_bound  # which pairs of edges raise for Laplace noise
    assert proven * (1 - 2e-3) <= fits["laplace"].objective_bound <= 1.58 * proven
    assert fits["laplace"].objective_bound <= fits["laplace"].objective_value
    assert fits["norm"].objective_bound is None


@pytest.mark.parametrize("graph", ["unbounded:3x2x2", "sensitive:3x2x2:0"])
@pytest.mark.parametrize("goal", ["largest", "targets"])
def test_strategies_by_factors_agree_with_matrices_within_what_is_proven(graph, goal):
    asked = {"objective": "largest"} if goal == "largest" else {"targets": 2.0}
    factors = bf.fit("marginals:3x2x2:2", graph, family="marginals", **asked)
    matrix = bf.fit("marginals:3x2x2:2", graph, **asked)
    assert factors.family == "marginals"
    assert factors.objective_bound <= matrix.objective_value * (1 + 1e-9)
    assert matrix.objective_bound <= factors.objective_value * (1 + 1e-9)
    assert factors.certified  # tables of unequal weight: the best bound of all rounds is kept
    assert factors.objective_value == pytest.approx(matrix.objective_value, rel=2e-3)
    scale = 1.0 if goal == "largest" else 4.0
    assert factors.objective_value == pytest.approx(factors.unit_variances().max() / scale, rel=1e-9)


def residual_planner(sizes, order):
    """The least largest variance of all marginals of an order, by the closed forms of residual bases.

    A base for attributes A, measured with noise of variance s_A, costs prod_A (1 - 1/n) / s_A of squared sensitivity
    and gives a cell of the marginal on B, for A within B, a variance of s_A prod_A (1 - 1/n) prod_{B - A} 1/n^2.
    """
    inside = [A for k in range(order + 1) for A in itertools.combinations(range(len(sizes)), k)]
    share = {A: np.prod([1 - 1 / sizes[i] for i in A]) for A in inside}
    s = {A: cp.Variable(pos=True) for A in inside}
    worst = [
        sum(s[A] * share[A] / np.prod([sizes[i] ** 2 for i in set(B) - set(A)]) for A in inside if set(A) <= set(B))
        for B in itertools.combinations(range(len(sizes)), order)
    ]
    cost = sum(share[A] * cp.inv_pos(s[A]) for A in inside)
    return cp.Problem(cp.Minimize(cp.max(cp.hstack(worst))), [cost <= 1]).solve(solver=cp.CLARABEL)


@pytest.mark.parametrize(("sizes", "order"), [((3, 2, 2), 2), ((5, 3, 2), 1), ((4, 2, 3), 3)])
def test_the_largest_variance_of_marginals_by_table_is_that_of_residual_bases(sizes, order):
    shape = "x".join(map(str, sizes))
    made = bf.fit(f"marginals:{shape}:{order}", f"unbounded:{shape}", family="marginals", objective="largest")
    optimum = residual_planner(sizes, order)
    assert made.certified
    assert optimum * (1 - 1e-6) <= made.objective_value <= optimum * (1 + 1e-3)
    assert optimum * (1 - 1e-3) <= made.objective_bound <= optimum * (1 + 1e-6)


# Mistakes


def fitted(queries="prefix:4", graph="unbounded:4", **arguments):
    return lambda: bf.fit(queries, graph, **arguments)


INCREASING = "Use an increasing function of the variances"
ONE_NUMBER = "Return one number, made with jax.numpy"


@table(
    (fitted(objective=lambda v: -v.sum()), "derivative -1 by query 0", INCREASING),
    (fitted(objective=lambda v: v.sum() - 1.5 * v[2]), "derivative -0.5 by query 2", INCREASING),
    (fitted(objective=lambda v: 1.0), "derivative 0 by query 0", INCREASING),
    (fitted(objective=lambda v: v.sum() * jnp.nan), "value nan", INCREASING),
    (fitted(objective=lambda v: v.sum() / 0), "value inf", INCREASING),
    (fitted(objective=lambda v: jnp.log(v).mean() - 5), "must be positive", "Add a constant"),
    (fitted(objective=lambda v: v), "could not be differentiated", ONE_NUMBER),
    (fitted(objective=lambda v: np.sqrt(v).mean()), "could not be differentiated", ONE_NUMBER),
    (fitted(objective=lambda v: float(v[0])), "could not be differentiated", ONE_NUMBER),
    (fitted(objective=lambda v: v[v > 1].sum()), "could not be differentiated", ONE_NUMBER),
    (fitted(objective=lambda v: v[0] if v[0] > 1 else v[1]), "could not be differentiated", ONE_NUMBER),
    (fitted(objective=lambda v: v.astype(int).sum()), "could not be differentiated", ONE_NUMBER),
    (fitted(objective=lambda: 1.0), "could not be differentiated", ONE_NUMBER),
    (fitted(objective="largest", start=np.ones(4)), "neither start nor devices", "Leave start, devices and mesh out"),
    (fitted(objective="largest", devices=1), "neither start nor devices", "Leave start, devices and mesh out"),
    (
        fitted("marginals:2x2:1", "unbounded:2x2", family="marginals", objective=lambda v: v.sum()),
        "objective 'own'): is not for strategies by factors",
        "Use objective='largest' or targets",
    ),
    (
        fitted("marginals:2x2:1", "unbounded:2x2", family="marginals", objective="largest", groups=[0, 0, 1, 1]),
        "objective 'worst group'): is not for strategies by factors",
        "Use objective='largest' or targets",
    ),
)
def test_mistakes_are_told_in_words(case):
    assert_refused(*case)
