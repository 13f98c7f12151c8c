"""Implicit matrices against their dense form."""

import numpy as np
import pytest
import scipy.sparse as sp

from hdmm_bf.matrix import Dense, Identity, Incidence, Kronecker, Ones, Sparse, Stack, Weighted
from hdmm_bf.workload import AllRange, Boxes, Prefix
from tests.support import oracles
from tests.support.mistakes import assert_refused

RNG = np.random.default_rng(0)
ARRAY = RNG.normal(size=(3, 4))
BOXES = Boxes((3, 4), np.array([[0, 1], [1, 1], [2, 3]]), np.array([[2, 3], [1, 2], [2, 3]]))

# (implicit, its definition written out)
PAIRS = {
    "dense": (Dense(ARRAY), ARRAY),
    "sparse": (Sparse(sp.csr_array(ARRAY)), ARRAY),
    "identity": (Identity(4), np.eye(4)),
    "ones": (Ones(4), np.ones((1, 4))),
    "prefix": (Prefix(5), oracles.prefix_rows((5,))),
    "all ranges": (AllRange(5), oracles.all_range_rows((5,))),
    "kronecker": (Kronecker((Prefix(3), Dense(ARRAY), Ones(2))), np.kron(np.kron(np.tri(3), ARRAY), np.ones((1, 2)))),
    "stack": (Stack((Identity(4), Dense(ARRAY), Ones(4))), np.vstack([np.eye(4), ARRAY, np.ones((1, 4))])),
    "weighted": (Weighted(np.array([1.0, -2.0, 0.5]), Dense(ARRAY)), np.diag([1, -2, 0.5]) @ ARRAY),
    "weighted alike": (Weighted(np.array([3.0]), Prefix(4)), 3 * np.tri(4)),
    "incidence": (
        Incidence(np.array([0, 1, 2]), np.array([1, -1, 0]), 3),
        np.array([[1, 0, -1], [-1, 1, 0], [0, 0, 1]]),
    ),
    "ranges of two attributes": (
        Kronecker((AllRange(2), AllRange(3))),
        np.kron(AllRange(2).dense(), AllRange(3).dense()),
    ),
    "ranges of three attributes": (
        Kronecker((AllRange(2), Prefix(2), AllRange(2))),
        np.kron(np.kron(AllRange(2).dense(), np.tri(2)), AllRange(2).dense()),
    ),
    "boxes": (
        BOXES,
        np.array(
            [
                [0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1],
                [0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0],
                [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            ]
        ),
    ),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_implicit_matrices_do_what_their_dense_form_does(kind):
    implicit, dense = PAIRS[kind]
    m, n = dense.shape
    assert implicit.shape == (m, n)
    assert implicit.nnz >= np.count_nonzero(dense)
    right, left = RNG.normal(size=(n, 2)), RNG.normal(size=(m, 2))
    C = np.cov(RNG.normal(size=(n, 2 * n)))
    np.testing.assert_allclose(implicit.quadratic(np.atleast_2d(C)), np.diag(dense @ C @ dense.T), atol=1e-12)
    weights = np.linspace(-1, 2, len(dense))
    np.testing.assert_allclose(implicit.weighted_gram(weights), dense.T @ (weights[:, None] * dense), atol=1e-12)
    np.testing.assert_allclose(implicit.dense(), dense, atol=1e-14)
    np.testing.assert_allclose(implicit.sparse().toarray(), dense, atol=1e-14)
    np.testing.assert_allclose(implicit.gram(), dense.T @ dense, atol=1e-12)
    np.testing.assert_allclose(implicit.mv(right), dense @ right, atol=1e-12)
    np.testing.assert_allclose(implicit.mv(right[:, 0]), dense @ right[:, 0], atol=1e-12)
    np.testing.assert_allclose(implicit.rmv(left), dense.T @ left, atol=1e-12)
    np.testing.assert_allclose(implicit.rmv(left[:, 0]), dense.T @ left[:, 0], atol=1e-12)
    for i in range(m):
        np.testing.assert_allclose(implicit.row(i), dense[i], atol=1e-14)


@pytest.mark.parametrize("kind", PAIRS)
def test_variances_come_from_a_covariance_where_there_is_a_closed_form(kind):
    """Quotes from_quadratic: where C is returned, quadratic(C) is what was asked for."""
    implicit, dense = PAIRS[kind]
    variances = np.linspace(-1, 2, len(dense))
    C = implicit.from_quadratic(variances)
    assert (C is not None) == (kind in ("identity", "prefix", "all ranges"))
    if C is not None:
        np.testing.assert_allclose(C, C.T, atol=1e-14)
        np.testing.assert_allclose(np.diag(dense @ C @ dense.T), variances, atol=1e-12)


def test_variances_of_another_number_of_rows_are_refused():
    assert_refused(lambda: Prefix(3).from_quadratic(np.ones(4)), "4 variances", "Give one for each row.")


@pytest.mark.parametrize("kind", ["identity", "ones", "prefix", "all ranges", "incidence", "boxes"])
def test_integers_stay_integers_beyond_what_floats_can_hold(kind):
    implicit, dense = PAIRS[kind]
    counts = np.full(dense.shape[1], 2**53 + 1, dtype=np.int64)
    expected = [sum(int(a) * int(c) for a, c in zip(row, counts, strict=True)) for row in dense]
    assert implicit.mv(counts).tolist() == expected
