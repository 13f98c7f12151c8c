"""The privacy of normal noise, exactly: delta(epsilon) of the Gaussian mechanism, enclosed, and the least sigma for it.

At mu = shift / sigma (mu-GDP) the least delta at an epsilon is Phi(-a) - e^epsilon Phi(-b), a = epsilon / mu - mu / 2
and b = epsilon / mu + mu / 2 (Balle and Wang, 2018). With R(t) = (1 - Phi(t)) / phi(t), Mills' ratio, it is

    phi(a) (R(a) - R(b))  for a >= 0,    1 - phi(a) (R(-a) + R(b))  for a < 0,

as e^epsilon phi(b) = phi(a). Everything is computed in whole numbers over a power of two, rounded outwards.

Guarantees:
    Rounded normal noise of `sigma_for(t, epsilon, delta)` makes whole answers of squared L2 sensitivity t
    (epsilon, delta)-private; with 10^-14 less of it that is not seen to hold.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction

from hdmm_bf._checks import fail
from hdmm_bf.release.enclosures import exp_enclosure
from hdmm_bf.release.privacy import gaussian_epsilon, gaussian_sigma

_BITS = 224
"""Binary places of what is computed; what is lost of them by cancellation makes the enclosure wider, no more."""

_ROOT_BITS = 96
_MOST_BITS = 1100
"""Places for exp(-a^2 / 2): a delta below 2^-1100, less than any float, need not be told from 0."""

_SERIES = 6
"""Mills' ratio comes from its series below, and from its continued fraction from here on."""

_CLOSE = Fraction(1, 2**36)
_CLOSEST = Fraction(1, 2**50)
Ends = tuple[int, int]


def delta_enclosure(mu: Fraction, epsilon: Fraction) -> tuple[Fraction, Fraction]:
    """Return bounds, from below and above, of the least delta of mu-GDP at an epsilon; both positive numbers."""
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    extra = min(math.ceil(a * a), _MOST_BITS) if a > 0 else 0  # exp(-a^2 / 2) is small
    bits = _BITS + extra
    low, high = exp_enclosure(a * a / 2, bits)
    root_low, root_high = _root_of_two_pi(bits)
    density = (low << bits) // root_high, -((-high << bits) // root_low)
    near, far = mills(abs(a), bits), mills(b, bits)
    if a >= 0:
        least, most = density[0] * max(near[0] - far[1], 0), density[1] * (near[1] - far[0])
    else:
        one = 1 << 2 * bits
        least, most = max(one - density[1] * (near[1] + far[1]), 0), one - density[0] * (near[0] + far[0])
    return Fraction(least, 1 << 2 * bits), Fraction(most, 1 << 2 * bits)


def mills(t: Fraction, bits: int) -> Ends:
    """Enclose 2^bits (1 - Phi(t)) / phi(t) for t >= 0."""
    return _mills_fraction(t, bits) if t >= _SERIES else _mills_series(t, bits)


