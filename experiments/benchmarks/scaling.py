"""Scaling: CPU time of fits against cells and edges, dense and structured, with fitted exponents.

Gaussian fits to a gap of 1e-3 (structured: default options) in processes of their own, one BLAS thread, certificate
included; Laplace rows are the time of a fixed number of p-identity steps after a first fit that compiles. An exponent
is the slope of log time against log size over the larger half of the sizes.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments import figures
from experiments.benchmarks.measure import Part, Table, own_process

PICTURE = Path(__file__).parent / "results" / "scaling"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Curve(NamedTuple):
    """Fits of growing size."""

    name: str
    across: str
    cases: list[tuple[str, ...]]
    quick: int


CURVES = [
    Curve(
        "dense, threshold 4",
        "cells",
        [(f"all-range:{n}", f"threshold:{n}:4", "gaussian") for n in (64, 128, 256, 512, 1024, 2048)],
        4,
    ),
    Curve(
        "dense, unbounded",
        "cells",
        [(f"all-range:{n}", f"unbounded:{n}", "gaussian") for n in (64, 128, 256, 512, 1024, 2048)],
        4,
    ),
    Curve(
        "structured, grids",
        "cells",
        [(f"all-range:{n}x{n}", f"threshold:{n}x{n}:1", "gaussian", "bases") for n in (32, 64, 128, 256, 512)],
        2,
    ),
    Curve(
        "p-identity, 10 steps",
        "cells",
        [(f"all-range:{n}", f"unbounded:{n}", "laplace", "p-identity") for n in (32, 64, 128, 256)],
        2,
    ),
    Curve(
        "dense, 512 cells",
        "edges",
        [("all-range:512", f"threshold:512:{t}", "gaussian") for t in (1, 4, 16, 64, 256)],
        2,
    ),
]


def report(*, quick: bool = False) -> list[Part]:
    """Return the times and the exponents, and draw them; quick: the smaller sizes, no picture."""
    rows, exponents = [], []
    for curve in CURVES:
        cases = curve.cases[: curve.quick] if quick else curve.cases
        found = [own_process("experiments.benchmarks.scaling", *case, environment=ONE_THREAD) for case in cases]
        for (workload, policy, *_), run in zip(cases, found, strict=True):
            numbers = [f"{run[key]:.4g}" for key in ("cells", "edges", "cpu", "wall")]
            rows.append([curve.name, workload, policy, *numbers])
        slope = exponent([run[curve.across] for run in found], [run["cpu"] for run in found])
        exponents.append([curve.name, curve.across, f"{slope:.2f}"])
    times = Table(["curve", "workload", "policy", "cells", "edges", "CPU s", "wall s"], rows)
    fitted = Table(["curve", "against", "exponent"], exponents)
    if not quick:
        draw(times, fitted)
    return [times, fitted]


def exponent(sizes: list[float], seconds: list[float]) -> float:
    """Return the slope of log seconds against log size over the larger half of the sizes."""
    half = max(0, min(len(sizes) // 2, len(sizes) - 2))
    x, y = np.log(sizes[half:]), np.log(seconds[half:])
    return float(np.polyfit(x, y, 1)[0])


def draw(times: Table, fitted: Table) -> None:
    """Draw the curves: one panel against cells, one against edges."""
    points: dict[str, list[tuple[float, float]]] = {}
    across = {str(row["curve"]): str(row["against"]) for row in fitted.records()}
    for row in times.records():
        name = str(row["curve"])
        points.setdefault(name, []).append((float(row[across[name]]), float(row["CPU s"])))
    labels = {str(row["curve"]): f"{row['curve']}: exponent {row['exponent']:.1f}" for row in fitted.records()}
    figures.curves(points, across, labels, PICTURE, question="How does the time of a fit grow with the problem?")


def main(workload: str, policy: str, noise: str, family: str = "") -> None:
    """Fit once and tell the time; a fit before it loads what is needed and, for Laplace noise, compiles."""
    import hdmm_bf as bf

    graph = bf.policy.parse(policy)
    options: dict[str, Any] = {"noise": noise, "workers": 1, "family": family or None}
    if noise == "laplace":
        options["max_steps"] = 10
        bf.fit(workload, policy, **options)
    else:
        bf.fit("all-range:4x4", "threshold:4x4:1", family=family or None)
    wall, cpu = time.perf_counter(), time.process_time()
    bf.fit(workload, policy, **options)
    spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    print(json.dumps({"cells": graph.num_cells, "edges": graph.num_edges, **spent}))


if __name__ == "__main__":
    main(*sys.argv[1:])
