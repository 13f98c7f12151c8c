"""The worst answers as a picture: every standard deviation against its target, or all of them, worst first."""

from __future__ import annotations

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf._types import IndexArray, RealVector
from hdmm_bf.fit import Fit
from hdmm_bf.fit.worst import deviations
from hdmm_bf.release.plan import plan
from hdmm_bf.release.privacy import NAMES
from hdmm_bf.report.plots import canvas

MOST_LOOKED_AT = 1_000_000
"""Queries up to which all standard deviations are computed for a picture."""

_MOST_POINTS, _MOST_OF_CURVE, _LONGEST_NAME = 1500, 400, 32
_WIDE = 15.0
"""Ratio of largest to smallest from which a logarithmic scale is used."""


def worst_queries(
    fit: Fit, *, epsilon: float = 1.0, delta: float | None = None, targets: RealVector | None = None
) -> canvas.Figure:
    """Draw the standard deviation of every answer against its target; without targets all of them, worst first.

    Args:
        fit: the strategy.
        epsilon: privacy loss.
        delta: for Gaussian noise, the probability that it is exceeded; 1e-6 when left out.
        targets: the standard deviation that every query may have, NaN where none is asked; those of the fit when left
            out.
    """
    m = fit.problem.workload.num_queries
    if m > MOST_LOOKED_AT:
        raise fail("plots.worst_queries", f"{m} queries", "are too many to draw", "Ask fit.per_query_stddev for some.")
    delta = 1e-6 if delta is None and fit.noise == "gaussian" else delta
    stddev = deviations(plan(fit, epsilon=epsilon, delta=delta))
    allowed = fit.problem.goal.targets if targets is None else targets
    at = f"ε = {epsilon:g}" + ("" if delta is None else f", δ = {delta:g}")
    with canvas.style():
        question = "Which numbers are the worst, and are they good enough?"
        figure = canvas.new_figure(question, height=4.3, note=f"{NAMES[fit.noise]}, {at}")
        axis = figure.subplots()
        if allowed is None or np.unique(allowed[~np.isnan(allowed)]).size < 2:
            _curve(axis, fit, stddev, allowed)
        else:
            _against(axis, fit, stddev, allowed)
        canvas.legend(figure)
        return figure


def _curve(axis: canvas.Axes, fit: Fit, stddev: RealVector, allowed: RealVector | None) -> None:
    """All standard deviations, worst first, beside the one target that all have."""
    asked = np.arange(stddev.size) if allowed is None else np.flatnonzero(~np.isnan(allowed))
    order = asked[np.argsort(-stddev[asked], kind="stable")]
    shown = np.unique(np.linspace(0, order.size - 1, min(order.size, _MOST_OF_CURVE)).astype(int))
    mark = "o" if shown.size <= 40 else ""
    axis.plot(shown + 1, stddev[order[shown]], color=canvas.BLUE, marker=mark, markersize=3.5, label="every query")
    _mark(axis, fit, 1.0, float(stddev[order[0]]), int(order[0]))
    mean = float(np.sqrt(np.mean(stddev**2)))
    axis.axhline(mean, color="black", linewidth=1.0, linestyle=(0, (1, 2)), label="root mean square")
    if allowed is not None and asked.size:
        axis.axhline(allowed[asked[0]], color=canvas.GREEN, linestyle="--", label=f"target {allowed[asked[0]]:g}")
    axis.set_xlabel("queries, worst first")
    axis.set_ylabel("standard deviation (records)")
    axis.set_ylim(0, 1.15 * max(stddev.max(), 0.0 if allowed is None else np.nanmax(allowed)))
    axis.grid(axis="y", color="#e5e5e5")


def _against(axis: canvas.Axes, fit: Fit, stddev: RealVector, allowed: RealVector) -> None:
    """A point a query, and the diagonal above which a target is missed."""
    share = np.where(np.isnan(allowed), -1.0, stddev / allowed)
    drawn = _points(share)
    low, high = np.nanmin(allowed), np.nanmax(allowed)
    least = stddev[drawn][stddev[drawn] > 0].min(initial=low)
    if high > _WIDE * min(low, least):
        _logarithmic(axis)
    line = np.geomspace(low / 1.3, high * 1.3, 50)  # straight on both scales
    axis.plot(line, line, color=canvas.GREEN, linestyle="--", label="as asked: above it a target is missed")
    some = "" if drawn.size == np.sum(share >= 0) else f", {drawn.size} of {np.sum(share >= 0)} drawn"
    axis.scatter(
        allowed[drawn], stddev[drawn], s=14, color=canvas.BLUE, alpha=0.45, linewidths=0, label=f"every query{some}"
    )
    worst = int(share.argmax())
    _mark(axis, fit, float(allowed[worst]), float(stddev[worst]), worst)
    axis.set_xlim(low / 1.15, high * 1.15)
    axis.set_ylim(least / 1.3, stddev[drawn].max() * 1.3)
    axis.set_xlabel("target (records)")
    axis.set_ylabel("standard deviation (records)")
    axis.grid(color="#e5e5e5")


def _logarithmic(axis: canvas.Axes) -> None:
    """Put both sides on logarithmic scales with ticks at 1, 2, 5, 10, written as they are."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.loglog()
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        side.set_major_formatter("{x:g}")
        side.set_minor_formatter(NullFormatter())


def _points(share: RealVector) -> IndexArray:
    """Return the queries that have a target; of many, the worst half of what is drawn and a sample of the others."""
    order = np.argsort(-share, kind="stable")[: int(np.sum(share >= 0))]
    if order.size <= _MOST_POINTS:
        return order
    half = _MOST_POINTS // 2
    rest = np.random.default_rng(0).choice(order[half:], half, replace=False)
    return np.concatenate([order[:half], np.sort(rest)])


def _mark(axis: canvas.Axes, fit: Fit, x: float, y: float, query: int) -> None:
    name = fit.problem.workload.name(query)
    name = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."
    label = canvas.plain(f"the worst: {name}, {y:.3g}")
    axis.plot([x], [y], "D", color=canvas.VERMILION, markersize=7, zorder=4, linestyle="none", label=label)
