"""Accuracy: unit error and proven bound of seeded fits with a fixed number of steps, which no change may make worse.

The default tests fit the rows of up to 100 cells again and compare: errors may not rise and bounds may not fall by more
than 1e-6; 5e-3 for the errors of Laplace strategies, whose descents end elsewhere on processors that round otherwise.
"""

from __future__ import annotations

from typing import Any

import hdmm_bf as bf
from experiments.benchmarks.measure import Part, Table

CASES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("all-range:64", "threshold:64:4", "gaussian", {}),
    ("prefix:64", "unbounded:64", "gaussian", {}),
    ("identity:64", "cycle:64", "gaussian", {}),
    ("all-range:8x8", "threshold:8x8:1", "gaussian", {}),
    ("marginals:4x3x2:2", "sensitive:4x3x2:0,1", "gaussian", {}),
    ("all-range:8x8", "threshold:8x8:1", "gaussian", {"family": "bases"}),
    ("marginals:16x8x4:2", "product:line:16,bounded:8,empty:4", "gaussian", {"family": "sectors"}),
    ("all-range:32", "unbounded:32", "laplace", {"max_steps": 20}),
    ("all-range:24", "threshold:24:4", "laplace", {"max_steps": 8, "family": "vertex"}),
    ("all-range:32", "bounded:32", "laplace", {"max_steps": 8, "family": "cell-budgets"}),
    ("prefix:32", "cycle:32", "laplace", {"max_steps": 10, "family": "p-identity"}),
    ("all-range:256", "threshold:256:4", "gaussian", {}),
    ("all-range:1024", "bounded:1024", "gaussian", {}),
    ("all-range:100x100", "threshold:100x100:1", "gaussian", {}),
]
HEADERS = ["workload", "policy", "noise", "options", "unit error", "lower bound", "SVD bound"]
QUICK_CELLS = 100


def report(*, quick: bool = False) -> list[Part]:
    """Return the table; quick: the first rows."""
    return [Table(HEADERS, [row(case) for case in (CASES[:8] if quick else CASES)])]


def is_quick(case: tuple[str, str, str, dict[str, Any]]) -> bool:
    """Whether a row is small enough for the default tests."""
    return bf.workload.parse(case[0]).num_cells <= QUICK_CELLS


def row(case: tuple[str, str, str, dict[str, Any]]) -> list[str]:
    """Fit one row."""
    workload, policy, noise, options = case
    fit = bf.fit(workload, policy, noise=noise, workers=1, **options)
    shown = ", ".join(f"{name}={value}" for name, value in options.items()) or "default"
    numbers = (fit.unit_error, fit.bounds.lower, fit.bounds.svd)
    return [workload, policy, noise, shown, *(f"{value:.10g}" for value in numbers)]
