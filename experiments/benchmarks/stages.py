"""Stages: CPU seconds of every step from a spec string to released answers, on examples of the command line's help.

One process, second run of each example, so that nothing is loaded or compiled. Laplace searches stop after 10 steps.
Fits certify what they find, and loading certifies it again.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import hdmm_bf as bf
from experiments.benchmarks.measure import Part, Table

CASES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("all-range:64", "threshold:64:4", "gaussian", {}),
    ("prefix:256", "unbounded:256", "gaussian", {}),
    ("all-range:32x32", "threshold:32x32:1", "gaussian", {}),
    ("marginals:2x5x7:2", "sensitive:2x5x7:1,2", "gaussian", {}),
    ("random-range:1024:10000:seed=7", "threshold:1024:4", "gaussian", {}),
    ("all-range:64", "threshold:64:4", "laplace", {"max_steps": 10}),
    ("all-range:100x100", "threshold:100x100:1", "gaussian", {}),
]
STAGES = ("parse", "Gram", "fit", "save", "load", "plan", "release", "stddev")


def report(*, quick: bool = False) -> list[Part]:
    """Return the table; quick: the first four examples."""
    rows = []
    for case in CASES[:4] if quick else CASES:
        stages(*case)
        found = stages(*case)
        rows.append([*case[:3], *(f"{found[name]:.3f}" if name in found else "-" for name in STAGES)])
    return [Table(["workload", "policy", "noise", *STAGES], rows)]


def stages(workload: str, policy: str, noise: str, options: dict[str, Any]) -> dict[str, float]:
    """Go through all stages of one example."""
    spent: dict[str, float] = {}

    def timed(name: str, call: Callable[[], Any]) -> Any:
        begun = time.process_time()
        result = call()
        spent[name] = time.process_time() - begun
        return result

    W, G = timed("parse", lambda: (bf.workload.parse(workload), bf.policy.parse(policy)))
    if W.num_cells <= 4096:
        timed("Gram", lambda: W.gram)
    fit = timed("fit", lambda: bf.fit(W, G, noise=noise, workers=1, **options))
    counts = np.random.default_rng(0).integers(0, 100, W.num_cells)
    privacy = {"epsilon": 1.0, "delta": 1e-6} if noise == "gaussian" else {"epsilon": 1.0}
    with tempfile.TemporaryDirectory() as folder:
        path = timed("save", lambda: fit.save(Path(folder) / "a.bf"))
        held = timed("load", lambda: bf.load(path))
    timed("plan", lambda: bf.plan(held, **privacy))
    out = timed("release", lambda: bf.release(held, counts, **privacy))
    if W.num_queries <= 10**6:
        timed("stddev", lambda: out.stddev)
    return spent
