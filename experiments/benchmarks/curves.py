"""Ratio to the proven bound by CPU seconds, beside random restarts of p-identity strategies, unbounded.

The other side is what HDMM's OPT_0 does, written here from its formulas (McKenna, Miklau, Hay, Machanavajjhala,
"Optimizing error of high-dimensional statistical queries under differential privacy", VLDB 2018): p = n / 16 rows at
random, L-BFGS-B with the gradient of Woodbury's formula, the best of the restarts so far. Both clocks start when the
search starts, ours (`workers=1`) after imports and the proof of the bound, the start-up. Both sides run at the same
time, on one core each. `behind` is when, after our first searched strategy, the other side had a smaller error at the
same CPU time.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from experiments.benchmarks.measure import Part, Table, own_process

KINDS = ("all-range", "prefix", "random ranges")
SECONDS = {64: 8, 256: 20, 1024: 60}
QUERIES = 2000
AT = (1, 2, 5, 10, 20, 40, 60)
"""CPU seconds at which both are shown."""

_WALL = 6.0
"""Wall seconds that our side may take for each CPU second: it is stopped by CPU time, on a busy machine too."""

Trace = list[list[float]]


def report(*, quick: bool = False) -> list[Part]:
    """Return one row for each problem and side; quick: one problem of 64 cells."""
    rows, behind = [], []
    for kind in KINDS[:1] if quick else KINDS:
        for n in (64,) if quick else (256, 1024):
            with tempfile.TemporaryDirectory() as cache:
                kept = {"JAX_COMPILATION_CACHE_DIR": cache, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
                with ThreadPoolExecutor(2) as executor:
                    ours, theirs = executor.map(
                        lambda who, k=kind, m=n, e=kept: own_process(
                            "experiments.benchmarks.curves", who, k, m, environment=e
                        ),
                        ("ours", "restarts"),
                    )
            other = [[cpu, error / ours["bound"]] for cpu, error in theirs["trace"]]
            own = ours["trace"][1:]  # the first one is not searched: the identity
            for name, start, trace in (("ours", f"{ours['start']:.1f}", own), ("restarts", "", other)):
                shown = [_at(trace, cpu) if cpu <= SECONDS[n] else "" for cpu in AT]
                rows.append([kind, str(n), name, start, f"{trace[0][1]:.4f} in {trace[0][0]:.1f}", *shown])
                print(" ".join(rows[-1]), file=sys.stderr, flush=True)
            behind.append([kind, str(n), _behind(own, other, SECONDS[n])])
            print(" ".join(behind[-1]), file=sys.stderr, flush=True)
    return [
        Table(["queries", "cells", "who", "start-up s", "first", *(f"at {cpu} s" for cpu in AT)], rows),
        Table(["queries", "cells", "behind"], behind),
    ]


def _value(trace: Trace, cpu: float) -> float:
    return min((ratio for when, ratio in trace if when <= cpu), default=np.inf)


def _at(trace: Trace, cpu: float) -> str:
    value = _value(trace, cpu)
    return f"{value:.4f}" if np.isfinite(value) else "-"


def _behind(ours: Trace, other: Trace, end: float) -> str:
    """Say when, between our first strategy and the end, the other side was ahead by more than a part in 10 000."""
    times = sorted({when for when, _ in [*ours, *other] if ours[0][0] <= when <= end})
    late = [when for when in times if _value(ours, when) > _value(other, when) * (1 + 1e-4)]
    if not late:
        return "never"
    until = next((when for when in times if when > late[-1]), end)
    return f"from {late[0]:.1f} s to {until:.1f} s"


def _workload(kind: str, n: int) -> object:
    import hdmm_bf as bf

    if kind != "random ranges":
        return bf.workload.parse(f"{kind}:{n}")
    rng = np.random.default_rng(n)
    W = np.zeros((QUERIES, n))
    for row in W:
        low, high = np.sort(rng.integers(0, n, size=2))
        row[low : high + 1] = 1
    return bf.workload.from_matrix(W, spec=f"{QUERIES} random ranges")


def ours(kind: str, n: int) -> None:
    """Fit, and print the ratio by CPU seconds of this process."""
    import jax  # noqa: F401  `fit` would import it after its first candidate, and it is start-up

    import hdmm_bf as bf

    trace: Trace = []
    started: list[float] = []
    bound = [0.0]

    def note(point: object) -> None:
        ratio, bound[0] = point.error / point.bound, point.bound  # type: ignore[attr-defined]
        started.append(time.process_time())
        now = started[-1] - started[0]
        if not trace or ratio < trace[-1][1] * (1 - 1e-6):
            trace.append([now, ratio])
        if now > SECONDS[n]:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        policy = f"unbounded:{n}"
        bf.fit(_workload(kind, n), policy, noise="laplace", workers=1, max_seconds=_WALL * SECONDS[n], callback=note)
    print(json.dumps({"trace": trace, "bound": bound[0], "start": started[0]}))


def restarts(kind: str, n: int) -> None:
    """Restart p-identity strategies at random, and print the least error by CPU seconds."""
    from scipy.optimize import minimize

    V = _workload(kind, n).gram  # type: ignore[attr-defined]
    diagonal, p, rng = np.diag(V).copy(), max(1, n // 16), np.random.default_rng(0)
    trace: Trace = []
    start = time.process_time()

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        Theta = flat.reshape(p, n)
        s = 1 + Theta.sum(axis=0)
        Z = np.linalg.solve(np.eye(p) + Theta @ Theta.T, Theta)
        Y = ((Z * s) @ V) * s
        value = float(s**2 @ diagonal - (Y * Theta).sum())
        by_size = 2 * (diagonal * s - (Theta * Y).sum(axis=0) / s)
        if not trace or value < trace[-1][1] * (1 - 1e-6):
            trace.append([time.process_time() - start, value])
        return value, (by_size - 2 * (Y - (Y @ Theta.T) @ Z)).ravel()

    def check(_: np.ndarray) -> None:
        if time.process_time() - start > SECONDS[n]:
            raise StopIteration

    bounds = [(0, None)] * (p * n)
    with contextlib.suppress(StopIteration):
        while time.process_time() - start < SECONDS[n]:
            minimize(loss, rng.random(p * n), jac=True, method="L-BFGS-B", bounds=bounds, callback=check)
    print(json.dumps({"trace": trace}))


if __name__ == "__main__":
    {"ours": ours, "restarts": restarts}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
