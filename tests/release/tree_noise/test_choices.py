"""Choices with exact probabilities."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from hdmm_bf.release import choice
from tests.support.trees import (
    FIVE_SIGMA,
    Dice,
    Words,
)


def reference_choice(weights, word, bits=64):
    """The position that a uniform number in [word, word + 1) / 2^bits has, or None if it is not yet decided."""
    total = sum(map(Fraction, weights))
    below, above = word * total / 2**bits, (word + 1) * total / 2**bits
    start = Fraction(0)
    for position, weight in enumerate(weights):
        if start <= below and above <= start + Fraction(weight):
            return position
        start += Fraction(weight)
    return None


def edges_of(weights):
    """Words at and beside every partial sum."""
    total = sum(map(Fraction, weights))
    for partial in itertools.accumulate(map(Fraction, weights)):
        near = math.floor(partial / total * 2**64)
        yield from (word for word in range(near - 2, near + 3) if 0 <= word < 2**64)


@pytest.mark.parametrize(
    "weights",
    [[1.0, 1.0], [1.0, 1.0, 1.0], [0.1, 0.2, 0.7], [1e-30, 1.0, 1e-30], [3.0, 0.0, 5.0], [0.3] * 50, [2.0**-300, 1.0]],
)
def test_choices_are_exact_at_every_partial_sum(weights):
    """Quotes choose: The probabilities are exactly those of the weights, read as the dyadic numbers that they are."""
    for word in {*edges_of(weights), 0, 2**64 - 1, 2**63}:
        drawn = int(choice.choose(np.array(weights), 1, Words(word))[0])
        longer = (reference_choice(weights, word << more, 64 + more) for more in range(0, 640, 64))
        assert drawn == next(position for position in longer if position is not None)


def test_a_word_that_does_not_decide_asks_for_more():
    thirds = Words(2**64 // 3, 2**63)
    assert choice.choose(np.ones(3), 1, thirds)[0] == 1
    assert thirds.given == 2
    assert choice.choose(np.ones(3), 1, Words(2**64 // 3, 2**64 // 3 - 1))[0] == 0
    assert choice.choose(np.ones(3), 1, Words(2**64 // 3, 2**64 // 3, 2**63))[0] == 1


def test_floats_decide_alone_only_where_they_cannot_err(monkeypatch):
    """The control: partial sums in floating point, taken at their word, choose wrongly beside an edge."""
    asked = []
    exactly = choice.choose_integer
    monkeypatch.setattr(choice, "choose_integer", lambda *given: asked.append(given) or exactly(*given))
    weights = np.array([0.1] * 10 + [0.7])
    wrong = 0
    for word in edges_of(weights.tolist()):
        asked.clear()
        drawn = choice.choose(weights, 1, Words(word))[0]
        assert asked
        naive = np.searchsorted(np.cumsum(weights), word * 2.0**-64 * np.cumsum(weights)[-1], side="right")
        wrong += naive != drawn
    assert wrong > 0
    asked.clear()
    choice.choose(weights, 100_000, Dice())
    assert len(asked) <= 1


def test_one_symbol_needs_no_bits_and_a_weight_of_zero_is_never_drawn():
    dice = Dice()
    assert not choice.choose(np.array([0.7]), 5, dice).any()
    assert dice.used == 0
    drawn = choice.choose(np.array([0.0, 1.0, 0.0, 1.0, 0.0]), 1000, dice)
    assert set(drawn.tolist()) == {1, 3}
    assert choice.choose_integer([0, 3, 0], Words()) == 1
    assert choice.choose_fraction([Fraction(0), Fraction(1, 3)], Words()) == 1


def test_choices_have_the_probabilities_of_their_weights():
    weights = np.array([1.0, 2.5, 0.01, 4.0])
    seen = np.bincount(choice.choose(weights, 100_000, Dice()), minlength=4)
    expected = 100_000 * weights / weights.sum()
    assert ((seen - expected) ** 2 / expected).sum() < stats.chi2.isf(FIVE_SIGMA, 3)
    fractions = [Fraction(w) for w in weights.tolist()]
    dice = Dice(1)
    seen = np.bincount([choice.choose_fraction(fractions, dice) for _ in range(20_000)], minlength=4)
    assert ((seen - expected / 5) ** 2 / (expected / 5)).sum() < stats.chi2.isf(FIVE_SIGMA, 3)
