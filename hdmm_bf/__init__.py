"""hdmm_bf: publish many counting queries under a Blowfish privacy policy with provably small error.

The data flow domain -> policy -> workload -> transform -> bounds -> strategies -> certificate -> mechanisms.
Nothing heavy is imported until it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hdmm_bf import bounds, domain, matrix, plots, policy, transform, workload
    from hdmm_bf._checks import InputError
    from hdmm_bf.bounds import Bounds
    from hdmm_bf.certificate import Certificate
    from hdmm_bf.domain import Domain
    from hdmm_bf.fitting import Fit, ProductFit, bound, compare, fit, load, memory_needed
    from hdmm_bf.mechanisms.block_release import BlockRelease
    from hdmm_bf.mechanisms.histogram import histogram
    from hdmm_bf.mechanisms.ledger import Ledger
    from hdmm_bf.mechanisms.plan import Plan, plan
    from hdmm_bf.mechanisms.publish import release
    from hdmm_bf.mechanisms.release import Release
    from hdmm_bf.mechanisms.tables import Records
    from hdmm_bf.policy import Policy
    from hdmm_bf.sensitivities import sensitivity
    from hdmm_bf.transform import Problem
    from hdmm_bf.workload import Workload

__version__ = "0.1.0"

_MODULES = ("bounds", "domain", "matrix", "plots", "policy", "transform", "workload")
_NAMES = {
    "BlockRelease": "mechanisms.block_release",
    "Bounds": "bounds",
    "Certificate": "certificate",
    "Domain": "domain",
    "Fit": "fitting",
    "InputError": "_checks",
    "Ledger": "mechanisms.ledger",
    "Plan": "mechanisms.plan",
    "Policy": "policy",
    "Problem": "transform",
    "ProductFit": "fitting",
    "Records": "mechanisms.tables",
    "Release": "mechanisms.release",
    "Workload": "workload",
    "bound": "fitting",
    "compare": "fitting",
    "fit": "fitting",
    "histogram": "mechanisms.histogram",
    "load": "fitting",
    "memory_needed": "fitting",
    "plan": "mechanisms.plan",
    "release": "mechanisms.publish",
    "sensitivity": "sensitivities",
}

__all__ = [
    "BlockRelease",
    "Bounds",
    "Certificate",
    "Domain",
    "Fit",
    "InputError",
    "Ledger",
    "Plan",
    "Policy",
    "Problem",
    "ProductFit",
    "Records",
    "Release",
    "Workload",
    "__version__",
    "bound",
    "bounds",
    "compare",
    "domain",
    "fit",
    "histogram",
    "load",
    "matrix",
    "memory_needed",
    "plan",
    "plots",
    "policy",
    "release",
    "sensitivity",
    "transform",
    "workload",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"hdmm_bf.{name}")
    if name in _NAMES:
        value = getattr(importlib.import_module(f"hdmm_bf.{_NAMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'hdmm_bf' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
