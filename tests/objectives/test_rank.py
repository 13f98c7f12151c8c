"""Strategies that cannot answer, and mistakes: large and finite with gradient zero, or one sentence."""

import warnings

import jax
import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.objectives import (
    UNSUPPORTED,
    DiagonalAndRows,
    Free,
    PIdentity,
    Rows,
    dual_bound,
    minimise,
    sensitivity,
    total,
    variances,
)
from tests.objectives import cases
from tests.support.mistakes import assert_refused, table

PROBLEM = bf.problem("all-range:6", "threshold:6:2")
DEFICIENT = {
    "zero": np.zeros((7, 6)),
    "rank one": np.outer(np.arange(1.0, 8), np.arange(1.0, 7)),
    "duplicated rows": np.repeat(np.eye(6)[:2], 3, axis=0),
    "fewer rows": np.eye(6)[:3],
    "ones, which grounding removes": np.ones((7, 6)),
    "no rows": np.zeros((0, 6)),
}


@pytest.mark.parametrize(("norm", "x64"), [("L1", True), ("L1", False), ("L2", True), (None, True)])
@pytest.mark.parametrize("name", DEFICIENT)
def test_where_there_is_no_inverse_the_total_is_large_and_its_gradient_zero(name, norm, x64):
    """Quotes measures: Where A^T A has no inverse, total and variances are 1e250, with gradient zero."""
    A = DEFICIENT[name]
    with warnings.catch_warnings(), jax.enable_x64(x64):
        warnings.simplefilter("error")
        for smoothing in (None, (0.05, 10.0)):
            f = total(PROBLEM, norm=norm, smoothing=smoothing)
            assert float(f(A)) == UNSUPPORTED == 1e250
            assert float(total(PROBLEM, norm=norm, smoothing=smoothing, log=True)(A)) == pytest.approx(np.log(1e250))
            value, slope = jax.jit(jax.value_and_grad(f))(A)
            assert float(value) == 1e250
            assert np.all(np.asarray(slope) == 0)
        np.testing.assert_array_equal(variances(PROBLEM, norm)(A), np.full(21, 1e250))


@pytest.mark.parametrize("name", [name for name in DEFICIENT if name != "no rows"])
def test_where_there_is_no_inverse_the_gradient_of_variances_is_zero(name):
    """Quotes measures: Where A^T A has no inverse, total and variances are 1e250, with gradient zero."""
    f = variances(PROBLEM)
    with jax.enable_x64(True):
        assert np.all(np.asarray(jax.grad(lambda B: f(B).sum())(DEFICIENT[name])) == 0)


@pytest.mark.parametrize("name", DEFICIENT)
@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_sensitivities_and_their_gradients_are_finite_everywhere(name, norm):
    with jax.enable_x64(True):
        value, slope = jax.value_and_grad(sensitivity(PROBLEM, norm))(DEFICIENT[name])
    assert np.isfinite(value)
    assert np.all(np.isfinite(slope))


@pytest.mark.parametrize(("name", "norm"), [("zero", "L2"), ("no rows", "L1"), ("no rows", "L2")])
def test_smooth_sensitivities_of_nothing_are_zero(name, norm):
    assert float(sensitivity(PROBLEM, norm, smoothing=(0.05, 10.0))(DEFICIENT[name])) == 0


def test_rows_without_rank_are_told_too():
    assert float(total(PROBLEM)(Rows(np.zeros((3, 5))))) == 1e250


def test_a_diagonal_with_a_zero_has_a_finite_gradient():
    gone = DiagonalAndRows(np.array([0.0, 1, 1, 1, 1]), np.zeros((1, 5)))
    with jax.enable_x64(True):
        value, slope = jax.value_and_grad(total(PROBLEM))(gone)
    assert float(value) == 1e250
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(slope))


