"""Several devices: time and peak memory per device of a Gaussian search against the number of devices.

All ranges under threshold 4, gap 1e-3. Every row is a process of its own that shows a CPU to JAX as so many devices,
and is given as many cores, as far as there are. The search is run twice: the first run compiles, the second is
measured, certificate apart. "MB a device" is what a device holds at the peak of a step: its share of the constants, and
arguments, results and temporary arrays of the largest compiled program, as XLA reports them. "difference" is the
largest relative difference of error, bound and Gram matrix to one device.
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
HEADERS = ["n", "devices", "compile CPU s", "wall s", "CPU s", "CPU s a device", "steps", "products", "MB a device"]

NOTE = """
"products" are the matrix products of the last step's root, three an iteration; "matrices" is the memory of a device in
units of n x n doubles. The host has two cores: two devices have one each at best, four share them, and whatever else
runs takes its part, so wall times are not to be trusted here. CPU time tells by how much the work grows when it is
divided.
"""


def search_on(n: int, devices: int) -> tuple[dict[str, Any], np.ndarray]:
    """Search once to compile and once to measure."""
    from hdmm_bf.fit.inputs import as_problem
    from hdmm_bf.parallel import devices as dv
    from hdmm_bf.strategies import search
    from hdmm_bf.strategies.gaussian import dense as gaussian

    problem = as_problem(f"all-range:{n}", f"threshold:{n}:4")
    mesh = dv.as_mesh(devices, None)
    cpus = []
    for _ in range(2):
        kernel = gaussian.on_devices(problem, mesh, gap=GAP)
        wall, cpu = time.perf_counter(), time.process_time()
        found = search(gaussian.steps(problem, gap=GAP, kernel=kernel), gap=GAP)
        X = kernel.to_host(found.best)
        wall = time.perf_counter() - wall
        cpus.append(time.process_time() - cpu)
    record = {
        "compile": cpus[0] - cpus[1],
        "wall": wall,
        "cpu": cpus[1],
        "share": cpus[1] / devices,
        "steps": len(found.trace),
        "products": 3 * kernel.matrices.steps,
        "bytes": peak_bytes(kernel.matrices),
        "numbers": [found.error, found.bound],
    }
    return record, np.tril(X)


def peak_bytes(matrices: Any) -> int:
    """Return the memory of one device in the step that finds X: its constants, results and temporary arrays."""
    memory = matrices.compiled().memory_analysis()
    held = sum(a.addressable_shards[0].data.nbytes for a in matrices.constants[2:])  # B and its transpose wait
    total = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    return int(total + held)


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
    shown = [str(record["steps"]), str(record["products"]), f"{size / 1e6:.1f}", f"{size / (8 * n * n):.2f}"]
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
