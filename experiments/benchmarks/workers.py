"""Two cores used well: the same restarts one after the other and side by side, and what both reach in the same time.

Processes of their own, one BLAS thread each. The first table runs a number of steps of one family with two seeds, in
two fits with one worker and in one fit with two; a fit before each compiles. "cores" is CPU time over wall time. Small
problems spend a good part of their time in the interpreter, which runs one thread at a time. The second table gives
both the same number of seconds.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from experiments.benchmarks.measure import Part, Table, own_process

STEPS = [
    ("all-range:64", "bounded:64", "cell-budgets", 8),
    ("all-range:64", "threshold:64:4", "vertex", 6),
    ("all-range:128", "threshold:128:4", "vertex", 3),
    ("all-range:64", "unbounded:64", "p-identity", 20),
    ("all-range:256", "unbounded:256", "p-identity", 5),
]
QUICK = [("all-range:24", "unbounded:24", "p-identity", 10)]
SECONDS = [("all-range:64", "threshold:64:4", 20), ("all-range:128", "threshold:128:4", 40)]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
APART = 1000
"""Between the seeds of searches side by side."""


def report(*, quick: bool = False) -> list[Part]:
    """Return the tables; quick: one small row."""
    rows = []
    for case in QUICK if quick else STEPS:
        found = own_process("experiments.benchmarks.workers", *case, environment=ONE_THREAD)
        numbers = [found["one"], found["two"], found["one"] / found["two"], found["cores"]]
        rows.append([*map(str, case), *(f"{value:.2f}" for value in numbers)])
    headers = ["workload", "policy", "family", "steps", "one after the other s", "side by side s", "speed-up", "cores"]
    return [Table(headers, rows)] if quick else [Table(headers, rows), _in_a_time()]


def _in_a_time() -> Table:
    rows = []
    for case in SECONDS:
        found = [own_process("experiments.benchmarks.workers", *case, k, environment=ONE_THREAD) for k in (1, 2)]
        rows.append([*map(str, case), *(f"{run['ratio']:.4f}" for run in found)])
    return Table(["workload", "policy", "seconds", "one worker: error / bound", "two"], rows)


def restarts(workload: str, policy: str, family: str, steps: int) -> dict[str, float]:
    """Time two restarts one after the other, then side by side."""
    import hdmm_bf as bf

    def one_after_the_other() -> None:
        for seed in (0, APART):
            bf.fit(workload, policy, noise="laplace", family=family, seed=seed, max_steps=steps + 1)

    def side_by_side() -> None:
        bf.fit(workload, policy, noise="laplace", family=family, max_steps=2 * steps + 1, workers=2)

    found: dict[str, float] = {}
    for name, call in (("one", one_after_the_other), ("two", side_by_side)):
        call()
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        found[name] = time.perf_counter() - wall
        found["cores"] = (time.process_time() - cpu) / found[name]
    return found


def main(workload: str, policy: str, *more: Any) -> None:
    """Run one row of either table."""
    import hdmm_bf as bf

    if not more[0].isdecimal():
        print(json.dumps(restarts(workload, policy, more[0], int(more[1]))))
        return
    fit = bf.fit(workload, policy, noise="laplace", max_seconds=float(more[0]), workers=int(more[1]))
    print(json.dumps({"ratio": fit.unit_error / fit.bounds.lower}))


if __name__ == "__main__":
    main(*sys.argv[1:])
