"""A bound for every unbiased mechanism, matrix or not.

Let M have E M(x) = W x on every database, and C be its covariance at x. For neighbours x and x + p_e the inequality of
Hammersley, Chapman and Robbins gives (u^T W p_e)^2 <= (u^T C u) chi2 for every u, chi2 being the divergence that the
promise allows:

    exp(2 rho) - 1                          rho-zCDP
    (exp(epsilon) - 1)^2 / exp(epsilon)     pure epsilon

So (W p_e)^T C^+ (W p_e) <= chi2 on every edge, and tr C is at least the dual bound of matrix mechanisms over chi2. It
holds at databases where every edge that carries weight in the proof has a record at one of its ends; edges to "no
record" always do. For (epsilon, delta) it can fail at single databases (Nikolov, Tang 2024), so none is given.
"""

from __future__ import annotations

import math


def largest_divergence(*, epsilon: float | None = None, delta: float | None = None, rho: float | None = None) -> float:
    """Return chi2, the largest chi-squared divergence between neighbours; infinite for (epsilon, delta)."""
    if delta is not None:
        return math.inf
    exponent = 2 * rho if rho is not None else epsilon
    assert exponent is not None, "a promise is epsilon or rho"
    if exponent > 700:
        return math.inf
    return math.expm1(exponent) if rho is not None else 4 * math.sinh(exponent / 2) ** 2


def unbiased_error(
    bound: float, *, epsilon: float | None = None, delta: float | None = None, rho: float | None = None
) -> float | None:
    """Return what the total squared error of no unbiased mechanism with that promise is below; None where unknown.

    Args:
        bound: the dual bound on matrix mechanisms of sensitivity 1.
        epsilon: of pure privacy.
        delta: with it nothing is known.
        rho: of zero-concentrated privacy.
    """
    divergence = largest_divergence(epsilon=epsilon, delta=delta, rho=rho)
    return bound / divergence if bound > 0 and math.isfinite(divergence) else None
