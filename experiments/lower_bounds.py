"""The paper's figure of SVD lower bounds, in one and two dimensions, with the best proven bound beside them."""

from __future__ import annotations

import math

import numpy as np

import hdmm_bf as bf
from experiments import figures
from experiments.design import Experiment, Row

EPSILON, DELTA = 1.0, 0.001
QUESTION = "Which policies allow less error than ordinary privacy, and how far is the SVD bound from the truth?"
RESULTS = ("svd", "tight", "gap", "edges", "svd_error", "tight_error", "svd_error_a_query")
LINE_SIZES, LINE_LIMITS = (16, 32, 64, 128, 256, 512, 1024), (1, 2, 4, 16, 64)
GRID_SIDES, GRID_LIMITS = (4, 6, 8, 12, 16, 24, 32), (1, 2, 4, 8)
"""The paper names no sizes or thresholds in its text; these are ours."""


def paper_constant(epsilon: float, delta: float) -> float:
    """Return P(epsilon, delta) = 2 log(2/delta) / epsilon^2, the paper's factor; for its figure only."""
    return 2 * math.log(2 / delta) / epsilon**2


def cells(smoke: bool) -> list[Row]:
    """Return the design."""
    made = []
    for n in LINE_SIZES[:3] if smoke else LINE_SIZES:
        names = [f"threshold:{n}:{limit}" for limit in LINE_LIMITS if limit < n]
        made += [_cell("1", n, str(n), name) for name in (f"unbounded:{n}", f"bounded:{n}", *names)]
    for k in GRID_SIDES[:3] if smoke else GRID_SIDES:
        box = f"{k}x{k}"
        names = [f"threshold:{box}:{limit}" for limit in GRID_LIMITS if limit < k]
        made += [_cell("2", k, box, name) for name in (f"unbounded:{box}", f"bounded:{box}", *names)]
    return made


def _cell(dimensions: str, size: int, domain: str, policy: str) -> Row:
    kind, *rest = policy.split(":")
    label = f"threshold {rest[1]}" if kind == "threshold" else kind
    return {
        "dimensions": dimensions,
        "size": str(size),
        "workload": f"all-range:{domain}",
        "policy": policy,
        "label": label,
        "epsilon": f"{EPSILON:g}",
        "delta": f"{DELTA:g}",
        "data": "none",
    }


def measure(cell: Row, random: np.random.Generator) -> dict[str, float | str]:
    """Return the bounds as unit errors and, with the paper's factor, as total squared errors."""
    found = bf.bound(cell["workload"], cell["policy"], gap=1e-3)
    factor = paper_constant(EPSILON, DELTA)
    queries = bf.workload.parse(cell["workload"]).num_queries
    return {
        "svd": found.svd,
        "tight": found.lower,
        "gap": found.gap,
        "edges": str(bf.policy.parse(cell["policy"]).num_edges),
        "svd_error": factor * found.svd,
        "tight_error": factor * found.lower,
        "svd_error_a_query": factor * found.svd / queries,
    }


EXPERIMENT = Experiment("lower_bounds", QUESTION, cells, RESULTS, measure, figures.lower_bounds(QUESTION))
