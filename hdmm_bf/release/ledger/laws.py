"""How pure losses are distributed: any pure release, and Laplace noise on whole numbers.

A move along an edge shifts the rows of a strategy by whole numbers: it is made of steps, a row by one each, of which
every one loses at most eta = 1 / scale and all together at most epsilon. Trade-off functions obey a triangle inequality
(Dong, Roth, Su 2022): from a test of size alpha a step of loss t leads to one of power at most

    h_t(alpha) = min(e^t alpha, 1 - e^-t (1 - alpha)).

Steps of at most eta, however many, end at a power of at most 1 - F(alpha) with, for a = 1 / (1 + e^eta),

    F(alpha) = 1 - e^epsilon alpha                    up to alpha = a e^(eta - epsilon),
               a^2 e^(eta - epsilon) / alpha          between,
               e^-epsilon (1 - alpha)                 from alpha = a on,

and with F(alpha) = 1 - h_epsilon(alpha) if epsilon <= eta. Proof, step by step: a step of t takes F of epsilon to at
least F of epsilon + t. On the outer pieces and on the middle one that is how they scale. Between them a size u, with
a <= u <= 1 - a, goes to at least e^-t (1 - u), which is what the middle piece asks for because u (1 - u) >= a (1 - a).

Its privacy loss is epsilon with probability 1 - a, -epsilon with e^-epsilon (1 - a), and between -(epsilon - eta) and
epsilon - eta it has the density a e^((l - epsilon + eta) / 2) / 2. For eta = epsilon that is the coin of any pure
release, for eta = 0 the law of Laplace noise on a real answer.

Guarantees:
    `law` is that of a pair which is at least as easy to tell apart as the outcomes of a release.
"""

from __future__ import annotations

import math
from typing import NamedTuple, final

import numpy as np

from hdmm_bf._types import RealVector

NEAR = 1e-9
"""Share of the grid's step that a place is rounded by; sums give it back."""


@final
class Pure(NamedTuple):
    """A pure loss, and the most that one of the steps loses that it is made of; itself, if nothing is known of them."""

    epsilon: float
    step: float = math.inf


@final
class Law(NamedTuple):
    """Probabilities of losses on a grid, the first at so many steps of the grid."""

    lowest: int
    chances: RealVector


def law(pure: Pure, grid: float) -> Law:
    """Return the losses of a release on a grid of that step: outcomes between two points are split over both.

    The middle part ends on the grid: eta is made larger for it, which no release can lose more than. Split over two
    points h apart, its probabilities are a e^((l - epsilon + eta) / 2) tanh(h / 4) at either.
    """
    epsilon = pure.epsilon
    half = 0 if pure.step >= epsilon else math.floor((epsilon - pure.step) / grid * (1 - NEAR))
    eta = epsilon - half * grid
    wrong = math.exp(-eta) / (1 + math.exp(-eta))
    ends = [*split(epsilon, 1 - wrong, grid), *split(-epsilon, math.exp(-epsilon) * (1 - wrong), grid)]
    lowest, highest = min(place for place, _ in ends), max(place for place, _ in ends)
    chances = np.zeros(highest - lowest + 1)
    for place, share in ends:
        chances[place - lowest] += share
    if half:
        middle = wrong * np.exp(np.arange(-2 * half, 1) * (grid / 2)) * math.tanh(grid / 4)
        middle[1:-1] *= 2
        chances[-half - lowest : half - lowest + 1] += middle
    return Law(lowest, chances)


def split(loss: float, chance: float, grid: float) -> list[tuple[int, float]]:
    """Return the grid points that an outcome is split into, and their probabilities."""
    steps = loss / grid
    whole = round(steps)
    if abs(steps - whole) <= NEAR:  # what this rounds off is given back in the sums
        return [(whole, chance)]
    below = math.floor(steps)
    share = min(math.expm1((below - steps) * grid) / math.expm1(-grid) + NEAR, 1.0)
    return [(below, (1 - share) * chance), (below + 1, share * chance)]
