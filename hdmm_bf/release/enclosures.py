"""Enclosures in whole numbers: where floating point leaves a doubt about noise, these decide.

Nothing here is rounded without being bounded: every function returns two whole numbers with the truth between them.
"""

from __future__ import annotations

import math
from fractions import Fraction


def exp_enclosure(t: Fraction, bits: int) -> tuple[int, int]:
    """Return whole numbers low and high with low <= 2^bits exp(-t) <= high, for t >= 0.

    exp(-t) is 1 / exp(s) squared h times, s = t / 2^h <= 1/2. The terms 2^places s^k / k! of exp(s) are rounded down,
    one from the other, each less than 2 below its true value, until one is 0; what follows then is less than 2 in all.
    So n terms add up to at least the truth less 2 n + 2. Reciprocals and squares are rounded outwards.
    """
    assert t >= 0, "exp(-t) is enclosed for t >= 0"
    halvings = max(0, math.ceil(t).bit_length() + 1) if t > Fraction(1, 2) else 0
    places = bits + 2 * halvings + 16
    top, below = t.numerator, t.denominator << halvings
    term = total = 1 << places
    count = 1
    while term:
        term = term * top // (below * count)
        total += term
        count += 1
    low, high = (1 << 2 * places) // (total + 2 * count + 2), -(-(1 << 2 * places) // total)
    for _ in range(halvings):
        low, high = low * low >> places, -(-high * high >> places)
    return low >> places - bits, -(-high >> places - bits)
