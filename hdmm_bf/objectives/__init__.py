"""The differentiable core: objectives of strategies, parametrisations, one minimiser. Public.

    problem = bf.problem("all-range:64", "threshold:64:4")
    free = bf.objectives.Free(70, problem.P.shape[0])  # 63 columns: the policy gives one of the 64 cells up
    loss = bf.objectives.total(problem, norm="L1", smoothing=(1e-3, 100.0), log=True).of(free)
    found = bf.objectives.minimise(loss, free.init())

Objectives (`total`, `variances`, `sensitivity`, `dual_bound`) and parametrisations (`PIdentity`, `CellBudgets`, `Free`,
`UnitColumns`, `LevelWeights`, `ProductBases`) are frozen records that JAX sees through; so are those of tree norms
(`tree_error`, `tree_length`, `tree_total`). JAX takes a second and 200 MB to load, so nothing here loads it before it
is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hdmm_bf.objectives.descent import Minimum, minimise
    from hdmm_bf.objectives.measures import Smoothing, dual_bound, sensitivity, total, variances
    from hdmm_bf.objectives.operators import UNSUPPORTED, DiagonalAndRows, ProductPrecisions, Rows
    from hdmm_bf.objectives.parametrisations import (
        Bases,
        CellBudgets,
        Free,
        LevelWeights,
        PIdentity,
        ProductBases,
        Split,
        UnitColumns,
        cell_budgets,
        product_bases,
    )
    from hdmm_bf.objectives.trees import tree_error, tree_length, tree_total

_HOMES = {
    "measures": ("Smoothing", "dual_bound", "sensitivity", "total", "variances"),
    "descent": ("Minimum", "minimise"),
    "operators": ("UNSUPPORTED", "DiagonalAndRows", "ProductPrecisions", "Rows"),
    "parametrisations": (
        "Bases",
        "CellBudgets",
        "Free",
        "LevelWeights",
        "PIdentity",
        "ProductBases",
        "Split",
        "UnitColumns",
        "cell_budgets",
        "product_bases",
    ),
    "trees": ("tree_error", "tree_length", "tree_total"),
}

__all__ = [
    "UNSUPPORTED",
    "Bases",
    "CellBudgets",
    "DiagonalAndRows",
    "Free",
    "LevelWeights",
    "Minimum",
    "PIdentity",
    "ProductBases",
    "ProductPrecisions",
    "Rows",
    "Smoothing",
    "Split",
    "UnitColumns",
    "cell_budgets",
    "dual_bound",
    "minimise",
    "product_bases",
    "sensitivity",
    "total",
    "tree_error",
    "tree_length",
    "tree_total",
    "variances",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"hdmm_bf.objectives.{home}"), name)
    raise AttributeError(f"module 'hdmm_bf.objectives' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
