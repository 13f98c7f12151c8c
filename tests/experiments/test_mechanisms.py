"""Mechanisms of ordinary differential privacy: accounting, sensitivities by brute force, errors in closed form."""

import itertools
import math

import numpy as np
import pytest

from experiments.mechanisms import hierarchy, wavelet
from experiments.mechanisms.dawa import dawa
from experiments.mechanisms.draws import Seeded
from experiments.mechanisms.grids import cubes, rows_and_columns
from experiments.mechanisms.hierarchy import hierarchical
from experiments.mechanisms.hilbert import hilbert_order
from experiments.mechanisms.mechanism import laplace
from experiments.mechanisms.trees import approximated, transformed
from experiments.mechanisms.wavelet import depth, forward, inverse, privelet
from hdmm_bf import policy, workload
from hdmm_bf.strategies.baselines.classical import haar
from hdmm_bf.strategies.baselines.classical import hierarchy as hierarchy_levels
from tests.support.noises import Recorder, covariance, mean_of, noise_map, privacy_loss

ALL = [
    laplace(),
    hierarchical(),
    hierarchical(3),
    privelet("6x6"),
    dawa(),
    dawa(workload.random_range(36, 20, seed=1), order=hilbert_order("6x6")),
    dawa(noise="published", share=0.25),
    transformed(laplace(), policy.line(36), consistent=True),
    transformed(dawa(), policy.line(36), consistent=True),
    rows_and_columns(policy.threshold("6x6", 1)),
    cubes(policy.threshold("6x6", 4), side=2),
    approximated(dawa(), policy.threshold(36, 4), tree=policy.h_theta(36, 4)),
]


@pytest.mark.parametrize("mechanism", ALL, ids=lambda m: m.name)
def test_the_stages_sum_to_epsilon(mechanism):
    """Quotes Mechanism: the epsilons of `spends` sum to epsilon."""
    for epsilon in (0.1, 1.0, 3.0):
        assert math.fsum(mechanism.spends(epsilon).values()) == pytest.approx(epsilon, rel=1e-15)


@pytest.mark.parametrize("mechanism", ALL, ids=lambda m: m.name)
def test_a_huge_epsilon_returns_the_data(mechanism):
    x = np.random.default_rng(0).integers(0, 50, 36)
    np.testing.assert_allclose(mechanism(x, 1e9, Seeded(np.random.default_rng(1))), x, atol=1e-4)


@pytest.mark.parametrize("mechanism", ALL, ids=lambda m: m.name)
def test_the_same_seed_gives_the_same_release_and_the_data_stay_as_they_are(mechanism):
    x = np.arange(36)
    first, second = (mechanism(x, 0.5, Seeded(np.random.default_rng(4))) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(x, np.arange(36))


def test_only_the_published_noise_carries_a_caveat():
    assert [m.name for m in ALL if m.caveat] == ["DAWA, published noise"]


@pytest.mark.parametrize(
    ("mechanism", "n"),
    [
        (laplace(), 5),
        (hierarchical(), 8),
        (hierarchical(), 7),
        (hierarchical(3), 10),
        (privelet(8), 8),
        (privelet(11), 11),
        (privelet("3x4"), 12),
        (privelet("2x3x2"), 12),
    ],
    ids=lambda v: getattr(v, "name", v),
)
def test_one_record_is_hidden_with_exactly_epsilon(mechanism, n):
    """The loss of x + B noise, by linear programming over all ways to hide one record in the noise."""
    B, scales = noise_map(mechanism, n, epsilon=0.5)
    losses = [privacy_loss(B, scales, unit) for unit in np.eye(n)]
    assert max(losses) <= 0.5 * (1 + 1e-9)
    assert max(losses) > 0.2, "noise far above what is needed would also pass"


@pytest.mark.parametrize(("n", "branching"), [(8, 2), (7, 2), (13, 2), (9, 3), (11, 3), (1, 2)])
@pytest.mark.parametrize("weighted", [False, True])
def test_consistency_is_weighted_least_squares(n, branching, weighted):
    """Quotes consistent: equals the least-squares solution with rows weighted by 1 / variance."""
    rng = np.random.default_rng(n)
    levels = hierarchy_levels(n, branching)
    assert len(levels) == hierarchy.num_levels(n, branching)
    variances = rng.uniform(0.5, 4.0, len(levels)) if weighted else np.full(len(levels), 2.0)
    noisy = [rng.normal(size=len(level)) for level in levels]
    rows = np.sqrt(np.concatenate([np.full(len(a), 1 / v) for a, v in zip(levels, variances, strict=True)]))
    expected = np.linalg.lstsq(np.vstack(levels) * rows[:, None], np.concatenate(noisy) * rows, rcond=None)[0]
    np.testing.assert_allclose(hierarchy.consistent(noisy, variances, branching=branching), expected, atol=1e-10)


def test_a_level_that_is_left_out_does_not_count():
    rng = np.random.default_rng(3)
    x = rng.integers(0, 9, 12)
    weights = np.array([0.5, 0.0, 0.3, 0.2, 0.0])
    recorder = Recorder()
    noisy, variances = hierarchy.measure(x, weights, 0.8, recorder, branching=2)
    assert sum(1 / scale for scale, _ in recorder.calls) == pytest.approx(0.8)
    kept = [i for i, w in enumerate(weights) if w]
    A = np.vstack([hierarchy_levels(12, 2)[i] for i in kept])
    rows = np.sqrt(np.concatenate([np.full(noisy[i].size, 1 / variances[i]) for i in kept]))
    y = np.concatenate([noisy[i] for i in kept])
    expected = np.linalg.lstsq(A * rows[:, None], y * rows, rcond=None)[0]
    np.testing.assert_allclose(hierarchy.consistent(noisy, variances, branching=2), expected, atol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13, 100])
