"""The minimiser: its guarantees, SciPy's minima, methods of optax, bounds, limits, and programs compiled once."""

import json
import math
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.optimize

from hdmm_bf.objectives import Minimum, PIdentity, limits, minimise, total
from hdmm_bf.objectives.descent import descend, minimising
from tests.objectives import cases

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(7)


def bowl(n=12, condition=1e3):
    """A convex quadratic with its minimum, as a loss of JAX and of NumPy."""
    Q = np.linalg.qr(RNG.normal(size=(n, n)))[0]
    H, centre = (Q * np.geomspace(1, condition, n)) @ Q.T, RNG.normal(size=n)
    return lambda x: 0.5 * (x - centre) @ H @ (x - centre), centre, H


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def test_bowls_are_descended_to_their_minimum():
    for _ in range(3):
        f, centre, _ = bowl()
        found = minimise(f, np.zeros(12))
        assert isinstance(found, Minimum)
        assert found.converged
        assert found.value == pytest.approx(0, abs=1e-7)
        np.testing.assert_allclose(found.parameters, centre, atol=1e-3)


@pytest.mark.parametrize("n", [2, 10])
def test_rosenbrocks_valley_is_followed_as_scipy_does(n):
    start = np.full(n, -0.5)
    found = minimise(rosenbrock, start, steps=2000, tolerance=1e-14)
    theirs = scipy.optimize.minimize(rosenbrock, start, jac=scipy.optimize.rosen_der, method="L-BFGS-B")
    assert found.value <= theirs.fun + 1e-7
    np.testing.assert_allclose(found.parameters, np.ones(n), atol=1e-3)


def test_bounded_bowls_end_where_scipys_l_bfgs_b_does():
    """Quotes minimise: nonnegative: keep every parameter at or above zero."""
    for _ in range(3):
        f, centre, H = bowl(condition=50)
        found = minimise(f, np.ones(12), nonnegative=True, tolerance=1e-14)
        theirs = scipy.optimize.minimize(
            lambda x, f=f: float(f(x)),
            np.ones(12),
            jac=lambda x, H=H, c=centre: H @ (x - c),
            method="L-BFGS-B",
            bounds=[(0, None)] * 12,
            options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 5000},
        )
        assert found.parameters.min() >= 0
        assert found.value == pytest.approx(theirs.fun, rel=1e-6, abs=1e-9)
        np.testing.assert_allclose(found.parameters, theirs.x, atol=1e-3)


def test_a_start_below_the_bound_is_brought_to_it():
    found = minimise(lambda x: ((x + 1) ** 2).sum(), np.array([-3.0, 2.0]), nonnegative=True)
    np.testing.assert_allclose(found.parameters, 0, atol=1e-9)
    assert found.value == pytest.approx(2)


METHODS = {"lbfgs": "lbfgs", "adam": optax.adam(0.05), "optax lbfgs": optax.lbfgs(), "wild": optax.sgd(1e3)}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("nonnegative", [False, True])
def test_the_result_is_never_worse_than_the_start_and_is_where_it_says(method, nonnegative):
    """Quotes minimise: The result is never worse than the start."""
    problem, *_ = cases.made("prefix:6", "unbounded:6")
    f = total(problem, norm=None, log=True).of(PIdentity(2, 6, 1 if nonnegative else 2))
    for seed in range(2):
        start = np.random.default_rng(seed).uniform(0, 1, (2, 6))
        found = minimise(f, start, steps=15, method=METHODS[method], nonnegative=nonnegative)
        assert found.value <= float(f(start)) * (1 + 1e-12)
        assert float(f(found.parameters)) == pytest.approx(found.value, rel=1e-6)
        assert 0 < found.steps <= 15
        assert not nonnegative or found.parameters.min() >= 0


@pytest.mark.parametrize("method", [optax.adam(0.1), optax.lbfgs()], ids=["adam", "lbfgs"])
def test_methods_of_optax_find_the_minimum(method):
    found = minimise(
        lambda t: ((t["a"] - 2) ** 2).sum() + (t["b"] + 1) ** 2, {"a": np.zeros(3), "b": 0.0}, method=method
    )
    np.testing.assert_allclose(found.parameters["a"], 2, atol=1e-3)
    np.testing.assert_allclose(found.parameters["b"], -1, atol=1e-3)


def test_parameters_come_back_like_the_start():
    start = {"a": np.zeros((2, 3)), "b": (np.ones(2), np.array(3.0))}
    found = minimise(lambda t: (t["a"] ** 2).sum() + ((t["b"][0] - 5) ** 2).sum() + (t["b"][1] - 1) ** 2, start)
    assert jax.tree.structure(found.parameters) == jax.tree.structure(start)
    assert [np.shape(leaf) for leaf in jax.tree.leaves(found.parameters)] == [(2, 3), (2,), ()]
    np.testing.assert_allclose(found.parameters["b"][0], 5, atol=1e-6)
    np.testing.assert_array_equal(start["a"], 0)


