"""Many attributes: pure epsilon beside its floors, proven bounds for three and more attributes, by factors.

Every fit runs in a process of its own. Floors are mechanisms that need no search; the best of them is named. Time
limits are of wall time, so numbers of searches that a limit ended depend on the machine.
"""

from __future__ import annotations

import json
import sys

from experiments.benchmarks.measure import Part, Table, own_process, peak_memory

MIXED = "product:line:100,bounded:50,empty:2"
CENSUS = "product:line:100,bounded:50,bounded:7,empty:2"
CASES = [
    ("all-range:100x50x2", MIXED, "laplace", ""),
    ("marginals:100x50x2:2", MIXED, "laplace", ""),
    ("all-range:100x50x2", "product:line:100,empty:50,empty:2", "laplace", ""),
    ("all-range:100x50x2", "product:line:100,empty:50,empty:2", "norm", ""),
    *(
        (f"all-range:{n}x{n}", f"threshold:{n}x{n}:1", noise, "")
        for n in (16, 32, 256)
        for noise in ("laplace", "norm")
    ),
    ("all-range:20x20x20", "product:line:20,line:20,line:20", "laplace", ""),
    ("all-range:20x20x20", "product:line:20,line:20,line:20", "norm", ""),
    ("all-range:20x20x20", "product:line:20,line:20,line:20", "gaussian", ""),
    ("all-range:24x24", "threshold:24x24:3", "gaussian", "gaussian"),
    ("all-range:24x24", "threshold:24x24:3", "gaussian", "bases"),
    ("all-range:24x24", "threshold:24x24:3", "laplace", ""),
    ("all-range:24x24", "threshold:24x24:3", "laplace", "directions"),
    ("all-range:256x256", "threshold:256x256:3", "gaussian", ""),
    ("all-range:256x256", "threshold:256x256:3", "laplace", ""),
    ("census", CENSUS, "gaussian", ""),
    ("census", CENSUS, "laplace", ""),
]
QUICK = [("all-range:12x10x2", "product:line:12,bounded:10,empty:2", "laplace", "")]
SEARCHED = (
    *(
        "directions",
        "layers",
        "tables",
        "kronecker",
        "union",
        "grid",
        "p-identity",
        "vertex",
        "dictionary",
        "cell-budgets",
        "cells",
    ),
    *("bases", "sectors", "marginals"),
    *("flows", "chain", "hierarchy", "blocks", "clusters"),
)
"""Beginnings of the names of what families search, which are no floors."""

SECONDS = 100.0


def report(*, quick: bool = False) -> list[Part]:
    """Return the table; quick: one small row."""
    rows = []
    for case in QUICK if quick else CASES:
        made = own_process("experiments.benchmarks.attributes", *case, 5.0 if quick else SECONDS)
        ratio = f"{made['error'] / made['matrix']:.4f}"
        proven = f"{made['lower'] / made['matrix']:.4f}" if made["lower"] else "-"
        floor = "-" if made["floor"] is None else f"{made['floor'][1]:.4g} ({made['floor'][0]})"
        numbers = [f"{made[name]:.1f}" for name in ("wall", "cpu")]
        error = f"{made['error']:.6g}"
        rows.append([*case[:3], made["family"], error, ratio, proven, floor, *numbers, f"{made['peak']:.2f}"])
        print(" ".join(rows[-1]), file=sys.stderr, flush=True)
    head = ["workload", "policy", "noise", "family", "unit error", "/ bound", "proven", "best floor", "wall s", "CPU s"]
    note = (
        "census: all 2-way marginals of 100 x 50 x 7 x 2 cells, and age ranges by region. / bound: the error over the\n"
        "dual bound, which holds for matrix mechanisms of any noise; proven: what no strategy with this noise is\n"
        "below, over the same. norm: tree norms, at small epsilon; neither bound binds them."
    )
    return [Table([*head, "peak GB"], rows), note]


def main(workload: str, policy: str, noise: str, family: str, seconds: str) -> None:
    """Fit, and tell what was reached."""
    import time

    import hdmm_bf as bf

    asked = _census() if workload == "census" else bf.workload.parse(workload)
    wall, cpu = time.perf_counter(), time.process_time()
    made = bf.fit(asked, policy, noise=noise, family=family or None, max_seconds=float(seconds))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    floors = {name: error for name, error in made.reached.items() if not name.startswith(SEARCHED)}
    floor = min(floors.items(), key=lambda item: item[1]) if floors else None
    bounds = {"matrix": made.matrix_bound, "lower": made.bounds.lower}
    found = {"error": made.unit_error, **bounds, "family": made.family, "floor": floor}
    print(json.dumps({**found, "wall": wall, "cpu": cpu, "peak": peak_memory() / 2**30}))


def _census() -> object:
    import numpy as np

    import hdmm_bf as bf

    total = [bf.workload.from_matrix(np.ones((1, n))) for n in (7, 2)]
    ranges = bf.workload.product(bf.workload.all_range(100), bf.workload.identity(50), *total)
    return bf.workload.union(bf.workload.parse("marginals:100x50x7x2:2"), ranges)


if __name__ == "__main__":
    main(*sys.argv[1:])
