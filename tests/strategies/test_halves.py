"""Problems that look the same from both ends: found only where they are, and searched to the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf.policy import BOTTOM
from hdmm_bf.problem.goal import Goal
from hdmm_bf.problem.mirror import mirror
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.gaussian.halves import Halved, Halves
from hdmm_bf.strategies.gaussian.largest import kernel_of
from hdmm_bf.strategies.gaussian.whole import Whole

MIRRORED = [
    ("all-range:8", "unbounded:8"),
    ("all-range:9", "unbounded:9"),
    ("all-range:8", "threshold:8:2"),
    ("all-range:9", "bounded:9"),
    ("all-range:7", "line:7"),
    ("identity:6", "bounded:6"),
    ("prefix:8", "threshold:8:3"),
    ("prefix:9", "line:9"),
]
ONE_SIDED = [("prefix:8", "unbounded:8"), ("prefix:9", "unbounded:9")]


def _problem(workload: object, policy: object) -> Problem:
    made = bf.problem(workload, policy)
    return Problem(made.workload, made.policy, Goal("largest"))


def _grounded(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """The queries and the incidence matrix over the kept cells, written out."""
    return problem.W_D(), problem.P.sparse().toarray().astype(float)


@pytest.mark.parametrize(("workload", "policy"), MIRRORED)
def test_a_mirrored_problem_is_found(workload: str, policy: str) -> None:
    assert isinstance(kernel_of(_problem(workload, policy)), Halved)


@pytest.mark.parametrize(("workload", "policy"), ONE_SIDED)
def test_prefixes_whose_total_is_secret_have_a_first_cell(workload: str, policy: str) -> None:
    assert mirror(_problem(workload, policy)) is None


def test_an_edge_or_a_query_at_one_end_breaks_the_symmetry() -> None:
    one_sided = bf.policy.from_edges([0, 1, 2, 3, 0], [1, 2, 3, 4, 2], 5)
    both_sides = bf.policy.from_edges([0, 1, 2, 3, 0, 2], [1, 2, 3, 4, 2, 4], 5)
    assert mirror(_problem("all-range:5", one_sided)) is None
    assert mirror(_problem("all-range:5", both_sides)) is not None
    rows = np.array([[1.0, 1, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 1, 0, 0]])
    assert mirror(_problem(bf.workload.from_matrix(rows), both_sides)) is not None
    assert mirror(_problem(bf.workload.from_matrix(rows[[0, 0, 2]]), both_sides)) is None
    grounded_at_one_end = bf.policy.from_edges([0, 1, 2, 0], [1, 2, 3, BOTTOM], 4)
    assert mirror(_problem("all-range:4", grounded_at_one_end)) is None


def test_targets_of_one_end_break_the_symmetry() -> None:
    made = _problem("identity:4", "unbounded:4")
    alike = Problem(made.workload, made.policy, Goal("targets", np.array([1.0, 2.0, 2.0, 1.0])))
    unlike = Problem(made.workload, made.policy, Goal("targets", np.array([1.0, 2.0, 2.0, 3.0])))
    assert mirror(alike) is not None
    assert mirror(unlike) is None


@pytest.mark.parametrize(("workload", "policy"), MIRRORED)
def test_pairs_are_mirror_images(workload: str, policy: str) -> None:
    """Weights that are equal on pairs give V and L that reversing the cells does not change, by the definition."""
    problem = _problem(workload, policy)
    found = mirror(problem)
    assert found is not None
    rng = np.random.default_rng(1)
    lam = found.queries.spread(rng.random(found.queries.count))
    mu = found.edges.spread(rng.random(found.edges.count))
    n = problem.policy.num_cells
    W = problem.workload.matrix.dense()
    centre = np.eye(n) - (1 / n if problem.grounding.given_up.size else 0.0)  # of sum zero where the total is public
    V = centre @ W.T @ (lam[:, None] * W) @ centre
    L = np.zeros((n, n))
    for (u, v), weight in zip(problem.policy.edges, mu, strict=True):
        p = np.zeros(n)
        p[u] = 1.0
        if v != BOTTOM:
            p[v] = -1.0
        L += weight * np.outer(p, p)
    np.testing.assert_allclose(V[::-1, ::-1], V, atol=1e-12 * np.abs(V).max())
    np.testing.assert_allclose(L[::-1, ::-1], L, atol=1e-12)


@pytest.mark.parametrize(("workload", "policy"), MIRRORED)
def test_halves_and_whole_find_the_same(workload: str, policy: str) -> None:
    problem = _problem(workload, policy)
    halved, whole = kernel_of(problem), Whole(problem)
    rng = np.random.default_rng(2)
    lam, mu = (weights / weights.sum() for weights in map(rng.random, halved.counts))
    lams, mus = halved.unfolded(lam, mu)
    a, b = halved.at(lam, mu), whole.at(lams, mus)
    ratio = whole.scale / halved.scale
    assert a.root_sum**2 == pytest.approx(b.root_sum**2 * ratio, rel=1e-10)
    np.testing.assert_allclose(halved.grounded(a.X), b.X * np.sqrt(ratio), rtol=1e-8, atol=1e-10)
    W, P = _grounded(problem)
    X = halved.grounded(a.X)
    v = np.einsum("ik,kl,il->i", W, np.linalg.inv(X), W) / halved.scale
    d = np.einsum("ke,kl,le->e", P, X, P)
    assert isinstance(halved, Halved)
    np.testing.assert_allclose(a.v[halved.mirror.queries.of], v, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(a.d[halved.mirror.edges.of], d, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("n", [4, 5, 8, 9])
@pytest.mark.parametrize("public", [False, True])
def test_forms_and_spreads_come_back_from_their_blocks(n: int, public: bool) -> None:
    rng = np.random.default_rng(3)
    A = rng.standard_normal((n, n))
    A = A @ A.T
    A = A + A[::-1, ::-1]
    centre = np.eye(n) - (1 / n if public else 0.0)
    halves, spread = Halves(n, public=public), centre @ A @ centre
    back = halves.whole_form(halves.forms(A))
    np.testing.assert_allclose(centre @ back @ centre, spread, atol=1e-12)
    np.testing.assert_allclose(halves.whole_spread(halves.spreads(spread)), spread, atol=1e-12)
    even, odd = (np.linalg.inv(_symmetric(block)) for block in halves.forms(A))
    np.testing.assert_allclose(halves.whole_spread((even, odd)), np.linalg.pinv(spread), atol=1e-9)


def _symmetric(lower: np.ndarray) -> np.ndarray:
    return np.tril(lower) + np.tril(lower, -1).T


@pytest.mark.parametrize(("workload", "policy"), MIRRORED)
def test_moving_variances_and_distances_moves_just_them(workload: str, policy: str) -> None:
    problem = _problem(workload, policy)
    kernel = kernel_of(problem)
    found = kernel.at(*(np.full(count, 1 / count) for count in kernel.counts))
    down = -1e-3 * np.random.default_rng(4).random(found.d.size) * found.d
    np.testing.assert_allclose(kernel.distances(kernel.move_distances(found.X, down)), found.d + down, rtol=1e-9)
    Y = kernel.covariance(found.X)
    assert Y is not None
    drop = -1e-3 * np.random.default_rng(5).random(found.v.size) * found.v
    moved = kernel.move_variances(Y, drop)
    if moved is not None and problem.grounding.given_up.size == 0:
        np.testing.assert_allclose(kernel.variances(moved), found.v + drop, rtol=1e-9)
    back = None if moved is None else kernel.metric(moved)
    assert moved is None or (back is not None and np.all(np.isfinite(back)))
