"""Memory: what is predicted before a fit, and the peak of the process that ran it."""

from __future__ import annotations

import json
import sys

from experiments.benchmarks.measure import Part, Table, own_process, peak_memory

CASES = [
    *((f"all-range:{n}", f"threshold:{n}:4", "gaussian") for n in (512, 1024, 2048)),
    *((f"all-range:{n}", f"unbounded:{n}", "gaussian") for n in (512, 1024, 2048)),
    ("all-range:512", "bounded:512", "gaussian"),
    *((f"all-range:{n}", f"threshold:{n}:4", "laplace") for n in (64, 128, 256)),
    ("all-range:256", "unbounded:256", "laplace"),
    ("all-range:128", "bounded:128", "laplace"),
    *((f"all-range:{n}x{n}", f"threshold:{n}x{n}:1", "gaussian") for n in (128, 256, 512)),
]
QUICK = CASES[:2]


def report(*, quick: bool = False) -> list[Part]:
    """Return the table; quick: two rows."""
    rows = []
    for case in QUICK if quick else CASES:
        found = own_process("experiments.benchmarks.memory", *case)
        shown = [f"{found[key] / 2**20:.0f}" for key in ("predicted", "peak")]
        rows.append([*case, *shown, f"{found['predicted'] / found['peak']:.2f}"])
    return [Table(["workload", "policy", "noise", "predicted MB", "peak MB", "ratio"], rows)]


def main(workload: str, policy: str, noise: str) -> None:
    """Fit for a few steps, or half a minute, and tell the peak."""
    import hdmm_bf as bf

    predicted = bf.memory_needed(workload, policy, noise=noise, workers=1)
    limit = {"max_steps": 5} if noise == "gaussian" else {"max_seconds": 25.0}
    bf.fit(workload, policy, noise=noise, workers=1, **limit)
    print(json.dumps({"predicted": predicted, "peak": peak_memory()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
