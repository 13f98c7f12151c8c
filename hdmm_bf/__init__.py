"""hdmm_bf: publish many counting queries under a Blowfish privacy policy with provably small error.

The data flow domain -> policy -> workload -> problem -> bounds -> strategies -> certificate -> release -> fit.
Nothing heavy is imported until it is used.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hdmm_bf import bounds, domain, matrix, objectives, policy, workload
    from hdmm_bf._checks import InputError
    from hdmm_bf.bounds import Bounds
    from hdmm_bf.certificate import Certificate
    from hdmm_bf.data.histogram import histogram
    from hdmm_bf.data.tables import Records
    from hdmm_bf.domain import Domain
    from hdmm_bf.fit import Advice, Fit, advise, bound, certify, compare, fit, load, memory_needed  # type: ignore[no-redef]
    from hdmm_bf.policy import Policies, Policy, policies
    from hdmm_bf.problem import transform
    from hdmm_bf.problem.inputs import problem
    from hdmm_bf.problem.sensitivity import sensitivity
    from hdmm_bf.problem.transform import Problem
    from hdmm_bf.release.ledger import Ledger
    from hdmm_bf.release.plan import Plan, plan
    from hdmm_bf.release.publish import release
    from hdmm_bf.release.release import Release
    from hdmm_bf.report import plots
    from hdmm_bf.workload import Tables, Workload, prefixes, ranges, sql, table, total

__version__ = "0.1.0"

_MODULES = {
    "bounds": "bounds",
    "domain": "domain",
    "matrix": "matrix",
    "objectives": "objectives",
    "plots": "report.plots",
    "policy": "policy",
    "transform": "problem.transform",
    "workload": "workload",
}
_NAMES = {
    "Advice": "fit",
    "Bounds": "bounds",
    "Certificate": "certificate",
    "Domain": "domain",
    "Fit": "fit",
    "InputError": "_checks",
    "Ledger": "release.ledger",
    "Plan": "release.plan",
    "Policies": "policy",
    "Policy": "policy",
    "Problem": "problem.transform",
    "Records": "data.tables",
    "Release": "release.release",
    "Tables": "workload",
    "Workload": "workload",
    "advise": "fit",
    "bound": "fit",
    "certify": "fit",
    "compare": "fit",
    "fit": "fit",
    "histogram": "data.histogram",
    "load": "fit",
    "memory_needed": "fit",
    "plan": "release.plan",
    "prefixes": "workload",
    "policies": "policy",
    "problem": "problem.inputs",
    "ranges": "workload",
    "release": "release.publish",
    "sensitivity": "problem.sensitivity",
    "sql": "workload",
    "table": "workload",
    "total": "workload",
}

__all__ = [
    "Advice",
    "Bounds",
    "Certificate",
    "Domain",
    "Fit",
    "InputError",
    "Ledger",
    "Plan",
    "Policies",
    "Policy",
    "Problem",
    "Records",
    "Release",
    "Tables",
    "Workload",
    "__version__",
    "advise",
    "bound",
    "bounds",
    "certify",
    "compare",
    "domain",
    "fit",
    "histogram",
    "load",
    "matrix",
    "memory_needed",
    "objectives",
    "plan",
    "plots",
    "policies",
    "policy",
    "prefixes",
    "problem",
    "ranges",
    "release",
    "sensitivity",
    "sql",
    "table",
    "total",
    "transform",
    "workload",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"hdmm_bf.{_MODULES[name]}")
    if name in _NAMES:
        value = getattr(importlib.import_module(f"hdmm_bf.{_NAMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'hdmm_bf' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """`fit`, `problem`, `release` are functions here and folders for imports: a loaded folder hides no function."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _NAMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
