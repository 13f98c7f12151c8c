"""Plots: a policy, a strategy, its errors and the search as matplotlib figures; the only home of matplotlib.

Each function returns a `matplotlib.figure.Figure` whose title is the question that it answers. Nothing is shown and
no global setting is changed: save one with `figure.savefig("name.png")`.
"""

from hdmm_bf.report.plots.advice import advice
from hdmm_bf.report.plots.canvas import FIGURES, as_file, as_svg
from hdmm_bf.report.plots.errors import convergence, error_per_query, steps
from hdmm_bf.report.plots.maps import district_map
from hdmm_bf.report.plots.policies import policy_graph
from hdmm_bf.report.plots.strategies import strategy_heatmap
from hdmm_bf.report.plots.worst import worst_queries

__all__ = [
    "FIGURES",
    "advice",
    "as_file",
    "as_svg",
    "convergence",
    "district_map",
    "error_per_query",
    "policy_graph",
    "steps",
    "strategy_heatmap",
    "worst_queries",
]
