"""Every mechanism of the paper's figures, and ours: how it is built, what it promises, how one run is measured.

Ordinary mechanisms get epsilon / 2 and Blowfish ones epsilon, as in the paper: moving a record is two changes.
DAWA stands twice: as published, which is what the paper ran and whose privacy is not proven, and with noise that is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

import hdmm_bf as bf
from experiments.mechanisms import edges, grids, trees
from experiments.mechanisms.dawa import dawa
from experiments.mechanisms.draws import Seeded
from experiments.mechanisms.hilbert import hilbert_order
from experiments.mechanisms.mechanism import Mechanism, laplace
from experiments.mechanisms.wavelet import privelet
from hdmm_bf import policy as policies
from hdmm_bf.release.privacy import noise_variance

DELTA = 0.001
"""Of our Gaussian strategies: the paper's, from its figure of lower bounds. Theirs is a weaker promise."""

LARGEST_DENSE = 2500
"""Cells up to which a Gaussian strategy is fitted densely here; 4096 would take four minutes on two quiet cores."""

LARGEST_CHAIN = 4096
"""Cells up to which the error of a tree norm is computed here: covariances of all pairs take five minutes of a core."""

RealVector: TypeAlias = NDArray[np.float64]
Errors: TypeAlias = Callable[[RealVector, float, np.random.Generator], RealVector]
"""From counts, epsilon and random numbers to the errors of all answers in one run."""


class Contender(NamedTuple):
    """A mechanism ready to run: its errors, its exact expected squared error a query (nan if unknown), a note.

    Without `errors` it is not run: the expected error, known exactly, stands for the mean of all runs.
    """

    errors: Errors | None
    expected: Callable[[float], float]
    note: str = ""


def unknown(epsilon: float) -> float:
    """Return nan: the expected error depends on the data, or is not computed."""
    return float("nan")


def plain(mechanism: Mechanism, problem: bf.Problem, share: float, unit_error: float | None, note: str) -> Contender:
    """Run a mechanism with a share of epsilon; its unit error, if known, is for Laplace noise at that share."""

    def errors(counts: RealVector, epsilon: float, random: np.random.Generator) -> RealVector:
        estimate = mechanism(counts, share * epsilon, Seeded(random))
        return np.asarray(problem.workload.matrix.mv(estimate - counts))

    def expected(epsilon: float) -> float:
        assert unit_error is not None
        return unit_error * noise_variance("laplace", epsilon=share * epsilon) / problem.workload.num_queries

    return Contender(errors, unknown if unit_error is None else expected, note)


def from_fit(fit: bf.Fit, note: str) -> Contender:
    """Run a fitted Gaussian strategy with seeded noise, at (epsilon, DELTA)."""
    m = fit.problem.workload.num_queries

    def errors(counts: RealVector, epsilon: float, random: np.random.Generator) -> RealVector:
        size = fit.certificate.sensitivity * noise_variance("gaussian", epsilon=epsilon, delta=DELTA) ** 0.5
        solved = fit.recovery.solve(size * random.normal(size=fit.strategy.num_rows))
        return np.asarray(fit.problem.answer(solved))

    def expected(epsilon: float) -> float:
        """With ideal noise, as it is drawn here; a release has a few percent more, for its accounting."""
        return fit.unit_error * noise_variance("gaussian", epsilon=epsilon, delta=DELTA) / m

    return Contender(errors, expected, note)


def from_product_fit(problem: bf.Problem) -> Contender:
    """Run a structured strategy for all ranges on a large grid with seeded noise, at (epsilon, DELTA)."""
    domain = problem.policy.domain
    fit = bf.fit(bf.workload.all_range(domain), problem.policy, family="bases")
    unit = float(fit.recovery.variances(problem.workload).mean()) * fit.certificate.sensitivity**2

    def errors(counts: RealVector, epsilon: float, random: np.random.Generator) -> RealVector:
        size = fit.certificate.sensitivity * noise_variance("gaussian", epsilon=epsilon, delta=DELTA) ** 0.5
        noise = [size * random.normal(size=b.shape) / np.sqrt(b.full_precisions) for b in fit.strategy.blocks]
        return fit.recovery.answers(problem.workload, noise)

    note = f"structured for all ranges, proven within {100 * fit.gap:.1f} % of the best for these"
    return Contender(errors, lambda epsilon: unit * noise_variance("gaussian", epsilon=epsilon, delta=DELTA), note)


def gaussian_on_edges(problem: bf.Problem, note: str) -> Contender:
    """Gaussian noise on the edges of a tree, without a matrix."""
    unit = edges.edge_unit_error(problem) / problem.workload.num_queries

    def errors(counts: RealVector, epsilon: float, random: np.random.Generator) -> RealVector:
        size = noise_variance("gaussian", epsilon=epsilon, delta=DELTA) ** 0.5
        return np.asarray(problem.answer(problem.P.mv(size * random.normal(size=problem.policy.num_edges))))

    return Contender(errors, lambda epsilon: unit * noise_variance("gaussian", epsilon=epsilon, delta=DELTA), note)


def our_gaussian(problem: bf.Problem) -> Contender | None:
    """Return our Gaussian strategy: dense, on large grids structured, on large trees identity on edges, else None."""
    if problem.policy.num_cells <= LARGEST_DENSE:
        fit = bf.fit(problem.workload, problem.policy, noise="gaussian", gap=1e-2)
        return from_fit(fit, f"proven within {100 * fit.gap:.1f} % of the best Gaussian strategy")
    if problem.policy.factors is not None:
        return from_product_fit(problem)
    return gaussian_on_edges(problem, "identity on edges") if problem.policy.is_tree else None


