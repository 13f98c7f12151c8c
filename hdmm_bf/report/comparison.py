"""The mechanisms a fit is compared with: the paper's and the classical ones, computed anew for small problems."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hdmm_bf._linalg import AGREEMENT
from hdmm_bf._types import JsonObject, RealVector
from hdmm_bf.fit import Fit, Row
from hdmm_bf.fit.comparison import compare_with_baselines
from hdmm_bf.release.plan import plan
from hdmm_bf.release.privacy import noise_variance
from hdmm_bf.release.reconstruction import recovery
from hdmm_bf.strategies import from_draft
from hdmm_bf.strategies.drafts import Draft

LARGEST = 300
"""Cells up to which other mechanisms are computed for a report."""

_MOST_QUERIES = 50_000


class Compared(NamedTuple):
    """Rows, best first, and for the picture the standard deviations of the best of the paper's and the classical."""

    rows: list[Row]
    stddevs: dict[str, RealVector]


def example_privacy(fit: Fit) -> JsonObject:
    """Return the privacy parameters of the examples: epsilon 1, and delta 1e-6 for Gaussian noise."""
    return {"epsilon": 1.0, "delta": 1e-6} if fit.noise == "gaussian" else {"epsilon": 1.0}


def example_loss(fit: Fit) -> JsonObject:
    """Return what the noise of a release with these parameters is made for."""
    return plan(fit, **example_privacy(fit)).loss


def compared(fit: Fit) -> Compared | None:
    """Return the comparison, or None where all is public or the problem is too large."""
    problem = fit.problem
    if fit.unit_error == 0 or problem.policy.num_cells > LARGEST:
        return None
    rows, drafts, kinds = compare_with_baselines(fit, others=True)
    return Compared(rows, _stddevs(fit, drafts, kinds))


def _stddevs(fit: Fit, drafts: list[Draft], kinds: dict[str, str]) -> dict[str, RealVector]:
    """Return what every query would get from the best mechanism of the paper and the best classical one."""
    found: dict[str, RealVector] = {}
    if fit.problem.workload.num_queries > _MOST_QUERIES:
        return found
    for kind in ("paper", "classical"):
        own = [d for d in drafts if kinds.get(d.origin) == kind and d.error > (1 + AGREEMENT) * fit.unit_error]
        if own:
            best = min(own, key=lambda d: d.error)
            label = f"{best.origin} ({'the paper' if kind == 'paper' else 'classical'})"
            found[label] = _deviations(fit, best)
    return found


def _deviations(fit: Fit, draft: Draft) -> RealVector:
    """Spread a mechanism's total error over the queries as its reconstruction does."""
    variances = recovery(from_draft(fit.problem, draft), fit.problem).unit_variances()
    weights = fit.problem.workload.weights()
    share = variances / (weights**2 @ variances)
    return np.asarray(np.sqrt(noise_variance(fit.noise, **example_loss(fit)) * draft.error * share))
