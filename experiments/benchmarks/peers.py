"""Beside jax-privacy's dense optimizer, ordinary DP: error and time of both, in one process, compilation apart.

jax-privacy runs in float64 with its default stopping rule, after a short run that compiles; it is stopped at twelve
times our time if it has not stopped by itself ("cut"). For all ranges it is given the Cholesky factor of W^T W, which
has the same error as the workload.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import hdmm_bf as bf
from experiments.benchmarks.measure import Part, Table, timed

GAP = 1e-6
PATIENCE = 12
"""Times our own time that the other optimizer gets at most."""


def report(*, quick: bool = False) -> list[Part]:
    """Return the table, or a sentence when jax-privacy is not installed; quick: one small row."""
    try:
        import jax
        from jax_privacy.matrix_factorization import dense
    except ImportError:
        return ["jax-privacy is not installed: pip install --group bench"]

    def limited(seconds: float) -> Callable[[Any], bool]:
        end = time.perf_counter() + seconds
        return lambda step: time.perf_counter() > end or dense.pg_tol_termination_fn(step)

    rows = []
    for W in ("prefix",) if quick else ("prefix", "all-range"):
        for n in (256,) if quick else (512, 1024):
            ours = timed(lambda W=W, n=n: bf.fit(f"{W}:{n}", f"unbounded:{n}", gap=GAP), repeat=2)
            factor = np.linalg.cholesky(bf.workload.parse(f"{W}:{n}").gram).T
            limit = PATIENCE * ours.wall
            with jax.enable_x64(True):
                A = jax.numpy.asarray(factor)
                first = timed(lambda A=A, n=n: jax.block_until_ready(dense.optimize(n, A=A, callback=limited(0))))
                theirs = timed(
                    lambda A=A, n=n, t=limit: jax.block_until_ready(dense.optimize(n, A=A, callback=limited(t)))
                )
            C = np.asarray(theirs.result)
            error = np.linalg.norm(np.linalg.solve(C.T, factor.T)) ** 2 * (C**2).sum(axis=0).max()
            fit: bf.Fit = ours.result
            cells = [W, str(n), f"{fit.unit_error:.8g}", f"{error:.8g}", f"{fit.unit_error / error - 1:+.1e}"]
            cells += [f"{ours.wall:.2f}", f"{theirs.wall:.2f}{' cut' if theirs.wall >= limit else ''}"]
            rows.append([*cells, f"{first.wall:.2f}", f"{ours.wall / theirs.wall:.3f}", f"{fit.gap:.0e}"])
            print(" ".join(rows[-1]), file=sys.stderr)
    headers = [
        "workload",
        "n",
        "our error",
        "their error",
        "ours / theirs - 1",
        "our s",
        "their s",
        "their first step s",
    ]
    return [Table([*headers, "time ratio", "our proven gap"], rows)]
