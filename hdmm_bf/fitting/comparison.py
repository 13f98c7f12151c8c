"""`compare`: the paper's and the classical mechanisms beside ours, and the bounds."""

from __future__ import annotations

from typing import Any, NamedTuple

from hdmm_bf._linalg import threads_for
from hdmm_bf._types import Noise
from hdmm_bf.fitting.product import ProductFit
from hdmm_bf.fitting.record import Fit
from hdmm_bf.fitting.run import fit
from hdmm_bf.strategies import Callback, portfolio


class Row(NamedTuple):
    """One mechanism of a comparison."""

    name: str
    unit_error: float
    ratio_to_lower: float
    kind: str


def compare(
    workload: Any,
    policy: Any,
    *,
    noise: Noise,
    max_seconds: float | None = None,
    max_steps: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    callback: Callback | None = None,
) -> tuple[list[Row], Fit | ProductFit]:
    """Return the paper's, the classical and our mechanisms, best first, and our fit with its bounds.

    On domains too large for dense matrices the others are left out.
    """
    made = fit(
        workload,
        policy,
        noise=noise,
        max_seconds=max_seconds,
        max_steps=max_steps,
        seed=seed,
        workers=workers,
        callback=callback,
    )
    table, problem = portfolio.Table(), made.problem
    if made.status != "exact" and isinstance(made, Fit):
        with threads_for(problem.policy.num_cells):
            list(portfolio.floors(problem, table, "L1" if noise == "laplace" else "L2"))
    for name, error in {**made.reached, made.family: made.unit_error}.items():
        if name not in table.errors:
            table.note(name, error, "ours")
    lower = made.bounds.lower
    rows = [
        Row(name, error, error / lower if lower > 0 else 1.0, table.kinds[name]) for name, error in table.errors.items()
    ]
    return sorted(rows, key=lambda row: row.unit_error), made
