"""Quadratic forms over the edges against dense matrices and finite differences."""

import numpy as np

from hdmm_bf import policy, workload
from hdmm_bf._linalg import symmetric
from hdmm_bf.problem.forms import edge_forms, row_sums
from hdmm_bf.problem.transform import Problem
from tests.support import instances


def forms_and_incidence(p):
    made = Problem(workload.identity(p.domain), p)
    return edge_forms(made.P), made.P.dense()


def random_definite(k, seed):
    M = np.random.default_rng(seed).normal(size=(k, k))
    return np.asfortranarray(M @ M.T + np.eye(k))


@instances.given_policies()
def test_both_forms_are_what_their_formulas_say(p):
    forms, P = forms_and_incidence(p)
    if P.size == 0:
        return
    mu = np.random.default_rng(1).uniform(size=p.num_edges)
    np.testing.assert_allclose(symmetric(forms.laplacian(mu)), P @ np.diag(mu) @ P.T, atol=1e-13)
    X = random_definite(len(P), 2)
    np.testing.assert_allclose(forms.distances(np.asfortranarray(np.tril(X))), np.diag(P.T @ X @ P), rtol=1e-12)


@instances.given_policies()
def test_shifting_moves_the_distances_of_edges_and_of_no_other_pair(p):
    forms, P = forms_and_incidence(p)
    if P.size == 0:
        return
    k = len(P)
    X = random_definite(k, 3)
    change = np.random.default_rng(4).normal(size=p.num_edges)
    moved = X.copy(order="F")
    forms.shift(moved, change)
    moved = symmetric(moved)
    np.testing.assert_allclose(forms.distances(moved) - forms.distances(X), change, atol=1e-10)
    pairs = np.array([np.eye(k)[i] - (np.eye(k)[j] if j < k else 0) for i in range(k) for j in range(i + 1, k + 1)])
    columns = {tuple(c) for c in P.T} | {tuple(-c) for c in P.T}
    for pair in pairs:
        if tuple(pair) not in columns:
            np.testing.assert_allclose(pair @ moved @ pair, pair @ X @ pair, atol=1e-10)


def test_curvature_is_the_second_derivative_of_the_trace():
    for p in (policy.threshold(5, 2), policy.unbounded(4), policy.union(policy.line(4), policy.unbounded(4))):
        forms, P = forms_and_incidence(p)
        k = len(P)
        X, V = random_definite(k, 5) * 3, random_definite(k, 6)
        Y = np.linalg.inv(X)
        L = Y @ V @ Y
        step = 1e-3
        for e, bend in enumerate(forms.curvature(np.asfortranarray(L), np.asfortranarray(Y))):
            values = []
            for t in (-step, 0.0, step):
                moved = X.copy(order="F")
                change = np.zeros(p.num_edges)
                change[e] = t
                forms.shift(moved, change)
                values.append(np.trace(V @ np.linalg.inv(symmetric(moved))))
            finite = (values[0] - 2 * values[1] + values[2]) / step**2
            np.testing.assert_allclose(bend, finite, rtol=1e-4)


def test_row_sums_read_the_lower_triangle_only():
    S = random_definite(4, 7)
    spoiled = S.copy(order="F")
    spoiled[np.triu_indices(4, 1)] = np.nan
    np.testing.assert_allclose(row_sums(np.asfortranarray(np.tril(S))), S.sum(axis=1))
    assert np.isfinite(symmetric(np.tril(spoiled))).all()
