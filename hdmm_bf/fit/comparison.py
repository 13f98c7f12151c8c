"""`compare`: the paper's and the classical mechanisms beside ours, and the bounds."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from hdmm_bf._linalg import threads_for
from hdmm_bf._types import Noise
from hdmm_bf.fit.fit import Fit
from hdmm_bf.fit.run import fit
from hdmm_bf.strategies.drafts import Draft
from hdmm_bf.strategies.laplace import portfolio
from hdmm_bf.strategies.records import ProductStrategy


class Row(NamedTuple):
    """One mechanism of a comparison."""

    name: str
    unit_error: float
    ratio_to_lower: float
    kind: str


def compare(workload: object, policy: object, *, noise: Noise, **options: Any) -> tuple[list[Row], Fit]:
    """Return the paper's, the classical and our mechanisms, best first, and our fit with its bounds.

    On domains too large for dense matrices the others are left out.

    Args:
        workload: as for `fit`.
        policy: as for `fit`.
        noise: "gaussian", "laplace" or "norm"; ratios of tree norms are to the bound on matrix mechanisms.
        options: other arguments of `fit`, such as max_seconds, max_steps, seed, workers, callback.
    """
    made = fit(workload, policy, noise=noise, **options)
    others = made.status != "exact" and made.strategy.kind != ProductStrategy.kind
    return compare_with_baselines(made, others=others)[0], made


def compare_with_baselines(made: Fit, *, others: bool) -> tuple[list[Row], list[Draft], dict[str, str]]:
    """Return a fit beside the floors, best first, the floors themselves, and where each mechanism is from.

    Args:
        made: the fit.
        others: compute the paper's and the classical mechanisms; else only what the fit reached is listed.
    """
    table, drafts, problem = portfolio.Table(), [], made.problem
    if others:
        with threads_for(problem.policy.num_cells):
            drafts = list(portfolio.Floors(problem, table, "L2" if made.noise == "gaussian" else "L1"))
    for name, error in {**made.reached, made.family: made.unit_error}.items():
        if name not in table.errors:
            table.note(name, error, "ours")
    rows = [
        Row(name, error, _ratio(error, made.matrix_bound), table.kinds[name]) for name, error in table.errors.items()
    ]
    return sorted(rows, key=lambda row: (row.unit_error, row.name)), drafts, table.kinds


def _ratio(error: float, lower: float) -> float:
    """How many times a bound an error is; 1 where all is public, not a number where no bound is proven."""
    if lower > 0:
        return error / lower
    return 1.0 if error == 0 else math.nan
