"""Exact draws from a finite list of weights, with bits of the system's secure generator.

A uniform number is drawn bit by bit and compared with partial sums. Floating point decides where its proven error
leaves no doubt; everywhere else whole numbers decide, with more bits where they are needed.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import TypeAlias

import numpy as np
from jaxtyping import Float64, Int64

Source: TypeAlias = Callable[[int], bytes]
"""Gives that many random bytes: `os.urandom`, or a stand-in for tests."""

_WORD = 64
"""Random bits drawn at a time."""

_UNIT = 2.0**-53
"""Largest relative error of one operation in double precision."""


def choose(weights: Float64[np.ndarray, " k"], count: int, source: Source) -> Int64[np.ndarray, " count"]:
    """Draw positions, independently, each with probability proportional to its weight.

    Guarantees:
        The probabilities are exactly those of the weights, read as the dyadic numbers that they are.
    """
    if weights.size == 1:
        return np.zeros(count, dtype=np.int64)
    words = np.frombuffer(source(_WORD // 8 * count), dtype="<u8")
    sums = np.cumsum(weights)
    # k - 1 additions of numbers that are not negative put each sum off by at most (k - 1) units of the total, and the
    # scaled uniform number by (k - 1) + 3 of them and 2^-64 for the bits not yet drawn; twice that is left as margin.
    margin = 4 * (weights.size + 8) * _UNIT * sums[-1]
    place = words.astype(np.float64) * 2.0**-_WORD * sums[-1]
    found = np.asarray(np.searchsorted(sums, place - margin, side="right"), dtype=np.int64)
    doubtful = np.flatnonzero(found != np.searchsorted(sums, place + margin, side="right"))
    for row in doubtful:
        found[row] = choose_integer(integers(weights), source, int(words[row]), _WORD)
    return found


def integers(weights: Float64[np.ndarray, " k"]) -> list[int]:
    """Return whole numbers in exactly the proportions of the weights."""
    fractions, exponents = np.frexp(weights)
    least = int(exponents.min())
    whole = np.ldexp(fractions, 53).astype(np.int64)
    return [m << (e - least) for m, e in zip(whole.tolist(), exponents.tolist(), strict=True)]


def choose_fraction(weights: Sequence[Fraction], source: Source) -> int:
    """Draw one position with probability proportional to its weight, exactly."""
    common = math.lcm(*(weight.denominator for weight in weights))
    return choose_integer([weight.numerator * (common // weight.denominator) for weight in weights], source)


def choose_integer(weights: Sequence[int], source: Source, word: int = 0, bits: int = 0) -> int:
    """Draw one position with probability proportional to its weight; the first `bits` bits are given in `word`.

    The uniform number lies in [word, word + 1) / 2^bits. It is decided when no partial sum lies inside.
    """
    sums = list(accumulate(weights))
    total = sums[-1]
    while True:
        position = bisect_right(sums, word * total >> bits)
        if (word + 1) * total <= sums[position] << bits:
            return position
        word = word << _WORD | int.from_bytes(source(_WORD // 8), "little")
        bits += _WORD
