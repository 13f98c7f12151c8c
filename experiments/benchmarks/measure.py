"""Wall time, CPU time and peak memory of a call."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


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


def table(headers: list[str], rows: list[list[str]]) -> str:
    """Lay out rows as a Markdown table."""
    widths = [max(len(str(row[i])) for row in [headers, *rows]) for i in range(len(headers))]
    lines = ["| " + " | ".join(str(c).ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in rows]
    head = "| " + " | ".join(h.ljust(w) for h, w in zip(headers, widths, strict=True)) + " |"
    return "\n".join([head, "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines])
