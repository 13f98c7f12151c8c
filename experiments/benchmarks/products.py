"""Structured strategies: error against the dense optimum and the proven bounds, time and memory, growth with the side.

Every fit runs in a process of its own, so that the peak is its own; the program itself takes about 0.15 GB of it.
"""

from __future__ import annotations

import json
import subprocess
import sys

from experiments.benchmarks.measure import Part, Table

SIZES = "85x9x100x16x7x15x6x5x2x100x100x99x42x2"
CASES: list[tuple[str, str, str, str | None, str, bool]] = [
    ("all-range:12x12", "threshold:12x12:1", "gaussian", "bases", "1.015 of optimum", True),
    ("all-range:24x24", "threshold:24x24:1", "gaussian", "bases", "1.015 of optimum", True),
    ("marginals:16x8x4:2", "product:line:16,bounded:8,empty:4", "gaussian", "sectors", "1.02 of optimum", True),
    ("all-range:64x64", "unbounded:64x64", "gaussian", "kronecker", "1.0445 of SVD", False),
    ("marginals:6x5x4x3:2", "unbounded:6x5x4x3", "gaussian", "marginals", "1 of SVD", False),
    (f"marginals:{SIZES}:2", f"sensitive:{SIZES}:0,3,9", "gaussian", None, "gap 1e-6, 60 s, 2 GB", False),
    ("all-range:16x16", "threshold:16x16:1", "laplace", "grid", "below 3.0243", False),
    ("all-range:32x32", "threshold:32x32:1", "laplace", "grid", "below 4.1245", False),
    ("all-range:64x64", "unbounded:64x64", "laplace", "cells", "1.028e9", False),
]
SIDES = (64, 128, 256, 512, 1000)

RUN = """
import json, sys, time
import numpy as np
import hdmm_bf as bf
from experiments.benchmarks.measure import peak_memory
workload, policy, noise, family, optimum, seconds = json.loads(sys.argv[1])
wall, cpu = time.perf_counter(), time.process_time()
gap = 1e-4 if family == "kronecker" else 1e-3
fit = bf.fit(workload, policy, noise=noise, family=family, max_seconds=seconds, gap=gap)
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
peak = peak_memory() / 2**30
found = {"error": fit.unit_error, "svd": fit.bounds.svd, "lower": fit.matrix_bound, "family": fit.family,
         "wall": wall, "cpu": cpu, "peak": peak}
if optimum:
    found["optimum"] = bf.bound(workload, policy, gap=1e-4).lower
if policy == "threshold:1000x1000:1":
    counts = np.random.default_rng(0).poisson(3.0, 10**6)
    start = time.perf_counter()
    out = bf.release(fit, counts, epsilon=1.0, delta=1e-6)
    asked = bf.workload.parse("random-range:1000x1000:10000:seed=7")
    answers, stddev = out.answer(asked)
    found["release"] = time.perf_counter() - start
    found["z"] = float(np.std((answers - asked.matrix.mv(counts)) / stddev))
print(json.dumps(found))
"""


def report(*, quick: bool = False) -> list[Part]:
    """Return the tables; quick: three small rows and the smallest grid."""
    rows = []
    for workload, policy, noise, family, wanted, optimum in CASES[:3] if quick else CASES:
        made = _run(workload, policy, noise, family, optimum)
        shown = workload if len(workload) < 30 else "2-way, 14 attributes, 10^17 cells"
        rows.append([shown, policy if len(policy) < 40 else "3 sensitive", noise, *_numbers(made), wanted])
    head = ["workload", "policy", "noise", "family", "unit error", "/ optimum", "/ SVD", "/ bound", "wall s", "CPU s"]
    return [Table([*head, "peak GB", "wanted"], rows), _growth(SIDES[:1] if quick else SIDES)]


def _run(workload: str, policy: str, noise: str, family: str | None, optimum: bool) -> dict[str, float | str]:
    asked = json.dumps([workload, policy, noise, family, optimum, None])
    run = subprocess.run([sys.executable, "-c", RUN, asked], capture_output=True, text=True, check=True)
    made: dict[str, float | str] = json.loads(run.stdout.splitlines()[-1])
    return made


def _numbers(made: dict[str, float | str]) -> list[str]:
    error = float(made["error"])

    def ratio(name: str) -> str:
        return f"{error / float(made[name]):.4f}" if name in made and float(made[name]) > 0 else "-"

    ratios = [ratio("optimum"), ratio("svd"), ratio("lower")]
    return [
        str(made["family"]),
        f"{error:.7g}",
        *ratios,
        f"{float(made['wall']):.1f}",
        f"{float(made['cpu']):.1f}",
        f"{float(made['peak']):.2f}",
    ]


def _growth(sides: tuple[int, ...]) -> Table:
    """All ranges on N x N grids: time and memory against the side."""
    rows = []
    for side in sides:
        made = _run(f"all-range:{side}x{side}", f"threshold:{side}x{side}:1", "gaussian", "bases", False)
        release = f"{float(made['release']):.1f}" if "release" in made else "-"
        rows.append([f"{side} x {side}", *_numbers(made), release])
    head = ["grid", "family", "unit error", "/ optimum", "/ SVD", "/ bound", "wall s", "CPU s", "peak GB"]
    return Table([*head, "release of 10 000 ranges, s"], rows)