def our_laplace(problem: bf.Problem) -> Contender:
    """Return our Laplace strategy for any size: the identity on edges, or on grids optimised slabs of edges."""
    policy = problem.policy
    if policy.domain.num_attributes == 1:
        unit = edges.edge_unit_error(problem)
        return plain(edges.edge_laplace(policy), problem, 1.0, unit, "identity on edges")
    strategies = [ranges_strategy(size) for size in policy.domain.sizes]
    return plain(edges.slabs(policy, strategies), problem, 1.0, None, "slabs of edges, p-identity on each")


def our_tree_norm(problem: bf.Problem) -> Contender | None:
    """Return our tree norm for ranges on a line: a chain for all ranges, with the error of its whole-number noise."""
    policy = problem.policy
    if policy.num_cells > LARGEST_CHAIN:
        return None
    fit = bf.fit(bf.workload.all_range(policy.domain), policy, noise="norm", family="chain", max_steps=CHAIN_STEPS)

    @cache
    def expected(epsilon: float) -> float:
        try:
            settled = bf.plan(fit, epsilon=epsilon)
        except bf.InputError as refused:  # of a long line at small epsilon: then there is no release, and no error
            if "of memory" not in str(refused):
                raise
            return float("nan")
        return float(fit.recovery.variances(problem.workload, settled).mean())

    return Contender(None, expected, "chain for all ranges; the exact error of a release, not runs")


CHAIN_STEPS = 2
"""Of that search: two weights, then free ends, found on a short line and stretched; more gains less than 1e-4."""


@lru_cache
def ranges_strategy(size: int) -> NDArray[np.float64]:
    """Return an optimised strategy for all ranges over `size` values under ordinary differential privacy."""
    spec = f"all-range:{size}", f"unbounded:{size}"
    return bf.fit(*spec, noise="laplace", family="p-identity", max_steps=SEARCH_STEPS).strategy.matrix()


SEARCH_STEPS = 40
"""Steps of that search: a number of steps and not of seconds, so that every run finds the same strategy."""


def _dawa(problem: bf.Problem, noise: str) -> Contender:
    """DAWA under ordinary privacy: in two dimensions along a Hilbert curve."""
    domain, workload = problem.policy.domain, problem.workload
    order = hilbert_order(domain) if domain.num_attributes == 2 else None
    queries = None if workload.spec.startswith("identity") else workload
    return plain(dawa(queries, order=order, noise=noise), problem, 0.5, None, "")


def _through(problem: bf.Problem, noise: str | None, *, consistent: bool) -> Contender:
    """Laplace (noise=None) or DAWA on x_G of a line, or of the spanner H^theta with epsilon / stretch."""
    inner = laplace() if noise is None else dawa(noise=noise)
    policy = problem.policy
    if policy.is_tree:
        unit = edges.edge_unit_error(problem) if noise is None and not consistent else None
        return plain(trees.transformed(inner, policy, consistent=consistent), problem, 1.0, unit, "")
    spanner = policies.h_theta(policy.domain, int(policy.spec.split(":")[-1]))
    factor = policies.stretch(policy, spanner)
    made = trees.approximated(inner, policy, tree=spanner)
    unit = None if noise else factor**2 * edges.edge_unit_error(bf.Problem(problem.workload, spanner))
    return plain(made, problem, 1.0, unit, f"stretch {factor}")


class Entry(NamedTuple):
    """A line of the legend: whose it is, whether it depends on the data, what it promises, how to build it."""

    kind: str
    depends: bool
    promise: str
    build: Callable[[bf.Problem], Contender | None]


_UNPROVEN = ", not proven"
CONTENDERS: dict[str, Entry] = {
    "Laplace": Entry(
        "ordinary",
        False,
        "epsilon/2",
        lambda p: plain(laplace(), p, 0.5, float((p.workload.matrix.sparse().data ** 2).sum()), ""),
    ),
    "Privelet": Entry("ordinary", False, "epsilon/2", lambda p: plain(privelet(p.policy.domain), p, 0.5, None, "")),
    "DAWA": Entry("ordinary", True, "epsilon/2" + _UNPROVEN, lambda p: _dawa(p, "published")),
    "DAWA, proven noise": Entry("ordinary", True, "epsilon/2", lambda p: _dawa(p, "proven")),
    "Transformed + Laplace": Entry("paper", False, "epsilon", lambda p: _through(p, None, consistent=False)),
    "Transformed + Privelet": Entry(
        "paper", False, "epsilon", lambda p: plain(grids.rows_and_columns(p.policy), p, 1.0, None, "")
    ),
    "Transformed + ConsistentEst": Entry("paper", True, "epsilon", lambda p: _through(p, None, consistent=True)),
    "Transformed + DAWA": Entry(
        "paper", True, "epsilon" + _UNPROVEN, lambda p: _through(p, "published", consistent=False)
    ),
    "Transformed + DAWA, proven noise": Entry(
        "paper", True, "epsilon", lambda p: _through(p, "proven", consistent=False)
    ),
    "Transformed + DAWA + Cons": Entry(
        "paper", True, "epsilon" + _UNPROVEN, lambda p: _through(p, "published", consistent=True)
    ),
    "Transformed + DAWA + Cons, proven noise": Entry(
        "paper", True, "epsilon", lambda p: _through(p, "proven", consistent=True)
    ),
    "Ours, Laplace": Entry("ours", False, "epsilon", our_laplace),
    "Ours, tree norm": Entry("ours", False, "epsilon", our_tree_norm),
    "Ours, Gaussian": Entry("ours", False, f"epsilon, delta={DELTA}", our_gaussian),
}


@cache
def contender(name: str, workload: str, policy: str) -> Contender | None:
    """Return a contender for a workload and a policy, built once."""
    problem = bf.Problem(bf.workload.parse(workload), bf.policy.parse(policy))
    return CONTENDERS[name].build(problem)
