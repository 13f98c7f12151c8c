"""Run the benchmark tables, all or by name, and write them to results/."""

from __future__ import annotations

import importlib
import os
import platform
import sys
from pathlib import Path

NAMES = (
    "foundation",
    "gaussian",
    "large",
    "peers",
    "laplace",
    "release",
    "histogram",
    "products",
    "devices",
    "cluster",
)


def main(names: list[str]) -> int:
    """Run the named tables."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"unknown benchmark {unknown[0]!r}; known: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    for name in names or NAMES:
        module = importlib.import_module(f"experiments.benchmarks.{name}")
        assert module.__doc__ is not None
        head = (
            f"# {module.__doc__.strip().splitlines()[0]}\n\nPython {platform.python_version()}, {os.cpu_count()} cores."
        )
        text = f"{head} Printed by `python -m experiments.benchmarks {name}`.\n\n{module.report()}\n"
        (folder / f"{name}.md").write_text(text)
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