def test_the_fast_wavelet_is_the_matrix(n):
    rows = np.asarray(forward(np.eye(n, dtype=int)))
    assert rows.dtype == np.int64
    order, other = np.lexsort(rows.T), np.lexsort(haar(n).T)
    np.testing.assert_array_equal(rows[order], haar(n)[other])
    assert depth(n) == np.abs(haar(n)).sum(axis=0).max()
    np.testing.assert_array_equal(np.abs(rows).sum(axis=1), wavelet.support(n))


def test_the_inverse_undoes_the_wavelet_along_any_axis():
    """Quotes inverse: inverse(forward(values)) equals the values."""
    values = np.random.default_rng(0).integers(-9, 9, (5, 7, 4))
    for axis in range(3):
        np.testing.assert_array_equal(inverse(forward(values, axis), axis), values)


@pytest.mark.parametrize("sizes", [(8,), (11,), (4, 6), (3, 2, 5)])
def test_privelet_is_the_matrix_mechanism_of_the_wavelet_matrix(sizes):
    A = np.eye(1)
    for size in sizes:
        A = np.kron(A, haar(size))
    scale = np.abs(A).sum(axis=0).max() / 0.3
    B, scales = noise_map(privelet(sizes), A.shape[1], epsilon=0.3)
    expected = 2 * scale**2 * np.linalg.inv(A.T @ A)
    np.testing.assert_allclose(covariance(B, scales), expected, rtol=1e-9, atol=1e-9 * expected.max())


def expected_range_error(A, n, epsilon):
    """Total squared error of all ranges under the matrix mechanism of A, by its textbook formula."""
    W = workload.all_range(n).matrix.dense()
    return 2 / epsilon**2 * np.abs(A).sum(axis=0).max() ** 2 * np.linalg.norm(W @ np.linalg.pinv(A)) ** 2


@pytest.mark.parametrize(
    ("mechanism", "A"),
    [
        (laplace(), np.eye(12)),
        (hierarchical(), np.vstack(hierarchy_levels(12, 2))),
        (hierarchical(4), np.vstack(hierarchy_levels(12, 4))),
        (privelet(12), haar(12)),
    ],
    ids=["laplace", "hierarchical", "hierarchical 4", "privelet"],
)
def test_errors_are_those_of_the_closed_form(mechanism, A):
    W, x, draw = workload.all_range(12).matrix, np.arange(12), Seeded(np.random.default_rng(5))
    errors = [float(((W.mv(mechanism(x, 0.5, draw)) - W.mv(x)) ** 2).sum()) for _ in range(800)]
    assert mean_of(errors, expected_range_error(A, 12, 0.5), control=1.4)


def test_range_queries_use_their_canonical_intervals():
    """Usage by level against the greedy decomposition of every range into aligned intervals."""
    n = 16
    used = np.zeros(5)
    for low, high in itertools.combinations(range(n + 1), 2):
        while low < high:
            level = min((low & -low).bit_length() - 1 if low else 4, (high - low).bit_length() - 1)
            used[level] += 1
            low += 1 << level
    np.testing.assert_array_equal(hierarchy.usage(workload.all_range(n).matrix.dense()), used)


def test_level_weights_are_the_best_for_independent_levels():
    usage = np.array([5.0, 3.0, 0.0, 40.0])
    best = hierarchy.optimal_weights(usage)
    assert best.sum() == pytest.approx(1)
    assert best[2] == 0

    def error(w):
        return sum(u / v**2 for u, v in zip(usage, w, strict=True) if u)

    rng = np.random.default_rng(0)
    for _ in range(200):
        other = np.abs(best + 0.05 * rng.normal(size=4) * (usage > 0))
        assert error(other / other.sum()) >= error(best) * (1 - 1e-12)


def test_seeded_noise_has_the_density_it_says():
    z = Seeded(np.random.default_rng(0)).laplace(3.0, 40_000)
    assert mean_of(np.abs(z), 3.0, control=1.05)
    assert mean_of(z**2, 18.0, control=1.2)
