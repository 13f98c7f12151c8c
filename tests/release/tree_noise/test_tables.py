"""Tables of tree norms in 50 digits."""

import math

import mpmath
import numpy as np
import pytest

from hdmm_bf import policy as policies
from hdmm_bf.release import tree_tables
from hdmm_bf.release.tree_noise import tree_sampler
from tests.support.trees import (
    binary,
    chain,
    instances,
    precise_messages,
    star,
)


@pytest.mark.parametrize(
    ("strategy", "policy", "epsilon"),
    [
        (chain(8, 0.3, 0.1), policies.threshold(8, 2), 1.0),
        (binary(8, 0.25), policies.unbounded(8), 2.0),
        (binary(8, 0.25, jitter=np.random.default_rng(1)), policies.unbounded(8), 2.0),
        (star(6, 0.5), policies.bounded(6), 1.0),
        *((*instance, 3.0) for instance in instances(12)),
    ],
)
def test_tables_have_the_relative_error_that_is_counted(strategy, policy, epsilon):
    """Quotes messages: Entries have the relative error of at most the roundings counted in the subtree."""
    sampler = tree_sampler(strategy, policy, epsilon)
    kinds, tables = sampler.plan.kinds, sampler.tables
    counts = []
    with mpmath.workdps(50):
        precise = precise_messages(kinds, [table.reach for table in tables])
        for kind, table, exact in zip(kinds, tables, precise, strict=True):
            counts.append(table.roundings + sum(counts[child] for child in kind[1:3] if child >= 0))
            scale = mpmath.mpf(2) ** table.exponent
            worst = max(abs(mpmath.mpf(float(m)) * scale / exact[s] - 1) for s, m in enumerate(table.values))
            assert worst <= counts[-1] * mpmath.mpf(2) ** -53 * 1.01
    assert sum(table.roundings for table in tables) <= sampler.counted <= sampler.roundings


@pytest.mark.parametrize("reach", [4, 512, 2**13])
def test_long_sums_have_the_error_that_is_counted(reach):
    """Entries of both convolutions, against sums of rounded products that math.fsum adds without error."""
    one, ratio = np.exp(-np.linspace(0, 60, reach + 1)), 1 - 8 / reach / 1.5
    other = np.exp(-np.linspace(0, 70, reach + 90))
    both = np.concatenate([other[:0:-1], other])
    with mpmath.workdps(30):
        powers = np.array([float(mpmath.mpf(ratio) ** j) for j in range(reach + 1)])
    for length in (reach // 2, 2 * reach):
        direct = tree_tables.convolved(one, other, length)
        recursive = tree_tables.with_geometric(other, ratio, reach, length)
        for s in {0, 1, length // 3, length}:
            k = np.arange(max(-reach, s - other.size + 1), min(reach, s + other.size - 1) + 1)
            moved = both[s - k + other.size - 1]
            truth = math.fsum(one[np.abs(k)] * moved)
            assert direct[s] == pytest.approx(truth, rel=(2 * reach + 3) * 2.0**-53)
            truth = math.fsum(powers[np.abs(k)] * moved)
            assert recursive[s] == pytest.approx(truth, rel=(reach + reach.bit_length() + 6) * 2.0**-53)


def test_a_rounding_that_is_not_counted_is_caught():
    """The control: single precision fails the count."""
    one = np.exp(-np.linspace(0, 60, 401))
    rough = tree_tables.convolved(one.astype(np.float32).astype(np.float64), one, 300)
    assert np.any(np.abs(rough / tree_tables.convolved(one, one, 300) - 1) > 900 * 2.0**-53)


@pytest.mark.parametrize(
    ("strategy", "policy", "epsilon"),
    [
        (chain(32, 0.2846, 0.1077), policies.threshold(32, 4), 0.1),
        (binary(32, 1 / 6), policies.unbounded(32), 0.2),
        (star(64, 0.5), policies.bounded(64), 0.5),
        *((*instance, 0.5) for instance in instances(10)),
    ],
)
def test_memory_and_work_are_known_before_there_are_tables(strategy, policy, epsilon):
    sampler = tree_sampler(strategy, policy, epsilon)
    memory, operations = sampler.memory, sampler.operations
    assert "tables" not in vars(sampler)
    assert memory == pytest.approx(sum(table.values.nbytes for table in sampler.tables), rel=0.5)
    reaches = [table.reach for table in sampler.tables]
    assert operations == pytest.approx(tree_tables.work(sampler.plan.kinds, reaches)[1], rel=0.5)


def test_equal_subtrees_share_one_table():
    sampler = tree_sampler(binary(64, 1 / 7), policies.unbounded(64), 1.0)
    assert len(sampler.tables) == 7
    assert sampler.plan.num_nodes == 127
