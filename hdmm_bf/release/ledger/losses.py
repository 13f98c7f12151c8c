"""Losses add up: plainly, in zero-concentrated privacy (zCDP), and exactly for normal noise (GDP).

Additions are exact, in fractions. Pure losses beside normal noise are composed through their privacy losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias, final

from hdmm_bf._checks import fail
from hdmm_bf._linalg import ROUNDING
from hdmm_bf._types import Noise
from hdmm_bf.release import analytic
from hdmm_bf.release.ledger import composition
from hdmm_bf.release.ledger.laws import Pure
from hdmm_bf.release.privacy import zcdp_delta, zcdp_epsilon

Cost: TypeAlias = Noise | Literal["public"]
"""What a release cost: the loss of its noise, or nothing because every answer is public under the policy."""

_SMALLEST_RHO, _LARGEST_RHO = 1e-300, 10**6
"""Losses that are converted from zCDP; smaller ones are rounded up, larger ones are only added plainly."""

_LEAST, _MOST = 1e-30, 1e7
"""Losses that a release can have."""

_CLOSE = 1e-4


@final
@dataclass(frozen=True)
class Total:
    """What may be spent on one set of data: (epsilon, delta), epsilon alone, or rho. Numbers are exact decimals."""

    epsilon: str | None = None
    delta: str | None = None
    rho: str | None = None

    def __str__(self) -> str:
        named = {"epsilon": self.epsilon, "delta": self.delta, "rho": self.rho}
        return ", ".join(f"{name} = {value}" for name, value in named.items() if value is not None)


@final
@dataclass(frozen=True)
class Entry:
    """One release that was paid for.

    Attributes:
        at: when, in UTC.
        data: the name of the data.
        policy: what was protected.
        noise: "laplace", "norm", "gaussian", or "public" when every answer was public and nothing was spent.
        epsilon: what it cost; see delta and rho.
        delta: with epsilon, for Gaussian noise.
        rho: in zCDP, for Gaussian noise.
        published: where the answers were written, if that is known.
        remark: what was said about the data, such as that they had changed.
        mu: the parameter of Gaussian differential privacy, for rounded normal noise.
        digest: what the policy's edges are known by.
        per_person: the most records of one person, to whom the loss is then promised; None when it is about one record.
        step: of Laplace noise, the most that is lost when one of the strategy's whole numbers changes by one; such
            steps are what the loss is made of. None where it is not known, and the loss counts as any pure one.
    """

    at: str
    data: str
    policy: str
    noise: str
    epsilon: str | None
    delta: str | None
    rho: str | None
    published: str | None
    remark: str | None = None
    mu: str | None = None
    digest: str | None = None
    per_person: int | None = None
    step: str | None = None


@final
@dataclass(frozen=True)
class Balance:
    """What was spent from one account and what is left.

    Attributes:
        account: the name of the data.
        names: all names that were given to them.
        num_releases: how many.
        epsilon: the sum of the epsilons; None when a release has none, only rho.
        delta: the sum of the deltas; None when epsilon is.
        rho: the sum in zCDP, where pure epsilon counts as epsilon^2 / 2.
        epsilon_by_rho: what that sum is at the total's delta; None when the total has none.
        left_epsilon: the largest epsilon of Laplace or tree-norm noise that a next release could have.
        left_rho: the largest rho of Gaussian noise that a next release could have: of rounded normal noise, if all
            Gaussian releases so far were of it; else of any, by zCDP.
        left_plain: epsilon and delta that a next release of Gaussian noise could have by plain addition, if any.
        mu: of all Gaussian releases together; None when one has none, or there are none.
        epsilon_exact: what they and the pure ones are together at the total's delta, exactly or close from above.
        unit: whom the total is for: "record", or "person" with all their records.
        per_person: how many records people have at most for whom the total holds: the least of the releases' bounds.
    """

    account: str
    names: tuple[str, ...]
    num_releases: int
    epsilon: float | None
    delta: float | None
    rho: float
    epsilon_by_rho: float | None
    left_epsilon: float
    left_rho: float
    left_plain: tuple[float, float] | None
    mu: float | None = None
    epsilon_exact: float | None = None
    unit: str = "record"
    per_person: int | None = None

    @property
    def left(self) -> str:
        """What is left, in words."""
        parts = [f"epsilon = {_floor(self.left_epsilon)} of Laplace or tree-norm noise"] if self.left_epsilon else []
        gaussian = [f"rho = {_floor(self.left_rho)}"] if self.left_rho else []
        if self.left_plain is not None:
            epsilon, delta = map(_floor, self.left_plain)
            gaussian.append(f"epsilon = {epsilon} with delta = {delta}")
        parts += [f"{' or '.join(gaussian)} of Gaussian noise"] if gaussian else []
        return "; ".join(parts) or "nothing"


@final
@dataclass(frozen=True)
class _Sums:
    """Exact sums of losses; epsilon is None when a loss has none, mu_squared when a Gaussian one has no mu."""

    epsilon: Fraction | None
    delta: Fraction
    rho: Fraction
    mu_squared: Fraction | None = Fraction(0)
    pures: tuple[Pure, ...] = ()

    @staticmethod
    def of(entries: Iterable[Entry]) -> _Sums:
        sums = _Sums(Fraction(0), Fraction(0), Fraction(0))
        for entry in entries:
            sums = sums.plus(entry.noise, entry.epsilon, entry.delta, entry.rho, entry.mu, entry.step)
        return sums

    def plus(
        self,
        noise: str,
        epsilon: str | None,
        delta: str | None,
        rho: str | None,
        mu: str | None = None,
        step: str | None = None,
    ) -> _Sums:
        if noise == "public":
            return self
        plain = None if self.epsilon is None or epsilon is None else self.epsilon + Fraction(epsilon)
        more = Fraction(rho) if rho is not None else Fraction(epsilon or 0) ** 2 / 2
        square, pures = self.mu_squared, self.pures
        if noise == "gaussian":
            square = None if square is None or mu is None else square + Fraction(mu) ** 2
        else:
            largest = math.inf if step is None else math.nextafter(float(Fraction(step)), math.inf)
            loss = max(math.nextafter(float(Fraction(epsilon or 0)), math.inf), _LEAST)
            pures = (*pures, Pure(loss, largest))
        return _Sums(plain, self.delta + Fraction(delta or 0), self.rho + more, square, pures)

    def within(self, total: Total) -> bool:
        if total.rho is not None:
            return self.rho <= Fraction(total.rho)
        assert total.epsilon is not None
        limit, room = Fraction(total.epsilon), Fraction(total.delta or 0)
        if self.epsilon is not None and self.epsilon <= limit and self.delta <= room:
            return True
        if room == 0 or self.rho > _LARGEST_RHO:
            return False
        return (self._is_known and self._composed(limit) <= room) or self._by_rho(limit, room)

    @property
    def _is_known(self) -> bool:
        """Whether every loss is a pure epsilon or that of normal noise, so that what they lose together is known."""
        return self.mu_squared is not None and bool(self.mu_squared or self.pures)

    def _composed(self, epsilon: Fraction) -> Fraction:
        """A bound of delta, exact without pure losses and close from above with them."""
        lower = math.nextafter(float(epsilon), 0.0)
        if not self.mu_squared:
            return Fraction(composition.delta_above(0.0, self.pures, lower))
        mu = composition.root_above(self.mu_squared)
        if not self.pures:
            return analytic.delta_enclosure(mu, epsilon)[1]
        return Fraction(composition.delta_above(max(math.nextafter(float(mu), math.inf), _LEAST), self.pures, lower))

    def epsilon_exact(self, delta: float) -> float | None:
        """The epsilon of normal and pure noise together at a delta; None where nothing better than sums is known."""
        if not self._is_known:
            return None
        if self.mu_squared and not self.pures:
            return analytic.epsilon_for(composition.root_above(self.mu_squared), delta)
        return _least(lambda epsilon: self._composed(Fraction(epsilon)) <= Fraction(delta))

    def _by_rho(self, limit: Fraction, room: Fraction) -> bool:
        rho = max(float(self.rho) * (1 + ROUNDING), _SMALLEST_RHO)
        return zcdp_delta(rho, min(float(limit), _LARGEST_RHO)) * (1 + ROUNDING) <= room


def within(total: Total, entries: list[Entry]) -> bool:
    """Whether losses are proven to stay within a total, by plain addition or by addition in zCDP.

    Guarantees:
        Additions are exact. Pure epsilon counts as rho = epsilon^2 / 2, and alone as the sum of coins that it is, or
        of the losses of Laplace noise where its steps are known. With an epsilon and a delta as the total this is for
        kinds and sizes of noise that were chosen without a look at earlier answers; totals of epsilon alone and of rho
        hold whatever they were chosen by.
        Rounded normal noise counts as what it is, mu-GDP: alone exactly, and beside pure epsilon by a privacy loss
        distribution that is rounded up.
    """
    return _Sums.of(entries).within(total)


def balance(total: Total, account: str, entries: list[Entry]) -> Balance:
    """Add up the entries of one account.

    Guarantees:
        A next release of what is left is within the total, and one of a thousandth more is not, if nothing is known of
        its noise but epsilon.
    """
    sums = _Sums.of(entries)
    return Balance(
        account,
        tuple(dict.fromkeys([account, *(entry.data for entry in entries)])),
        len(entries),
        None if sums.epsilon is None else float(sums.epsilon),
        None if sums.epsilon is None else float(sums.delta),
        float(sums.rho),
        _epsilon_by_rho(total, sums.rho),
        left_epsilon(total, entries),
        max(
            _largest(lambda loss: sums.plus("gaussian", None, None, repr(loss)).within(total)),
            left_mu(total, entries) ** 2 / 2 * (1 - ROUNDING) if sums.mu_squared else 0.0,
        ),
        _plain_rest(total, sums),
        analytic.up(composition.root_above(sums.mu_squared)) if sums.mu_squared else None,
        None if total.delta is None or sums.rho > _LARGEST_RHO else sums.epsilon_exact(float(total.delta)),
        unit_of(entries) or "record",
        min((entry.per_person for entry in entries if entry.per_person is not None), default=None),
    )


def unit_of(entries: Iterable[Entry]) -> str | None:
    """Return whom losses are promised to, a "record" or a "person"; None if there are none."""
    units = ["record" if entry.per_person is None else "person" for entry in entries if entry.noise != "public"]
    return units[0] if units else None


def check_unit(before: Iterable[Entry], entry: Entry) -> None:
    """Refuse to add up what is promised to records and what is promised to people with all their records."""
    promised, now = unit_of(before), unit_of([entry])
    if promised is None or now is None or promised == now:
        return
    if now == "record":
        problem = "is promised to one record, and earlier releases on these data to people"
        advice = "Say how many records one person has at most: per_person (--per-person)."
    else:
        problem = "is promised to people, and earlier releases on these data to one record"
        advice = "Leave per_person (--per-person) out; the total of this account is for one record."
    raise fail("ledger", "this release", problem, advice)


def left_epsilon(total: Total, entries: list[Entry], steps: float = 1.0) -> float:
    """Return the largest pure epsilon that a next release could have, to rounding; 0 if there is none.

    Args:
        total: what may be spent.
        entries: what was.
        steps: epsilon over the largest step of the next release, whose loss is then found to a ten-thousandth; 1 where
            none is known.
    """
    sums = _Sums.of(entries)

    def holds(loss: float) -> bool:
        return sums.plus("laplace", repr(loss), None, None, step=repr(loss / steps)).within(total)

    low = high = _largest(lambda loss: sums.plus("laplace", repr(loss), None, None).within(total))
    if steps > 1 and total.delta is not None and 0 < low < _MOST:
        while holds(high := 2 * high):
            low = high
        while high > (1 + _CLOSE) * low:
            middle = (low + high) / 2
            low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def left_mu(total: Total, entries: list[Entry]) -> float:
    """Return the largest mu of rounded normal noise that a next release could have, to rounding; 0 if there is none."""
    sums = _Sums.of(entries)

    def holds(mu: float) -> bool:
        return sums.plus("gaussian", None, None, repr(mu * mu / 2 * (1 + ROUNDING)), repr(mu)).within(total)

    return _largest(holds)


def _plain_rest(total: Total, sums: _Sums) -> tuple[float, float] | None:
    if total.epsilon is None or total.delta is None or sums.epsilon is None:
        return None
    epsilon, delta = Fraction(total.epsilon) - sums.epsilon, Fraction(total.delta) - sums.delta
    return (_below(epsilon), _below(delta)) if epsilon > 0 and delta > 0 else None


def _below(number: Fraction) -> float:
    """Return the largest number, to rounding, that is at most a fraction when it is written out."""
    near = float(number)
    return near if Fraction(repr(near)) <= number else math.nextafter(near, 0.0)


def _epsilon_by_rho(total: Total, rho: Fraction) -> float | None:
    if total.delta is None or rho > _LARGEST_RHO:
        return None
    return zcdp_epsilon(max(float(rho), _LEAST), float(total.delta)) if rho else 0.0


def _largest(holds: Callable[[float], bool]) -> float:
    """Return the largest loss of a release, to rounding, for which a condition holds; 0 if there is none."""
    if not holds(_LEAST):
        return 0.0
    if holds(_MOST):
        return _MOST
    low, high = _LEAST, _MOST
    while True:
        middle = math.sqrt(low * high) if high > 2 * low else (low + high) / 2
        if not low < middle < high:
            return low
        low, high = (middle, high) if holds(middle) else (low, middle)


def _least(holds: Callable[[float], bool]) -> float:
    """Return the least loss, to rounding, from which on a condition holds; infinity if there is none."""
    low, high = _LEAST, _MOST
    if not holds(high):
        return math.inf
    while high > (1 + 1e-9) * low:
        middle = math.sqrt(low * high) if high > 2 * low else (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _floor(loss: float) -> str:
    """Write a loss with six digits, rounded down so that it can still be spent."""
    if loss == 0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(loss)) - 5)
    near = f"{loss:.6g}"
    return near if float(near) <= loss else f"{max(loss - step, 0.0):.6g}"


def is_total(total: Total) -> bool:
    """Whether a total is epsilon, epsilon and a delta below 1, or rho."""
    if total.rho is not None:
        return total.epsilon is None and total.delta is None
    return total.epsilon is not None and (total.delta is None or float(total.delta) < 1)
