"""Losses as the ledger writes them: decimals that come back exactly, and only those that a release can have."""

from __future__ import annotations

import math

import numpy as np

from hdmm_bf._checks import fail


def is_loss(
    noise: object,
    epsilon: str | None,
    delta: str | None,
    rho: str | None,
    mu: str | None = None,
    step: str | None = None,
) -> bool:
    """Whether numbers are those of a kind of noise, so that all ways of adding them up hold."""
    if (mu is not None and noise != "gaussian") or (step is not None and noise != "laplace"):
        return False
    if noise == "public":
        return epsilon is None and delta is None and rho is None
    if noise in ("laplace", "norm"):
        return epsilon is not None and delta is None and rho is None
    return noise == "gaussian" and rho is not None and (epsilon is None) == (delta is None)


def written(name: str, value: object) -> str | None:
    """Write a number so that it comes back exactly; refused if it is no positive number."""
    if value is None:
        return None
    try:
        number = float(value) if isinstance(value, int | float | np.integer | np.floating) else math.nan
    except OverflowError:
        number = math.inf
    if isinstance(value, bool) or not 0 < number < math.inf:
        raise fail("ledger", f"{name}={value!r}", "must be a positive number", "Use for example 1.0.")
    return repr(number)


def is_written(value: object) -> bool:
    """Whether `written` can have written something: nothing negative, infinite or endless."""
    try:
        return isinstance(value, str) and written("", float(value)) == value
    except ValueError:  # no number, or none that is positive
        return False
