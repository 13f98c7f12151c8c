"""The whole law of tree norms by exact enumeration, tail included."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from hdmm_bf.release import tree_noise, tree_tables, tree_tail
from hdmm_bf.release.tree_noise import tree_sampler
from tests.support import branching
from tests.support.trees import (
    FIVE_SIGMA,
    TINY,
    Dice,
    Stated,
    Words,
    exact_weight,
    float_law,
    largest_logarithm,
    vectors,
    worst_loss,
)


def in_small_boxes(name, epsilon, monkeypatch):
    """A sampler that often leaves its tables: each may end where the message has fallen to a quarter or so.

    The symbol for what is outside then has a quarter of the weight of all others, which is still enough.
    """
    sampler = dataclasses.replace(tree_sampler(*TINY[name], epsilon), tail=3)
    with monkeypatch.context() as patch:
        patch.setattr(tree_tables.Plan, "allowance", lambda *_: 1.0)
        assert max(table.reach for table in sampler.tables) <= 4
    return sampler


def tail_law(name, monkeypatch, *, epsilon=5.0):
    strategy, policy = TINY[name]
    sampler = in_small_boxes(name, epsilon, monkeypatch)
    return sampler, policy, *branching.law(sampler, monkeypatch)


def check_law(sampler, found, again, rare):
    """Every outcome has its weight times one number, inside and outside the box, and none that is likely is missing."""
    assert sum(found.values()) + again + rare == 1
    quotients = {z: chance / exact_weight(sampler, z) for z, chance in found.items()}
    assert largest_logarithm(max(quotients.values()) / min(quotients.values())) <= sampler.slack
    stated = Stated(sampler)
    assert sum(stated.parts(z) is None for z in found) > 3
    likely = max(quotients.values())
    for z in vectors(sampler, 4):
        if likely * exact_weight(sampler, z) > 64 * branching.LEAST:
            assert z in found


@pytest.mark.parametrize("name", TINY)
def test_the_law_is_exact_inside_the_tables_and_outside(name, monkeypatch):
    """Quotes draw_outside: every outcome outside the box has the probability of its weight [...] over `outside`.

    Also quotes tree_noise: every vector of whole numbers that can occur has its probability to a factor that `slack`
    bounds. The law is enumerated over all choices that the sampler could make, with boxes so small that one attempt in
    five leaves them.
    """
    sampler, policy, found, again, rare = tail_law(name, monkeypatch)
    check_law(sampler, found, again, rare)
    assert rare < 1e-2
    logs = {z: largest_logarithm(chance) for z, chance in found.items()}
    assert worst_loss(policy, list(found), logs.get) <= 5.0


def test_a_tail_that_is_cut_off_is_caught(monkeypatch):
    monkeypatch.setattr(tree_noise, "draw_outside", lambda *_: None)
    sampler, _, *law = tail_law("two cells, public total", monkeypatch)
    with pytest.raises(AssertionError):
        check_law(sampler, *law)


def test_a_tail_with_half_its_weight_is_caught(monkeypatch):
    def halved(kinds, piece, reaches, exponent, outside, tail, source):
        return tree_tail.draw_outside(kinds, piece, reaches, exponent, 2 * outside, tail, source)

    monkeypatch.setattr(tree_noise, "draw_outside", halved)
    sampler, _, found, *_ = tail_law("two cells, public total", monkeypatch)
    quotients = [chance / exact_weight(sampler, z) for z, chance in found.items()]
    assert float(largest_logarithm(max(quotients) / min(quotients))) == pytest.approx(math.log(2), abs=1e-6)


@pytest.mark.parametrize("name", ["a chain", "two cells, presence hidden"])
def test_the_tail_of_full_tables_can_be_drawn(name):
    """A uniform number within 2^-128 of 1 is the symbol; zeros then choose what is outside, and ones to draw again."""
    sampler, ones = tree_sampler(*TINY[name], 6.0), 2**64 - 1
    stated = Stated(sampler)
    assert stated.parts(sampler.draw(source=Words(ones, ones))[0].tolist()) is None
    assert stated.parts(sampler.draw(source=Words(ones, ones, ones))[0].tolist()) is not None


def chi_square(samples, grid, chances):
    """Pearson's statistic over vectors expected at least 10 times, all others as one, and its degrees of freedom."""
    expected = chances * len(samples)
    common = np.flatnonzero(expected >= 10)
    places = {tuple(z): place for place, z in enumerate(grid[common].tolist())}
    seen = np.bincount([places.get(tuple(z), common.size) for z in samples.tolist()], minlength=common.size + 1)
    expected = np.append(expected[common], len(samples) - expected[common].sum())
    return float(((seen - expected) ** 2 / expected).sum()), common.size


def test_samples_with_frequent_tails_have_the_true_law(monkeypatch):
    """The control is the law within the tables: it has lost what is outside."""
    sampler = in_small_boxes("a chain", 3.0, monkeypatch)
    samples = sampler.draw(2000, source=Dice(7))
    grid, chances = float_law(sampler.ratios, sampler.parents.tolist(), sampler.fixed, 12)
    statistic, freedom = chi_square(samples, grid, chances)
    assert statistic < stats.chi2.isf(FIVE_SIGMA, freedom)
    stated = Stated(sampler)
    boxed = np.array([stated.parts(z) is not None for z in grid.tolist()]) * chances
    assert boxed.sum() < 0.99
    statistic, freedom = chi_square(samples, grid, boxed / boxed.sum())
    assert statistic > stats.chi2.isf(FIVE_SIGMA, freedom)


def test_hardly_any_mass_is_outside_the_tables():
    """Quotes messages: The mass outside the box is at most the number of nodes times `allowance` of the whole."""
    for tail in (3, 10):
        for name in ("a chain", "two cells, presence hidden", "three cells on a root"):
            sampler = dataclasses.replace(tree_sampler(*TINY[name], 3.0), tail=tail)
            grid, chances = float_law(sampler.ratios, sampler.parents.tolist(), sampler.fixed, 16)
            common = chances > 2.0 ** -(tail + 20)  # the grid and the rest hold far less than 2^-tail
            stated = Stated(sampler)
            outside = [stated.parts(z) is None for z in grid[common].tolist()]
            assert chances[common] @ outside + (1 - chances[common].sum()) <= 2.0**-tail
            assert sampler.plan.allowance(tail) * sampler.plan.num_nodes <= 2.0**-tail
