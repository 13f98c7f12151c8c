"""What holds for a shipped strategy: finite numbers, and whether claims agree with them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import singledispatch
from typing import Protocol, final, runtime_checkable

from hdmm_bf._checks import fail
from hdmm_bf._types import AGREEMENT, JsonObject, Noise, Number, Proof
from hdmm_bf.problem.goal import Kind
from hdmm_bf.problem.transform import Problem

_MOST_SENSITIVITY_BITS = 1000

_ADDED = frozenset({"worst_variance", "objective", "objective_value", "objective_bound"})
"""What bundles of strategies for the total did not claim at first."""


@runtime_checkable
class Bounds(Protocol):
    """The SVD bound and the best lower bound for sensitivity 1; None where they cannot be evaluated."""

    @property
    def svd(self) -> float | None:
        """The paper's SVD bound."""
        ...

    @property
    def lower(self) -> float | None:
        """The best bound known, whatever the noise."""
        ...

    @property
    def paired(self) -> float | None:
        """The bound for Laplace noise of a proof that has pairs of edges; None for others."""
        ...


@final
@dataclass(frozen=True)
class Certificate:
    """What holds for a shipped strategy.

    Attributes:
        noise: "gaussian" (L2), "laplace" (L1) or "norm" (the longest policy edge in a tree).
        sensitivity_exact: the L1 sensitivity, or the square of the L2 sensitivity, of the integers; a whole number.
        bits: binary places: the strategy is the integers over 2^bits.
        sensitivity: the sensitivity of the strategy.
        support: largest share of a query that the strategy cannot answer; 0 up to rounding.
        unit_error: sensitivity^2 ||W A^+||_F^2; for tree norms epsilon^2 E[z^T W^T W z] / 2 as epsilon goes to 0.
        svd_bound: the paper's bound, for matrix mechanisms.
        lower_bound: the best proven bound for this noise; 0 where none is, as for tree norms.
        gap: unit_error / lower_bound - 1; infinite where no bound is proven.
        matrix_bound: the best proven bound on matrix mechanisms whatever their noise, where `lower_bound` is another:
            for tree norms, which it does not bind, a yardstick; for Laplace noise, where pairs of edges prove more.
        worst_variance: the largest variance of a query as written, at sensitivity 1; for tree norms epsilon^2 / 2 times
            it as epsilon goes to 0. None where there are too many queries to look at each.
        objective: what the strategy was made for: "total", "largest", "targets" or "own".
        objective_value: what it reached: the unit error, the largest of the goal's weighted variances, or, for an
            objective of the user's own, the sum of variances weighted as the proof says.
        objective_bound: what no strategy is below; None where nothing is proven.

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
    matrix_bound: float | None = None
    worst_variance: float | None = None
    objective: Kind = "total"
    objective_value: float | None = None
    objective_bound: float | None = None

    def __post_init__(self) -> None:
        if self.objective == "total":
            proven = None if self.noise == "norm" else self.lower_bound
            object.__setattr__(self, "objective_value", self.unit_error)
            object.__setattr__(self, "objective_bound", proven)
        words = ("noise", "gap", "objective")
        numbers = {k: v for k, v in asdict(self).items() if k not in words and v is not None}
        if self.lower_bound > 0 or self.gap != math.inf:
            numbers["gap"] = self.gap + AGREEMENT
        for name, value in numbers.items():
            if not 0 <= value < math.inf:
                raise fail("certificate", f"{name}={value}", "must be finite and not negative", "Fit again.")

    @property
    def objective_gap(self) -> float:
        """How far the strategy is proven to be from the best for its objective; infinite where nothing is proven."""
        if self.objective == "total":
            return self.gap
        assert self.objective_value is not None
        if not self.objective_bound:
            return math.inf if self.objective_value > 0 else 0.0
        return self.objective_value / self.objective_bound - 1

    def as_dict(self) -> JsonObject:
        """Return the fields as plain values; the exact integer as text, which no JSON reader rounds."""
        gap = self.gap if math.isfinite(self.gap) else None  # no bound is proven
        record = {**asdict(self), "sensitivity_exact": str(self.sensitivity_exact), "gap": gap}
        if self.matrix_bound is None:
            return {name: value for name, value in record.items() if name != "matrix_bound"}
        return {**record, "lower_bound": None} if self.noise == "norm" else record


@singledispatch
def certify(
    strategy: object, problem: Problem, *, noise: Noise, proof: Proof | None, bounds: Bounds | None = None
) -> Certificate:
    """Derive everything about a shipped strategy again; one implementation per record of strategy.

    Args:
        strategy: what ships.
        problem: the workload under the policy.
        noise: what is drawn.
        proof: what proves the lower bound: {"kind": "edges", "weights": ...} for strategies that are written out.
        bounds: SVD bound and lower bound, evaluated from the proof by factors, for strategies by factors.
    """
    raise TypeError(f"no certificate for {type(strategy).__name__}")


def disagreements(claimed: JsonObject, derived: Certificate) -> list[str]:
    """List, in words, every claimed number that differs from the derived one; empty when all agree."""
    found = []
    for name, value in derived.as_dict().items():
        if name in _ADDED and name not in claimed and derived.objective == "total":
            continue
        if name not in claimed:
            found.append(f"{name} is missing, derived {value}")
        elif not _agree(name, claimed[name], value):
            found.append(f"{name} is claimed to be {claimed[name]}, derived {value}")
    return found


def _agree(name: str, claimed: object, derived: str | Number | None) -> bool:
    if derived is None or isinstance(derived, str | int):
        return bool(claimed == derived)
    if isinstance(claimed, bool) or not isinstance(claimed, int | float) or not math.isfinite(claimed):
        return False
    room = AGREEMENT if name in ("gap", "support") else 0.0  # differences of nearly equal numbers
    return math.isclose(claimed, derived, rel_tol=AGREEMENT, abs_tol=room)


def check_noise(noise: Noise, known: tuple[Noise, ...]) -> None:
    """Refuse a noise that is not drawn for a kind of strategy."""
    if noise not in known:
        problem = f"is not drawn for this kind of strategy, only {' or '.join(known)}"
        raise fail("certificate", f"noise={noise!r}", problem, "Fit the strategy again.")


def scaled_sensitivity(exact: int, bits: int, noise: Noise) -> float:
    """Return the sensitivity of a strategy from that of its integers over 2^bits."""
    if exact.bit_length() > _MOST_SENSITIVITY_BITS:
        problem = f"is beyond 2^{_MOST_SENSITIVITY_BITS}, which no noise covers"
        raise fail("certificate", f"a sensitivity of {exact.bit_length()} bits", problem, "Fit the strategy again.")
    return math.ldexp(math.sqrt(exact) if noise == "gaussian" else float(exact), -bits)
