"""Tree norms: the ratio of the unit error to the bound of matrix mechanisms, by wall seconds, and releases with them.

`reach` is what a row must reach and in how many seconds, `when` says when it did, from the call of `fit`, the yardstick
included. `Laplace` is the best ratio of a Laplace strategy known to us. `rmse` is that of an answer of a release at
pure epsilon 1, beside Gaussian noise at (1, 1e-6). The geography has 50 x 20 x 10 cells, with queries for every cell,
district, province and the total; nothing is compared with a bound there, the matrices would be too large.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

import hdmm_bf as bf
from experiments.benchmarks.measure import Part, Table, own_process

ROWS = [
    ("all-range:64", "threshold:64:4", 2.55, 30, "3.64"),
    ("all-range:256", "threshold:256:4", 2.57, 60, "3.73"),
    ("all-range:1024", "threshold:1024:4", 2.60, 300, "3.76"),
    ("all-range:64", "threshold:64:16", 3.9, 90, "4.77"),
    ("all-range:64", "unbounded:64", 2.63, 60, "2.908"),
    ("all-range:256", "unbounded:256", 3.53, 120, "3.852"),
    ("all-range:1024", "unbounded:1024", 4.6, 300, "4.91"),
    ("all-range:64", "bounded:64", 4.07, 60, "5.073"),
    ("prefix:256", "unbounded:256", 4.201, 120, "4.201"),
    ("prefix:64", "threshold:64:4", 3.0, 60, "-"),
    ("all-range:64", "line:64", 1.011, 30, "1.0109"),
]
QUICK = [("all-range:32", "threshold:32:4", 2.6, 20, "-")]
RELEASES = [("threshold:1024:4", 1.0, "5"), ("threshold:64:4", 0.01, "5"), ("threshold:4096:4", 0.1, "60")]
SIZES = (50, 20, 10)


def report(*, quick: bool = False) -> list[Part]:
    """Return the tables; quick: one small row of each."""
    rows = [_row(*case) for case in (QUICK if quick else ROWS)]
    fits = Table(["workload", "policy", "reach", "when s", "end", "family", "Laplace", "rmse", "Gaussian"], rows)
    releases = [_release(*case) for case in (RELEASES[:1] if quick else RELEASES)]
    drawn = Table(["policy", "epsilon", "wall s", "limit s", "peak GB"], releases)
    return [fits, drawn, Table(["noise", "promise", "rmse", "family"], _geography((5, 4, 3) if quick else SIZES))]


def _row(workload: str, policy: str, reach: float, seconds: float, laplace: str) -> list[str]:
    found = own_process("experiments.benchmarks.norms", "fit", workload, policy, seconds)
    when = next((f"{at:.1f}" for at, ratio in found["trace"] if ratio <= reach), "not reached")
    end = f"{found['end']:.4f} in {found['seconds']:.0f}"
    rmse = f"{found['rmse']:.3g}", f"{found['gaussian']:.3g}"
    row = [workload, policy, f"{reach:g} in {seconds:g}", when, end, found["family"], laplace, *rmse]
    print(" ".join(row), file=sys.stderr, flush=True)
    return row


def fit(workload: str, policy: str, seconds: str) -> None:
    """Fit, and print the ratio by seconds."""
    started, trace = time.time(), []
    gaussian = bf.fit(workload, policy, gap=1e-3)
    begun = time.time() - started  # what stands beside it is not part of the time
    bound = gaussian.bounds.lower

    def note(point: object) -> None:
        trace.append([time.time() - started - begun, point.error / bound])  # type: ignore[attr-defined]

    made = bf.fit(workload, policy, noise="norm", max_seconds=float(seconds), callback=note)
    record = {
        "trace": trace,
        "end": made.unit_error / bound,
        "seconds": time.time() - started - begun,
        "family": made.family,
        "rmse": made.rmse(epsilon=1.0),
        "gaussian": gaussian.rmse(epsilon=1.0, delta=1e-6),
    }
    print(json.dumps(record))


def _release(policy: str, epsilon: float, limit: str) -> list[str]:
    found = own_process("experiments.benchmarks.norms", "release", policy, epsilon)
    row = [policy, f"{epsilon:g}", f"{found['wall']:.2f}", limit, f"{found['peak']:.2f}"]
    print(" ".join(row), file=sys.stderr, flush=True)
    return row


def release(policy: str, epsilon: str) -> None:
    """Release counts with a chain, and print how long it took; the fit is outside the clock."""
    import resource

    cells = int(policy.split(":")[1])
    made = bf.fit(f"identity:{cells}", policy, noise="norm", family="chain", max_steps=1)
    started = time.time()
    bf.release(made, np.arange(cells), epsilon=float(epsilon))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"wall": time.time() - started, "peak": peak}))


def _geography(sizes: tuple[int, int, int]) -> list[list[str]]:
    """Every cell, every sum over the last attributes, and the total, under ordinary privacy."""
    domain = "x".join(map(str, sizes))
    a, b, c = sizes
    one = [bf.workload.from_matrix(np.ones((1, n))) for n in sizes]
    eye = [bf.workload.identity(n) for n in sizes]
    parts = [(eye[0], eye[1], eye[2]), (eye[0], eye[1], one[2]), (eye[0], one[1], one[2]), (one[0], one[1], one[2])]
    workload = bf.workload.union(*(bf.workload.product(*part) for part in parts))
    rows = []
    for noise, budget in (("norm", {"epsilon": 1.0}), ("laplace", {"epsilon": 1.0}), ("gaussian", _BUDGET)):
        made = bf.fit(workload, f"unbounded:{domain}", noise=noise, max_seconds=120)
        promise = ", ".join(f"{name} {value:g}" for name, value in budget.items())
        rows.append([noise, promise, f"{made.rmse(**budget):.4g}", made.family])
        print(f"{a} x {b} x {c}", " ".join(rows[-1]), file=sys.stderr, flush=True)
    return rows


_BUDGET = {"epsilon": 1.0, "delta": 1e-6}

if __name__ == "__main__":
    {"fit": fit, "release": release}[sys.argv[1]](*sys.argv[2:])
