"""Fitting: from a workload and a policy to a certified strategy that users hold, store and compare."""

from hdmm_bf.fitting.comparison import Row, compare
from hdmm_bf.fitting.dense import default_seconds
from hdmm_bf.fitting.inputs import as_policy, as_problem, as_workload
from hdmm_bf.fitting.memory import memory_needed
from hdmm_bf.fitting.product import ProductFit
from hdmm_bf.fitting.record import Fit
from hdmm_bf.fitting.run import bound, fit
from hdmm_bf.fitting.stored import check, load

__all__ = [
    "Fit",
    "ProductFit",
    "Row",
    "as_policy",
    "as_problem",
    "as_workload",
    "bound",
    "check",
    "compare",
    "default_seconds",
    "fit",
    "load",
    "memory_needed",
]
