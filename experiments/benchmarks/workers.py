"""Two cores used well: the same restarts one after the other and side by side, and what both reach in the same time.

Processes of their own, one BLAS thread each. The first table runs a number of steps of one family with two seeds, in
two fits with one worker and in one fit with two, the start of the second process and its compiling included, and in
every fit the bound, the floors and the certificate; a fit before each compiles in the first. The second table gives
both the same number of seconds, and two seeds to one worker.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from experiments.benchmarks.measure import Part, Table, own_process

STEPS = [
    ("all-range:64", "bounded:64", "cell-budgets", 24),
    ("all-range:64", "threshold:64:4", "vertex", 12),
    ("all-range:64", "unbounded:64", "p-identity", 60),
    ("all-range:256", "unbounded:256", "p-identity", 8),
]
QUICK = [("all-range:24", "unbounded:24", "p-identity", 10)]
SECONDS = [("all-range:64", "threshold:64:4", 20), ("all-range:32", "threshold:32:4", 10)]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
APART = 1000
"""Between the seeds of searches side by side."""


def report(*, quick: bool = False) -> list[Part]:
    """Return the tables; quick: one small row."""
    rows = []
    for case in QUICK if quick else STEPS:
        found = own_process("experiments.benchmarks.workers", *case, environment=ONE_THREAD)
        numbers = [found["one"], found["two"], found["one"] / found["two"]]
        rows.append([*map(str, case), *(f"{value:.2f}" for value in numbers)])
    headers = ["workload", "policy", "family", "steps", "one after the other s", "side by side s", "speed-up"]
    return [Table(headers, rows)] if quick else [Table(headers, rows), _in_a_time()]


def _in_a_time() -> Table:
    rows = []
    for case in SECONDS:
        asked = ((1, 0), (1, APART), (2, 0))
        found = [own_process("experiments.benchmarks.workers", *case, *k, environment=ONE_THREAD) for k in asked]
        rows.append([*map(str, case), *(f"{run['ratio']:.4f}" for run in found)])
    return Table(["workload", "policy", "seconds", "one: error / bound", "one, other seed", "two"], rows)


def restarts(workload: str, policy: str, family: str, steps: int) -> dict[str, float]:
    """Time two restarts one after the other, then side by side."""
    import hdmm_bf as bf

    def search(seed: int, workers: int) -> None:
        options = {"noise": "laplace", "family": family, "max_steps": workers * steps}
        bf.fit(workload, policy, seed=seed, workers=workers, **options)

    spent: dict[str, float] = {}
    for name, fits in {"compiles": [(0, 1)], "one": [(0, 1), (APART, 1)], "two": [(0, 2)]}.items():
        begun = time.perf_counter()
        for seed, workers in fits:
            search(seed, workers)
        spent[name] = time.perf_counter() - begun
    return spent


def main(workload: str, policy: str, *more: Any) -> None:
    """Run one row of either table."""
    import hdmm_bf as bf

    if not more[0].isdecimal():
        print(json.dumps(restarts(workload, policy, more[0], int(more[1]))))
        return
    fit = bf.fit(workload, policy, noise="laplace", max_seconds=float(more[0]), workers=int(more[1]), seed=int(more[2]))
    print(json.dumps({"ratio": fit.unit_error / fit.matrix_bound}))


if __name__ == "__main__":
    main(*sys.argv[1:])
