"""2D-Range: random boxes under the grid, on T25, T50 and T100 (panels (a), (e) of the paper's result figures)."""

from __future__ import annotations

from experiments import data, figures, panels
from experiments.design import Experiment, Row

MECHANISMS = (
    "Privelet",
    "DAWA",
    "DAWA, proven noise",
    "Transformed + Privelet",
    "Ours, Laplace",
    "Ours, Gaussian",
)
QUESTION = "2D-Range under the grid: does a data-independent mechanism beat DAWA on large sparse domains?"


def cells(smoke: bool) -> list[Row]:
    """Return the design."""
    names, queries = (("T25",), 500) if smoke else (data.GRIDS, panels.QUERIES)
    settings = []
    for name in names:
        side = data.SOURCES[name].sizes[0]
        box = f"{side}x{side}"
        settings.append((name, f"random-range:{box}:{queries}:seed=7", f"threshold:{box}:1", side * side))
    epsilons, runs = (("0.1",), 3) if smoke else (panels.EPSILONS, panels.RUNS)
    return panels.cells(settings, MECHANISMS, epsilons=epsilons, runs=runs)


EXPERIMENT = Experiment(
    "range_grid", QUESTION, cells, panels.RESULTS, panels.measure, figures.panels(QUESTION, "data_set")
)
