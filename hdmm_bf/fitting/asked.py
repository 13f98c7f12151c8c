"""What a fit is asked for: options that go together, checked before anything is computed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from hdmm_bf._checks import fail, nearest, whole_number
from hdmm_bf._types import Noise, RealVector
from hdmm_bf.devices import Mesh
from hdmm_bf.error import Draft, draft
from hdmm_bf.fitting.record import Fit
from hdmm_bf.strategies import Callback, grids, p_identity, portfolio
from hdmm_bf.strategies.products import choose as products
from hdmm_bf.strategies.products.choose import choose
from hdmm_bf.structure import ProductProblem
from hdmm_bf.transform import Problem

DEFAULT_GAP = 1e-3
PRODUCT_FAMILIES = ("marginals", "sectors", "kronecker", "bases", "union", "cells")
"""Names of structured families."""


@final
@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options of `fit`, which explains them."""

    noise: Noise = "gaussian"
    gap: float = DEFAULT_GAP
    max_seconds: float | None = None
    max_steps: int | None = None
    family: str | None = None
    seed: int = 0
    start: Fit | RealVector | None = None
    workers: int | None = None
    mesh: Mesh | None = None
    callback: Callback | None = None

    @property
    def limit(self) -> float:
        """Seconds of the search, infinite when there is no limit."""
        return math.inf if self.max_seconds is None else self.max_seconds

    def given(self) -> dict[str, Any]:
        """Return the limits and choices that were made, for the record."""
        names = ("max_seconds", "max_steps", "family", "workers")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def check(self, problem: Problem) -> None:
        """Refuse what is out of range or does not fit the problem."""
        check_search(self.noise, self.gap, self.max_seconds, self.family)
        whole_number("fit", "seed", self.seed, least=0, advice="Use a whole number from 0.")
        if self.max_steps is not None:
            whole_number("fit", "max_steps", self.max_steps, least=1, advice="Allow at least one step.")
        if self.workers is not None:
            whole_number("fit", "workers", self.workers, least=1, advice="Use at most as many as there are cores.")
        _check_grid(problem, self.family)


def check_search(noise: str, gap: float, max_seconds: float | None, family: str | None) -> None:
    """Refuse options of a search that are out of range or do not go together."""
    if noise not in ("gaussian", "laplace"):
        raise fail("fit", f"noise={noise!r}", "is not a noise", nearest(str(noise), ("gaussian", "laplace")))
    if not 0 < gap < math.inf or (max_seconds is not None and not max_seconds > 0):
        shown = f"gap={gap}, max_seconds={max_seconds}"
        raise fail("fit", shown, "both must be positive numbers", "Use for example gap=1e-3, max_seconds=60.")
    if family in PRODUCT_FAMILIES:
        return
    if family is None or (noise, family) == ("gaussian", "gaussian"):
        return
    if family not in portfolio.FAMILIES:
        advice = nearest(family, families_for(noise))
        raise fail("fit", f"family={family!r}", f"is not a family for {noise.capitalize()} noise", advice)
    if noise == "gaussian":
        advice = "Leave the family out: the Gaussian search is optimal."
        raise fail("fit", f"family={family!r}", "is for Laplace noise", advice)


def families_for(noise: str) -> list[str]:
    """Return the names of the families that search strategies for a noise."""
    if noise == "gaussian":
        return ["gaussian", *products.FAMILIES]
    return [*portfolio.FAMILIES, *PRODUCT_FAMILIES]


def _check_grid(problem: Problem, family: str | None) -> None:
    if family == grids.NAME and grids.parts(problem) is None:
        needs = f"needs a product of trees with at most {grids.LARGEST_EDGES} edges and one product of workloads"
        raise fail("fit", f"family='grid' for {problem.policy.spec}", needs, "Leave the family out.")


def check_spread(problem: Problem, asked: Asked, product: ProductProblem | None) -> None:
    """Refuse to spread over devices what would not be spread."""
    noise, family = asked.noise, asked.family
    if product is not None:
        name = family or choose(product)
        if noise == "gaussian" and name == "kronecker":
            return
        shown = f"devices for {problem.policy.num_cells} cells, {noise} noise, family={family!r}"
        advice = "Leave devices and mesh out: this search runs on the host and needs little memory."
        raise fail("fit", shown, "of the structured families only kronecker with Gaussian noise is spread", advice)
    if noise == "laplace" and family != p_identity.NAME and not (family is None and problem.policy.is_forest):
        shown = f"devices with noise='laplace', family={family!r}"
        advice = "Use family='p-identity', or leave devices and mesh out."
        problem_seen = f"of the families for {problem.policy.spec} only p-identity is spread over devices"
        raise fail("fit", shown, problem_seen, advice)


def start_draft(problem: Problem, start: Fit | RealVector | None) -> Draft | None:
    """Return an earlier fit's strategy, measured for this problem."""
    if start is None:
        return None
    advice = "Start from a fit of the same policy."
    if not isinstance(start, Fit):
        raise fail("fit", f"start of type {type(start).__name__}", "must be a fit for Laplace noise", advice)
    old, policy = start.problem.policy, problem.policy
    if old.num_cells != policy.num_cells or not np.array_equal(old.edges, policy.edges):
        raise fail("fit", f"start for {old.spec}", f"is for another policy than {policy.spec}", advice)
    matrix = start.strategy.matrix()
    if start.strategy.kind == "vertex":
        matrix = problem.grounding.columns(matrix)
    return draft(problem, start.strategy.kind, matrix, norm="L1", origin=start.strategy.family)


def start_weights(problem: Problem, start: Fit | RealVector | None) -> RealVector | None:
    """Return the edge weights to start from."""
    if start is None:
        return None
    weights = start.weights if isinstance(start, Fit) else np.asarray(start, dtype=np.float64)
    edges = problem.policy.num_edges
    if weights.shape != (edges,) or not np.all(np.isfinite(weights)) or weights.min() < 0 or not weights.sum() > 0:
        advice = "Start from a fit of the same policy."
        shown = f"start with {weights.size} weights"
        raise fail("fit", shown, f"must be {edges} weights, none negative, not all zero", advice)
    return weights
