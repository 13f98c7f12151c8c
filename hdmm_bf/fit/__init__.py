"""Fitting: from a workload and a policy to a certified strategy that users hold, store and compare."""

from hdmm_bf.fit.advice import Advice, advise
from hdmm_bf.fit.comparison import Comparison, Row, compare
from hdmm_bf.fit.dense import default_seconds
from hdmm_bf.fit.fit import Fit
from hdmm_bf.fit.given import certify
from hdmm_bf.fit.loading import check, load
from hdmm_bf.fit.memory import memory_needed
from hdmm_bf.fit.run import bound, fit
from hdmm_bf.problem.inputs import as_policy, as_workload

__all__ = [
    "Advice",
    "Comparison",
    "Fit",
    "Row",
    "advise",
    "as_policy",
    "as_workload",
    "bound",
    "certify",
    "check",
    "compare",
    "default_seconds",
    "fit",
    "load",
    "memory_needed",
]
