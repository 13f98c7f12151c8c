"""DAWA: costs and their sensitivity by brute force, the privacy of the partition, and what it is good for."""

import itertools
import math

import numpy as np
import pytest

from experiments.mechanisms import deviations, partition
from experiments.mechanisms.dawa import dawa, level_weights, sample_rows
from experiments.mechanisms.draws import Seeded
from experiments.mechanisms.hilbert import hilbert_order
from experiments.mechanisms.mechanism import laplace
from hdmm_bf import workload
from tests.support.noises import Played, Recorder


def deviation(values):
    return np.abs(values - values.mean()).sum()


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 21, 64])
@pytest.mark.parametrize("family", [deviations.aligned, deviations.everywhere])
def test_costs_are_the_length_times_the_deviation(n, family):
    rng = np.random.default_rng(n)
    for x in (rng.integers(0, 6, n), rng.integers(-(10**7), 10**7, n), np.full(n, 4), np.sort(rng.integers(0, 99, n))):
        for intervals in family(x):
            assert intervals.cost.dtype == np.int64
            for start, length, cost in zip(*intervals, strict=True):
                assert cost == pytest.approx(length * deviation(x[start : start + length]), abs=1e-4)


def test_the_families_of_intervals_are_the_dyadic_ones_and_all_of_power_of_two_length():
    x = np.arange(11)
    found = {(int(s), int(m)) for family in deviations.everywhere(x) for s, m, _ in zip(*family, strict=True)}
    assert found == {(s, m) for m in (1, 2, 4, 8) for s in range(11 - m + 1)}
    for level, intervals in enumerate(deviations.aligned(x)):
        cells = np.concatenate([np.arange(s, s + m) for s, m, _ in zip(*intervals, strict=True)])
        np.testing.assert_array_equal(cells, np.arange(11))
        assert set(intervals.start % 2**level) == {0}


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_one_record_changes_a_deviation_by_at_most_two_minus_two_over_its_length(length):
    """Quotes deviations: at most 2 (1 - 1/L), and that is attained. All histograms with entries up to 3."""
    changes = []
    for x in itertools.product(range(4), repeat=length):
        for i in range(length):
            y = np.array(x)
            y[i] += 1
            changes.append(abs(deviation(y) - deviation(np.array(x))))
    assert max(changes) == pytest.approx(2 * (1 - 1 / length))


@pytest.mark.parametrize(("family", "expected"), [(deviations.aligned, 1.0 + 1.5), (deviations.everywhere, 2 + 1.5)])
def test_the_sensitivity_of_all_costs_together(family, expected):
    """What releasing the costs would cost, on 4 cells: one pair and the whole, or two pairs and the whole."""

    def costs(x):
        return np.concatenate([f.cost / f.length for f in family(x)])

    largest = 0.0
    for x in itertools.product(range(4), repeat=4):
        before = costs(np.array(x))
        for i in range(4):
            y = np.array(x)
            y[i] += 1
            largest = max(largest, np.abs(costs(y) - before).sum())
    assert largest == pytest.approx(expected)


def buckets(starts, n):
    return set(itertools.pairwise([*np.asarray(starts).tolist(), n]))


def winning_threshold(x, noise, place, bucket):
    """Largest noise at one place with which the partition still holds that bucket, by bisection; None if never."""

    def has(z):
        played = noise.copy()
        played[place] = z
        return bucket in buckets(partition.private_partition(x, 1.0, 1.0, Played(played)), x.size)

    low, high = -1e4, 1e4
    if not has(low) or has(high):
        return None
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if has(middle) else (low, middle)
    return low


