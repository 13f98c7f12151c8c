"""The smallest privacy loss at which a release is good enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hdmm_bf._checks import InputError, fail
from hdmm_bf._types import JsonObject
from hdmm_bf.problem.goal import Groups, Targets, goal
from hdmm_bf.release.calibration import Accounting
from hdmm_bf.release.plan import plan
from hdmm_bf.release.privacy import loss_for

if TYPE_CHECKING:
    from hdmm_bf.fit.fit import Fit

Reached: TypeAlias = Callable[[JsonObject], float]
"""From the arguments of a plan to what a release has of what is wanted; it falls as the loss grows."""

_WHERE = "fit.epsilon_for"


def wanted(
    fit: Fit, *, rmse: float | None, stddev: Targets | None, largest: float | None, groups: Groups | None
) -> tuple[float, Reached]:
    """Return what is wanted as a number, and what a release of a given loss has of it."""
    if sum(value is not None for value in (rmse, stddev, largest)) != 1:
        raise fail(_WHERE, "rmse, stddev, largest", "are three ways to ask", "Give exactly one of them.")
    if groups is not None and not isinstance(stddev, Mapping):
        raise fail(_WHERE, "groups", "go with stddev={group: target}", "Leave them out.")
    if stddev is not None:
        allowed = goal(fit.problem.workload, fit.problem.policy, targets=stddev, groups=groups).targets
        assert allowed is not None
        asked = np.flatnonzero(~np.isnan(allowed))
        return 1.0, lambda loss: float((fit.per_query_stddev(**loss)[asked] / allowed[asked]).max())
    number, name = (rmse, "rmse") if rmse is not None else (largest, "largest")
    if not isinstance(number, int | float | np.number) or not (number > 0 and math.isfinite(number)):
        raise fail(_WHERE, f"{name}={number}", "must be a positive number", "Use for example 5.0.")
    if rmse is not None:
        return float(number), lambda loss: plan(fit, **loss).rmse
    return float(number), lambda loss: float(fit.per_query_stddev(**loss).max())


def smallest_epsilon(
    fit: Fit,
    wanted: float,
    reached: Reached,
    shown: str,
    *,
    delta: float | None,
    accounting: Accounting,
    per_person: int | None,
) -> float:
    """Return the smallest epsilon at which a release has what is wanted; what `plan` refuses is refused.

    Args:
        fit: what would be released.
        wanted: the largest number that is good enough.
        reached: what a release has of it.
        shown: what was asked for, in words.
        delta, accounting, per_person: of the plan.
    """
    if (delta is None) != (fit.noise != "gaussian"):
        advice = "Give delta for Gaussian noise, and none for pure epsilon."
        raise fail(_WHERE, f"delta={delta}", f"does not go with {fit.noise} noise", advice)
    if fit.unit_error == 0:
        raise fail(_WHERE, f"an error of {wanted:g}", "the answers are public and have no error", "Publish them.")
    how: JsonObject = {"per_person": per_person} | ({} if delta is None else {"accounting": accounting})
    other = how if delta is None else {"delta": delta, **how}
    usual = reached({"epsilon": 1.0, **other})  # refuses what is wrong with the arguments
    try:
        if delta is None:
            found = loss_for(wanted, lambda epsilon: reached({"epsilon": epsilon, **how}))
        else:
            found = plan(fit, rho=loss_for(wanted, lambda rho: reached({"rho": rho, **how})), **how).epsilon_at(delta)
        plan(fit, epsilon=found, **other)
    except InputError as refused:
        problem = f"no release can be planned for it ({str(refused).rstrip('.')})"
        advice = f"Ask for a {'smaller' if wanted > usual else 'larger'} one."
        raise fail(_WHERE, shown, problem, advice) from None
    return found
