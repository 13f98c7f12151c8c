"""What a block strategy measures: made-up data, measured without noise, must give back the true answers of a query.

A query that the strategy does not measure would get an answer with a bias that no standard deviation tells. No real
data are needed to find out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf._linalg import SUPPORT_TOLERANCE
from hdmm_bf._types import RealVector
from hdmm_bf.data.tables import Histogram, Records, Tables
from hdmm_bf.domain import Domain
from hdmm_bf.problem.product import Term, product_terms
from hdmm_bf.problem.transform import Problem
from hdmm_bf.workload import Boxes, Workload

_LARGEST_HISTOGRAM = 2**22
_RECORDS = 16


def check_covered(problem: Problem, workload: Workload, answer: Callable[[Tables], RealVector]) -> None:
    """Refuse queries that a strategy does not measure, or that are on another domain.

    Args:
        problem: what the strategy was fitted for.
        workload: the queries.
        answer: their answers on some data, measured without noise.

    Guarantees:
        A workload with a query whose answer would be biased is refused, but for a chance in which the bias vanishes on
        made-up random data.
    """
    sizes = problem.policy.domain.sizes
    if isinstance(workload.matrix, Boxes) and workload.matrix.sizes != sizes:
        seen = f"is on another domain, the strategy is for {Domain(sizes)}"
        raise fail("release", f"workload {workload.spec}", seen, "Ask queries on the same domain.")
    if workload is problem.workload:
        return
    made_up, truth = _made_up(workload, sizes)
    answers = answer(made_up)
    if np.any(np.abs(answers - truth) > SUPPORT_TOLERANCE * max(1.0, float(np.abs(truth).max(initial=0.0)))):
        seen = "asks what the strategy does not measure"
        raise fail("release", f"workload {workload.spec}", seen, "Fit a strategy for it.")


def _made_up(workload: Workload, sizes: tuple[int, ...]) -> tuple[Tables, RealVector]:
    """Return random data and the true answers on them; a histogram, or a few records of a large domain."""
    rng = np.random.default_rng(0)
    terms = product_terms(workload.matrix, sizes)
    if terms is None or workload.num_cells <= _LARGEST_HISTOGRAM:
        counts = rng.integers(0, 10, size=workload.num_cells)
        return Histogram(counts.reshape(sizes)), np.asarray(workload.matrix.mv(counts), dtype=np.float64)
    rows = np.column_stack([rng.integers(0, size, size=_RECORDS) for size in sizes])
    return Records(rows, Domain(sizes)), np.concatenate([_table(term, rows) for term in terms])


def _table(term: Term, rows: np.ndarray) -> RealVector:
    """True answers of a product on records: the sum of the products of its factors' columns."""
    columns = [
        np.asarray(factor.mv(np.eye(factor.shape[1])[:, values]), dtype=np.float64)
        for factor, values in zip(term.factors, rows.T, strict=True)
    ]
    tables = (functools.reduce(np.multiply.outer, [c[:, r] for c in columns]) for r in range(len(rows)))
    return np.asarray(term.weight * sum(tables)).ravel()
