"""1D-Range: random ranges under the line, on data sets A to G (panels (c), (g) of the paper's result figures)."""

from __future__ import annotations

from experiments import data, figures, panels
from experiments.design import Experiment, Row

MECHANISMS = (
    "Privelet",
    "DAWA",
    "DAWA, proven noise",
    "Transformed + Laplace",
    "Transformed + ConsistentEst",
    "Transformed + DAWA + Cons",
    "Transformed + DAWA + Cons, proven noise",
    "Ours, Laplace",
    "Ours, tree norm",
    "Ours, Gaussian",
)
"""Our tree norm is Laplace noise on the edges here, on whole numbers."""

QUESTION = "1D-Range under the line: how many orders of magnitude does the policy bring?"


def cells(smoke: bool) -> list[Row]:
    """Return the design."""
    n, queries = (256, 500) if smoke else (4096, panels.QUERIES)
    names = ("D", "E") if smoke else data.LINES
    settings = [(name, f"random-range:{n}:{queries}:seed=7", f"line:{n}", n) for name in names]
    epsilons, runs = (("0.1",), 3) if smoke else (panels.EPSILONS, panels.RUNS)
    return panels.cells(settings, MECHANISMS, epsilons=epsilons, runs=runs)


EXPERIMENT = Experiment(
    "range_line", QUESTION, cells, panels.RESULTS, panels.measure, figures.panels(QUESTION, "data_set")
)
