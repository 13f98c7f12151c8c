"""The section on the worst answers: which they are, by name, and whether they are good enough."""

from __future__ import annotations

import math

from hdmm_bf._checks import InputError
from hdmm_bf._display import text
from hdmm_bf._types import JsonObject
from hdmm_bf.fit import Fit
from hdmm_bf.fit.worst import Worst, worst_queries
from hdmm_bf.release.plan import plan
from hdmm_bf.report import plots
from hdmm_bf.report.comparison import example_privacy
from hdmm_bf.report.page import Section, paragraph, picture
from hdmm_bf.report.plots.worst import MOST_LOOKED_AT

_DIGITS = 3
"""Of the budget that a page with targets is for, rounded up."""


def section(fit: Fit) -> Section:
    """Name the worst ten queries, and draw all of them beside their targets."""
    heading, anchor = "Which numbers are the worst?", "worst"
    if fit.unit_error == 0:
        return Section(anchor, heading, paragraph("None: every answer is public and exact."))
    if fit.problem.workload.num_queries > MOST_LOOKED_AT:
        return Section(anchor, heading, paragraph("There are too many queries to look at each."))
    try:
        return Section(anchor, heading, _body(fit))
    except InputError as refused:  # some unions have no closed form for single queries
        return Section(anchor, heading, paragraph(f"Not known: {refused}"))


def _body(fit: Fit) -> str:
    privacy, targets = example_privacy(fit), fit.problem.goal.targets
    words = []
    if targets is not None:
        usual = worst_queries(fit, plan(fit, **privacy), targets=targets)
        assert usual is not None
        words.append(f"At {_said(privacy)} a release meets {usual.met} of {usual.asked} targets.")
        delta = privacy.get("delta")
        privacy = privacy | {"epsilon": _rounded_up(fit.epsilon_for(stddev=targets, delta=delta))}
    found = worst_queries(fit, plan(fit, **privacy), targets=targets)
    assert found is not None
    words.append(_sentence(found, _said(privacy)))
    drawn = plots.as_svg(plots.worst_queries(fit, **privacy), name="worst")
    alternative = f"Standard deviations of {fit.problem.workload.num_queries} answers. {words[-1]}"
    return paragraph(" ".join(words)) + _table(found) + picture(drawn, alternative, _caption(fit))


def _said(privacy: JsonObject) -> str:
    return " and ".join(f"{name} {value:g}" for name, value in privacy.items()).replace("e-0", "e-")


def _rounded_up(value: float) -> float:
    place = 10.0 ** (_DIGITS - 1 - math.floor(math.log10(value)))
    return math.ceil(value * place) / place


def _sentence(found: Worst, at: str) -> str:
    first, others = found.queries[0], found.binding - 1
    alike = "no other is as bad" if others == 0 else f"{others} more {'is' if others == 1 else 'are'} as bad"
    if first.target is None:
        return f"At {at} the largest standard deviation is {first.stddev:.4g} records, of {first.query}; {alike}."
    return (
        f"At {at}, the smallest epsilon that does it (rounded up), all {found.asked} are met. The closest to its "
        f"target is {first.query}; {alike}."
    )


def _caption(fit: Fit) -> str:
    if fit.problem.goal.targets is None:
        return "All queries, worst first. Twice the epsilon about halves every standard deviation."
    return "What is below the dashed line is better than it was asked to be; nothing is above it."


def _table(found: Worst) -> str:
    asked = found.met is not None
    names = ("query", "standard deviation", *(("target", "of the target") if asked else ()))
    head = "".join(f'<th scope="col"{" class=number" if i else ""}>{name}</th>' for i, name in enumerate(names))
    rows = []
    for query in found.queries:
        numbers = [f"{query.stddev:.4g}"]
        if query.target is not None:
            numbers += [f"{query.target:.4g}", f"{100 * query.stddev / query.target:.1f} %"]
        cells = "".join(f'<td class="number">{number}</td>' for number in numbers)
        rows.append(f"<tr><td>{text(query.query)}</td>{cells}</tr>")
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
