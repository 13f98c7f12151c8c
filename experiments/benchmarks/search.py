"""Time to a good Laplace strategy: the ratio to the proven bound, by wall seconds from the start of the process.

`reach` is what a row must reach and in how many seconds; `cold` and `warm` say when it did, with an empty cache of
compiled programs and with one that an earlier process filled. `first` is the first strategy that was searched, `end`
the last. `HDMM` is what the reference code reaches on one core (best of its restarts, CPU seconds, without its
start-up), measured apart on another day and kept here as numbers.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time

from experiments.benchmarks.measure import Part, Table, own_process

STARTED = time.time()

ROWS = [
    ("all-range:64", "unbounded:64", 2.909, 4, 6, "2.910 in 0.04"),
    ("all-range:256", "unbounded:256", 3.854, 10, 12, "3.884 in 0.4"),
    ("all-range:1024", "unbounded:1024", 4.985, 30, 60, "4.987 in 12.5"),
    ("all-range:1024", "unbounded:1024", 4.95, 60, 60, "-"),
    ("all-range:4096", "unbounded:4096", 6.4, 300, 300, "-"),
    ("prefix:256", "unbounded:256", 4.24, 8, 40, "4.242 in 1.6"),
    ("prefix:256", "unbounded:256", 4.204, 40, 40, "-"),
    ("prefix:1024", "unbounded:1024", 5.22, 30, 30, "5.346 in 14"),
    ("all-range:64", "threshold:64:4", 3.69, 5, 40, "-"),
    ("all-range:64", "threshold:64:4", 3.645, 40, 40, "-"),
    ("all-range:256", "threshold:256:4", 3.74, 40, 40, "-"),
    ("all-range:1024", "threshold:1024:4", 3.80, 300, 240, "-"),
    ("all-range:64", "bounded:64", 5.0766, 31, 31, "-"),
    ("all-range:16x16", "threshold:16x16:1", 3.0244, 137, 60, "-"),
]
QUICK = [("all-range:64", "unbounded:64", 2.909, 4, 8, "2.910 in 0.04")]


def report(*, quick: bool = False) -> list[Part]:
    """Return the table; quick: one row."""
    cases = QUICK if quick else ROWS
    rows, known = [], {}
    for workload, policy, reach, limit, seconds, hdmm in cases:
        if (workload, policy) not in known:
            last = min(other[2] for other in cases if other[:2] == (workload, policy))
            with tempfile.TemporaryDirectory() as cache:
                kept = {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
                command = "experiments.benchmarks.search", workload, policy, seconds
                known[workload, policy] = (
                    own_process(*command, 0, environment=kept),
                    own_process(*command, last, environment=kept),
                )
        cold, warm = known[workload, policy]
        searched = [point for point in cold["trace"] if point[1] < cold["trace"][0][1]]
        first, end = (searched or cold["trace"])[0], cold["trace"][-1]
        rows.append(
            [
                workload,
                policy,
                f"{reach:g} in {limit:g}",
                _when(cold["trace"], reach),
                _when(warm["trace"], reach),
                f"{first[1]:.4f} in {first[0]:.1f}",
                f"{end[1]:.4f} in {end[0]:.0f}",
                f"{cold['cpu']:.0f}",
                hdmm,
            ]
        )
        print(" ".join(rows[-1]), file=sys.stderr, flush=True)
    return [Table(["workload", "policy", "reach", "cold s", "warm s", "first", "end", "CPU s", "HDMM"], rows)]


def _when(trace: list[list[float]], reach: float) -> str:
    return next((f"{seconds:.1f}" for seconds, ratio in trace if ratio <= reach), "not reached")


def main(workload: str, policy: str, seconds: str, reach: str) -> None:
    """Fit and print when the ratio fell, from the start of the process; stop at `reach` if it is not 0."""
    import hdmm_bf as bf

    trace: list[list[float]] = []

    def note(point: object) -> None:
        ratio = point.error / point.bound  # type: ignore[attr-defined]
        if not trace or ratio < trace[-1][1] * (1 - 1e-6):
            trace.append([time.time() - STARTED + _OVERHEAD, ratio])
        if ratio <= float(reach):
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        bf.fit(workload, policy, noise="laplace", max_seconds=float(seconds), callback=note)
    used = os.times()
    print(json.dumps({"trace": trace, "cpu": used.user + used.system + used.children_user + used.children_system}))


_OVERHEAD = 0.1
"""Seconds of the interpreter before the first line of this file runs."""

if __name__ == "__main__":
    main(*sys.argv[1:])
