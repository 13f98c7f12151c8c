"""The lemma on pairs behind the bound for Laplace strategies: values of two vectors of L1 length 1, by brute force."""

import math

import numpy as np
import pytest

from hdmm_bf.bounds.pairs import pair_value
from tests.support import pairs as oracle

RNG = np.random.default_rng(0)
LIMIT = 5 * math.sqrt(3) / 9
"""Largest B with value([[1, B], [B, 1]]) = 2."""


def of_pair(K):
    """The value in the package, one number."""
    return float(pair_value(np.array(K[0][0]), np.array(K[0][1]), np.array(K[1][1])))


def random_blocks(count):
    """Matrices K of every kind: hardly tied, tied as closely as can be, of unequal diagonals, squares, of rank one."""
    for _ in range(count):
        kind = RNG.integers(4)
        if kind == 0:
            b = RNG.uniform(-1, 1) * RNG.choice([1.0, 0.1]) + RNG.choice([0.0, 0.9])
            yield np.array([[1.0, b], [b, 1.0]]) if abs(b) <= 1 else np.ones((2, 2))
        elif kind == 1:
            half = RNG.normal(size=(2, 2))
            yield half @ half.T
        elif kind == 2:
            own = RNG.normal(size=2)
            yield np.outer(own, own)
        else:
            half = RNG.normal(size=(2, 2))
            yield np.linalg.matrix_power(half @ half.T, 2)


def two_vectors(rows):
    """Two columns of L1 length 1."""
    S = RNG.normal(size=(rows, 2)) * (RNG.random((rows, 2)) < 0.7) + 1e-3 * RNG.normal(size=(rows, 2))
    return S / np.abs(S).sum(axis=0)


def tied(b):
    return np.array([[1.0, b], [b, 1.0]])


def cost(K, S):
    """tr(K Y^-1) of two columns."""
    return float(np.trace(K @ np.linalg.inv(S.T @ S)))


# The lemma on pairs


def test_the_value_of_a_pair_is_not_above_what_two_vectors_reach():
    close = [tied(b) + np.diag([0.0, more]) for b in np.linspace(0.955, 1, 46) for more in (0.0, 0.3)]
    for K in [*random_blocks(60), *close]:
        assert of_pair(K) <= oracle.least(K) * (1 + 1e-9)


def test_vectors_of_two_entries_are_the_best_there_are():
    """The page's step to extreme points: vectors in more rows, with more entries, are never below."""
    for K in random_blocks(12):
        reached = oracle.least(K, points=1601) * (1 - 2e-3)  # the grid does not have the limit of singular Y
        assert all(cost(K, two_vectors(rows)) >= reached for rows in (2, 3, 4, 5) for _ in range(50))


def test_cells_that_are_hardly_tied_have_their_trace_and_no_less():
    for _ in range(30):
        a, c = np.exp(RNG.normal(size=2))
        b = RNG.uniform(-0.962, 0.962) * min(a, c)
        K = np.array([[a, b], [b, c]])
        assert of_pair(K) == pytest.approx(a + c, rel=1e-12)
        assert oracle.least(K) == pytest.approx(a + c, rel=1e-9)


@pytest.mark.parametrize(
    ("K", "known"),
    [
        (np.diag([2.0, 3.0]), 5.0),
        (np.diag([0.0, 3.0]), 3.0),
        (tied(0.962), 2.0),
        (tied(-0.962), 2.0),
        (np.ones((2, 2)), 1.0),
        (np.array([[1.0, 3.0], [3.0, 9.0]]), 9.0),
        (np.array([[9.0, -3.0], [-3.0, 1.0]]), 9.0),
        (np.zeros((2, 2)), 0.0),
    ],
)
def test_values_in_closed_form(K, known):
    assert of_pair(K) == pytest.approx(known, rel=1e-12, abs=1e-12)


def test_a_pair_of_rank_one_is_one_query_of_that_sensitivity():
    """[[1, s], [s, s^2]]: vectors that are nearly (1 / s, 0) and (1, 0) reach nearly s^2, and none reach less."""
    for s in (1.0, 1.5, 4.0):
        S = np.array([[(1 - 1e-4) / s, 1 - 1e-4], [1e-4 / s, -1e-4]])
        K = np.array([[1.0, s], [s, s * s]])
        assert s * s <= cost(K, S) <= s * s * 1.001
        assert of_pair(K) == pytest.approx(s * s, rel=1e-12)
        assert all(cost(K, two_vectors(3)) >= s * s for _ in range(50))


def test_the_value_is_homogeneous_and_blind_to_signs_and_order():
    for K in random_blocks(30):
        (a, b), (_, c) = K
        assert of_pair(7 * K) == pytest.approx(7 * of_pair(K), rel=1e-12)
        assert of_pair(np.array([[a, -b], [-b, c]])) == of_pair(K)
        assert of_pair(np.array([[c, b], [b, a]])) == of_pair(K)


def test_the_least_cost_grows_with_the_matrix_and_is_superadditive():
    """What the page's cone rests on; by brute force, on a grid that two sums share."""
    blocks = list(random_blocks(40))
    for K, other in zip(blocks[::2], blocks[1::2], strict=True):
        together = oracle.least(K + other)
        assert together >= (oracle.least(K) + oracle.least(other)) * (1 - 1e-9)
        assert together >= of_pair(K) + of_pair(other) - 1e-9 * together


def test_matrices_of_full_trace_are_a_cone():
    for _ in range(20):
        parts = [np.diag(RNG.random(2)), RNG.random() * tied(LIMIT), RNG.random() * tied(-LIMIT)]
        K = sum(parts)
        assert oracle.least(K) == pytest.approx(np.trace(K), rel=1e-9)


def test_the_limit_is_sharp():
    """At B = 5 sqrt(3) / 9 these vectors cost 2, as the identity does; a little above it they beat it."""
    s = 1 / math.sqrt(3)
    S = np.array([[1 + s, 1 + s], [1 - s, s - 1]]) / 2
    assert np.abs(S).sum(axis=0) == pytest.approx(1)
    assert cost(tied(LIMIT), S) == pytest.approx(2, rel=1e-12)
    assert cost(tied(0.97), S) < 1.92
    assert cost(tied(0.962), S) > 2
    assert of_pair(tied(0.97)) < 1.92


@pytest.mark.parametrize("b", [0.0, 0.5, 0.9, 0.962, LIMIT])
def test_inequality_one_holds_for_all_vectors_of_two_entries(b):
    """(d_1 - 1/2) (d_2 - 1/2) <= 1/4 - B r + r^2, of which the lemma is made, in all its cases, on a fine grid."""
    x, y = np.meshgrid(*[np.linspace(0, 1, 401)] * 2)
    left = (2 * x - 1) ** 2 * (2 * y - 1) ** 2 / 4
    for r in ((1 - x) * (1 - y) + x * y, np.abs((1 - x) * (1 - y) - x * y), x * y, 0 * x):
        assert np.all(left <= 0.25 - b * r + r**2 + 1e-12)


def test_one_row_in_common_leaves_room():
    """4 - (6 + B) v + 4 v^2 - 3/4 v^3, the page's last case, is positive from 0 to 2: least at v = 1.52."""
    v = np.linspace(0, 2, 20001)
    polynomial = 4 - (6 + LIMIT) * v + 4 * v**2 - 0.75 * v**3
    assert polynomial.min() == pytest.approx(0.025, abs=2e-3)
    assert v[polynomial.argmin()] == pytest.approx(1.52, abs=1e-2)


# The theorem on groups