def test_a_diagonal_with_a_zero_is_unsupported_whatever_the_rows_restore():
    """Quotes DiagonalAndRows.trace: `UNSUPPORTED` where a scale is zero, whatever B restores."""
    A = DiagonalAndRows(np.array([0.0, 1, 1, 1, 1]), np.ones((1, 5)))
    assert float(total(PROBLEM)(A)) == 1e250
    assert float(total(PROBLEM)(np.vstack([np.diag(A.scale), A.B]))) < 1e4


def test_weights_without_rank_have_a_finite_bound_and_gradient():
    problem, *_ = cases.made("all-range:7", "threshold:7:2")
    mu = np.zeros(problem.policy.num_edges)
    mu[0] = 1.0
    with jax.enable_x64(True):
        value, slope = jax.value_and_grad(dual_bound(problem))(mu)
    assert np.isfinite(value)
    assert np.all(np.isfinite(slope))


def test_a_descent_from_a_strategy_without_rank_stays_there():
    found = minimise(total(PROBLEM, log=True), np.zeros((7, 6)), steps=5)
    assert found.value == pytest.approx(np.log(1e250))
    assert found.converged
    np.testing.assert_array_equal(found.parameters, 0)


@table(
    (lambda: total(PROBLEM)(np.eye(7)), "(7, 7)", "Give one column for each of the 6 cells."),
    (lambda: total(PROBLEM)(np.eye(4)), "(4, 4)", "Give one column for each of the 6 cells."),
    (lambda: total(PROBLEM)(np.ones(6)), "(6,)", "Give one column for each of the 6 cells."),
    (lambda: total(PROBLEM)(np.ones((2, 7, 6))), "(2, 7, 6)", "Give one column for each of the 6 cells."),
    (lambda: variances(PROBLEM)(np.eye(7)), "(7, 7)", "Give one column for each of the 6 cells."),
    (lambda: sensitivity(PROBLEM)(np.eye(7)), "(7, 7)", "Give one column for each of the 6 cells."),
    (lambda: jax.jit(total(PROBLEM))(np.eye(7)), "(7, 7)", "Give one column for each of the 6 cells."),
    (lambda: total(PROBLEM, norm="L3"), "norm='L3'", "Use L1 for Laplace noise, L2 for Gaussian."),
    (lambda: sensitivity(PROBLEM, "l1"), "norm='l1'", "Use L1 for Laplace noise, L2 for Gaussian."),
    (lambda: variances(PROBLEM, "L0"), "norm='L0'", "Use L1 for Laplace noise, L2 for Gaussian."),
    (lambda: total(PROBLEM, over="vertices"), "over='vertices'", 'Use "cells"'),
    (lambda: minimise(lambda t: t.sum(), np.ones(2), method="newton"), "method='newton'", 'Use "lbfgs"'),
    (lambda: minimise(lambda t: t.sum(), np.ones(2), steps=0), "steps=0", "steps=1000"),
    (lambda: minimise(lambda t: t.sum(), np.ones(2), steps=1.5), "steps=1.5", "steps=1000"),
    (lambda: total(bf.problem("all-range:6", "cycle:6"), over="edges")(np.eye(5)), "(5, 5)", "6"),
)
def test_what_does_not_fit_is_refused_with_one_sentence(case):
    assert_refused(*case)


@table(
    (lambda: total(PROBLEM, norm=None, over="vertices"), "over='vertices'", 'Use "cells"'),
    (lambda: dual_bound(PROBLEM)(np.ones(3)), "3", ""),
    (lambda: total(PROBLEM)(Rows(np.eye(9))), "9", ""),
    (lambda: total(PROBLEM).of(PIdentity(2, 9))(np.ones((2, 9))), "9", ""),
)
def test_what_does_not_fit_is_refused_with_one_sentence_here_too(case):
    assert_refused(*case)


def test_the_example_of_the_module_runs():
    """Quotes hdmm_bf.objectives: Free(70, 64) for all-range:64 under threshold:64:4."""
    problem = bf.problem("all-range:64", "threshold:64:4")
    loss = total(problem, norm="L1", smoothing=(1e-3, 100), log=True).of(Free(70, 64))
    assert np.isfinite(float(loss(Free(70, 64).init(0))))