def test_converged_says_whether_the_descent_stopped_by_itself():
    """Quotes Minimum: whether the descent stopped by itself, because a step gained too little."""
    cut = minimise(rosenbrock, np.full(10, -0.5), steps=3)
    assert (cut.steps, cut.converged) == (3, False)
    assert minimise(rosenbrock, np.ones(10), steps=3).converged
    assert minimise(rosenbrock, np.full(10, -0.5), steps=5000).converged


def test_a_loss_that_cannot_be_evaluated_somewhere_is_turned_back_from():
    found = minimise(lambda x: (x - jnp.log(x)).sum(), np.array([0.05, 8.0]))
    np.testing.assert_allclose(found.parameters, 1, atol=1e-4)
    assert found.value == pytest.approx(2)


def test_a_descent_that_has_not_begun_has_an_infinite_loss():
    """Quotes minimise: where it has not begun, the loss returned is infinite."""
    with limits.limited(-math.inf):
        found = minimise(rosenbrock, np.zeros(3))
    assert (found.value, found.steps, found.converged) == (math.inf, 0, False)
    np.testing.assert_array_equal(found.parameters, 0)


def test_a_loss_with_its_own_gradient_is_descended_too():
    f, centre, H = bowl()
    found = descend(lambda x: (float(f(x)), H @ (x - centre)), np.zeros(12), steps=500)
    np.testing.assert_allclose(found.parameters, centre, atol=1e-3)


def test_a_descent_in_parts_is_the_descent_without():
    """Quotes minimising: the same as one without parts, bit for bit, with what it knows of the curvature."""
    f, _, _ = bowl()
    whole = minimise(f, np.ones(12), steps=20, nonnegative=True, tolerance=0.0)
    parts = list(minimising(f, np.ones(12), parts=(3, 7, 10), nonnegative=True, tolerance=0.0))
    assert [found.steps for found in parts] == [3, 10, 20]
    assert parts[0].value > parts[1].value > parts[2].value
    np.testing.assert_array_equal(parts[-1].parameters, whole.parameters)


def test_parts_end_where_the_descent_converges_or_has_not_begun():
    """Quotes minimising: at a limit it ends where it is."""
    f, centre, _ = bowl(condition=1.0)
    (found,) = minimising(f, np.zeros(12), parts=(50, 50))
    assert found.converged
    np.testing.assert_allclose(found.parameters, centre, atol=1e-5)
    with limits.limited(-math.inf):
        (found,) = minimising(f, np.zeros(12), parts=(50, 50))
    assert (found.value, found.steps, found.converged) == (math.inf, 0, False)


@pytest.mark.parametrize("x64", [True, False], ids=["x64", "x32"])
def test_the_callers_precision_is_left_alone_and_does_not_matter(x64):
    f, centre, _ = bowl()
    with jax.enable_x64(x64):
        before = dict(jax.config.values)
        found = minimise(f, np.zeros(12, dtype=np.float32), tolerance=1e-15)
        assert dict(jax.config.values) == before
    assert found.parameters.dtype == np.float64
    np.testing.assert_allclose(found.parameters, centre, atol=1e-5)


PROGRAMS = """
import jax, numpy as np, hdmm_bf as bf
from hdmm_bf.objectives import Free, PIdentity, cell_budgets, minimise, total

count = 0

def heard(event, seconds, **_):
    global count
    count += event == "/jax/core/compile/backend_compile_duration"

jax.monitoring.register_event_duration_secs_listener(heard)

def losses(W, eta):
    problem = bf.problem(W, "threshold:8:2")
    smooth = total(problem, smoothing=(eta, 10.0), log=True).of(Free(9, 7))
    bare = total(problem, norm=None, log=True)
    budgets = cell_budgets(problem, 2)
    return [(smooth, np.eye(9, 7)), (bare.of(PIdentity(2, 7)), np.ones((2, 7))), (bare.of(budgets), budgets.init(0))]

first = losses("all-range:8", 0.1)
counts = []
for made in (first, losses("all-range:8", 0.02), first):
    count = 0
    for loss, start in made:
        minimise(loss, start, steps=4)
    counts.append(count)
print(counts)
"""


def test_a_second_descent_of_the_same_shapes_compiles_nothing():
    """Another smoothing is another number, not another program."""
    run = subprocess.run([sys.executable, "-c", PROGRAMS], capture_output=True, text=True, check=True, cwd=ROOT)
    first, second, third = json.loads(run.stdout)
    assert first > 0
    assert (second, third) == (0, 0)
