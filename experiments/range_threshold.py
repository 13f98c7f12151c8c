"""1D-Range under threshold 4, on data set D aggregated to 512 to 4096 cells (panels (d), (h) of the result figures)."""

from __future__ import annotations

from experiments import figures, panels
from experiments.design import Experiment, Row

MECHANISMS = (
    "Privelet",
    "DAWA",
    "DAWA, proven noise",
    "Transformed + Laplace",
    "Transformed + DAWA",
    "Transformed + DAWA, proven noise",
    "Ours, Laplace",
    "Ours, tree norm",
    "Ours, Gaussian",
)
RUNS = 100
"""Four times those of the other panels: with 25 the noise of DAWA hides whether its error grows with the domain."""

QUESTION = "1D-Range under threshold 4: does the error stay the same as the domain grows?"


def cells(smoke: bool) -> list[Row]:
    """Return the design."""
    sizes, queries = ((128, 256), 500) if smoke else ((512, 1024, 2048, 4096), panels.QUERIES)
    settings = [("D", f"random-range:{n}:{queries}:seed=7", f"threshold:{n}:4", n) for n in sizes]
    epsilons, runs = (("0.1",), 3) if smoke else (panels.EPSILONS, RUNS)
    return panels.cells(settings, MECHANISMS, epsilons=epsilons, runs=runs)


EXPERIMENT = Experiment(
    "range_threshold", QUESTION, cells, panels.RESULTS, panels.measure, figures.panels(QUESTION, "cells")
)
