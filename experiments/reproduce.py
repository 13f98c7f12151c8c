"""All figures and tables of the paper: run, draw, judge. `hdmm-bf reproduce` calls this."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments import (
    dawa_check,
    hist,
    lower_bounds,
    orders,
    range_grid,
    range_line,
    range_threshold,
    table1,
    verdicts,
)
from experiments.design import Experiment, run

MODULES = (table1, lower_bounds, orders, dawa_check, hist, range_line, range_threshold, range_grid)
EXPERIMENTS: dict[str, Experiment] = {module.EXPERIMENT.name: module.EXPERIMENT for module in MODULES}


def reproduce(
    names: Sequence[str], folder: Path, *, smoke: bool, callback: Callable[[str, int, int, str], None] | None = None
) -> dict[str, Any]:
    """Run the named experiments (all if none is named), draw them, and write the table of claims.

    Returns:
        For every experiment its rows, files and seconds; and the verdicts on the claims.
    """
    told: dict[str, Any] = {}
    for name in names or EXPERIMENTS:
        experiment, started = EXPERIMENTS[name], time.perf_counter()
        show = None if callback is None else lambda done, total, text, name=name: callback(name, done, total, text)
        rows = run(experiment, folder, smoke=smoke, callback=show)
        files = [f"{name}.csv"]
        if experiment.draw is not None:
            experiment.draw(rows, folder / name)
            files += [f"{name}.svg", f"{name}.png"]
        seconds = round(time.perf_counter() - started, 1)
        told[name] = {"cells": len(rows), "files": files, "seconds": seconds, "data": sorted({r["data"] for r in rows})}
    judged = verdicts.judge(folder)
    committed = folder.resolve() == verdicts.COMMITTED.resolve()
    target = "../README.md" if committed else "README.md"
    text = verdicts.report(judged, folder, smoke=smoke, beside="results/" if committed else "")
    (folder / target).write_text(text)
    return {"experiments": told, "verdicts": verdicts.counts(judged), "report": target, "smoke": smoke}
