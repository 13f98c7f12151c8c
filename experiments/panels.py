"""The common form of the paper's panels: mechanisms on data sets, for every epsilon, mean squared error of a query."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from experiments import data
from experiments.contenders import CONTENDERS, contender
from experiments.design import Row

EPSILONS = ("0.001", "0.01", "0.1", "1")
PAPER_RUNS = 5
RUNS = 25
"""Five times the paper's: with five runs the noise of the runs hides the order of close mechanisms."""

QUERIES = 10_000
TOO_LARGE = "not shown: too large for a dense fit"
TOO_LONG = "not shown: the tables of the noise would not fit in memory"
RESULTS = ("mse", "stderr", "mse_of_5", "expected", "kind", "depends", "promise", "note")


def cells(
    settings: Iterable[tuple[str, str, str, int]], mechanisms: Iterable[str], *, epsilons: Iterable[str], runs: int
) -> list[Row]:
    """Return the design: every (data set, workload, policy, number of cells) with every epsilon and mechanism."""
    return [
        {
            "data_set": name,
            "data": data.origin(name),
            "cells": str(num_cells),
            "workload": workload,
            "policy": policy,
            "epsilon": epsilon,
            "mechanism": mechanism,
            "runs": str(runs),
        }
        for name, workload, policy, num_cells in settings
        for mechanism in mechanisms
        for epsilon in epsilons
    ]


def measure(cell: Row, random: np.random.Generator) -> dict[str, float | str]:
    """Run a mechanism as often as the cell says, and return the mean over runs of the mean squared error.

    A mechanism that is not run has its expected error, exactly.
    """
    entry = CONTENDERS[cell["mechanism"]]
    made = contender(cell["mechanism"], cell["workload"], cell["policy"])
    facts = {"kind": entry.kind, "depends": "data" if entry.depends else "nothing", "promise": entry.promise}
    if made is None:
        nothing = dict.fromkeys(("mse", "stderr", "mse_of_5", "expected"), float("nan"))
        return {**nothing, **facts, "note": TOO_LARGE}
    counts, epsilon, runs = data.counts(cell["data_set"], int(cell["cells"])), float(cell["epsilon"]), int(cell["runs"])
    if made.errors is None:
        exact = made.expected(epsilon)
        numbers = {"mse": exact, "stderr": 0.0 * exact, "mse_of_5": exact, "expected": exact}
        return {**numbers, **facts, "note": TOO_LONG if np.isnan(exact) else made.note}
    errors = np.array([np.mean(made.errors(counts, epsilon, random) ** 2) for _ in range(runs)])
    numbers = {
        "mse": errors.mean(),
        "stderr": errors.std(ddof=1) / runs**0.5,
        "mse_of_5": errors[:PAPER_RUNS].mean(),
        "expected": made.expected(epsilon),
    }
    return {**{name: float(value) for name, value in numbers.items()}, **facts, "note": made.note}
