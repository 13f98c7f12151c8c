"""Sensitivity against brute force over all pairs of neighbouring databases."""

import numpy as np
import pytest
import scipy.sparse as sp

from hdmm_bf import policy, workload
from hdmm_bf.problem import sensitivity as sensitivities
from hdmm_bf.problem.sensitivity import edge_norms, sensitivity
from hdmm_bf.problem.transform import Problem
from tests.support import instances, oracles

NORMS = ["L1", "L2"]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("spec", instances.SMALL_SPECS)
def test_sensitivity_is_the_largest_change_over_all_neighbouring_databases(spec, norm):
    """Quotes sensitivity: Equals max ||A x - A x'|| over all neighbouring databases x, x'; 0 without edges."""
    p = policy.parse(spec)
    W = instances.real_matrices(p.num_cells, seed=4)
    expected = oracles.sensitivity(W, p.edges.tolist(), norm)
    for form in (W, W.tolist(), sp.csr_array(W), workload.from_matrix(W), workload.from_matrix(W).matrix):
        assert sensitivity(form, p, norm=norm) == pytest.approx(expected, rel=1e-14)


@instances.given_policies(most_cells=5)
def test_sensitivity_of_random_policies_is_the_largest_column_of_the_transformed_matrix(p):
    W = instances.real_matrices(p.num_cells, seed=9)
    W_G = Problem(workload.from_matrix(W), p).W_G()
    for order, norm in ((1, "L1"), (2, "L2")):
        columns = np.linalg.norm(W_G, order, axis=0)
        np.testing.assert_allclose(edge_norms(W, p, norm=norm), columns, rtol=1e-14, atol=1e-14)
        brute = oracles.sensitivity(W, p.edges.tolist(), norm)
        assert sensitivity(W, p, norm=norm) == pytest.approx(brute, rel=1e-14, abs=1e-14)


@pytest.mark.parametrize("spec", ["all-range:12", "marginals:3x4:1", "random-range:12:20:seed=1"])
def test_implicit_matrices_have_the_sensitivity_of_their_rows(spec):
    W = workload.parse(spec)
    for p in (policy.threshold(12, 3), policy.unbounded(12)):
        for norm in NORMS:
            assert sensitivity(W, p, norm=norm) == pytest.approx(sensitivity(W.matrix.dense(), p, norm=norm))


def test_blocks_of_edges_leave_none_out(monkeypatch):
    monkeypatch.setattr(sensitivities, "_CHUNK_ENTRIES", 10)
    p = policy.bounded(7)
    W = np.random.default_rng(0).normal(size=(3, 7))
    expected = [np.abs(W[:, u] - W[:, v]).sum() for u, v in p.edges]
    np.testing.assert_allclose(edge_norms(W, p, norm="L1"), expected)


def test_unsigned_and_boolean_matrices_do_not_wrap_around():
    W = np.array([[0, 200], [1, 0]], dtype=np.uint8)
    assert sensitivity(W, policy.line(2), norm="L1") == 201
    assert sensitivity(W.astype(bool), policy.line(2), norm="L1") == 2
