"""Gaussian and pure releases together, beside oracles that share nothing with the package.

Pure losses are whole multiples of a small unit here, so that their sums are exact on its lattice: for the convolution
in this file, and for the privacy-loss distributions of Google's dp-accounting (dependency group `accounting`), which
round normal noise alone, once up and once down.
"""

import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from hdmm_bf.release.ledger import Entry, Total, composition, losses, within
from hdmm_bf.release.ledger.laws import Pure
from hdmm_bf.release.privacy import zcdp_epsilon

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
    return composition.delta_above(mu, tuple(Pure(k * UNIT) for k in pures), epsilon)


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


@pytest.mark.slow
@pytest.mark.parametrize(("mu", "pures", "epsilon"), MIXTURES)
def test_a_mixture_beside_the_privacy_loss_distributions_of_dp_accounting(mu, pures, epsilon):
    """Never below its estimate from below, and within 1 % of its estimate from above."""
    low, high = (by_accountant(mu, pures, epsilon, pessimistic=way) for way in (False, True))
    ours = found(mu, pures, epsilon)
    assert low <= ours == pytest.approx(high, rel=0.01)


# ---------------------------------------------------------------- pure releases alone


def pure(epsilon):
    return Entry("now", "people", "line:4", "laplace", repr(epsilon), None, None, None)


PURES = [(100,) * 100, spread(1, 200, 80, 7), (1000,) * 12, spread(1, 40, 1000, 8)]


def least_epsilon(pures, delta):
    """The least epsilon of pure losses at a delta, by bisection over the lattice."""
    low, high = 0.0, sum(pures) * UNIT
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if by_convolution(0, pures, middle) > delta else (low, middle)
    return high


@pytest.mark.parametrize("pures", PURES)
@pytest.mark.parametrize("delta", [1e-6, 1e-9])
def test_pure_releases_alone_lose_what_their_optimal_composition_says(pures, delta):
    """Never less, within 1 % of it in epsilon, and less than by way of zCDP."""
    truth, entries = least_epsilon(pures, delta), [pure(k * UNIT) for k in pures]
    spent = losses.balance(Total(repr(1e3), repr(delta)), "people", entries)
    assert truth * (1 - 1e-9) <= spent.epsilon_exact <= 1.01 * truth
    assert spent.epsilon_exact < zcdp_epsilon(float(spent.rho), delta) * 0.97
    assert within(Total(repr(1.01 * truth), repr(delta)), entries)
    assert not within(Total(repr(truth * (1 - 1e-6)), repr(delta)), entries)


def test_what_is_left_beside_pure_releases_can_be_spent_and_a_thousandth_more_cannot():
    """Quotes balance: A next release of what is left is within the total, and one of a thousandth more is not."""
    total, before = Total("6.0", "1e-06"), [pure(0.1)] * 100
    left = losses.left_epsilon(total, before)
    assert within(total, [*before, pure(left)])
    assert not within(total, [*before, pure(left * 1.001)])
    mu = losses.left_mu(total, before)
    assert by_convolution(mu, (100,) * 100, 6.0) <= 1e-6 < by_convolution(mu * 1.001, (100,) * 100, 6.0)
