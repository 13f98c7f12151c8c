"""Beside jax-privacy's dense optimizer, ordinary DP: error and time of both, in one process, compilation apart.

jax-privacy runs in float64 with its default stopping rule, once to compile and once for the clock. For all ranges it
is given the Cholesky factor of W^T W, which has the same error as the workload.
"""

from __future__ import annotations

import numpy as np

import hdmm_bf as bf
from experiments.benchmarks.measure import table, timed

GAP = 1e-6


def report() -> str:
    """Return the table, or a sentence when jax-privacy is not installed."""
    try:
        import jax
        from jax_privacy.matrix_factorization import dense
    except ImportError:
        return "jax-privacy is not installed: pip install --group bench"
    rows = []
    for W in ("prefix", "all-range"):
        for n in (512, 1024):
            ours = timed(lambda W=W, n=n: bf.fit(f"{W}:{n}", f"unbounded:{n}", gap=GAP), repeat=2)
            V = bf.workload.parse(f"{W}:{n}").gram
            factor = np.linalg.cholesky(V).T
            with jax.enable_x64(True):
                A = jax.numpy.asarray(factor)
                first = timed(lambda A=A, n=n: jax.block_until_ready(dense.optimize(n, A=A)))
                theirs = timed(lambda A=A, n=n: jax.block_until_ready(dense.optimize(n, A=A)))
            C = np.asarray(theirs.result)
            error = np.linalg.norm(np.linalg.solve(C.T, factor.T)) ** 2 * (C**2).sum(axis=0).max()
            fit: bf.Fit = ours.result
            cells = [W, str(n), f"{fit.unit_error:.8g}", f"{error:.8g}", f"{fit.unit_error / error - 1:+.1e}"]
            cells += [f"{ours.wall:.2f}", f"{theirs.wall:.2f}", f"{max(first.wall - theirs.wall, 0):.2f}"]
            rows.append([*cells, f"{ours.wall / theirs.wall:.3f}", f"{fit.gap:.0e}"])
    headers = ["workload", "n", "our error", "their error", "ours / theirs - 1", "our s", "their s", "their compile s"]
    return table([*headers, "time ratio", "our proven gap"], rows)
