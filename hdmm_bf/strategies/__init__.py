"""Strategies: what to measure instead of the workload, found by search.

One loop (`search`), one file per family, a `registry` of them, and the strategy as it ships.
"""

from hdmm_bf.objectives import limits
from hdmm_bf.strategies.records import CellStrategy, EdgeStrategy, MatrixStrategy, ProductStrategy, Strategy
from hdmm_bf.strategies.rounding import from_draft, from_gram, nothing
from hdmm_bf.strategies.search import Callback, Outcome, Progress, Status, TracePoint, search

__all__ = [
    "Callback",
    "CellStrategy",
    "EdgeStrategy",
    "MatrixStrategy",
    "Outcome",
    "ProductStrategy",
    "Progress",
    "Status",
    "Strategy",
    "TracePoint",
    "from_draft",
    "from_gram",
    "limits",
    "nothing",
    "search",
]
