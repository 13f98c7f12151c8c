"""The pictures of a report, each with its content in words."""

from __future__ import annotations

from functools import singledispatch

from hdmm_bf import policy as policies
from hdmm_bf._checks import InputError
from hdmm_bf.fit import Fit
from hdmm_bf.report import plots
from hdmm_bf.report.comparison import Compared, example_loss
from hdmm_bf.report.page import Section, paragraph, picture
from hdmm_bf.report.plots.errors import can_draw
from hdmm_bf.report.plots.strategies import attribute_names, hidden_names, tree_part
from hdmm_bf.strategies.records import CellStrategy, EdgeStrategy, GroupedTree, NoiseSum, ProductStrategy, TreeSum

_RANGE_KNOWN = 50_000
"""Queries up to which the least and the largest error are written out."""


def policy(fit: Fit) -> Section:
    """Draw the policy."""
    graph = fit.problem.policy
    alternative = (
        f"Graph of the policy: {graph.num_cells} cells, {graph.num_edges} edges. {policies.hides(graph)} "
        f"{policies.fades(graph)}"
    )
    caption = f"{policies.hides(graph)} {policies.fades(graph)}"
    if graph.domain.num_attributes > 1:
        caption += f" Attributes, in order: {', '.join(_shortened(graph.domain.names))}."
    drawn = plots.as_svg(plots.policy_graph(graph), name="policy")
    return Section("policy", "The policy", picture(drawn, alternative, caption))


def _shortened(names: tuple[str, ...], most: int = 8) -> list[str]:
    return [*names[:most], *(["..."] if len(names) > most else [])]


def strategy(fit: Fit) -> Section:
    """Draw the strategy."""
    if fit.num_rows == 0:
        words = "Nothing is measured: every answer follows from what the policy makes public."
        return Section("strategy", "What is measured", paragraph(words))
    if isinstance(fit.strategy, TreeSum):
        return _tree_sum(fit, fit.strategy)
    if fit.noise == "norm":
        return _tree(fit)
    columns = _columns(fit.strategy)
    alternative = f"Heat map of the strategy of family {fit.family}: {fit.num_rows} measured queries, {columns}."
    caption = (
        f"{fit.num_rows} queries get noise: {columns}. Orange adds, purple subtracts, white leaves out; "
        "colours go with the square root of the weight. The queries that were asked are computed from these."
    )
    drawn = plots.as_svg(plots.strategy_heatmap(fit), name="strategy")
    return Section("strategy", "What is measured", picture(drawn, alternative, caption))


def _tree_sum(fit: Fit, strategy: TreeSum) -> Section:
    """Draw the tree of every part of a sum."""
    graph = fit.problem.policy
    words = (
        "Noise is drawn for the moves along every attribute by itself, and added up: a record that moves along one "
        "attribute is hidden by the noise for it, whatever the rest adds. Each tree is over values of other attributes."
    )
    pictures = [paragraph(words)]
    for number, part in enumerate(strategy.parts):
        tied = " and ".join(attribute_names(graph.domain)[i] for i in part.axes)
        times = part.grouped(strategy.sizes).num_groups
        alternative = (
            f"Sets of the tree for moves along {hidden_names(graph, part)}: {part.tree.num_rows} sets of values "
            f"of {tied} with a weight, any two of them nested or disjoint, drawn {times} times."
        )
        drawn = plots.as_svg(tree_part(graph, strategy, number), name=f"strategy{number}")
        caption = f"{alternative} The darker a bar, the more the sum of the noise over the set is held."
        pictures.append(picture(drawn, alternative, caption))
    return Section("strategy", "How noise is drawn", "".join(pictures))


