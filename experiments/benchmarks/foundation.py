"""Building policies, Gram matrices and x_G: time, and peak memory against the size of the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import hdmm_bf as bf
from experiments.benchmarks.measure import Part, Table, peak_bytes, timed

CASES: list[tuple[str, Callable[[], Any], float]] = [
    ("edges of threshold:1000x1000:1", lambda: bf.policy.parse("threshold:1000x1000:1").edges, 2.0),
    ("edges of bounded:2048", lambda: bf.policy.parse("bounded:2048").edges, 2.0),
    ("edges of threshold:4096:16", lambda: bf.policy.parse("threshold:4096:16").edges, 2.0),
    ("Gram of all-range:4096", lambda: bf.workload.parse("all-range:4096").gram, 1.0),
    ("Gram of prefix:4096", lambda: bf.workload.parse("prefix:4096").gram, 1.0),
    ("Gram of random-range:4096:10000", lambda: bf.workload.parse("random-range:4096:10000:seed=7").gram, 5.0),
    ("Gram of all-range:64x64", lambda: bf.workload.parse("all-range:64x64").gram, 2.0),
]


def report(*, quick: bool = False) -> list[Part]:
    """Return the table; it is quick as it is."""
    rows = []
    for name, call, limit in CASES:
        run, peak = timed(call, repeat=3), peak_bytes(call)
        share = peak / run.result.nbytes
        rows.append([name, f"{run.wall:.3f}", f"{run.cpu:.3f}", f"{limit:g}", f"{share:.2f}"])
    rows.append(_line())
    return [Table(["what", "wall s", "CPU s", "limit s", "peak / result"], rows)]


def _line() -> list[str]:
    """x_G of a line with a million cells: the policy's structure once, then one vector."""
    n = 10**6
    problem = bf.Problem(bf.workload.identity(n), bf.policy.line(n))
    vector = np.random.default_rng(0).integers(0, 100, n)
    bf.transform.to_edges(problem, vector)
    run = timed(lambda: bf.transform.to_edges(problem, vector), repeat=3)
    assert np.array_equal(run.result, np.cumsum(vector)[:-1])
    return ["x_G of line:1000000", f"{run.wall:.3f}", f"{run.cpu:.3f}", "0.5", "-"]
