"""Objectives against their definitions, dense and by pseudo-inverse: all strategies, norms and kinds of columns."""

import itertools

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.bounds import dense as bounds
from hdmm_bf.objectives import (
    DiagonalAndRows,
    PIdentity,
    ProductPrecisions,
    Rows,
    dual_bound,
    product_bases,
    sensitivity,
    total,
    variances,
)
from tests.objectives import cases, oracle

PAIRS = pytest.mark.parametrize(("W", "G"), cases.SPECS, ids=cases.names(cases.SPECS))
NORMS = pytest.mark.parametrize("norm", ["L1", "L2"])


@PAIRS
@NORMS
def test_objectives_of_arrays_are_their_definitions_over_all_and_over_kept_cells(W, G, norm):
    problem, rows, n, edges = cases.made(W, G)
    plain = bf.problem(rows, problem.policy)
    D = oracle.lift(n, edges)
    error, log_error = total(problem, norm=norm), total(problem, norm=norm, log=True)
    width, each = sensitivity(problem, norm), variances(plain, norm)
    for seed in range(2):
        A = cases.strategy(n, seed)
        expected = oracle.total(rows, A, n, edges, norm)
        for given in (A, A @ D, Rows(A @ D)):
            assert float(error(given)) == pytest.approx(expected, rel=1e-9)
            assert float(log_error(given)) == pytest.approx(np.log(expected), rel=1e-10)
            assert float(width(given)) == pytest.approx(oracle.sensitivity(A, n, edges, norm), rel=1e-12)
            found = each(given)
            np.testing.assert_allclose(found, oracle.variances(rows, A, n, edges, norm), rtol=1e-8)
            assert float(np.asarray(found).sum()) == pytest.approx(expected, rel=1e-9)
        assert float(total(problem, norm=None)(A)) == pytest.approx(oracle.trace(rows, A, D), rel=1e-9)
        bare = variances(plain, None)(A)
        assert float(np.asarray(bare).sum()) == pytest.approx(oracle.trace(rows, A, D), rel=1e-9)


@PAIRS
@NORMS
def test_a_diagonal_and_rows_is_the_matrix_written_out(W, G, norm):
    problem, rows, n, edges = cases.made(W, G)
    D = oracle.lift(n, edges)
    rng = np.random.default_rng(1)
    k = D.shape[1]
    for p in (1, 3):
        A = DiagonalAndRows(rng.uniform(0.5, 2, k), rng.normal(size=(p, k)))
        dense = np.vstack([np.diag(A.scale), A.B])
        np.testing.assert_array_equal(A.dense(), dense.astype(A.dense().dtype))
        over_cells = dense @ kept(n, edges)
        expected = oracle.total(rows, over_cells, n, edges, norm)
        assert float(total(problem, norm=norm)(A)) == pytest.approx(expected, rel=1e-9)
        found = float(sensitivity(problem, norm)(A))
        assert found == pytest.approx(oracle.sensitivity(over_cells, n, edges, norm), rel=1e-12)


def kept(n, edges):
    """The rows of the identity that belong to kept cells: strategies over these, written over all cells."""
    gone = oracle.given_up(n, edges)
    return np.eye(n)[[cell for cell in range(n) if cell not in gone]]


@PAIRS
@NORMS
def test_over_edges_the_columns_are_measured_themselves(W, G, norm):
    problem, rows, n, edges = cases.made(W, G)
    moved, e = rows @ oracle.moves(n, edges), len(edges)
    S = cases.strategy(e)
    width = np.linalg.norm(S, {"L1": 1, "L2": 2}[norm], axis=0).max()
    expected = width**2 * np.linalg.norm(moved @ np.linalg.pinv(S)) ** 2
    assert float(total(problem, norm=norm, over="edges")(S)) == pytest.approx(expected, rel=1e-9)
    assert float(sensitivity(problem, norm, over="edges")(S)) == pytest.approx(width, rel=1e-12)


