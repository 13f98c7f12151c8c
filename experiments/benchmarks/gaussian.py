"""Gaussian strategies: proven gap, and time as a multiple of one numpy.linalg.eigh of the same size.

Fit and certificate together, gap 1e-3, nothing to compile. The multiple compares with the fastest of several
eigendecompositions timed right before the fit, in the same process and on the same number of BLAS threads: one up to
1500 cells, where a fit uses one, else the default.
"""

from __future__ import annotations

import sys

import numpy as np
from threadpoolctl import threadpool_limits

import hdmm_bf as bf
from experiments.benchmarks import instances
from experiments.benchmarks.measure import Part, Table, timed

SIZES = (256, 1024)
ONE_THREAD_CELLS = 1500
"""Cells up to which a fit runs on one BLAS thread."""


def eigh_seconds(n: int) -> float:
    """Time one eigendecomposition of that size, the fastest of a few."""
    S = np.random.default_rng(0).normal(size=(n, n))
    S = S + S.T
    with threadpool_limits(1 if n <= ONE_THREAD_CELLS else None):
        return timed(lambda: np.linalg.eigh(S), repeat=5 if n <= 512 else 3 if n <= 2048 else 1).wall


def row(workload: bf.Workload, policy: bf.Policy, names: list[str], *, gap: float, repeat: int) -> list[str]:
    """Fit once or more and report the fastest run."""
    n = policy.num_cells
    unit = eigh_seconds(n)
    run = timed(lambda: bf.fit(workload, policy, gap=gap), repeat=repeat)
    fit: bf.Fit = run.result
    limit = 15 if names[:2] == ["all-range", "unbounded"] else 30
    cells = [str(n), *names, str(policy.num_edges), f"{fit.unit_error:.6g}", f"{fit.bounds.lower / fit.bounds.svd:.4f}"]
    cells += [f"{fit.gap:.1e}", str(len(fit.trace)), f"{run.wall / unit:.1f}", str(limit), f"{run.cpu:.2f}"]
    print(" ".join(cells), file=sys.stderr)
    return cells


HEADERS = ["n", "workload", "policy", "edges", "unit error", "tight / SVD", "gap", "steps", "eighs", "limit", "CPU s"]


def report(*, quick: bool = False) -> list[Part]:
    """Return the table for all workloads and policies; quick: some of them, of the smaller size."""
    rows = []
    for n in SIZES[:1] if quick else SIZES:
        for W in instances.WORKLOADS[:2] if quick else instances.WORKLOADS:
            for G in instances.POLICIES[:4] if quick else instances.POLICIES:
                made = instances.workload(W, n), instances.policy(G, n)
                rows.append(row(*made, [W, G], gap=1e-3, repeat=3 if n <= 256 else 1))
    made = instances.workload("all-range", 128), instances.policy("bounded", 128)
    rows.append(row(*made, ["all-range", "bounded"], gap=1e-3, repeat=3))
    return [Table(HEADERS, rows)]
