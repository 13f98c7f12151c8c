"""The options of a fit: one record for Python, command line, problem file and manifest, checked before a search."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import cast, final, get_args

import numpy as np

from hdmm_bf._checks import fail, finite, nearest, whole_number
from hdmm_bf._types import Effort, JsonObject, Noise, RealVector
from hdmm_bf.certificate import Certificate
from hdmm_bf.certificate.dense import coordinates
from hdmm_bf.fit.fit import Fit
from hdmm_bf.parallel.devices import Mesh
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release.privacy import NAMES
from hdmm_bf.strategies import Callback, Status, limits, registry
from hdmm_bf.strategies.drafts import Draft, draft
from hdmm_bf.strategies.gaussian.choose import choose
from hdmm_bf.strategies.laplace import p_identity
from hdmm_bf.strategies.records import MatrixStrategy

DEFAULT_GAP = 1e-3
PRODUCT_FAMILIES = registry.names(structured=True)
"""Names of structured families."""

FAMILIES: dict[Noise, tuple[str, ...]] = {noise: registry.names(noise) for noise in get_args(Noise)}
"""The families that a fit may be asked for, dense and structured."""

_MOST_WORKERS = 256


@final
@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """The options of `fit`, which explains them."""

    noise: Noise = "gaussian"
    gap: float = DEFAULT_GAP
    max_seconds: float | None = None
    max_steps: int | None = None
    family: str | None = None
    seed: int = 0
    start: Fit | RealVector | None = None
    workers: int | None = None
    effort: str = "normal"
    mesh: Mesh | None = None
    callback: Callback | None = None
    started: float = field(default_factory=limits.now)
    origin: float = field(default_factory=limits.origin)

    @property
    def limited(self) -> bool:
        """Whether a limit was given, so that none is taken by default."""
        return self.max_seconds is not None or self.max_steps is not None

    def until(self, reserve: float) -> float:
        """Return when the search must end so that `reserve` seconds are left for the certificate.

        Where the certificate alone takes longer than the limit, the search gets half of it.
        """
        if self.max_seconds is None:
            return math.inf
        left = self.max_seconds - reserve
        return self.origin + (left if left > 0 else self.max_seconds / 2)

    def given(self) -> JsonObject:
        """Return the limits and choices that were made, for the record."""
        names = ("max_seconds", "max_steps", "family", "workers")
        effort = {} if self.effort == "normal" else {"effort": self.effort}
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None} | effort

    def checked(self, problem: Problem) -> FitOptions:
        """Return the options as plain numbers; refuse what is out of range or does not fit the problem."""
        check_search(self.noise, self.gap, self.max_seconds, self.family)
        if self.effort not in get_args(Effort):
            raise fail("fit", f"effort={self.effort!r}", "is none", nearest(str(self.effort), get_args(Effort)))
        _check_possible(problem, self.noise, self.family)
        seconds = None if self.max_seconds is None else float(self.max_seconds)
        return replace(
            self,
            gap=float(self.gap),
            max_seconds=seconds,
            seed=whole_number("fit", "seed", self.seed, least=0, advice="Use a whole number from 0."),
            max_steps=_whole("max_steps", self.max_steps, "Allow at least one step."),
            workers=_workers(self.workers),
        )


def _whole(name: str, value: int | None, advice: str) -> int | None:
    return None if value is None else whole_number("fit", name, value, least=1, advice=advice)


def _workers(value: int | None) -> int | None:
    advice = "Use at most as many as there are cores."
    workers = _whole("workers", value, advice)
    if workers is not None and workers > _MOST_WORKERS:
        raise fail("fit", f"workers={workers}", f"must be at most {_MOST_WORKERS}", advice)
    return workers


def check_search(noise: str, gap: float, max_seconds: float | None, family: str | None) -> None:
    """Refuse options of a search that are out of range or do not go together."""
    if noise not in get_args(Noise):
        raise fail("fit", f"noise={noise!r}", "is not a noise", nearest(str(noise), get_args(Noise)))
    if not _is_positive(gap) or not (max_seconds is None or _is_positive(max_seconds)):
        shown = f"gap={gap}, max_seconds={max_seconds}"
        advice = "Use for example gap=1e-3, max_seconds=60; leave max_seconds out for no limit of yours."
        raise fail("fit", shown, "both must be positive numbers", advice)
    if family is not None:
        _check_family(cast(Noise, noise), family)


def _is_positive(value: object) -> bool:
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return number and 0 < value < math.inf  # type: ignore[operator]


def _check_family(noise: Noise, family: object) -> None:
    """Refuse a family that is none for the noise; only such as are for it are suggested."""
    if family in FAMILIES[noise]:
        return
    shown = f"family={family!r}"
    meant = next((other for other, names in FAMILIES.items() if family in names), None)
    if meant is not None:
        advice = f"Leave the family out, or use one of {', '.join(FAMILIES[noise])}."
        if noise == "gaussian":
            advice = "Leave the family out: the Gaussian search is optimal."
        raise fail("fit", shown, f"is for {NAMES[meant]}", advice)
    raise fail("fit", shown, f"is not a family for {NAMES[noise]}", nearest(str(family), FAMILIES[noise]))


def _check_possible(problem: Problem, noise: Noise, family: str | None) -> None:
    known = None if family is None else registry.family(noise, family)
    if known is not None and not known.structured and not known.possible(problem):
        raise fail("fit", f"family={family!r} for {problem.policy.spec}", known.needs, "Leave the family out.")


def final_status(status: Status, certificate: Certificate, wanted: float) -> Status:
    """Return how a fit ended, judged by its certificate.

    A search that converged before its strategy was put on the grid has only finished if the gap is missed now.
    """
    if certificate.unit_error == 0:
        return "exact"
    return "finished" if status == "converged" and not certificate.objective_gap <= wanted else status


def check_path(problem: Problem, options: FitOptions, product: ProductProblem | None) -> None:
    """Refuse what the search for this problem would not use: nothing that is asked for is dropped."""
    if options.mesh is not None:
        check_spread(problem, options, product)
    if problem.goal.kind != "total" and (options.start is not None or options.mesh is not None):
        advice = "Leave start, devices and mesh out, or use the total."
        raise fail(
            "fit", f"objective {problem.goal.name!r}", "has a search that uses neither start nor devices", advice
        )
    if options.noise == "norm" and options.start is not None:
        raise fail("fit", "start", "tree norms do not start from an earlier fit", "Leave start out.")
    if options.start is not None and product is not None:
        shown = f"start for {problem.policy.num_cells} cells, {options.noise} noise, family={options.family!r}"
        raise fail("fit", shown, "structured families do not start from an earlier fit", "Leave start out.")
    if options.effort != "normal" and (options.noise == "gaussian" or product is not None):
        where = "structured" if product is not None else "Gaussian"
        advice = "Leave effort out; it is for Laplace noise and dense matrices."
        raise fail("fit", f"effort={options.effort!r}", f"a search that is {where} does not use it", advice)
    alone = options.noise != "laplace" or product is not None or options.mesh is not None
    if alone and options.workers is not None and options.workers > 1:
        kind = "Gaussian" if options.noise == "gaussian" else "for tree norms"
        where = "on devices" if options.mesh is not None else "structured" if product is not None else kind
        advice = "Leave workers out; they are for Laplace noise and dense matrices."
        raise fail("fit", f"workers={options.workers}", f"a search that is {where} runs in one process", advice)


def check_spread(problem: Problem, options: FitOptions, product: ProductProblem | None) -> None:
    """Refuse to spread over devices what would not be spread."""
    noise, family = options.noise, options.family
    if noise == "norm":
        raise fail("fit", "devices with noise='norm'", "searches of tree norms run on the host", "Leave devices out.")
    if product is not None:
        name = family or choose(product)
        if noise == "gaussian" and registry.family(noise, name).spreads:
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
    strategy = start.strategy
    if not isinstance(strategy, MatrixStrategy):
        raise fail("fit", f"start by {start.family}", "is no matrix", "Start from a strategy that is written out.")
    matrix = coordinates(strategy, problem).columns(strategy.matrix())
    return draft(problem, strategy.kind, matrix, norm="L1", origin=strategy.family)


def start_weights(problem: Problem, start: Fit | RealVector | None) -> RealVector | None:
    """Return the edge weights to start from."""
    if start is None:
        return None
    weights = start.weights if isinstance(start, Fit) else finite("fit", "start", start)
    edges = problem.policy.num_edges
    if weights.shape != (edges,) or weights.min(initial=0) < 0 or not weights.sum() > 0:
        advice = "Start from a fit of the same policy."
        shown = f"start with {weights.size} weights"
        raise fail("fit", shown, f"must be {edges} weights, none negative, not all zero", advice)
    return weights