def _tree(fit: Fit) -> Section:
    """Draw the sets of a tree norm."""
    grouped = fit.strategy if isinstance(fit.strategy, GroupedTree) else None
    sets = fit.num_rows if grouped is None else grouped.tree.num_rows
    alternative = (
        f"Sets of the tree of family {fit.family}: {sets} sets of cells with a weight, any two of them nested or "
        "disjoint."
    )
    if grouped is not None:
        alternative += f" The tree is the same in each of {grouped.num_groups} groups, and noise is drawn for each."
    caption = (
        f"{alternative} Noise z on the cells is the less likely the larger the weighted sum of |z(set)| is. A record "
        "that moves between two cells changes the sums of the sets that hold one of the two. Small sets are below, "
        "large ones above; the darker, the more the sum of the set is held."
    )
    drawn = plots.as_svg(plots.strategy_heatmap(fit), name="strategy")
    return Section("strategy", "How noise is drawn", picture(drawn, alternative, caption))


@singledispatch
def _columns(strategy: object) -> str:
    raise TypeError(f"no words for {type(strategy).__name__}")


@_columns.register
def _(_: CellStrategy) -> str:
    return "weights over the cells"


@_columns.register
def _(_: EdgeStrategy) -> str:
    return "weights over the edges of the policy"


@_columns.register
def _(strategy: NoiseSum) -> str:
    joined, several = len(strategy.joined), any(len(block.hides) > 1 for block in strategy.joined)
    if several and strategy.num_blocks == 1:
        return "1 block of noise for all kinds of moves, by rows over several attributes or in several tables at once"
    blocks = f"{strategy.num_blocks} block{'s' if strategy.num_blocks > 1 else ''} of noise, one for every kind of move"
    return f"{blocks}, {joined} of them over several attributes at once" if joined else f"{blocks}, products"


@_columns.register
def _(strategy: ProductStrategy) -> str:
    blocks = len(strategy.blocks)
    return f"{blocks} block{'s' if blocks > 1 else ''} of products over the attributes"


def errors(fit: Fit, others: Compared | None) -> Section:
    """Draw the error of every query."""
    heading, anchor = "Error of every query", "errors"
    m = fit.problem.workload.num_queries
    if fit.unit_error == 0:
        return Section(anchor, heading, paragraph("Every answer is public and exact: no query has an error."))
    if not can_draw(fit):
        words = f"With {m} queries there is no picture; fit.per_query_stddev gives chosen ones."
        return Section(anchor, heading, paragraph(words))
    privacy = example_loss(fit)
    try:
        spread = fit.per_query_stddev(**privacy) if m <= _RANGE_KNOWN else None
        figure = plots.error_per_query(fit, others=others.stddevs if others else None)
    except InputError as refused:  # some unions have no closed form for single queries
        return Section(anchor, heading, paragraph(f"No picture: {refused}"))
    known = "" if spread is None else f"from {spread.min():.3g} to {spread.max():.3g} records, "
    mean = fit.rmse(**privacy)
    alternative = f"Standard deviation of {m} answers at epsilon 1: {known}root mean square {mean:.3g} records."
    beside = f" Beside it: {' and '.join(others.stddevs)}." if others and others.stddevs else ""
    drawn = fit.bounds.lower > 0 and not fit.problem.workload.is_weighted
    bound = " The dotted line is the root mean square below which no strategy can be." if drawn else ""
    caption = f"{alternative}{beside}{bound}"
    return Section(anchor, heading, picture(plots.as_svg(figure, name="errors"), alternative, caption))


def _no_steps(fit: Fit) -> str:
    """Say why there is no picture of the search."""
    if fit.status == "exact":
        return ""
    return "It took one step." if fit.trace else "Its steps were not kept, so there is no picture of them."


def progress(fit: Fit) -> Section:
    """Draw the search, where its steps are known."""
    heading, anchor = "How the search went", "search"
    trace = plots.steps(fit)
    if len(trace) < 2:
        return Section(anchor, heading, paragraph(f"{fit.sentence} {_no_steps(fit)}".strip()))
    last = trace[-1]
    alternative = (
        f"Error and proven bound over the search, {len(trace)} steps drawn: error {last.error:.6g} and bound "
        f"{last.bound:.6g} at the end, after {last.seconds:.2g} seconds."
    )
    drawn = plots.as_svg(plots.convergence(fit), name="search")
    return Section(anchor, heading, picture(drawn, alternative, f"{fit.sentence} {alternative}"))
