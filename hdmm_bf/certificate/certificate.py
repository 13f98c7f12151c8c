"""What holds for a shipped strategy: finite numbers, and whether claims agree with them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import singledispatch
from typing import Any, final

from hdmm_bf._checks import fail
from hdmm_bf._types import AGREEMENT, Noise
from hdmm_bf.problem.transform import Problem

_MOST_SENSITIVITY_BITS = 1000


@final
@dataclass(frozen=True)
class Certificate:
    """What holds for a shipped strategy.

    Attributes:
        noise: "gaussian" (L2) or "laplace" (L1).
        sensitivity_exact: the L1 sensitivity, or the square of the L2 sensitivity, of the integers; a whole number.
        bits: binary places: the strategy is the integers over 2^bits.
        sensitivity: the sensitivity of the strategy.
        support: largest share of a query that the strategy cannot answer; 0 up to rounding.
        unit_error: sensitivity^2 ||W A^+||_F^2.
        svd_bound: the paper's bound.
        lower_bound: the best proven bound; 0 where none is.
        gap: unit_error / lower_bound - 1; infinite where no bound is proven.

    Guarantees:
        Every number is finite and none is negative, but for a gap without a bound, and for a gap below 0 by rounding.
    """

    noise: Noise
    sensitivity_exact: int
    bits: int
    sensitivity: float
    support: float
    unit_error: float
    svd_bound: float
    lower_bound: float
    gap: float

    def __post_init__(self) -> None:
        numbers = {name: value for name, value in asdict(self).items() if name not in ("noise", "gap")}
        if self.lower_bound > 0 or self.gap != math.inf:
            numbers["gap"] = self.gap + AGREEMENT
        for name, value in numbers.items():
            if not 0 <= value < math.inf:
                raise fail("certificate", f"{name}={value}", "must be finite and not negative", "Fit again.")

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values; the exact integer as text, which no JSON reader rounds."""
        gap = self.gap if math.isfinite(self.gap) else None  # no bound is proven
        return {**asdict(self), "sensitivity_exact": str(self.sensitivity_exact), "gap": gap}


@singledispatch
def certify(strategy: Any, problem: Problem, *, noise: Noise, proof: Any, bounds: Any = None) -> Certificate:
    """Derive everything about a shipped strategy again; one implementation per record of strategy.

    Args:
        strategy: what ships.
        problem: the workload under the policy.
        noise: "gaussian" or "laplace".
        proof: what proves the lower bound: {"kind": "edges", "weights": ...} for strategies that are written out.
        bounds: SVD bound and lower bound, evaluated from the proof by factors, for strategies by factors.
    """
    raise TypeError(f"no certificate for {type(strategy).__name__}")


def disagreements(claimed: dict[str, Any], derived: Certificate) -> list[str]:
    """List, in words, every claimed number that differs from the derived one; empty when all agree."""
    found = []
    for name, value in derived.as_dict().items():
        if name not in claimed:
            found.append(f"{name} is missing, derived {value}")
        elif not _agree(name, claimed[name], value):
            found.append(f"{name} is claimed to be {claimed[name]}, derived {value}")
    return found


def _agree(name: str, claimed: Any, derived: Any) -> bool:
    if derived is None or isinstance(derived, str | int):
        return bool(claimed == derived)
    if isinstance(claimed, bool) or not isinstance(claimed, int | float) or not math.isfinite(claimed):
        return False
    room = AGREEMENT if name in ("gap", "support") else 0.0  # differences of nearly equal numbers
    return math.isclose(claimed, derived, rel_tol=AGREEMENT, abs_tol=room)


def scaled_sensitivity(exact: int, bits: int, noise: Noise) -> float:
    """Return the sensitivity of a strategy from that of its integers over 2^bits."""
    if exact.bit_length() > _MOST_SENSITIVITY_BITS:
        problem = f"is beyond 2^{_MOST_SENSITIVITY_BITS}, which no noise covers"
        raise fail("certificate", f"a sensitivity of {exact.bit_length()} bits", problem, "Fit the strategy again.")
    return math.ldexp(math.sqrt(exact) if noise == "gaussian" else float(exact), -bits)
