"""Errors as pictures: of every query, and of the search as it went on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf._display import percent
from hdmm_bf._linalg import AGREEMENT, BOUND_ROUNDING
from hdmm_bf._types import AnyArray, IndexArray, RealVector
from hdmm_bf.fit import Fit
from hdmm_bf.matrix import Kronecker, Matrix
from hdmm_bf.release.plan import plan
from hdmm_bf.release.privacy import NAMES, noise_variance
from hdmm_bf.report.plots import canvas
from hdmm_bf.strategies import TracePoint
from hdmm_bf.strategies.records import BY_FACTORS
from hdmm_bf.workload.boxes import AllRange, Boxes, Prefix

_MOST, _MOST_OF_BLOCKS = 2**40, 5_000_000
"""Queries of which a sample is drawn; strategies of blocks compute the errors of all."""

_SAMPLE, _LEAST_SAMPLE, _SAMPLE_WORK = 60_000, 1000, 2e10
"""Queries drawn: with a dense strategy one costs about the square of the number of cells."""

_ALL_AT_ONCE = 1_000_000
_MOST_GROUPS = 120
_WIDE = 15.0
"""Ratio of largest to smallest from which a logarithmic scale is used."""

_OTHERS = ((canvas.ORANGE, "--"), (canvas.PURPLE, "-."), (canvas.GREEN, ":"), (canvas.GREY, (0, (5, 1))))


def error_per_query(
    fit: Fit,
    *,
    epsilon: float = 1.0,
    delta: float | None = None,
    others: Mapping[str, RealVector] | None = None,
) -> canvas.Figure:
    """Draw the standard deviation that a release gives every answer against the query's size, else its number.

    Args:
        fit: the strategy.
        epsilon: privacy loss.
        delta: for Gaussian noise, the probability that it is exceeded; 1e-6 when left out.
        others: standard deviations of all queries, in the same order and at the same privacy, for other mechanisms.
    """
    m = fit.problem.workload.num_queries
    if not can_draw(fit):
        advice = "Ask fit.per_query_stddev for the queries that matter."
        raise fail("plots.error_per_query", f"{m} queries", "are too many to draw", advice)
    delta = 1e-6 if delta is None and fit.noise == "gaussian" else delta
    chosen = _chosen(fit)
    privacy = plan(fit, epsilon=epsilon, delta=delta).loss
    if m <= _ALL_AT_ONCE:  # all of them by a closed form take less time than many one by one
        ours = fit.per_query_stddev(queries=None, **privacy)[chosen]
    else:
        ours = fit.per_query_stddev(**privacy, queries=chosen.tolist())
    ours = np.where(ours > BOUND_ROUNDING * ours.max(initial=0.0), ours, 0.0)
    sizes = query_sizes(fit.problem.workload.matrix, chosen)
    with canvas.style():
        figure = _error_figure(fit, epsilon, delta, chosen.size)
        axis = figure.subplots()
        _errors(axis, chosen if sizes is None else sizes, ours, {n: v[chosen] for n, v in (others or {}).items()})
        bound = math.sqrt(fit.bounds.lower / m * noise_variance(fit.noise, **privacy))
        if bound > 0 and not fit.problem.workload.is_weighted:  # with weights it is of another mean
            label = "no strategy with this noise is below, on average"
            axis.axhline(bound, color="black", linewidth=1.0, linestyle=(0, (1, 2)), label=label)
        axis.set_xlabel("number of the query" if sizes is None else "cells in the query")
        axis.set_ylabel("standard deviation (records)")
        canvas.legend(figure)
        return figure


def _by_factors(fit: Fit) -> bool:
    return fit.strategy.kind in BY_FACTORS


def can_draw(fit: Fit) -> bool:
    """Whether the errors of single queries, or of a sample of them, can be computed in reasonable time."""
    return fit.problem.workload.num_queries <= (_MOST_OF_BLOCKS if _by_factors(fit) else _MOST)


def _chosen(fit: Fit) -> IndexArray:
    """Return all queries, or a sample that is always the same."""
    m, n = fit.problem.workload.num_queries, fit.problem.workload.num_cells
    affordable = math.inf if _by_factors(fit) else max(_LEAST_SAMPLE, _SAMPLE_WORK / n**2)
    sample = int(min(_SAMPLE, affordable))
    return np.arange(m) if m <= sample else np.unique(np.random.default_rng(0).integers(0, m, sample))


def _error_figure(fit: Fit, epsilon: float, delta: float | None, drawn: int) -> canvas.Figure:
    at = f"ε = {epsilon:g}" + ("" if delta is None else f", δ = {delta:g}")
    m = fit.problem.workload.num_queries
    some = "" if drawn == m else f"; {drawn} of {m} queries"
    return canvas.new_figure("Which queries are answered how well?", height=4.3, note=f"{NAMES[fit.noise]}, {at}{some}")


def query_sizes(matrix: Matrix, chosen: IndexArray) -> RealVector | None:
    """Return the number of cells in chosen range queries; None for other queries, or when all are alike."""
    sizes = _sizes(matrix, chosen)
    return None if sizes is None or np.unique(sizes).size < 2 else sizes


def _sizes(matrix: Matrix, chosen: IndexArray) -> RealVector | None:
    if isinstance(matrix, Prefix):
        return chosen + 1.0
    if isinstance(matrix, AllRange):
        ends = np.array([matrix.bounds(int(i)) for i in chosen])
        return np.asarray(ends[:, 1] - ends[:, 0] + 1.0)
    if isinstance(matrix, Boxes):
        return np.asarray((matrix.high - matrix.low + 1.0)[chosen].prod(axis=1))
    if isinstance(matrix, Kronecker):
        numbers = np.unravel_index(chosen, [f.shape[0] for f in matrix.factors])
        parts = [_sizes(f, np.asarray(i)) for f, i in zip(matrix.factors, numbers, strict=True)]
        known = [part for part in parts if part is not None]
        return np.prod(known, axis=0) if len(known) == len(parts) else None
    return None


def _errors(axis: canvas.Axes, place: AnyArray, ours: RealVector, others: Mapping[str, RealVector]) -> None:
    group, centre = _groups(place)
    low, high = np.full(centre.size, np.inf), np.zeros(centre.size)
    np.minimum.at(low, group, ours)
    np.maximum.at(high, group, ours)
    if np.any(high > low * (1 + AGREEMENT)):
        axis.fill_between(centre, low, high, color=canvas.BLUE, alpha=0.25, linewidth=0, label="this strategy, range")
    mark = "o" if centre.size <= 40 else ""
    name = "this strategy, mean"
    axis.plot(
        centre, _means(group, ours), color=canvas.BLUE, linewidth=1.8, label=name, zorder=3, marker=mark, markersize=3.5
    )
    drawn = [ours]
    for (label, values), (colour, line) in zip(others.items(), _OTHERS, strict=False):
        means = _means(group, values)
        axis.plot(centre, means, color=colour, linestyle=line, linewidth=1.5, label=canvas.plain(label))
        drawn.append(means)
    everything = np.concatenate(drawn)
    positive = everything[everything > 0]
    if positive.size == everything.size and positive.max() > _WIDE * positive.min():
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0)
    axis.grid(axis="y", color="#e5e5e5")


def _groups(place: AnyArray) -> tuple[IndexArray, RealVector]:
    """Put queries of like place together; return the group of each and the mean place of every group."""
    values, group = np.unique(place, return_inverse=True)
    if values.size > _MOST_GROUPS:
        cuts = np.linspace(values[0], values[-1], _MOST_GROUPS + 1)[1:-1]
        _, group = np.unique(np.searchsorted(cuts, place, side="right"), return_inverse=True)
    return group, _means(group, np.asarray(place, dtype=np.float64))


def _means(group: IndexArray, values: RealVector) -> RealVector:
    return np.asarray(np.bincount(group, weights=values) / np.bincount(group))


def steps(fit: Fit) -> list[TracePoint]:
    """Return the steps of a search that can be drawn; a search that did not know its bound gets the proven one.

    A Laplace search knows the dual bound, and pairs of edges prove more when it is over.
    """
    proven = fit.bounds.lower if fit.objective == "total" else fit.objective_bound or 0.0
    unknown = math.inf if fit.noise == "laplace" else 0.0
    known = [p if p.bound > unknown else replace(p, bound=max(p.bound, proven)) for p in fit.trace]
    return [p for p in known if math.isfinite(p.error) and p.error >= p.bound > 0]


def convergence(fit: Fit) -> canvas.Figure:
    """Draw error and bound after every step of the search, and the proven gap between them."""
    points = steps(fit)
    if len(points) < 2:
        advice = "Searches that end at once, and bundles of older versions, have no steps to draw."
        raise fail("plots.convergence", f"{len(points)} steps", "needs two steps at least", advice)
    seconds = np.array([p.seconds for p in points])
    error, bound = np.array([p.error for p in points]), np.array([p.bound for p in points])
    with canvas.style():
        note = f"{len(points)} steps; the gap that is left is {percent(points[-1].gap)}"
        figure = canvas.new_figure("How fast was the gap to the best possible closed?", height=4.4, note=note)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        marker = "o" if len(points) < 30 else None
        above.plot(seconds, error, color=canvas.BLUE, marker=marker, markersize=3, label="error of the best strategy")
        above.plot(seconds, bound, "--", color=canvas.VERMILION, marker=marker, markersize=3, label="proven bound")
        above.fill_between(seconds, bound, error, color=canvas.ORANGE, alpha=0.25, linewidth=0, label="proven gap")
        above.set_ylabel("unit error" if fit.objective == "total" else "objective")
        above.ticklabel_format(useOffset=False)
        above.legend(loc="best")
        gap = np.maximum(100 * (error / bound - 1), 1e-6)
        below.plot(seconds, gap, color="black", marker=marker, markersize=3)
        if gap.max() > _WIDE * gap.min():
            below.set_yscale("log")
        below.set_ylabel("gap, %")
        below.set_xlabel("seconds")
        below.grid(axis="y", color="#e5e5e5")
        return figure
