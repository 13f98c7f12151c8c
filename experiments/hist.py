"""Hist: the histogram itself under the line, on data sets A to G (panels (b), (f) of the paper's result figures)."""

from __future__ import annotations

from experiments import data, figures, panels
from experiments.design import Experiment, Row

MECHANISMS = (
    "Laplace",
    "DAWA",
    "DAWA, proven noise",
    "Transformed + Laplace",
    "Transformed + ConsistentEst",
    "Transformed + DAWA + Cons",
    "Transformed + DAWA + Cons, proven noise",
    "Ours, Laplace",
    "Ours, Gaussian",
)
QUESTION = "Hist under the line: do constraints of the transformed data lower the error of a histogram?"


def cells(smoke: bool) -> list[Row]:
    """Return the design."""
    n = 256 if smoke else 4096
    names = ("D", "E") if smoke else data.LINES
    settings = [(name, f"identity:{n}", f"line:{n}", n) for name in names]
    epsilons, runs = (("0.1",), 3) if smoke else (panels.EPSILONS, panels.RUNS)
    return panels.cells(settings, MECHANISMS, epsilons=epsilons, runs=runs)


EXPERIMENT = Experiment("hist", QUESTION, cells, panels.RESULTS, panels.measure, figures.panels(QUESTION, "data_set"))
