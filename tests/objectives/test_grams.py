"""Gram matrices that act without being formed, against W^T W written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import workload
from hdmm_bf.objectives import grams
from tests.objectives import cases, oracle

SIZES = [1, 2, 65, 600]


def ranges(n):
    i, j = np.indices((n, n))
    return (np.minimum(i, j) + 1.0) * (n - np.maximum(i, j))


def prefixes(n):
    i, j = np.indices((n, n))
    return n - np.maximum(i, j).astype(float)


CLOSED = {
    "ranges": (grams.RangesGram, ranges),
    "prefixes": (grams.PrefixGram, prefixes),
    "identity": (grams.IdentityGram, np.eye),
    "ones": (grams.OnesGram, lambda n: np.ones((n, n))),
}


@pytest.fixture(autouse=True)
def _in_float64():
    with jax.enable_x64(True):
        yield


def check(V, dense, tolerance=1e-11):
    """Everything a Gram matrix can do, against the matrix."""
    n = len(dense)
    rng = np.random.default_rng(n)
    Y, X = rng.normal(size=(3, n)), rng.normal(size=(n, n))
    X = X + X.T
    i, j = rng.integers(0, n, size=(2, 4, 5))
    large = np.abs(dense).max(initial=0)
    assert V.n == n
    rows, quadratic, entries, diagonal, trace, written = _all(V, Y, X, i, j)
    close(rows, Y @ dense, tolerance * n * large)
    close(quadratic, np.trace(Y @ dense @ Y.T), tolerance * n**2 * large)
    close(entries, dense[i, j], 1e-12 * large)
    close(diagonal, np.diag(dense), 1e-12 * large)
    close(trace, np.vdot(dense, X), tolerance * n**2 * large)
    close(written, dense, 1e-12 * n * large)
    assert rows.dtype == diagonal.dtype == jnp.float64


@jax.jit
def _all(V, Y, X, i, j):
    """One program: compiling them one by one is nearly all of the time."""
    return V.rows(Y), V.quadratic(Y), V.entries(i, j), V.diagonal(), V.trace(X), V.dense()


def close(found, expected, tolerance):
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-11, atol=tolerance)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", CLOSED)
def test_closed_forms_are_the_matrix(kind, n):
    make, dense = CLOSED[kind]
    check(make(n), dense(n))


@pytest.mark.parametrize("n", [3, 6])
def test_the_oracle_of_closed_forms_is_that_of_the_queries(n):
    for name, dense in (("all-range", ranges), ("prefix", prefixes)):
        W = oracle.queries(f"{name}:{n}")
        np.testing.assert_array_equal(W.T @ W, dense(n))


@pytest.mark.parametrize("n", [1, 65])
@pytest.mark.parametrize("kind", CLOSED)
def test_half_of_a_closed_form_is_the_same_queries_over_half_as_many_cells(kind, n):
    make, dense = CLOSED[kind]
    check(make(n).halved(), dense((n + 1) // 2))


@pytest.mark.parametrize("n", [1, 2, 65])
def test_half_of_a_dense_matrix_is_every_second_cell(n):
    W = np.random.default_rng(n).normal(size=(n + 2, n))
    check(grams.DenseGram(jnp.asarray(W.T @ W)), W.T @ W)
    check(grams.DenseGram(jnp.asarray(W.T @ W)).halved(), (W.T @ W)[::2, ::2])


@pytest.mark.parametrize(("n", "m"), [(1, 5), (2, 65)])
def test_products_and_sums_are_those_of_the_matrices(n, m):
    product = grams.KroneckerGram((grams.RangesGram(n), grams.PrefixGram(m)))
    dense = np.kron(ranges(n), prefixes(m))
    check(product, dense)
    check(product.halved(), dense[::2, ::2])
    both = grams.SumGram((product, grams.IdentityGram(n * m)), jnp.asarray([0.25, 3.0]))
    check(both, 0.25 * dense + 3 * np.eye(n * m))
    parts = grams.SumGram((grams.RangesGram(m), grams.OnesGram(m)), jnp.asarray([2.0, 0.5]))
    check(parts.halved(), 2 * ranges((m + 1) // 2) + 0.5)
    three = grams.KroneckerGram((grams.OnesGram(2), grams.RangesGram(n), grams.IdentityGram(3)))
    check(three, np.kron(np.kron(np.ones((2, 2)), ranges(n)), np.eye(3)))


@pytest.mark.parametrize("n", [2, 65, 600])
def test_differences_are_those_of_the_columns(n):
    rng = np.random.default_rng(n)
    head, tail = rng.integers(0, n, size=40), rng.integers(-1, n, size=40)
    tail[:3] = -1
    M = np.zeros((n, 40))
    M[head, np.arange(40)] += 1
    M[tail[tail >= 0], np.flatnonzero(tail >= 0)] -= 1
    V = grams.DifferencesGram(grams.RangesGram(n), jnp.asarray(head), jnp.asarray(tail), 40)
    dense = M.T @ ranges(n) @ M
    check(V, dense, 1e-11 * n)
    check(V.halved(), dense[::2, ::2], 1e-11 * n)


@pytest.mark.parametrize(("W", "G"), cases.SPECS, ids=cases.names(cases.SPECS))
def test_a_problems_gram_matrix_is_that_of_the_grounded_queries(W, G):
    problem, rows, n, edges = cases.made(W, G)
    D = oracle.lift(n, edges)
    check(grams.problem_gram(problem), D.T @ rows.T @ rows @ D)
    moved = rows @ oracle.moves(n, edges)
    check(grams.problem_gram(problem, "edges"), moved.T @ moved)


@pytest.mark.parametrize(("W", "G"), cases.PRODUCTS, ids=cases.names(cases.PRODUCTS))
def test_over_products_the_gram_matrix_is_that_of_all_cells(W, G):
    problem, rows, *_ = cases.made(W, G)
    check(grams.problem_gram(problem, "products"), rows.T @ rows)


def test_custom_weighted_and_stacked_workloads_have_their_gram_matrix():
    n = 6
    own = np.random.default_rng(0).normal(size=(5, n))
    each = workload.weighted(workload.prefix(n), np.arange(1.0, n + 1))
    union = workload.union(workload.all_range(n), workload.weighted(workload.prefix(n), 3.0))
    A, B = oracle.queries("all-range:6"), oracle.queries("prefix:6")
    for W, V in (
        (workload.from_matrix(own), own.T @ own),
        (each, B.T @ np.diag(np.arange(1.0, n + 1) ** 2) @ B),
        (union, A.T @ A + 9 * B.T @ B),
    ):
        for G in ("unbounded:6", "line:6"):
            problem = bf.problem(W, G)
            D = oracle.lift(n, problem.policy.edges.tolist())
            check(grams.problem_gram(problem), D.T @ V @ D)
