"""Several devices: time and peak memory per device of a Gaussian search against the number of devices.

All ranges under threshold 4, gap 1e-3. Every row is a process of its own that shows a CPU to JAX as so many devices,
and is given as many cores, as far as there are. The fit is run twice: the first run compiles, the second is
measured, with the certificate, which is derived on the host. "MB a device" is the most that a device holds after a
step: its share of the constants and of the best matrices so far; what a step needs in between is not seen from outside.
"difference" is the largest relative difference of error, bound and Gram matrix to one device.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks.measure import Part, Table

COUNTS = (1, 2, 4)
SIZES = (512, 1024)
GAP = 1e-3
HEADERS = ["n", "devices", "compile CPU s", "wall s", "CPU s", "CPU s a device", "steps", "MB a device"]

NOTE = """
"matrices" is the memory of a device in units of n x n doubles. The host has two cores: two devices
have one each at best, four share them, and whatever else runs takes its part, so wall times are not to be trusted here.
CPU time tells by how much the work grows when it is divided.
"""


def search_on(n: int, devices: int) -> tuple[dict[str, Any], np.ndarray]:
    """Fit once to compile and once to measure."""
    import hdmm_bf as bf

    workload, policy = bf.workload.parse(f"all-range:{n}"), bf.policy.parse(f"threshold:{n}:4")
    held: list[int] = []
    spent: list[tuple[float, float]] = []
    for _ in range(2):
        wall, cpu = time.perf_counter(), time.process_time()
        fit = bf.fit(workload, policy, gap=GAP, devices=devices, callback=lambda _: held.append(bytes_on_a_device()))
        spent.append((time.perf_counter() - wall, time.process_time() - cpu))
    (_, first), (wall, cpu) = spent
    record = {
        "compile": first - cpu,
        "wall": wall,
        "cpu": cpu,
        "share": cpu / devices,
        "steps": len(fit.trace),
        "bytes": max(held),
        "numbers": [fit.unit_error, fit.bounds.lower],
    }
    A = fit.strategy.matrix()
    return record, np.tril(A.T @ A)


def bytes_on_a_device() -> int:
    """Return the memory of the arrays that the first device holds now."""
    import jax

    first = jax.devices()[0]
    shards = [shard for array in jax.live_arrays() for shard in array.addressable_shards]
    return sum(shard.data.nbytes for shard in shards if shard.device == first)


def measured(n: int, devices: int, folder: Path) -> tuple[dict[str, Any], np.ndarray]:
    """Run `search_on` in a process with so many devices."""
    out = folder / f"{n}-{devices}"
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": str(devices), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "experiments.benchmarks.devices", str(n), str(devices), str(out)]
    subprocess.run(command, env=environment, check=True)
    return json.loads(out.with_suffix(".json").read_text()), np.load(out.with_suffix(".npy"))


def report(*, quick: bool = False) -> list[Part]:
    """Return the table; quick: a smaller domain on one and two devices."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for n in (128,) if quick else SIZES:
            first: tuple[np.ndarray, np.ndarray] | None = None
            for devices in COUNTS[:2] if quick else COUNTS:
                record, X = measured(n, devices, Path(name))
                numbers = np.array(record["numbers"])
                first = first or (numbers, X)
                gap = max(np.abs(numbers / first[0] - 1).max(), np.abs(X - first[1]).max() / np.abs(first[1]).max())
                rows.append([*_cells(n, devices, record), f"{gap:.0e}"])
                print(" ".join(rows[-1]), file=sys.stderr)
    return [Table([*HEADERS, "matrices", "difference"], rows), NOTE]


def _cells(n: int, devices: int, record: dict[str, Any]) -> list[str]:
    times = [f"{record[name]:.1f}" for name in ("compile", "wall", "cpu", "share")]
    size = record["bytes"]
    shown = [str(record["steps"]), f"{size / 1e6:.1f}", f"{size / (8 * n * n):.2f}"]
    return [str(n), str(devices), *times, *shown]


def main(n: str, devices: str, out: str) -> None:
    """Measure one row and leave it in files."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(devices)])
    record, X = search_on(int(n), int(devices))
    Path(out).with_suffix(".json").write_text(json.dumps(record))
    np.save(Path(out).with_suffix(".npy"), X)


if __name__ == "__main__":
    main(*sys.argv[1:])
