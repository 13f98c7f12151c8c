"""Strategies: what to measure instead of the workload, found by search.

One loop (`solver`), one family a file, and the strategy as it ships.
"""

from hdmm_bf.strategies.solver import Callback, Outcome, Progress, Status, TracePoint, search
from hdmm_bf.strategies.strategy import Strategy, from_draft, from_gram, nothing

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
