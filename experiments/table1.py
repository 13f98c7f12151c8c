"""Table 1: the data sets, their domains, scales and shares of empty cells."""

from __future__ import annotations

import numpy as np

from experiments import data
from experiments.design import Experiment, Row


def cells(smoke: bool) -> list[Row]:
    """Return one cell for each data set."""
    return [{"data_set": name, "data": data.origin(name)} for name in data.SOURCES]


def measure(cell: Row, random: np.random.Generator) -> dict[str, float | str]:
    """Describe a data set."""
    name = cell["data_set"]
    counts = data.counts(name)
    sizes = "x".join(map(str, data.SOURCES[name].sizes))
    return {"domain": sizes, "records": str(counts.sum()), "percent_empty": 100 * float(np.mean(counts == 0))}


EXPERIMENT = Experiment("table1", "What are the data?", cells, ("domain", "records", "percent_empty"), measure)
