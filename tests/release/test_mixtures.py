"""Gaussian and pure releases together, beside oracles that share nothing with the package.

Pure losses are whole multiples of a small unit here, so that their sums are exact on its lattice: for the convolution in
this file, and for the privacy-loss distributions of Google's dp-accounting (dependency group `accounting`), whose rounding
is left with normal noise alone, once up and once down.
"""

import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from hdmm_bf.release.ledger import composition

UNIT = 1e-3


def spread(low, high, count, seed):
    """Different pure losses, in units."""
    return tuple(np.random.default_rng(seed).integers(low, high, count).tolist())


MIXTURES = [  # mu of the normal noise, pure losses in units, epsilon
    (0.5, (300,) * 3, 2.0),
    (1.0, (100,) * 6, 5.0),
    (0.2, (1000, 500, 250, 70), 2.5),
    (0.3, (500,) * 8, 4.0),
    (0.1, (1000,), 1.2),
    (2.0, (1500,), 9.0),
    (0.05, (100, 200, 300), 0.8),
    (0.5, (2000, 10, 10), 4.0),
    (1.0, (7, 11, 13, 17, 19), 4.0),
    (0.01, (50,) * 20, 0.6),
    (0.5, (300,) * 40, 8.0),
    (0.5, spread(10, 400, 60, 1), 8.0),
    (0.2, spread(50, 500, 30, 2), 6.0),
    (3.0, spread(1, 50, 100, 3), 14.0),
    (0.3, spread(1, 100, 200, 4), 3.5),
    (1.0, (100,) * 100, 7.0),
    (0.7, spread(1, 1000, 12, 5), 6.0),
    (0.4, (1, *(100,) * 50), 3.5),
    (0.5, spread(1, 40, 1000, 6), 4.5),
    (0.6325, (20,) * 1000, 5.0),
]


def lattice(pures):
    """The sums of coins that show epsilon with probability e^epsilon / (1 + e^epsilon), else -epsilon, in units."""
    chances = np.ones(1)
    for k in pures:
        truth = 1 / (1 + math.exp(-k * UNIT))
        longer = np.zeros(chances.size + 2 * k)
        longer[: chances.size] += (1 - truth) * chances
        longer[2 * k :] += truth * chances
        chances = longer
    return np.arange(-sum(pures), sum(pures) + 1), chances


def by_convolution(mu, pures, epsilon):
    """E[delta_mu(epsilon - l)] over the lattice, mu = 0 being no normal noise at all."""
    sums, chances = lattice(pures)
    rest = epsilon - sums * UNIT
    if mu == 0:
        return math.fsum(chances * -np.expm1(np.minimum(rest, 0.0)))
    first, second = stats.norm.logcdf(mu / 2 - rest / mu), rest + stats.norm.logcdf(-mu / 2 - rest / mu)
    return math.fsum(chances * np.exp(first) * -np.expm1(second - first))


def found(mu, pures, epsilon):
    return composition.delta_above(mu, tuple(k * UNIT for k in pures), epsilon)


@pytest.mark.parametrize(("mu", "pures", "epsilon"), MIXTURES)
def test_a_mixture_loses_what_the_sums_of_its_losses_say(mu, pures, epsilon):
    """Quotes composition: never below the truth; and within 1 % of it, of many different releases too."""
    truth = by_convolution(mu, pures, epsilon)
    assert truth * (1 - 1e-12) <= found(mu, pures, epsilon) <= 1.01 * truth


def coins(pld, pures, *, pessimistic):
    """Their privacy-loss distributions in dp-accounting, exact on the lattice."""
    for k, count in Counter(pures).items():
        truth = 1 / (1 + math.exp(-k * UNIT))
        made = pld.PrivacyLossDistribution.create_from_rounded_probability(
            {k: truth, -k: 1 - truth}, 0.0, UNIT, pessimistic_estimate=pessimistic
        )
        yield made.self_compose(count) if count > 1 else made


def by_accountant(mu, pures, epsilon, *, pessimistic):
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution", reason="needs dp-accounting")
    made = pld.from_gaussian_mechanism(
        1 / mu,
        pessimistic_estimate=pessimistic,
        value_discretization_interval=UNIT,
        use_connect_dots=pessimistic,
    )
    for coin in coins(pld, pures, pessimistic=pessimistic):
        made = made.compose(coin)
    return made.get_delta_for_epsilon(epsilon)


@pytest.mark.parametrize(("mu", "pures", "epsilon"), MIXTURES)
def test_a_mixture_beside_the_privacy_loss_distributions_of_dp_accounting(mu, pures, epsilon):
    """Never below its estimate from below, and within 1 % of its estimate from above."""
    low, high = (by_accountant(mu, pures, epsilon, pessimistic=way) for way in (False, True))
    ours = found(mu, pures, epsilon)
    assert low <= ours == pytest.approx(high, rel=0.01)
