"""Covariances of tree norms by brute force, transfer matrices and a Gibbs sampler."""

import math

import numpy as np
import pytest

from hdmm_bf import policy as policies
from hdmm_bf.release.tree_noise import tree_sampler
from tests.support.trees import (
    TINY,
    Dice,
    chain,
    float_law,
    instances,
)

RNG = np.random.default_rng(0)


def within_five_standard_errors(samples, covariance):
    """Whether mean squares and products of centred samples agree with a covariance."""
    products = samples[:, :, None] * samples[:, None, :]
    error = products.std(axis=0) / math.sqrt(len(samples))
    return bool(np.all(np.abs(products.mean(axis=0) - covariance) <= 5 * error + 1e-12))


MOMENTS = [
    ("two cells, presence hidden", 1.5, 40),
    ("a chain", 1.5, 30),
    ("a free cell", 2.0, 30),
    ("three cells on a root", 1.5, 30),
    ("two trees", 1.5, 50),
]


@pytest.mark.parametrize(("name", "epsilon", "reach"), MOMENTS)
def test_covariances_are_those_by_brute_force(name, epsilon, reach):
    """The control is 5 % more variance."""
    sampler = tree_sampler(*TINY[name], epsilon)
    grid, chances = float_law(sampler.ratios, sampler.parents.tolist(), sampler.fixed, reach)
    covariance = (grid * chances[:, None]).T @ grid
    samples = sampler.draw(100_000, source=Dice(1)).astype(np.float64)
    assert within_five_standard_errors(samples, covariance)
    assert not within_five_standard_errors(samples, 1.05 * covariance)
    assert np.all(np.abs(samples.mean(axis=0)) <= 5 * samples.std(axis=0) / math.sqrt(len(samples)))


@pytest.mark.parametrize("place", range(12))
def test_covariances_of_random_trees_are_those_by_brute_force(place):
    small = [pair for pair in instances(60) if 2 <= pair[0].num_cells <= 3]
    strategy, policy = small[place]
    sampler = tree_sampler(strategy, policy, 4.0)
    grid, chances = float_law(sampler.ratios, sampler.parents.tolist(), sampler.fixed, 40)
    samples = sampler.draw(20_000, source=Dice(place)).astype(np.float64)
    assert within_five_standard_errors(samples, (grid * chances[:, None]).T @ grid)


def chain_moments(n, cell, cut, reach):
    """Variances of the prefix sums of a chain with a public total, by products of transfer matrices."""
    s = np.arange(-reach, reach + 1)
    step = np.exp(np.abs(s[:, None] - s) * math.log(cell))
    hold = np.exp(np.abs(s) * math.log(cut))
    forward = [step[reach] * hold]
    for _ in range(n - 2):
        forward.append((forward[-1] @ step) * hold)
        forward[-1] /= forward[-1].sum()
    backward = [step[reach]]
    for _ in range(n - 2):
        backward.append((backward[-1] * hold) @ step)
        backward[-1] /= backward[-1].sum()
    laws = [f * b for f, b in zip(forward, backward[::-1], strict=True)]
    return np.array([(law * s**2).sum() / law.sum() for law in laws])


def test_a_chain_of_64_cells_has_the_variances_of_its_transfer_matrices():
    sampler = tree_sampler(chain(64, 0.2846, 0.1077), policies.threshold(64, 4), 1.0)
    expected = chain_moments(64, sampler.ratios[1], sampler.ratios[64], 120)
    squares = np.cumsum(sampler.draw(4000, source=Dice(3)), axis=1)[:, :-1].astype(np.float64) ** 2
    error = squares.std(axis=0) / math.sqrt(len(squares))
    assert np.all(np.abs(squares.mean(axis=0) - expected) <= 5 * error)
    assert not np.all(np.abs(squares.mean(axis=0) - 1.2 * expected) <= 5 * error)


def gibbs(n, cell, cut, chains, sweeps, generator, reach=70):
    """Prefix sums of a chain with a public total by a Gibbs sampler, odd and even ones in turn, from zero."""
    values = np.arange(-reach, reach + 1)
    sums = np.zeros((chains, n + 1), dtype=np.int64)
    for _ in range(sweeps):
        for start in (1, 2):
            own = np.arange(start, n, 2)
            left, right = sums[:, own - 1, None], sums[:, own + 1, None]
            logs = math.log(cell) * (np.abs(values - left) + np.abs(values - right)) + math.log(cut) * np.abs(values)
            totals = np.cumsum(np.exp(logs - logs.max(axis=2, keepdims=True)), axis=2)
            place = generator.random((chains, own.size, 1)) * totals[:, :, -1:]
            sums[:, own] = values[0] + (totals <= place).sum(axis=2)
    return sums[:, 1:-1]


@pytest.mark.slow
def test_a_chain_of_64_cells_has_the_covariances_of_a_gibbs_sampler():
    sampler = tree_sampler(chain(64, 0.2846, 0.1077), policies.threshold(64, 4), 1.0)
    ours = np.cumsum(sampler.draw(3000, source=Dice(5)), axis=1)[:, :-1].astype(np.float64)
    theirs = gibbs(64, sampler.ratios[1], sampler.ratios[64], 1000, 100, RNG).astype(np.float64)
    for lag in (0, 1, 3, 10):
        one, other = (part[:, lag:] * part[:, : 63 - lag] for part in (ours, theirs))
        error = np.hypot(one.std(axis=0) / math.sqrt(len(one)), other.std(axis=0) / math.sqrt(len(other)))
        assert np.all(np.abs(one.mean(axis=0) - other.mean(axis=0)) <= 5 * error)
    assert not np.all(np.abs(1.5 * (ours**2).mean(axis=0) - (theirs**2).mean(axis=0)) <= 5 * error.max())
