"""Goals other than the total, Gaussian noise: the largest variance with its proven bound, and budgets for targets.

`value` is the largest variance at sensitivity 1, `total's` that of the strategy of least total, `gap` what is proven,
`ratio` the CPU time beside that of the total, both searched to a gap of 1e-3. The random ranges are 128 over 64 cells
and the age pyramids suffix sums over 116 ages for each sex and for both, as in Xiao et al. (2021); both under
ordinary privacy, and to a gap of 2e-4. The census has 20 ages, 12 regions and 2 sexes under
`product:threshold:20:2,bounded:12,empty:2`: all two-way marginals are to have standard deviations below 5, all age
ranges by region below 20; epsilon is the smallest that does it at delta 1e-6. There `value` is the largest variance
over the squared target.
"""

from __future__ import annotations

import itertools
import math
import sys
from typing import Any

import numpy as np

import hdmm_bf as bf
from experiments.benchmarks.measure import Measured, Part, Table, timed

SIZES = (64, 256, 1024)
SHAPES = (
    ("all-range:{n}", "unbounded:{n}"),
    ("all-range:{n}", "threshold:{n}:4"),
    ("all-range:{n}", "bounded:{n}"),
    ("prefix:{n}", "unbounded:{n}"),
)
AGES = 116
CENSUS = "product:threshold:20:2,bounded:12,empty:2"
DELTA = 1e-6


def report(*, quick: bool = False) -> list[Part]:
    """Return the tables; quick: 64 cells alone."""
    bf.fit("all-range:8", "unbounded:8", objective="largest")  # loads what is loaded once
    sizes = SIZES[:1] if quick else SIZES
    cases: list[tuple[str, str, Any, float]] = [
        (name.format(n=n), policy.format(n=n), name.format(n=n), 1e-3)
        for n, (name, policy) in itertools.product(sizes, SHAPES)
    ]
    cases.append(("128 random ranges", "unbounded:64", random_ranges(), 2e-4))
    if not quick:
        cases.append(("age pyramids", f"unbounded:{2 * AGES}", pyramids(), 2e-4))
    head = ["workload", "policy", "value", "bound", "gap", "total's", "steps", "CPU s", "ratio"]
    largest = Table(head, [_largest(*case) for case in cases])
    if quick:
        return [largest]
    head = ["census, fitted for", "epsilon", "value", "bound", "gap", "steps", "CPU s", "ratio"]
    return [largest, Table(head, census_rows())]


def random_ranges() -> bf.Workload:
    """128 ranges over 64 cells, from NumPy's generator of old with seed 0."""
    random = np.random.RandomState(0)  # noqa: NPY002
    rows = np.zeros((128, 64))
    for row in rows:
        low, high = sorted((random.randint(64), random.randint(64)))
        random.randint(1, 11)  # a weight that is not used
        row[low : high + 1] = 1.0
    return bf.workload.from_matrix(rows)


def pyramids() -> bf.Workload:
    """How many are at least so old: women, men, and both."""
    suffix = np.triu(np.ones((AGES, AGES)))
    return bf.workload.from_matrix(np.kron(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), suffix))


def census() -> tuple[bf.Workload, np.ndarray]:
    """All two-way marginals and all age ranges by region, with their targets."""
    marginals = bf.workload.parse("marginals:20x12x2:2")
    both = bf.workload.from_matrix(np.ones((1, 2)))
    ranges = bf.workload.product(bf.workload.all_range(20), bf.workload.identity(12), both)
    targets = np.repeat([5.0, 20.0], [marginals.num_queries, ranges.num_queries])
    return bf.workload.union(marginals, ranges), targets


def census_rows() -> list[list[str]]:
    """Fit the total and the targets, and ask both for the smallest epsilon."""
    workload, targets = census()
    total = timed(lambda: bf.fit(workload, CENSUS))
    made = timed(lambda: bf.fit(workload, CENSUS, targets=targets))
    rows = []
    for name, run in (("total", total), ("targets", made)):
        value = float(np.max(run.result.unit_variances() / targets**2))
        bound = made.result.objective_bound or math.nan
        epsilon = run.result.epsilon_for(stddev=targets, delta=DELTA)
        rows.append([name, f"{epsilon:.4f}", *_numbers(value, bound), *_effort(run, total)])
        print(" ".join(rows[-1]), file=sys.stderr, flush=True)
    return rows


def _largest(name: str, policy: str, workload: object, gap: float) -> list[str]:
    total = timed(lambda: bf.fit(workload, policy, gap=gap))
    made = timed(lambda: bf.fit(workload, policy, objective="largest", gap=gap))
    numbers = _numbers(made.result.objective_value, made.result.objective_bound)
    row = [name, policy, *numbers, f"{total.result.worst_variance:.5g}", *_effort(made, total)]
    print(" ".join(row), file=sys.stderr, flush=True)
    return row


def _numbers(value: float, bound: float) -> list[str]:
    return [f"{value:.6g}", f"{bound:.6g}", f"{value / bound - 1:.1e}"]


def _effort(run: Measured, total: Measured) -> list[str]:
    return [str(len(run.result.trace)), f"{run.cpu:.2f}", f"{run.cpu / total.cpu:.1f}"]
