"""Two cores used well: the same number of restarts one after the other and side by side, and what they reach in a time.

Processes of their own, one BLAS thread each. "speed-up" is wall time on one worker over wall time on two, for the same
number of steps; "CPU ratio" says how much more work that was. The second table gives both the same time.
"""

from __future__ import annotations

import json
import sys
import time

from experiments.benchmarks.measure import Part, Table, own_process

STEPS = [
    ("all-range:64", "unbounded:64", 40),
    ("all-range:64", "threshold:64:4", 24),
    ("all-range:64", "bounded:64", 16),
]
SECONDS = [
    ("all-range:64", "threshold:64:4", 45),
    ("all-range:64", "bounded:64", 45),
    ("all-range:64", "unbounded:64", 15),
]
QUICK = [("all-range:24", "unbounded:24", 20)]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def report(*, quick: bool = False) -> list[Part]:
    """Return the tables; quick: smaller domains, no second table."""
    rows = []
    for workload, policy, steps in QUICK if quick else STEPS:
        one, two = (_run(workload, policy, workers, steps=steps) for workers in (1, 2))
        times = [one["wall"], two["wall"], one["wall"] / two["wall"], two["cpu"] / one["cpu"]]
        rows.append([workload, policy, str(steps), *(f"{value:.2f}" for value in times)])
    headers = ["workload", "policy", "steps", "one s", "two s", "speed-up", "CPU ratio"]
    return [Table(headers, rows)] if quick else [Table(headers, rows), _in_a_time()]


def _in_a_time() -> Table:
    rows = []
    for workload, policy, seconds in SECONDS:
        found = [_run(workload, policy, workers, seconds=seconds) for workers in (1, 2)]
        rows.append([workload, policy, str(seconds), *(f"{run['ratio']:.4f}" for run in found)])
    return Table(["workload", "policy", "seconds", "one: error / bound", "two: error / bound"], rows)


def _run(workload: str, policy: str, workers: int, **limit: float) -> dict[str, float]:
    asked = json.dumps({"workload": workload, "policy": policy, "workers": workers, **limit})
    return own_process("experiments.benchmarks.workers", asked, environment=ONE_THREAD)


def main(asked: str) -> None:
    """Fit once; with a number of steps, a short fit before it compiles."""
    import hdmm_bf as bf

    given = json.loads(asked)
    options = {"noise": "laplace", "workers": given["workers"]}
    if "steps" in given:
        bf.fit(given["workload"], given["policy"], max_steps=given["steps"], **options)
    wall, cpu = time.perf_counter(), time.process_time()
    limits = {"max_steps": given.get("steps"), "max_seconds": given.get("seconds")}
    fit = bf.fit(given["workload"], given["policy"], **limits, **options)
    found = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    print(json.dumps({**found, "ratio": fit.unit_error / fit.bounds.lower}))


if __name__ == "__main__":
    main(sys.argv[1])
