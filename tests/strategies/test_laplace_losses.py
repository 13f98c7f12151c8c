"""Laplace strategies: what the losses of the families say of their strategies, and the descents on them."""

import itertools
import math

import jax
import numpy as np
import optax
import pytest

from hdmm_bf._linalg import in_float64
from hdmm_bf.objectives import CellBudgets, Free, PIdentity, Split, UnitColumns, cell_budgets, minimise, total
from hdmm_bf.objectives.descent import value_and_gradient
from hdmm_bf.strategies.drafts import draft
from hdmm_bf.strategies.laplace import cell_budgets as budget
from tests.support.laplace import exact_error, problem

RNG = np.random.default_rng(5)


def loss_cases():
    made = problem("all-range:6", "threshold:6:2")
    e, n, N = made.policy.num_edges, len(made.gram), len(budget.with_grounds(made))
    over_edges = total(made, norm=None, over="edges", log=True)
    smooth = total(made, smoothing=(0.05, 20.0), log=True)
    return {
        "p-identity": (over_edges.of(PIdentity(3, e)), RNG.uniform(0.2, 1, (3, e))),
        "free": (over_edges.of(UnitColumns(e + 3, e)), Split(*RNG.uniform(0.1, 1, (2, e + 3, e)))),
        "budget": (total(made, norm=None, log=True).of(cell_budgets(made, 3)), Split(*RNG.uniform(0.1, 1, (2, 3, N)))),
        "vertex": (smooth.of(Free(n + 2, n)), RNG.normal(size=(n + 2, n))),
    }


@pytest.mark.parametrize("name", ["p-identity", "free", "budget", "vertex"])
def test_gradients_agree_with_finite_differences(name):
    loss, parameters = loss_cases()[name]
    leaves, structure = jax.tree.flatten(parameters)
    variables = np.array(leaves)

    def packed(v):
        return jax.tree.unflatten(structure, list(v))

    value = in_float64(lambda v: float(jax.jit(loss)(packed(v))))
    slope = in_float64(lambda: np.array(jax.tree.leaves(jax.jit(jax.grad(loss))(packed(variables)))))()
    for index in list(itertools.product(*map(range, variables.shape)))[::5]:
        step = np.zeros_like(variables)
        step[index] = 1e-6
        finite = (value(variables + step) - value(variables - step)) / 2e-6
        assert slope[index] == pytest.approx(finite, rel=1e-4, abs=1e-7)


def test_the_p_identity_loss_is_the_error_of_its_strategy():
    made = problem("all-range:6", "threshold:6:2")
    e = made.policy.num_edges
    roots = RNG.uniform(0.2, 1, (3, e))
    S = np.vstack([np.eye(e), roots**2])
    S = S / S.sum(axis=0)
    value = float(total(made, norm=None, over="edges", log=True).of(PIdentity(3, e))(roots))
    assert math.exp(value) == pytest.approx(exact_error(made, "edge", S), rel=1e-9)
    assert draft(made, "edge", S, norm="L1", origin="").error == pytest.approx(exact_error(made, "edge", S), rel=1e-9)


def test_the_budget_loss_bounds_the_error_of_its_strategy_and_is_exact_on_complete_graphs():
    for G, exact in (("bounded:6", True), ("threshold:6:2", False)):
        made = problem("all-range:6", G)
        D = budget.with_grounds(made)
        split = RNG.uniform(0.1, 1, (2, 3, len(D)))
        given = cell_budgets(made, 3, np.full(6, 0.5))
        assert isinstance(given, CellBudgets)
        value = math.exp(float(total(made, norm=None, log=True).of(given)(Split(*split))))
        A = np.vstack([np.eye(6), split[0] - split[1]]) / (1 + split.sum(axis=(0, 1))) * 0.5 @ D
        assert np.abs(A @ made.P.dense()).sum(axis=0).max() <= 1 + 1e-12
        assert exact_error(made, "vertex", A) <= value * (1 + 1e-9)
        if exact:
            trace = np.trace(made.gram @ np.linalg.inv(A.T @ A))
            assert value == pytest.approx(trace, rel=1e-9)


def test_the_smoothed_vertex_loss_tends_to_the_exact_error():
    made = problem("all-range:6", "threshold:6:2")
    A = RNG.normal(size=(8, 5))
    loss = total(made, smoothing=(1e-9, 1e7), log=True)
    value = float(loss(A))
    assert math.exp(value) == pytest.approx(exact_error(made, "vertex", A), rel=1e-5)
    assert float(loss(np.vstack([A, np.zeros((3, 5))]))) == pytest.approx(value, rel=1e-6)


def test_the_minimiser_never_ends_worse_than_it_started():
    """Quotes minimise: The result is never worse than the start."""
    loss = total(problem("all-range:8", "unbounded:8"), norm=None, over="edges", log=True).of(PIdentity(2, 8))
    for _ in range(3):
        roots = RNG.uniform(0, 1, (2, 8))
        found = minimise(loss, roots, steps=200)
        assert found.value <= float(loss(roots))
        again = float(value_and_gradient(loss, found.parameters)[0])
        rounding = 4e-16 * np.asarray(found.parameters).max() ** 4  # of Woodbury's difference, see DiagonalAndRows
        assert again == pytest.approx(found.value, rel=1e-9, abs=rounding)


@pytest.mark.parametrize("method", ["lbfgs", optax.lbfgs()], ids=["host", "device"])
def test_both_engines_descend_to_the_same_minimum_of_a_convex_loss(method):
    centre = np.linspace(-1, 1, 6)

    def bowl(x):
        return ((x - centre) ** 2).sum() + ((x - centre) ** 4).sum()

    found = minimise(bowl, np.ones(6), steps=60, method=method)
    assert found.value == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(found.parameters, centre, atol=1e-4)


def test_the_error_of_an_ill_conditioned_strategy_keeps_its_digits():
    """[I; Theta] with a huge row: squaring the condition number would lose half the digits."""
    made = problem("identity:4", "unbounded:4")
    A = np.vstack([1e-6 * np.eye(4), np.ones((1, 4)), np.diag([1, -1, 1, -1.0])])
    A[5:] *= 1e-5
    found = draft(made, "vertex", A, norm="L1", origin="")
    assert found.error == pytest.approx(exact_error(made, "vertex", A), rel=1e-9)
    assert draft(made, "vertex", np.ones((6, 4)), norm="L1", origin="").error == math.inf
    assert draft(made, "vertex", np.eye(4)[:3], norm="L1", origin="").error == math.inf