def _mills_fraction(t: Fraction, bits: int) -> Ends:
    """1 / x_1, where x_n = t + n / x_(n+1): Laplace's continued fraction, whose tails x_n lie between t and t + n/t."""
    scaled = t.numerator << bits
    t_low, t_high = scaled // t.denominator, -(-scaled // t.denominator)
    one, length = 1 << 2 * bits, 64
    while True:
        low, high = t_low, t_high + -(-length * one // t_low)
        for n in range(length - 1, 0, -1):
            low, high = t_low + n * one // high, t_high + -(-n * one // low)
        if high - low <= 1 << (bits // 8) or length > 1 << 14:  # seven eighths of the places agree
            return one // high, -(-one // low)
        length *= 2


def _mills_series(t: Fraction, bits: int) -> Ends:
    """exp(t^2 / 2) sqrt(pi / 2) less t + t^3 / 3 + t^5 / (3 5) + ..., terms being rounded both down and up.

    From where a term is less than half the one before, all that follow are at most as much as it.
    """
    square = t * t
    top, below = square.numerator, square.denominator
    term = more = (t.numerator << bits) // t.denominator
    more += 1
    low_sum, high_sum, k = term, more, 1
    while more > 1 or 2 * square > 2 * k + 1:
        term, more = term * top // (below * (2 * k + 1)), -(-more * top // (below * (2 * k + 1)))
        low_sum, high_sum, k = low_sum + term, high_sum + more, k + 1
    low, high = exp_enclosure(square / 2, bits)  # of exp(-t^2 / 2)
    root_low, root_high = _root_of_two_pi(bits)
    first = (root_low << bits) // (2 * high), -((-root_high << bits) // (2 * low))
    return first[0] - high_sum - more, first[1] - low_sum


@functools.lru_cache(maxsize=64)
def _root_of_two_pi(bits: int) -> Ends:
    """Enclose 2^bits sqrt(2 pi), by Machin's formula pi = 16 arctan(1/5) - 4 arctan(1/239)."""
    places = 2 * bits + 16
    fifth, small = _arctan(5, places), _arctan(239, places)
    low, high = 16 * fifth[0] - 4 * small[1], 16 * fifth[1] - 4 * small[0]
    return math.isqrt(2 * low >> 16), math.isqrt(-(-2 * high >> 16)) + 1


def _arctan(m: int, places: int) -> Ends:
    """Enclose 2^places arctan(1/m): each of n terms of the alternating series is rounded by less than 1."""
    power, total, k = (1 << places) // m, 0, 0
    while power:
        total += (power // (2 * k + 1)) * (-1) ** k
        power //= m * m
        k += 1
    return total - 3 * k - 3, total + 3 * k + 3


# ---------------------------------------------------------------- what a noise keeps


def mu_above(square: int, sigma: float) -> Fraction:
    """Return a number that mu = sqrt(square) / sigma does not exceed, within 2^-96 of the root."""
    return Fraction(math.isqrt(square << 2 * _ROOT_BITS) + 1, 1 << _ROOT_BITS) / Fraction(sigma)


def keeps(mu: Fraction, epsilon: float, delta: float) -> bool:
    """Whether mu-GDP is proven to imply (epsilon, delta)."""
    return delta_enclosure(mu, Fraction(epsilon))[1] <= Fraction(delta)


@functools.lru_cache(maxsize=256)
def sigma_for(square: int, epsilon: float, delta: float) -> float:
    """Return the least sigma, to rounding, that makes answers of that squared sensitivity (epsilon, delta)-private."""
    proposal = math.sqrt(square) * gaussian_sigma(epsilon, delta)
    return _least(proposal, lambda sigma: keeps(mu_above(square, sigma), epsilon, delta))


@functools.lru_cache(maxsize=256)
def epsilon_for(mu: Fraction, delta: float) -> float:
    """Return the least epsilon, to rounding, that mu-GDP implies at a delta; mu may be rounded up."""
    return _least(gaussian_epsilon(float(1 / mu), delta), lambda epsilon: keeps(mu, epsilon, delta))


def _least(proposal: float, holds: Callable[[float], bool]) -> float:
    """Return the least number near a proposal, to a relative 2^-50, for which a condition is seen to hold."""
    width = _CLOSE
    while True:
        low, high = float(Fraction(proposal) * (1 - width)), up(Fraction(proposal) * (1 + width))
        if holds(high) and not holds(low):
            break
        width *= 16
        if width >= 1:
            raise fail("privacy", "parameters", "are out of reach of the noise", "Use less extreme ones.")
    while high - low > _CLOSEST * Fraction(high):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def up(number: Fraction) -> float:
    """Return the least float that is not below a fraction."""
    near = float(number)
    return near if Fraction(near) >= number else math.nextafter(near, math.inf)


def down(number: Fraction) -> float:
    """Return the largest float that is not above a fraction."""
    return -up(-number)
