"""Laplace strategies with default options: ratio of the unit error to the dual bound, which binds any noise.

`known` is the best value known before, `aim` what research would like; `paper` and `classical` are the best floors;
`proven` is the bound for Laplace noise: no strategy is below.
Default time limits, two instances side by side on two cores.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import hdmm_bf as bf
from experiments.benchmarks.measure import Part, Table, timed

ROWS = [
    ("all-range:64", "unbounded:64", "2.909", "2.90"),
    ("all-range:256", "unbounded:256", "3.853", "3.82"),
    ("prefix:256", "unbounded:256", "4.215", "4.15"),
    ("all-range:64", "threshold:64:4", "3.69", "3.3"),
    ("all-range:128", "threshold:128:4", "3.94", "3.4"),
    ("all-range:64", "bounded:64", "5.118", "4.8"),
    ("all-range:8x8", "threshold:8x8:1", "2.316", "2.2"),
    ("all-range:16x16", "threshold:16x16:1", "3.02", "2.7"),
    ("all-range:64", "line:64", "1.011", "1.005"),
    ("prefix:64", "cycle:64", "-", "-"),
]

QUICK = [("all-range:16", "unbounded:16", "-", "-"), ("all-range:16", "threshold:16:4", "-", "-")]


def row(case: tuple[str, str, str, str]) -> list[str]:
    """Fit one instance with default options and set it beside the best floors."""
    workload, policy, known, aim = case
    seconds = 6.0 if case in QUICK else None
    run = timed(lambda: bf.fit(workload, policy, noise="laplace", workers=1, max_seconds=seconds))
    fit: bf.Fit = run.result
    kinds = {r.name: r.kind for r in bf.compare(workload, policy, noise="laplace", max_steps=1)[0]}
    lower = fit.matrix_bound
    best_of = {
        kind: min((e for n, e in fit.reached.items() if kinds.get(n) == kind), default=float("nan")) / lower
        for kind in ("paper", "classical")
    }
    cells = [workload, policy, f"{best_of['paper']:.4f}", f"{best_of['classical']:.4f}", known, aim]
    cells += [f"{fit.unit_error / lower:.4f}", f"{fit.bounds.lower / lower:.4f}"]
    cells += [fit.strategy.family, str(len(fit.trace)), f"{run.wall:.0f}"]
    print(" ".join(cells), file=sys.stderr, flush=True)
    return cells


def report(*, quick: bool = False) -> list[Part]:
    """Return the table; two instances run side by side, one core each, the longest first. Quick: two small ones."""
    cases = QUICK if quick else ROWS
    longest_first = sorted(cases, key=lambda case: -bf.workload.parse(case[0]).num_cells)
    with ProcessPoolExecutor(max_workers=2, mp_context=get_context("spawn")) as pool:
        found = dict(zip(longest_first, pool.map(row, longest_first), strict=True))
    headers = ["workload", "policy", "paper", "classical", "known", "aim", "ours", "proven", "family", "steps", "s"]
    return [Table(headers, [found[case] for case in cases])]
