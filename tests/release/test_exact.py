"""Exact sums and products against fractions and Python's own whole numbers."""

import math
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdmm_bf import policy, workload
from hdmm_bf._checks import InputError
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release import exact
from hdmm_bf.release.exact import ExactSums, WholeMatrix, exact_product
from hdmm_bf.release.matrices import EdgeRecovery
from hdmm_bf.strategies.records import EdgeStrategy
from tests.support import oracles

BOTTOM = -1
GRID = 2**20
"""Points a record on the grid of what is published."""

POLICIES = {
    "cycle": policy.cycle(4),
    "complete": policy.bounded(4),
    "grid": policy.threshold((2, 3), 1),
    "with BOTTOM": policy.from_edges([0, 1, 0, 2], [1, 2, 2, BOTTOM], 3),
    "two components": policy.from_edges([0, 1, 0, 3, 4, 3, 5], [1, 2, 2, 4, BOTTOM, BOTTOM, 6], 8),
}


def private_sum(made, kept, noise):
    return made.sums.private_sum(kept, noise)


# ---------------------------------------------------------------- oracles, in fractions


def kept_cells(G):
    """Cells that are not the last of a component without BOTTOM, in order."""
    parts = nx.connected_components(oracles.graph(G.num_cells, G.edges))
    return sorted(set(range(G.num_cells)) - {max(part) for part in parts if BOTTOM not in part})


def incidence(G):
    """P with one row for each kept cell: +1 at the first kept end of every edge, -1 at the other if it is kept."""
    place = {cell: i for i, cell in enumerate(kept_cells(G))}
    P = [[0] * len(G.edges) for _ in place]
    for e, (u, v) in enumerate(G.edges.tolist()):
        head, tail = (u, v) if u in place else (v, u)
        P[place[head]][e] = 1
        if tail in place:
            P[place[tail]][e] = -1
    return P


def solved(M, right):
    """Solve a square system in fractions, by elimination."""
    rows = [[Fraction(v) for v in row] + [Fraction(b)] for row, b in zip(M, right, strict=True)]
    for i in range(len(rows)):
        pivot = next(j for j in range(i, len(rows)) if rows[j][i] != 0)
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [v / rows[i][i] for v in rows[i]]
        for j in range(len(rows)):
            if j != i:
                rows[j] = [a - rows[j][i] * b for a, b in zip(rows[j], rows[i], strict=True)]
    return [row[-1] for row in rows]


def least_squares(S, k):
    """S^+ k for whole numbers S of full column rank, from the normal equations."""
    columns = list(zip(*S.tolist(), strict=True))
    gram = [[sum(a * b for a, b in zip(c, d, strict=True)) for d in columns] for c in columns]
    return solved(gram, [sum(a * b for a, b in zip(c, k, strict=True)) for c in columns])


def exact_sum(G, S, x, k):
    """The sum x + P S^+ k in fractions."""
    z = least_squares(S, k)
    return [v + sum(p * t for p, t in zip(row, z, strict=True)) for v, row in zip(x, incidence(G), strict=True)]


def rounded(value, random_bits):
    """The largest grid point not above the value, after a shift by an odd fraction of the grid."""
    return math.floor(value * GRID + Fraction(2 * random_bits + 1, 2**65))


def recovery(G, S, bits=16):
    return EdgeRecovery(Problem(workload.identity(G.domain), G), EdgeStrategy(S, bits, "test"))


def published(monkeypatch, G, S, x, k, *, random_bits, bits=16):
    monkeypatch.setattr(exact.secrets, "randbits", lambda count: random_bits)
    out = private_sum(recovery(G, S, bits), np.array(x, dtype=np.int64), np.array(k, dtype=np.int64))
    return out.tolist()


def random_strategy(rng, edges, rows, largest):
    """Whole numbers of full column rank: random, with a diagonal."""
    S = rng.integers(-largest, largest + 1, size=(rows, edges))
    S[np.arange(edges), np.arange(edges)] += 4 * largest * edges
    return S


