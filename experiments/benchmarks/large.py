"""Gaussian, 4096 cells: all ranges under threshold 4, to a proven gap of 1e-2; time in eighs, and peak memory.

The peak is the resident memory of the whole process, the eigendecomposition that sets the unit included.
"""

from __future__ import annotations

from experiments.benchmarks import gaussian, instances
from experiments.benchmarks.measure import Part, Table, peak_memory


def report(*, quick: bool = False) -> list[Part]:
    """Return the table."""
    made = instances.workload("all-range", 4096), instances.policy("threshold 4", 4096)
    cells = gaussian.row(*made, ["all-range", "threshold 4"], gap=1e-2, repeat=1)
    peak = peak_memory()
    cells[gaussian.HEADERS.index("limit")] = "12"
    return [Table([*gaussian.HEADERS, "peak GB"], [[*cells, f"{peak / 2**30:.1f}"]])]
