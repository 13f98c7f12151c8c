"""`compare`: the paper's and the classical mechanisms beside ours, and the bounds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import qr, solve_triangular

from hdmm_bf import _display
from hdmm_bf._linalg import threads_for
from hdmm_bf._types import Noise, SquareMatrix
from hdmm_bf.certificate.goals import Reached, reached
from hdmm_bf.data.frames import frame
from hdmm_bf.fit.fit import Fit
from hdmm_bf.fit.run import fit
from hdmm_bf.problem.goal import TOTAL
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.drafts import Draft
from hdmm_bf.strategies.laplace import portfolio
from hdmm_bf.strategies.laplace.directions import floor_kind
from hdmm_bf.strategies.records import BY_FACTORS


class Row(NamedTuple):
    """One mechanism of a comparison.

    Attributes:
        name: the mechanism or family.
        unit_error: the total of the variances at sensitivity 1, times squared weights.
        ratio_to_lower: how many times the proven bound that is.
        kind: "paper", "classical" or "ours".
        worst_variance: the largest variance of a query as written, at sensitivity 1; None for a family that was
            searched and not kept, and where there are too many queries to look at each.
        objective_value: what the mechanism has of the objectives "largest" and "targets"; None for others.
    """

    name: str
    unit_error: float
    ratio_to_lower: float
    kind: str
    worst_variance: float | None = None
    objective_value: float | None = None


class Comparison(NamedTuple):
    """Mechanisms side by side, best first, and our fit; `rows, fit = compare(...)` takes it apart.

    Attributes:
        rows: one a mechanism.
        fit: ours, with its bounds.
    """

    rows: list[Row]
    fit: Fit

    def columns(self) -> dict[str, list[Any]]:
        """Return name, unit_error, ratio_to_lower, kind, worst_variance and objective_value, in columns."""
        return {name: [getattr(row, name) for row in self.rows] for name in Row._fields}

    def to_frame(self, library: str | None = None) -> Any:
        """Return one row a mechanism, as a frame of pandas, polars or pyarrow."""
        return frame(self.columns(), library, where="comparison.to_frame")

    def _repr_html_(self) -> str:
        head = ("mechanism", "from", "unit error", "error / bound", "worst variance")
        rows = [
            (r.name, r.kind, f"{r.unit_error:.6g}", _number(r.ratio_to_lower), _number(r.worst_variance))
            for r in self.rows
        ]
        problem = self.fit.problem
        name = f"{problem.workload.title} under {problem.policy.title}, {self.fit.noise} noise"
        bound = _display.facts_table([("proven bound", f"{self.fit.yardstick:.6g}")])
        return _display.card("Comparison", name, _display.table(head, rows), bound)


def _number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.6g}"


def compare(workload: object, policy: object, *, noise: Noise, **options: Any) -> Comparison:
    """Return the paper's, the classical and our mechanisms, best first, and our fit with its bounds.

    With a goal other than the total, the best is what has least of it. On domains too large for dense matrices the
    others are left out.

    Args:
        workload: as for `fit`.
        policy: as for `fit`.
        noise: "gaussian", "laplace" or "norm"; ratios of tree norms are to the bound on matrix mechanisms.
        options: other arguments of `fit`, such as objective, targets, max_seconds, max_steps, seed, workers.
    """
    made = fit(workload, policy, noise=noise, **options)
    others = made.status != "exact" and made.strategy.kind not in BY_FACTORS
    return Comparison(compare_with_baselines(made, others=others)[0], made)


def compare_with_baselines(made: Fit, *, others: bool) -> tuple[list[Row], list[Draft], dict[str, str]]:
    """Return a fit beside the floors, best first, the floors themselves, and where each mechanism is from.

    Args:
        made: the fit.
        others: compute the paper's and the classical mechanisms; else only what the fit reached is listed.
    """
    table, drafts, problem = portfolio.Table(), [], replace(made.problem, goal=TOTAL)
    if others:
        with threads_for(problem.policy.num_cells):
            drafts = list(portfolio.Floors(problem, table, "L2" if made.noise == "gaussian" else "L1"))
    known = {draft.origin: _reached(made.problem, draft) for draft in sorted(drafts, key=lambda d: -d.error)}
    for name, error in {**made.reached, made.family: made.unit_error}.items():
        if name not in table.errors:
            table.note(name, error, floor_kind(name))
    value = None if made.objective in ("total", "own") else made.objective_value
    known.setdefault(made.family, Reached(made.worst_variance, value))
    rows = [
        Row(name, error, _ratio(error, made.yardstick), table.kinds[name], *known.get(name, Reached(None, None)))
        for name, error in table.errors.items()
    ]
    return sorted(rows, key=_order), drafts, table.kinds


def _order(row: Row) -> tuple[float, str]:
    """By the goal where there is one, then by the unit error."""
    return (row.unit_error if row.objective_value is None else row.objective_value), row.name


def _reached(problem: Problem, draft: Draft) -> Reached:
    """Return the largest variance of a mechanism, and what it has of a goal."""
    own = problem.goal.kind == "own"
    worst, value = reached(replace(problem, goal=TOTAL) if own else problem, _covariance(problem, draft), None)
    return Reached(worst, value)


def _covariance(problem: Problem, draft: Draft) -> SquareMatrix:
    """Return the covariance of the kept cells: (A^T A)^-1, or P (S^T S)^-1 P^T for a strategy over the edges."""
    R = qr(draft.matrix, mode="r", check_finite=False)[0][: draft.matrix.shape[1]]
    root = solve_triangular(R, np.eye(len(R)), check_finite=False)
    root = root if draft.kind == "vertex" else problem.P.dense() @ root
    return np.asarray(root @ root.T)


def _ratio(error: float, lower: float) -> float:
    """How many times a bound an error is; 1 where all is public, not a number where no bound is proven."""
    if lower > 0:
        return error / lower
    return 1.0 if error == 0 else math.nan
