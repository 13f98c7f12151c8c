"""Wall time, CPU time and peak memory of a call."""

from __future__ import annotations

import gc
import json
import math
import os
import resource
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

Part: TypeAlias = "Table | str"
"""A report is made of tables and notes."""


@dataclass(frozen=True)
class Measured:
    """What a call returned and what it took."""

    result: Any
    wall: float
    cpu: float


def timed(call: Callable[[], Any], *, repeat: int = 1) -> Measured:
    """Run a call and keep the fastest of `repeat` runs."""
    best: Measured | None = None
    for _ in range(repeat):
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        result = call()
        run = Measured(result, time.perf_counter() - wall, time.process_time() - cpu)
        if best is None or run.wall < best.wall:
            best = run
    assert best is not None
    return best


def peak_bytes(call: Callable[[], Any]) -> int:
    """Run a call and return the most memory that Python and NumPy held at once on its behalf."""
    gc.collect()
    tracemalloc.start()
    try:
        kept = call()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    del kept
    return peak


def peak_memory() -> int:
    """Return the most memory, in bytes, that this process has held; not what its parent held when it was started."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Table(NamedTuple):
    """Rows under headings, as they are shown."""

    headers: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """Lay the rows out."""
        widths = [max(len(row[i]) for row in [self.headers, *self.rows]) for i in range(len(self.headers))]
        head, *lines = (
            "| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"
            for row in [self.headers, *self.rows]
        )
        return "\n".join([head, "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines])

    def records(self) -> list[dict[str, float | str]]:
        """Return one record a row, with numbers where they are numbers."""
        return [dict(zip(self.headers, map(_value, row), strict=True)) for row in self.rows]


def _value(cell: str) -> float | str:
    try:
        number = float(cell)
    except ValueError:
        return cell
    return number if math.isfinite(number) else cell


def own_process(module: str, *arguments: object, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a module with arguments in a fresh process and return the JSON object that it prints last."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})}
    )
    if run.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{run.stderr}")
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found
