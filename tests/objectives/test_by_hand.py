"""The loss of p-identity strategies by hand: the same as what JAX derives, for every Gram matrix."""

import jax
import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.objectives import by_hand, measures, parametrisations
from hdmm_bf.objectives.descent import minimise, value_and_gradient
from hdmm_bf.objectives.grams import DenseGram, OnesGram, SumGram, problem_gram

CASES = {
    "ranges": ("all-range:9", "unbounded:9", "edges"),
    "prefixes": ("prefix:9", "unbounded:9", "edges"),
    "identity": ("identity:9", "unbounded:9", "edges"),
    "edges of a line": ("all-range:9", "line:9", "edges"),
    "edges of a cycle": ("prefix:9", "cycle:9", "edges"),
    "grounded cells": ("all-range:9", "line:9", "cells"),
    "products": ("all-range:3x4", "unbounded:3x4", "products"),
    "unions of products": ("marginals:3x4:1", "unbounded:3x4", "products"),
    "written out": (np.random.default_rng(0).integers(-1, 2, (14, 6)), "unbounded:6", "edges"),
}


@pytest.fixture(autouse=True)
def _in_double():
    with jax.enable_x64(True):
        yield


def loss_of(V, power, log=True):
    return measures.total_of(V, log=log).of(parametrisations.PIdentity(0, V.n, power))


def gram(case):
    workload, policy, over = CASES[case]
    return problem_gram(bf.problem(workload, policy), over)


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_by_hand_is_what_jax_derives(case, power, log):
    V = gram(case)
    loss, roots = loss_of(V, power, log), np.random.default_rng(1).uniform(0, 1, (3, V.n))
    value, slope = value_and_gradient(loss, roots)
    found, by_hand_slope = by_hand.evaluation(loss)(roots)
    assert found == pytest.approx(float(value), rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(by_hand_slope, slope, rtol=0, atol=1e-12 * np.abs(slope).max())


@pytest.mark.parametrize("policy", ["unbounded:8", "bounded:8", "threshold:8:2", "line:8"])
@pytest.mark.parametrize(
    "workload", ["all-range:8", np.random.default_rng(0).integers(-1, 2, (14, 8))], ids=["ranges", "own"]
)
def test_cell_budgets_by_hand_are_what_jax_derives(workload, policy):
    problem = bf.problem(workload, policy)
    budgets = parametrisations.cell_budgets(problem, 3)
    loss = measures.total(problem, norm=None, log=True).of(budgets)
    start = budgets.init(4)
    start = type(start)(np.asarray(start.positive), np.asarray(start.negative))
    value, slope = value_and_gradient(loss, start)
    found, by_hand_slope = by_hand.evaluation(loss)(start)
    assert found == pytest.approx(float(value), abs=1e-12)
    for ours, theirs in zip(by_hand_slope, slope, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * np.abs(theirs).max())


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("case", ["ranges", "edges of a cycle", "written out"])
def test_matrices_with_unit_columns_by_hand_are_what_jax_derives(case, log):
    V, rng = gram(case), np.random.default_rng(2)
    matrices = parametrisations.UnitColumns(V.n + 3, V.n)
    loss = measures.total_of(V, log=log).of(matrices)
    start = parametrisations.Split(*rng.uniform(0, 1, (2, V.n + 3, V.n)))
    value, slope = value_and_gradient(loss, start)
    found, by_hand_slope = by_hand.evaluation(loss)(start)
    assert found == pytest.approx(float(value), rel=1e-10)
    for ours, theirs in zip(by_hand_slope, slope, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10 * np.abs(theirs).max())


def test_a_matrix_with_a_column_of_zeros_has_no_loss():
    V = gram("ranges")
    loss = measures.total_of(V).of(parametrisations.UnitColumns(V.n, V.n))
    zero = np.eye(V.n)
    zero[3] = 0
    value, slope = by_hand.evaluation(loss)(parametrisations.Split(zero, np.zeros_like(zero)))
    assert value == np.inf
    assert not slope.positive.any()
    assert not slope.negative.any()


def test_several_components_have_their_own_grounds():
    policy = bf.policy.from_edges([0, 1, 3, 4], [1, 2, 4, 5], 6)
    problem = bf.problem("all-range:6", policy)
    budgets = parametrisations.cell_budgets(problem, 2)
    assert budgets.budgets.size > budgets.group.size + 1
    start = budgets.init(1)
    start = type(start)(np.asarray(start.positive), np.asarray(start.negative))
    loss = measures.total(problem, norm=None, log=True).of(budgets)
    value, slope = value_and_gradient(loss, start)
    found, by_hand_slope = by_hand.evaluation(loss)(start)
    assert found == pytest.approx(float(value), abs=1e-12)
    np.testing.assert_allclose(by_hand_slope.positive, slope.positive, rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_gram_matrices_in_numpy_are_those_in_jax(case):
    V = gram(case)
    acting, i, j = by_hand.acting(V), *np.indices((V.n, V.n)).reshape(2, -1)
    dense = np.asarray(V.dense())
    np.testing.assert_allclose(acting.rows(np.eye(V.n)), dense, rtol=0, atol=1e-12 * np.abs(dense).max())
    np.testing.assert_allclose(acting.entries(i, j), dense.ravel(), rtol=0, atol=1e-12 * np.abs(dense).max())


def test_the_total_alone_and_sums_act_too():
    V = SumGram((OnesGram(5), DenseGram(np.diag(np.arange(1.0, 6)))), np.array([2.0, 0.5]))
    expected = 2 * np.ones((5, 5)) + 0.5 * np.diag(np.arange(1.0, 6))
    np.testing.assert_allclose(by_hand.acting(V).rows(np.eye(5)), expected)


def test_the_gradient_is_that_of_differences():
    loss = loss_of(gram("ranges"), 2)
    evaluate, roots = by_hand.evaluation(loss), np.random.default_rng(2).uniform(0, 1, (2, 9))
    _, slope = evaluate(roots)
    for k, i in ((0, 0), (1, 4), (0, 8)):
        step = np.zeros_like(roots)
        step[k, i] = 1e-6
        difference = (evaluate(roots + step)[0] - evaluate(roots - step)[0]) / 2e-6
        assert slope[k, i] == pytest.approx(difference, rel=1e-6, abs=1e-9)


def test_other_losses_are_left_to_jax():
    problem = bf.problem("all-range:4", "unbounded:4")
    identity = parametrisations.PIdentity(1, 4)
    assert by_hand.evaluation(measures.total(problem, norm=None, log=True).of(identity)) is not None
    assert by_hand.evaluation(measures.total(problem, log=True).of(identity)) is None, "with a sensitivity"
    assert by_hand.evaluation(measures.total(problem, norm=None, log=True).of(parametrisations.Free(4, 4))) is None
    assert by_hand.evaluation(lambda t: t.sum()) is None


def test_where_it_cannot_be_evaluated_the_loss_is_infinite_and_flat():
    value, slope = by_hand.evaluation(loss_of(gram("ranges"), 1))(np.full((2, 9), 1e200))
    assert value == np.inf
    assert not slope.any()


def test_descents_end_where_those_by_jax_end(monkeypatch):
    loss, start = loss_of(gram("prefixes"), 2), np.random.default_rng(3).uniform(0, 1, (2, 9))
    found = minimise(loss, start, steps=500, tolerance=1e-13)
    monkeypatch.setattr(by_hand, "evaluation", lambda loss: None)
    derived = minimise(loss, start, steps=500, tolerance=1e-13)
    assert found.value == pytest.approx(derived.value, abs=1e-6), "both stop where a step gains nothing"