@pytest.mark.parametrize("n", [4, 5])
def test_a_neighbour_moves_the_winning_threshold_by_at_most_the_scale_times_epsilon(n):
    """Quotes private_partition: epsilon-private. The lemma behind it, on the code itself, with all other noise fixed.

    Below both thresholds the two partitions are the same, so the density ratio of the one noise is the whole loss.
    """
    rng = np.random.default_rng(n)
    recorder = Recorder()
    partition.private_partition(np.zeros(n, dtype=int), 1.0, 1.0, recorder)
    scales = recorder.scales()
    family = []
    for level in deviations.aligned(np.zeros(n, dtype=int)):
        for length in sorted(set(level.length.tolist()), reverse=True):
            these = np.flatnonzero(level.length == length)
            family += [(int(level.start[t]), int(level.start[t] + length)) for t in these]
    largest = 0.0
    for _ in range(12):
        x = rng.integers(0, 12, n)
        i = int(rng.integers(n))
        y = x.copy()
        y[i] += 1
        noise = rng.laplace(0, scales)
        for place, bucket in enumerate(family):
            if not bucket[0] <= i < bucket[1] or family.count(bucket) > 1:
                continue
            here, there = (winning_threshold(v, noise, place, bucket) for v in (x, y))
            assert here is not None
            assert there is not None
            largest = max(largest, abs(here - there) / scales[place])
            assert abs(here - there) <= scales[place] * (1 + 1e-9)
            noise_below = noise.copy()
            noise_below[place] = min(here, there) - 1e-6
            parts = [partition.private_partition(v, 1.0, 1.0, Played(noise_below)).tolist() for v in (x, y)]
            assert parts[0] == parts[1]
    assert largest > 0.3, "a bound far above what happens would also pass"


