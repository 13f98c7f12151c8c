"""Strategies: what to measure instead of the workload, found by search.

One loop (`search`), one family a file, and the strategy as it ships.
"""

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
    "nothing",
    "search",
]
