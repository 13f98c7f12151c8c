"""`certify`: strategies from anywhere get the certificate that ours have, or a sentence."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

import hdmm_bf as bf
from hdmm_bf import InputError
from tests.support.command_line import assert_one_sentence, run


def hierarchy(n):
    rows, width = [np.eye(n)], 2
    while width <= n:
        rows.append(np.kron(np.eye(n // width), np.ones(width)))
        width *= 2
    return np.vstack(rows)


def defined_error(W, G, A, order):
    """sensitivity^2 ||W A^+||_F^2 under public totals, from the definitions."""
    problem = bf.problem(W, G)
    n, edges = problem.policy.num_cells, problem.policy.edges
    moves = np.array([np.eye(n)[u] - (np.eye(n)[v] if v >= 0 else 0) for u, v in edges]).T
    U, sizes, _ = np.linalg.svd(moves)
    movable = U[:, : np.count_nonzero(sizes > 1e-9)]  # what can change; everything else is public
    W, A_m = problem.workload.matrix.dense() @ movable, A @ movable
    norms = np.abs(A @ moves).sum(axis=0) if order == 1 else np.linalg.norm(A @ moves, axis=0)
    return norms.max() ** 2 * np.linalg.norm(W @ np.linalg.pinv(A_m)) ** 2


@pytest.mark.parametrize(("noise", "order"), [("laplace", 1), ("gaussian", 2)])
@pytest.mark.parametrize(
    ("W", "G"), [("all-range:8", "threshold:8:2"), ("prefix:8", "unbounded:8"), ("identity:8", "bounded:8")]
)
def test_a_strategy_from_anywhere_has_the_error_of_its_definition(W, G, noise, order):
    """Quotes certify: rounded to a grid so fine that the error changes by less than a millionth."""
    rng = np.random.default_rng(3)
    for A in (hierarchy(8), rng.normal(size=(11, 8)), 1e5 * hierarchy(8), np.eye(8)):
        made = bf.certify(W, G, A, noise=noise)
        assert made.unit_error == pytest.approx(defined_error(W, G, A, order), rel=1e-6)
        assert made.unit_error >= made.bounds.lower * (1 - 1e-9)
        assert made.status == "certified"


def test_sparse_and_own_matrices_are_taken_as_well():
    expected = bf.certify("prefix:8", "line:8", hierarchy(8)).unit_error
    assert bf.certify("prefix:8", "line:8", sp.csr_array(hierarchy(8))).unit_error == expected
    assert bf.certify("prefix:8", "line:8", bf.matrix.Dense(hierarchy(8))).unit_error == expected


def test_rows_that_are_not_of_full_rank_are_kept_as_they_are():
    """Quotes certify: else its entries must be fractions with a power of two below, which are kept as they are."""
    W = np.array([[1.0, 1, 0, 0], [0, 0, 1, 1]])
    made = bf.certify(W, "unbounded:4", W / 4, noise="laplace")
    assert made.unit_error == 2
    np.testing.assert_array_equal(made.strategy.matrix(), W / 4)
    with pytest.raises(InputError, match="has not full column rank"):
        bf.certify(W, "unbounded:4", W / 3, noise="laplace")


def test_it_is_saved_verified_and_released(tmp_path):
    made = bf.certify("all-range:8", "threshold:8:2", hierarchy(8), noise="laplace")
    made.save(tmp_path / "mine.bf")
    again = bf.load(tmp_path / "mine.bf")
    assert again.certificate == made.certificate
    release = bf.release(again, np.arange(8), epsilon=1.0)
    assert release.answers.shape == (36,)


def test_a_better_strategy_than_the_proven_best_does_not_exist():
    """What the optimum of a fit is certified to again is no smaller."""
    best = bf.fit("all-range:8", "threshold:8:2")
    again = bf.certify("all-range:8", "threshold:8:2", best.strategy.matrix())
    assert again.unit_error == pytest.approx(best.unit_error, rel=1e-6)
    assert again.gap <= 2e-3


@pytest.mark.parametrize(
    ("A", "said"),
    [
        (np.ones((1, 8)), "query 0"),
        (np.full((8, 8), np.nan), "must be finite"),
        (np.eye(7), "the policy has 8 cells"),
        (np.ones(8), "must be a matrix"),
        (np.vstack([np.eye(8), np.zeros((1, 8))]), "row 8 of the strategy"),
        (np.zeros((0, 8)), "a strategy without rows"),
        ([["a"] * 8], "strategy"),
    ],
)
def test_what_is_no_strategy_gets_a_sentence(A, said):
    with pytest.raises(InputError, match=said):
        bf.certify("all-range:8", "unbounded:8", A, noise="laplace")


def test_the_command_writes_a_bundle_or_one_sentence(tmp_path):
    np.save(tmp_path / "A.npy", hierarchy(8))
    np.save(tmp_path / "short.npy", np.eye(5))
    problem = ["-w", "all-range:8", "-g", "threshold:8:2", "--noise", "laplace"]
    out = str(tmp_path / "mine.bf")
    found = run("certify", *problem, "--strategy", str(tmp_path / "A.npy"), "--out", out, "--json")
    assert found.returncode == 0
    assert json.loads(found.stdout)["status"] == "certified"
    assert run("verify", out).returncode == 0
    refused = run("certify", *problem, "--strategy", str(tmp_path / "short.npy"), "--out", str(tmp_path / "no.bf"))
    assert_one_sentence(refused)
    assert refused.returncode == 2
    assert not (tmp_path / "no.bf").exists()