def check(monkeypatch, G, S, x, k, *, random_bits, bits=16):
    want = [rounded(value, random_bits) for value in exact_sum(G, S, x, k)]
    found = published(monkeypatch, G, S, x, k, random_bits=random_bits, bits=bits)
    assert found == [float(Fraction(number, GRID)) for number in want]


# ---------------------------------------------------------------- private_sum


@pytest.mark.parametrize("random_bits", [0, 1, 2**63, 2**64 - 1, 0x9E3779B97F4A7C15])
@pytest.mark.parametrize("name", POLICIES)
def test_private_sums_are_the_exact_sums_rounded_once(monkeypatch, name, random_bits):
    """Quotes exact: `ExactSums.private_sum` returns a function of the exact x + P S^+ noise and of ... random bits."""
    G, rng = POLICIES[name], np.random.default_rng(random_bits % 1000)
    e, kept = len(G.edges), len(kept_cells(G))
    for rows, largest, loudest in ((e, 3, 50), (e + 3, 2**16, 2**20), (2 * e, 2**30, 2**50), (e, 2**44 // (8 * e), 9)):
        S = random_strategy(rng, e, rows, largest)
        x = rng.integers(0, 2**40, kept).tolist()
        check(monkeypatch, G, S, x, rng.integers(-loudest, loudest + 1, rows).tolist(), random_bits=random_bits)


@pytest.mark.parametrize("random_bits", [0, 2**64 - 1, 12345])
@pytest.mark.parametrize("places", [0, 16, 20, 21, 44])
def test_sums_on_grid_points_stay_on_them(monkeypatch, places, random_bits):
    G = POLICIES["cycle"]
    S = np.eye(4, dtype=np.int64) << places
    for k in ([0, 0, 0, 0], [2**places, -(2**places), 3 << places, 0], [1, -1, 1, 2], [2**50, -(2**50) + 1, 7, -7]):
        check(monkeypatch, G, S, [5, 0, 2**53], k, random_bits=random_bits, bits=places)
    assert published(monkeypatch, G, S, [5, 0, 2**53], [0] * 4, random_bits=random_bits) == [5.0, 0.0, 2.0**53]


def test_sums_a_hair_from_a_boundary_of_the_shifted_grid_fall_on_the_right_side(monkeypatch):
    """S = 3 I gives sums in thirds: with shifts of every size some pass a boundary by 2^-66 of the grid."""
    G, S = POLICIES["cycle"], 3 * np.eye(4, dtype=np.int64)
    for third in (1, 2):
        boundary = (2**65 - Fraction(third * GRID % 3, 3) * 2**65 - 1) / 2  # where the sum and the shift make a whole
        for random_bits in (math.floor(boundary) + step for step in (-1, 0, 1)):
            if 0 <= random_bits < 2**64:
                check(monkeypatch, G, S, [7, 7, 7], [third, 0, 0, 0], random_bits=random_bits, bits=0)


def ill_conditioned(rng, digits):
    S = np.outer([1, 2, 3, 4, 5], [3, 1, 2, 5]) * 10**digits
    S[:4] += np.diag(rng.integers(1, 9, 4))
    assert np.linalg.cond(S) > 10 ** (digits - 1)
    return S


@pytest.mark.parametrize("digits", [4, 8, 11])
def test_ill_conditioned_strategies_are_solved_exactly(monkeypatch, digits):
    G, rng = POLICIES["cycle"], np.random.default_rng(digits)
    S = ill_conditioned(rng, digits)
    for random_bits in (0, 2**64 - 1):
        check(monkeypatch, G, S, [10, 0, 4], rng.integers(-(2**50), 2**50, 5).tolist(), random_bits=random_bits)


@pytest.mark.parametrize("name", POLICIES)
def test_a_step_along_an_edge_and_noise_moved_by_its_column_give_the_same_bits(monkeypatch, name):
    """Quotes exact: Neighbours shift the noise by a column of S, so the *exact* sum is as private as the noise.

    "A sum in floating point is not, because its last digits show how it was made": the control.
    """
    G, rng = POLICIES[name], np.random.default_rng(3)
    P, e = np.array(incidence(G)), len(G.edges)
    S = random_strategy(rng, e, e + 2, 2**20)
    for edge in range(e):
        x = rng.integers(1, 10**6, len(P))
        k = rng.integers(-(2**40), 2**40, e + 2)
        draw = int(rng.integers(2**62))
        stepped = published(monkeypatch, G, S, x + P[:, edge], k, random_bits=draw)
        moved = published(monkeypatch, G, S, x, k + S[:, edge], random_bits=draw)
        assert stepped == moved
    inverse = np.linalg.pinv(S.astype(np.float64))
    moves = [(edge, rng.integers(-(2**40), 2**40, e + 2)) for edge in range(e) for _ in range(100)]
    differ = [np.any(x + P[:, edge] + P @ (inverse @ k) != x + P @ (inverse @ (k + S[:, edge]))) for edge, k in moves]
    assert any(differ), "how BLAS rounds decides which draws differ, not whether any does"


def test_the_mean_over_all_shifts_is_the_sum_itself(monkeypatch):
    """Rounding down after a uniform shift is unbiased: over 2^6 equal steps of the shift, to 2^-6 of the grid."""
    G, S = POLICIES["cycle"], 3 * np.eye(4, dtype=np.int64)
    draws = [published(monkeypatch, G, S, [0] * 3, [1, 0, 0, 0], random_bits=t << 58, bits=0) for t in range(64)]
    assert np.mean(draws, axis=0) == pytest.approx(np.array(exact_sum(G, S, [0] * 3, [1, 0, 0, 0]), float), abs=2**-26)


def test_strategies_close_to_singular_are_refused(monkeypatch):
    S = np.array([[2**50, 2**50 + 1, 0], [2**50, 2**50, 0], [0, 0, 1]])
    G = policy.cycle(3)
    made = recovery(G, S, 0)
    with pytest.raises(InputError, match="too close to singular|without full column rank"):
        private_sum(made, np.zeros(2, dtype=np.int64), np.zeros(3, dtype=np.int64))
    with pytest.raises(InputError, match="too close to singular"):
        exact._smallest_square(recovery(G, np.diag([4, 0, 4]), 0).strategy)


@pytest.mark.parametrize("places", [24, 27, 34, 40])
def test_whether_a_sum_can_be_enclosed_does_not_hang_on_the_noise(monkeypatch, places):
    """A bound that does not fall at every step: at 2^27 one noise in ten was refused, and noise zero never is."""
    size, rng = 2**places, np.random.default_rng(places)
    S = 4 * np.array([[size, size - 1, 0], [-size, -size - 1, 0], [0, 0, 1]])
    for _ in range(40):
        check(
            monkeypatch,
            policy.cycle(3),
            S,
            [5, 6],
            rng.laplace(scale=8 * size, size=3).astype(int).tolist(),
            random_bits=9,
            bits=0,
        )


def test_sums_that_cannot_be_enclosed_are_refused_and_not_guessed(monkeypatch):
    monkeypatch.setattr(ExactSums, "_refined", lambda sums, target, flow: (flow, 2**3000))
    with pytest.raises(InputError, match="could not be added exactly"):
        private_sum(
            recovery(POLICIES["cycle"], np.eye(4, dtype=np.int64)), np.zeros(3, np.int64), np.zeros(4, np.int64)
        )


@given(st.integers(0, 2**32), st.sampled_from([(3, 3), (5, 3), (4, 4)]))
def test_the_smallest_square_is_never_above_the_smallest_eigenvalue(seed, shape):
    """S^T S - floor I has no negative leading minor, in fractions."""
    rng = np.random.default_rng(seed)
    S = random_strategy(rng, shape[1], shape[0], int(10 ** rng.uniform(0, 9)))
    S[:, 1] = S[:, 0] + (rng.integers(-2, 3, shape[0]) if seed % 2 else 0 * S[:, 0]) + np.eye(shape[0], dtype=int)[1]
    G = policy.cycle(shape[1])
    try:
        floor = exact._smallest_square(recovery(G, S).strategy)
    except InputError:
        return
    rows = [
        [Fraction(int(v)) for v in row] for row in (S.T.astype(object) @ S - floor * np.eye(shape[1], dtype=object))
    ]
    for i in range(len(rows)):
        assert rows[i][i] >= 0
        for j in range(i + 1, len(rows)):
            factor = rows[j][i] / rows[i][i] if rows[i][i] else 0
            rows[j] = [a - factor * b for a, b in zip(rows[j], rows[i], strict=True)]


# ---------------------------------------------------------------- whole matrices

WHOLE = st.integers(-(2**52) + 1, 2**52 - 1)
LARGE = st.one_of(st.sampled_from([0, 0, 1, -1, 2**35, -(2**35), 2**34 - 1]), st.integers(-(2**300), 2**300))


@given(st.data(), st.sampled_from([(1, 1), (3, 2), (2, 7), (6, 6)]), st.booleans())
def test_whole_matrices_multiply_as_python_does(data, shape, sparse):
    rows, columns = shape
    entries = st.one_of(st.just(0), st.just(0), st.just(0), WHOLE) if sparse else WHOLE
    M = data.draw(st.lists(st.lists(entries, min_size=columns, max_size=columns), min_size=rows, max_size=rows))
    right = data.draw(st.lists(LARGE, min_size=columns, max_size=columns))
    left = data.draw(st.lists(LARGE, min_size=rows, max_size=rows))
    made = WholeMatrix(np.array(M, dtype=np.int64))
    assert made.times(right) == [sum(a * b for a, b in zip(row, right, strict=True)) for row in M]
    transposed = list(zip(*M, strict=True))
    assert made.transposed_times(left) == [sum(a * b for a, b in zip(row, left, strict=True)) for row in transposed]


@pytest.mark.parametrize("density", [0.02, 1.0])
def test_large_matrices_at_the_limits_do_not_overflow(density):
    rng = np.random.default_rng(1)
    M = rng.choice([2**52 - 1, 1 - 2**52], size=(300, 700)) * (rng.random((300, 700)) < density)
    vector = [int(sign) * (2**333 - 1) for sign in rng.choice([-1, 1], 700)]
    want = (M.astype(object) @ np.array(vector, dtype=object)).tolist()
    assert WholeMatrix(M.astype(np.int64)).times(vector) == want
    assert WholeMatrix(np.ascontiguousarray(M.T).astype(np.int64)).transposed_times(vector) == want


# ---------------------------------------------------------------- products with data


@given(st.integers(0, 2**32))
def test_products_with_counts_are_exact(seed):
    rng = np.random.default_rng(seed)
    A = rng.integers(-(2**35), 2**35, size=(3, 4))
    x = rng.integers(0, 2**24, size=4)
    assert exact_product(A, x, room=1).tolist() == (A.astype(object) @ x.astype(object)).tolist()


@pytest.mark.parametrize(
    ("A", "x", "room"),
    [
        ([[2**20]], [2**42], 0),
        ([[2**31, -(2**31)]], [2**30, 2**30], 0),  # the sum is zero, the parts are not
        ([[1]], [2**61], 2**61),
        ([[0]], [0], 2**62),
        ([[2**51] * 4], [2**53] * 4, 0),
    ],
)
def test_products_that_may_leave_64_bits_are_whole_numbers_of_any_size(A, x, room):
    """Quotes exact_product: no counts are refused."""
    found = exact_product(np.array(A, dtype=np.int64), np.array(x, dtype=np.int64), room=room)
    assert found.dtype == object
    assert found.tolist() == [sum(a * b for a, b in zip(row, x, strict=True)) for row in A]


def test_products_just_below_the_limit_stay_in_64_bits():
    found = exact_product(np.array([[2**19]]), np.array([2**42]), room=2**60)
    assert found.dtype == np.int64
    assert found.tolist() == [2**61]