@pytest.mark.parametrize(("W", "G"), cases.PRODUCTS, ids=cases.names(cases.PRODUCTS))
def test_product_precisions_are_the_strategy_written_out(W, G):
    problem, rows, n, edges = cases.made(W, G)
    parametrisation = product_bases(problem)
    rng = np.random.default_rng(2)
    start = parametrisation.init(3)
    columns = tuple(np.asarray(part) + 0.2 * rng.normal(size=part.shape) for part in start.columns)
    bases = tuple(
        np.concatenate([np.asarray(fixed), free], axis=1)
        for fixed, free in zip(parametrisation.pinned, columns, strict=True)
    )
    M, public = rng.uniform(0.3, 3, start.logs.shape), np.asarray(parametrisation.public)
    A = ProductPrecisions(bases, M, public)
    S = np.ones((1, 1))
    for basis in bases:
        S = np.kron(S, basis)
    dense = np.sqrt(M.ravel())[:, None] * S.T
    np.testing.assert_allclose(A.dense(), dense, rtol=1e-5)
    expected = oracle.total(rows, dense, n, edges, "L2")
    assert float(total(problem, norm="L2", over="products")(A)) == pytest.approx(expected, rel=1e-9)
    found = float(sensitivity(problem, "L2", over="products")(A))
    assert found == pytest.approx(oracle.sensitivity(dense, n, edges, "L2"), rel=1e-12)


@PAIRS
def test_the_dual_bound_is_its_definition_and_that_of_certificates(W, G):
    problem, rows, n, edges = cases.made(W, G)
    for seed in range(3):
        mu = np.random.default_rng(seed).uniform(0.1, 2, len(edges))
        found = float(dual_bound(problem)(mu))
        assert found == pytest.approx(oracle.dual_bound(rows, n, edges, mu), rel=1e-10)
        assert found == pytest.approx(bounds.dual_bound(problem, mu), rel=1e-10)
        assert float(dual_bound(problem)(7 * mu)) == pytest.approx(found, rel=1e-12)


def test_edges_without_weight_leave_the_dual_bound_its_digits():
    problem, rows, n, edges = cases.made("prefix:6", "unbounded:6")
    for seed in range(10):
        mu = np.random.default_rng(seed).uniform(0, 2, len(edges))
        mu[seed % 6] = 0
        for scale in (1.0, 7.0):
            found = float(dual_bound(problem)(scale * mu))
            assert found == pytest.approx(oracle.dual_bound(rows, n, edges, mu), rel=1e-10)


@PAIRS
def test_no_strategy_is_below_the_dual_bound(W, G):
    """Quotes dual_bound: No strategy of L2 (hence of L1) sensitivity 1 has a smaller total."""
    problem, _, n, edges = cases.made(W, G)
    best = max(float(dual_bound(problem)(np.random.default_rng(s).uniform(0.1, 1, len(edges)))) for s in range(5))
    for seed, norm in itertools.product(range(5), ("L1", "L2")):
        assert float(total(problem, norm=norm)(cases.strategy(n, seed))) >= best


@NORMS
def test_smoothing_is_its_definition_and_tends_to_the_largest(norm):
    problem, _, n, edges = cases.made("all-range:7", "threshold:7:2")
    A = cases.strategy(n)
    moved = A @ oracle.moves(n, edges)
    eta, q = 0.05, 12.0
    norms = np.sqrt(moved**2 + eta**2).sum(axis=0) if norm == "L1" else np.linalg.norm(moved, axis=0)
    found = float(sensitivity(problem, norm, smoothing=(eta, q))(A))
    assert found == pytest.approx((norms**q).sum() ** (1 / q), rel=1e-12)
    sharp = float(sensitivity(problem, norm, smoothing=(1e-9, 1e7))(A))
    assert sharp == pytest.approx(oracle.sensitivity(A, n, edges, norm), rel=1e-6)
    again = total(problem, norm=norm).smoothed(eta, q)
    assert float(again(A)) == pytest.approx(float(total(problem, norm=norm, smoothing=(eta, q))(A)), rel=1e-14)


def test_one_heavy_entry_costs_the_digits_that_the_record_says():
    """Quotes DiagonalAndRows: loses digits where a column of R is large, a share of about 2e-16 max R^2."""
    problem, rows, n, edges = cases.made("all-range:8", "unbounded:8")
    roots = np.full((2, n), 1e-4)
    roots[1, 5] = 400.0
    A = np.vstack([np.eye(n), roots**2])
    expected = oracle.total(rows, A / A.sum(axis=0), n, edges, "L1")
    assert float(total(problem, norm=None).of(PIdentity(2, n))(roots)) == pytest.approx(expected, rel=2e-16 * 400.0**4)
