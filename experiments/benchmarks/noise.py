"""Noise: a million exact samples of every law, beside OpenDP's samplers of the same scale.

A sample is a whole number with exactly the probabilities of the law, made of bits of the system's secure generator.
Each row is a process of its own: the best of three runs, by wall time, and the memory that the first added to its peak.
OpenDP's samplers are what releases drew with before: discrete Laplace, and the discrete Gaussian, which the accounting
"zcdp" still draws.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from experiments.benchmarks.measure import Part, Table, own_process, peak_memory, timed

SIZE = 10**6
PROMISE = {"epsilon": 1.0, "delta": 1e-6}
LAWS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("rounded normal", "ours", "gaussian", PROMISE),
    ("discrete Gaussian", "OpenDP", "gaussian", {**PROMISE, "accounting": "zcdp"}),
    ("discrete Laplace", "ours", "laplace", {"epsilon": 1.0}),
    ("discrete Laplace", "OpenDP", "laplace", {"epsilon": 1.0}),
]


def report(*, quick: bool = False) -> list[Part]:
    """Return the table; quick: a tenth of the samples."""
    size, rows = SIZE // 10 if quick else SIZE, []
    for number, (law, whose, _, _) in enumerate(LAWS):
        found = own_process("experiments.benchmarks.noise", number, size)
        speed = f"{size / found['wall'] / 1e6:.2f}"
        more = f"{found['memory'] / 2**20:.0f}"
        rows.append([law, whose, str(size), f"{found['wall']:.2f}", f"{found['cpu']:.2f}", speed, more])
    return [Table(["law", "sampler", "samples", "wall s", "CPU s", "million a second", "peak MB"], rows)]


def main(number: int, size: int) -> None:
    """Draw samples of a law and tell what it took."""
    draw = sampler(number)
    draw(100)  # imports, and tables that are kept
    before = peak_memory()
    draw(size)
    memory = peak_memory() - before
    run = timed(lambda: draw(size), repeat=3)
    print(json.dumps({"wall": run.wall, "cpu": run.cpu, "memory": memory}))


def sampler(number: int) -> Callable[[int], Any]:
    """Return what draws that many samples: the noise that a release of counts would have at the scale of its plan."""
    import numpy as np

    import hdmm_bf as bf

    _, whose, noise, asked = LAWS[number]
    counts = bf.certify("identity:4", "unbounded:4", np.eye(4), noise=noise)
    settled = bf.plan(counts, **asked)
    own: Any = settled.sampler
    if (whose, noise) != ("OpenDP", "laplace"):
        return lambda size: own.draw(size)
    import opendp.prelude as dp

    dp.enable_features("contrib")
    integers = dp.vector_domain(dp.atom_domain(T="i64"))
    made = dp.m.make_laplace(integers, dp.l1_distance(T="i64"), own.scale)
    return lambda size: np.asarray(made([0] * size), dtype=np.int64)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