def test_partition_noise_is_of_the_stated_scale_on_every_interval():
    recorder = Recorder()
    partition.private_partition(np.arange(8), 0.5, 1.0, recorder)
    assert recorder.calls == [((4 * m - 2) / 0.5, 8 // m) for m in (1, 2, 4, 8)]
    assert partition.noise_scale(2, 0.5) == 6.0


def test_the_published_partition_loses_more_than_its_epsilon():
    """Three equal counts: all buckets single exactly when both pairs draw more than the price minus their cost."""
    epsilon, price = 0.1, 20.0
    scale = (2 - 1 / 2 - 1 / 3) / epsilon
    x, y = np.array([5, 5, 5]), np.array([5, 6, 5])
    for counts, cost in ((x, 0.0), (y, 1.0)):
        for z in itertools.product([price - cost - 0.01, price - cost + 0.01], repeat=2):
            recorder = Played(z)
            single = len(partition.published_partition(counts, epsilon, price, recorder)) == 3
            assert single == (min(z) > price - cost)
    recorder = Recorder()
    partition.published_partition(x, epsilon, price, recorder)
    assert recorder.calls == [(pytest.approx(scale), 2)]

    def all_single(cost):
        return (0.5 * math.exp(-(price - cost) / scale)) ** 2

    assert math.log(all_single(1.0) / all_single(0.0)) == pytest.approx(12 / 7 * epsilon)


def test_the_budget_of_dawa_adds_up_from_the_noise_it_draws():
    """Stage 1 by the scale of its noise; stage 2 from the levels, one node of which holds a record."""
    x = np.random.default_rng(0).integers(0, 30, 64)
    made = dawa(workload.all_range(64), share=0.25)
    recorder = Recorder()
    made(x, 0.8, recorder)
    first, second = recorder.calls[:7], recorder.calls[7:]
    assert [(4 * 2**level - 2) / scale for level, (scale, _) in enumerate(first)] == pytest.approx([0.2] * 7)
    assert sum(1 / scale for scale, _ in second) == pytest.approx(0.6)
    assert made.spends(0.8) == {"partition": pytest.approx(0.2), "bucket totals": pytest.approx(0.6)}


@pytest.mark.parametrize("noise", ["proven", "published"])
@pytest.mark.parametrize("n", [64, 100])
def test_constant_data_make_one_bucket(noise, n):
    """Without noise: a single bucket is the cheapest (published: of power-of-two lengths, so 64 + 32 + 4)."""
    partitioned = partition.private_partition if noise == "proven" else partition.published_partition
    starts = partitioned(np.full(n, 7), 1.0, 1.0, Played(np.zeros(3000)))
    assert len(starts) == (1 if noise == "proven" else bin(n).count("1"))


@pytest.mark.parametrize("n", [16, 23])
def test_without_noise_the_partition_is_the_cheapest_of_all(n):
    rng = np.random.default_rng(n)
    x = np.repeat(rng.integers(0, 200, 6), 4)[:n]

    def cost(starts, price):
        return sum(deviation(x[a:b]) + price for a, b in buckets(starts, n))

    def cheapest(low, high):
        """Over all partitions of [low, high) into power-of-two lengths, by recursion."""
        best = [0.0] + [math.inf] * (high - low)
        for stop in range(1, high - low + 1):
            for m in (1, 2, 4, 8, 16):
                if m <= stop:
                    best[stop] = min(best[stop], best[stop - m] + deviation(x[low + stop - m : low + stop]) + 3.0)
        return best[-1]

    found = partition.published_partition(x, 1.0, 3.0, Played(np.zeros(500)))
    assert cost(found, 3.0) == pytest.approx(cheapest(0, n))

    def dyadic(low, width):
        high = min(low + width, n)
        if high <= low:
            return 0.0
        whole = deviation(x[low:high]) + 3.0 + 6.0
        return whole if width == 1 else min(whole, dyadic(low, width // 2) + dyadic(low + width // 2, width // 2))

    found = partition.private_partition(x, 1.0, 3.0, Played(np.zeros(500)))
    assert cost(found, 9.0) == pytest.approx(dyadic(0, 16 if n == 16 else 32))


@pytest.mark.parametrize("noise", ["proven", "published"])
def test_dawa_beats_the_identity_tenfold_on_a_histogram_of_few_runs(noise):
    rng = np.random.default_rng(0)
    x = np.repeat([300, 20, 90, 0, 500], [1024, 512, 512, 1024, 1024])
    W = workload.random_range(4096, 2000, seed=3)
    truth, draw = W.matrix.mv(x), Seeded(rng)

    def error(mechanism):
        return np.mean([np.mean((W.matrix.mv(mechanism(x, 0.1, draw)) - truth) ** 2) for _ in range(5)])

    assert error(laplace()) > 10 * error(dawa(W, noise=noise))


def test_the_levels_follow_the_workload():
    starts, lengths = np.arange(16), np.ones(16, dtype=int)
    for_points = level_weights(sample_rows(workload.identity(16)), starts, lengths)
    np.testing.assert_allclose(for_points, np.eye(5)[0])
    np.testing.assert_allclose(level_weights(None, starts, lengths), np.eye(5)[0])
    for_ranges = level_weights(sample_rows(workload.all_range(16)), starts, lengths)
    assert (for_ranges[:4] > 0.1).all()
    total = level_weights(np.ones((1, 16)), starts, lengths)
    assert total[-1] > 0.95
    assert total[0] > 0


def test_sampled_queries_are_queries_of_the_workload():
    for made in (workload.all_range(30), workload.random_range(30, 500, seed=1), workload.prefix(7)):
        rows = sample_rows(made)
        assert len(rows) == min(200, made.num_queries)
        every = {row.tobytes() for row in made.matrix.dense()}
        assert all(row.tobytes() in every for row in rows)


@pytest.mark.parametrize("side", [1, 2, 4, 32])
def test_the_hilbert_curve_visits_every_cell_in_unit_steps(side):
    """Quotes hilbert_order: every cell once; on powers of two every step goes to a cell next to the last."""
    order = hilbert_order((side, side))
    np.testing.assert_array_equal(np.sort(order), np.arange(side**2))
    row, column = np.divmod(order, side)
    np.testing.assert_array_equal(np.abs(np.diff(row)) + np.abs(np.diff(column)), 1)


@pytest.mark.parametrize("sizes", [(3, 5), (25, 25), (7, 1), (1, 1)])
def test_on_other_grids_the_curve_still_visits_every_cell_once(sizes):
    np.testing.assert_array_equal(np.sort(hilbert_order(sizes)), np.arange(sizes[0] * sizes[1]))


def test_the_order_changes_nothing_but_the_buckets():
    rng = np.random.default_rng(2)
    x, order = rng.integers(0, 9, 64), hilbert_order("8x8")
    there = dawa(order=order)(x, 0.7, Seeded(np.random.default_rng(5)))
    plain = dawa()(x[order], 0.7, Seeded(np.random.default_rng(5)))
    np.testing.assert_array_equal(there[order], plain)
