"""Run the benchmarks, all or by name: a table in Markdown and the same numbers as JSON.

    python -m experiments.benchmarks [--quick] [NAME ...]

The full mode writes to results/, which is kept with the code; `--quick` runs small instances of everything in under
three minutes and writes to out/bench/, for a look before and after a change.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from experiments.benchmarks.measure import Part, Table

NAMES = (
    "start",
    "accuracy",
    "stages",
    "foundation",
    "gaussian",
    "large",
    "goals",
    "peers",
    "laplace",
    "search",
    "curves",
    "norms",
    "flow_norm",
    "workers",
    "release",
    "noise",
    "histogram",
    "records",
    "products",
    "attributes",
    "memory",
    "scaling",
    "devices",
    "cluster",
)
NOT_QUICK = {"large"}
"""Benchmarks of one size that cannot be made smaller."""

RESULTS = Path(__file__).parent / "results"
QUICK_RESULTS = Path("out") / "bench"


def main(arguments: list[str]) -> int:
    """Run the named benchmarks."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.benchmarks", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--quick", action="store_true", help="small instances, under three minutes, into out/bench/")
    asked = parser.parse_args(arguments)
    unknown = [name for name in asked.names if name not in NAMES]
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]!r}; known: {', '.join(NAMES)}")
    folder = QUICK_RESULTS if asked.quick else RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    for name in asked.names or [name for name in NAMES if not (asked.quick and name in NOT_QUICK)]:
        print(run(name, folder, quick=asked.quick))
    return 0


def run(name: str, folder: Path, *, quick: bool) -> str:
    """Run one benchmark and write what it found."""
    module = importlib.import_module(f"experiments.benchmarks.{name}")
    wall, cpu = time.perf_counter(), time.process_time()
    parts: list[Part] = module.report(quick=quick)
    spent = {"wall": round(time.perf_counter() - wall, 2), "cpu": round(time.process_time() - cpu, 2)}
    tables = [part.records() for part in parts if isinstance(part, Table)]
    record = {"benchmark": name, "quick": quick, "machine": machine(), "seconds": spent, "tables": tables}
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    text = markdown(name, module.__doc__ or "", parts, quick=quick)
    (folder / f"{name}.md").write_text(text)
    return text


def markdown(name: str, doc: str, parts: list[Part], *, quick: bool) -> str:
    """Lay out a report: what it is, where it was run, tables and notes."""
    title, _, more = doc.strip().partition("\n")
    found = machine()
    asked = "--quick " if quick else ""
    threads = f"{found['threads']} BLAS thread{'s' if found['threads'] > 1 else ''}"
    where = f"Python {found['python']}, {found['cores']} cores, {threads} unless said otherwise."
    blocks = [f"# {title}", more.strip(), f"{where} Printed by `python -m experiments.benchmarks {asked}{name}`."]
    blocks += [part.markdown() if isinstance(part, Table) else part.strip() for part in parts]
    return "\n\n".join(block for block in blocks if block) + "\n"


def machine() -> dict[str, Any]:
    """Say what the numbers were measured on."""
    from threadpoolctl import threadpool_info

    packages = ("numpy", "scipy", "jax", "jaxlib")
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "threads": max((pool["num_threads"] for pool in threadpool_info()), default=1),
        **{name: metadata.version(name) for name in packages},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
