"""Roots and inverses by products alone: those of SciPy, and bounds that hold however far the iteration came."""

import jax
import numpy as np
import pytest
import scipy.linalg

from hdmm_bf.parallel import devices as dv
from hdmm_bf.parallel import roots
from tests.support.on_devices import spd


@pytest.fixture(scope="module")
def mesh():
    return dv.as_mesh(1, None)


@pytest.fixture(scope="module")
def rooted(mesh):
    def program(S, floor):
        found = roots.square_root(S, floor[0])
        return found.trace, found.residual, found.steps, found.root, found.inverse

    run = dv.on_rows(mesh, program, replicated=3, spread=2)

    def call(S, floor=1e-12):
        with jax.enable_x64(True):
            trace, residual, steps, root, inverse = map(np.asarray, run(S, np.array([floor])))
        return float(trace), float(residual), int(steps), root, inverse

    return call


@pytest.mark.parametrize("floor", [1e-14, 1e-6, 1.0])
@pytest.mark.parametrize("condition", [1.0, 1e2, 1e6, 1e10])
def test_roots_by_products_are_those_of_scipy(rooted, condition, floor):
    """An inverse root magnifies rounding of S by its condition number, whoever computes it."""
    S = 3.7 * spd(40, condition, np.random.default_rng(1))
    _, _, steps, root, inverse = rooted(S, floor)
    assert steps < roots.MOST_STEPS
    np.testing.assert_allclose(root, scipy.linalg.sqrtm(S), rtol=0, atol=1e-11)
    values, Q = np.linalg.eigh(S)
    expected = (Q / np.sqrt(values)) @ Q.T
    np.testing.assert_allclose(inverse, expected, rtol=0, atol=1e-15 * 40 * condition * np.abs(expected).max() + 1e-13)


@pytest.mark.parametrize("condition", [1.0, 1e3, 1e8, 1e12, 1e15])
def test_the_bounds_of_a_root_hold_however_far_it_came(rooted, condition):
    """Quotes square_root: tr S^(1/2) >= t / sqrt(1 + r), and the inverse's trace is at most t / (1 - r)."""
    S = spd(40, condition, np.random.default_rng(2))
    trace, residual, _, _, inverse = rooted(S)
    exact = np.sqrt(np.geomspace(1, 1 / condition, 40)).sum()
    assert trace / np.sqrt(1 + residual) <= exact * (1 + 1e-12)
    if residual < 1:
        assert np.trace(np.linalg.inv(inverse)) <= trace / (1 - residual) * (1 + 1e-12)


def test_the_bound_of_a_root_holds_for_any_symmetric_matrix():
    """The proof behind it: tr(Z S) <= tr S^(1/2) whenever Z S Z <= 1."""
    rng = np.random.default_rng(3)
    S = spd(12, 1e4, rng)
    for size in (1e-3, 1e-1, 1.0):
        Z = np.linalg.inv(scipy.linalg.sqrtm(S)) + size * np.diag(rng.normal(size=12))
        r = np.linalg.norm(Z @ S @ Z - np.eye(12))
        assert np.trace(Z @ S) / np.sqrt(1 + r) <= np.trace(scipy.linalg.sqrtm(S))


@pytest.fixture(scope="module")
def inverted(mesh):
    def program(K, start):
        Y, far = roots.inverse(K, start)
        return far, Y

    run = dv.on_rows(mesh, program, replicated=1, spread=1)

    def call(K, start):
        with jax.enable_x64(True):
            far, Y = run(K, start)
        return float(far), np.asarray(Y)

    return call


@pytest.mark.parametrize("size", [0.0, 0.01, 0.3])
def test_inverses_by_products_are_exact_near_their_start(inverted, size):
    """Quotes inverse: tr K^-1 is at most the result's trace / (1 - r)."""
    rng = np.random.default_rng(4)
    K0 = spd(30, 1e3, rng)
    half = scipy.linalg.sqrtm(K0)
    turn = rng.normal(size=(30, 30))
    K = half @ (np.eye(30) + size * (turn + turn.T) / np.linalg.norm(turn + turn.T, 2)) @ half
    far, Y = inverted(K, np.linalg.inv(K0))
    assert far < 1e-9
    np.testing.assert_allclose(Y, np.linalg.inv(K), rtol=0, atol=1e-8 * np.abs(Y).max())
    assert np.trace(np.linalg.inv(K)) <= np.trace(Y) / (1 - far) * (1 + 1e-12)


def test_a_matrix_that_is_not_positive_definite_has_no_small_residual(inverted):
    """Quotes inverse: a residual r < 1 shows that K is positive definite."""
    K = np.diag(np.append(np.ones(9), -0.1))
    far, _ = inverted(K, np.eye(10))
    assert not far < 1
