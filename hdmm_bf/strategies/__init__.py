"""Strategies: what to measure instead of the workload, found by search.

One loop (`solver`), one family a file, and the strategy as it ships.
"""

from hdmm_bf.strategies.rounding import Strategy, from_draft, from_gram, nothing
from hdmm_bf.strategies.search import Callback, Outcome, Progress, Status, TracePoint, search

__all__ = [
    "Callback",
    "Outcome",
    "Progress",
    "Status",
    "Strategy",
    "TracePoint",
    "from_draft",
    "from_gram",
    "nothing",
    "search",
]
