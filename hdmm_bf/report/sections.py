"""The words of a report: what is hidden and public, how good the strategy is, how to cite and reproduce it."""

from __future__ import annotations

import math
import shlex

import numpy as np

from hdmm_bf import __version__
from hdmm_bf import policy as policies
from hdmm_bf._display import facts_table, percent, text, word
from hdmm_bf.fit import Fit, Row
from hdmm_bf.problem.goal import is_public_query
from hdmm_bf.release.plan import plan
from hdmm_bf.release.privacy import NAMES, noise_variance
from hdmm_bf.report.comparison import LARGEST, Compared, example_loss, example_privacy
from hdmm_bf.report.page import Section, bullets, paragraph

_KINDS = {"paper": "paper", "classical": "classical", "ours": "ours"}
_SOFTWARE = "hdmm_bf: optimised matrix mechanisms under Blowfish privacy policies"
_ARTICLE = (
    "Samuel Haney, Ashwin Machanavajjhala, Bolin Ding. Design of Policy-Aware Differentially Private Algorithms. "
    "Proceedings of the VLDB Endowment 9(4), 2015."
)


def _with_size(name: str, size: str) -> str:
    """Add a size to a name that does not end with it."""
    return name if name.endswith(size) else f"{name} ({size})"


def title(fit: Fit) -> str:
    """Name the page."""
    return f"{fit.problem.workload.title} under {fit.problem.policy.title}"


def summary(fit: Fit) -> Section:
    """Say the most important things in a few sentences."""
    workload, graph = fit.problem.workload, fit.problem.policy
    disclosed = fit.discloses
    public = f"Public: {'; '.join(disclosed)}." if disclosed else "Nothing is public, not even the number of records."
    asked = f"{_count(workload.num_queries, 'query', 'queries')} over {_count(workload.num_cells, 'cell', 'cells')}"
    words = [
        f"{asked}, answered with {NAMES[fit.noise]}. {policies.hides(graph)}",
        public,
        _distance(fit),
    ]
    if fit.unit_error > 0:
        words.append(_example(fit))
    return Section("summary", "Summary", "".join(map(paragraph, words)))


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


_MADE_SMALL = {
    "largest": "the largest variance of a query",
    "worst group": "the mean variance of the worst group of queries",
    "targets": "the largest of all variances over squared targets",
    "own": "an objective of the user's own",
}
"""What a strategy was made for, for the name of every goal other than the total."""


def _goal(fit: Fit) -> str:
    """Say what was made small, how small it is, and what is proven of that."""
    value, bound = fit.objective_value, fit.objective_bound
    told = f"This strategy makes {_MADE_SMALL[fit.problem.goal.name]} small, not the total: it is {value:.6g} "
    if not bound:
        return f"{told}at sensitivity 1. How far that is from the best possible is not proven."
    if fit.noise == "gaussian":
        near = f"so it is within {percent(value / bound - 1)} of the best possible"
        return f"{told}at sensitivity 1. No Gaussian matrix mechanism is below {bound:.6g}, {near}."
    near = f"which is {value / bound:.4f} times a proven bound of {bound:.6g}"
    return f"{told}at sensitivity 1, {near}; the best possible lies between the two."


def _distance(fit: Fit) -> str:
    if fit.unit_error == 0:
        return "All answers are public under this policy: they are exact, and cost no privacy."
    if fit.objective != "total":
        return _goal(fit)
    if fit.noise == "norm" and fit.matrix_bound > 0:
        return (
            f"The expected squared error is {fit.unit_error / fit.matrix_bound:.4f} times a bound that no matrix "
            "mechanism is below. Noise on the cells is not bound by it: it is a yardstick."
        )
    if not math.isfinite(fit.gap):
        return "No bound is proven for this structure, so it is not known how far from the best possible this is."
    if fit.noise == "gaussian":
        return (
            f"The expected squared error is proven to be within {percent(fit.gap)} of the best that any Gaussian "
            "matrix mechanism can reach under this policy."
        )
    return (
        f"The expected squared error is {1 + fit.gap:.4f} times a proven lower bound for Laplace matrix mechanisms "
        "under this policy; the best possible lies between the two."
    )


def _example(fit: Fit) -> str:
    privacy = example_privacy(fit)
    at = "epsilon 1 and delta 1e-6" if "delta" in privacy else "epsilon 1"
    settled = plan(fit, **example_loss(fit))
    floor = settled.any_unbiased_rmse
    least = "" if floor is None else f" No unbiased mechanism that keeps the same promise is below {floor:.4g}."
    return (
        f"For example at {at} a release has a root mean squared error of {settled.rmse:.4g} records a "
        f"query, whatever the data are. Doubling epsilon {'about ' if 'delta' in privacy else ''}halves it.{least}"
    )


def public(fit: Fit) -> Section:
    """List what is not protected."""
    graph, disclosed = fit.problem.policy, fit.discloses
    nothing = paragraph("Nothing becomes known exactly, not even the number of records.")
    body = paragraph("Whoever signs off this policy accepts that these become known exactly:") + bullets(disclosed)
    notes = bullets(graph.notes) if graph.notes else ""
    people = paragraph(f"{policies.people(graph)} A release for people says how many records each has at most.")
    return Section(
        "public", "What is public", (body if disclosed else nothing) + paragraph(policies.fades(graph)) + people + notes
    )


def _bound(value: float, error: float) -> str:
    """Say a bound; one of 0 is one only where all answers are public."""
    return "none is proven" if value <= 0 < error else f"{value:.6g}"


def facts(fit: Fit) -> Section:
    """List the numbers of the certificate."""
    record = fit.summary()
    bound = _bound(fit.bounds.lower, fit.unit_error)
    name = "bound of matrix mechanisms" if fit.noise == "norm" else "proven lower bound"
    bound = f"{fit.matrix_bound:.6g}" if fit.noise == "norm" and fit.matrix_bound > 0 else bound
    rows = [
        ("workload", _with_size(record["workload"], _count(record["num_queries"], "query", "queries"))),
        ("policy", _with_size(record["policy"], _count(record["num_edges"], "edge", "edges"))),
        ("domain", _domain(fit)),
        ("noise", NAMES[fit.noise]),
        ("family", str(record["family"])),
        ("sets with a weight" if fit.noise == "norm" else "measured queries", str(record["num_rows"])),
        ("unit error", f"{record['unit_error']:.6g}"),
        (name, bound),
        *([("proven for any noise", f"{fit.matrix_bound:.6g}")] if fit.matrix_bound < fit.bounds.lower else []),
        ("SVD bound of the paper", _bound(record["svd_bound"], fit.unit_error)),
        ("gap" if fit.objective == "total" else "gap of the total", _known_percent(record["gap"])),
        ("best possible", _proven(fit)),
        ("sensitivity", f"{record['sensitivity']:.6g}"),
        ("status", fit.sentence),
        ("seed", str(record["seed"])),
    ]
    if fit.worst_variance is not None:
        rows.insert(7, ("largest variance of a query", f"{fit.worst_variance:.6g}"))
    if fit.objective != "total":
        rows[6:6] = _objective_rows(fit)
    why = getattr(fit, "why", "")
    if why:
        rows.insert(5, ("why this family", why))
    note = "Unit error is the total squared error over all queries for noise of variance 1 at sensitivity 1."
    if fit.noise == "norm":
        note = "Unit error is the total squared error over all queries, times epsilon^2 / 2, for small epsilon."
    if fit.problem.workload.is_weighted:
        note += " It and its bounds are of the queries times their weights; answers are of the queries as written."
    source = "Every number was derived again from the integers of the strategy as it ships."
    return Section("facts", "Facts", facts_table(rows) + paragraph(f"{note} {source}", "soft"))


def _objective_rows(fit: Fit) -> list[tuple[str, str]]:
    value, bound = fit.objective_value, fit.objective_bound
    return [
        ("made small", _MADE_SMALL[fit.problem.goal.name]),
        ("its value", f"{value:.6g}"),
        ("its proven bound", f"{bound:.6g}" if bound else "none is proven"),
        ("its gap", _known_percent(value / bound - 1 if bound else None)),
    ]


def _known_percent(gap: float | None) -> str:
    return "unknown" if gap is None else percent(gap)


def _proven(fit: Fit) -> str:
    if fit.unit_error == 0:
        return "yes: there is no error"
    close = fit.certified or (fit.objective == "total" and fit.gap <= fit.requested_gap)
    return f"yes, proven to {percent(fit.requested_gap)}" if close else "not proven"


def _domain(fit: Fit) -> str:
    domain = fit.problem.policy.domain
    cells = _count(domain.num_cells, "cell", "cells")
    if domain.has_own_names:
        named = [f"{word(name)} ({size})" for name, size in zip(domain.names, domain.sizes, strict=True)]
        return f"{' x '.join(named)}: {cells}"
    return cells if domain.num_attributes == 1 else f"{domain}: {cells}"


def comparison(fit: Fit, others: Compared | None) -> Section:
    """Set the other mechanisms beside this one."""
    heading, anchor = "Compared with other mechanisms", "comparison"
    if fit.unit_error == 0:
        return Section(anchor, heading, paragraph("There is nothing to compare: the answers are public and exact."))
    if others is None:
        words = f"Other mechanisms are computed for up to {LARGEST} cells only; this domain is larger."
        return Section(anchor, heading, paragraph(words))
    privacy, m = example_privacy(fit), fit.problem.workload.num_queries
    scale = noise_variance(fit.noise, **example_loss(fit))
    head = "".join(
        f'<th scope="col"{" class=number" if i > 1 else ""}>{words}</th>'
        for i, words in enumerate(("mechanism", "from", "rmse of a query", "worst query", "error / bound"))
    )
    body = "".join(
        f"<tr{' class=own' if row.name == fit.family else ''}><td>{text(row.name)}</td>"
        f'<td>{text(_KINDS.get(row.kind, row.kind))}</td><td class="number">'
        f'{math.sqrt(row.unit_error * scale / m):.4g}</td><td class="number">{_worst(row, scale)}</td>'
        f'<td class="number">{_ratio(row.ratio_to_lower)}</td></tr>'
        for row in others.rows
    )
    table = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    at = "epsilon 1, delta 1e-6" if "delta" in privacy else "epsilon 1"
    first = "Best first" if fit.objective == "total" else "Best for what was made small first"
    note = f"{first}, in records at {at}; all keep the same policy. This strategy is in bold."
    weighted = " Errors count as often as the weights of the queries say." if fit.problem.workload.is_weighted else ""
    return Section(anchor, heading, table + paragraph(note + weighted, "soft"))


def _worst(row: Row, scale: float) -> str:
    """The largest standard deviation; a family that was searched and not kept has none that is known."""
    return "-" if row.worst_variance is None else f"{math.sqrt(row.worst_variance * scale):.4g}"


def _ratio(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "unknown"


def reproduce(fit: Fit, bundle: str) -> Section:
    """Give the commands that make, check and use the strategy."""
    name = shlex.quote(bundle)
    delta = " --delta 1e-6" if fit.noise == "gaussian" else ""
    commands = [
        _fit_command(fit, name),
        f"hdmm-bf verify {name}",
        f"hdmm-bf release {name} --data counts.csv --epsilon 1{delta} --out answers.csv",
        f"hdmm-bf report {name} --out report.html",
    ]
    notes = ["verify derives every number of this page again from the bundle alone."]
    if None in _specs(fit):
        notes.append("The workload or the policy has no spec string: put the file it was read from in its place.")
    if fit.problem.goal.groups is not None or fit.objective == "own":
        notes.append("The objective was given in Python, or in a problem file: the command knows no such.")
    elif _targets(fit) == _TARGETS_FILE:
        notes.append(f"{_TARGETS_FILE} stands for the file with the targets.")
    if fit.noise != "gaussian" and fit.status != "exact":
        notes.append("A search that stopped by the clock may stop elsewhere on another machine.")
    body = f"<pre><code>{chr(10).join(map(text, commands))}</code></pre>"
    return Section("reproduce", "How to reproduce it", body + paragraph(" ".join(notes), "soft"))


def _fit_command(fit: Fit, name: str) -> str:
    workload, policy = _specs(fit)
    given = "".join(f" --{name.replace('_', '-')} {shlex.quote(str(v))}" for name, v in fit.options.items())
    return (
        f"hdmm-bf fit --workload {shlex.quote(workload or 'WORKLOAD.npz')} "
        f"--policy {shlex.quote(policy or 'POLICY.csv')} --noise {fit.noise} --gap {fit.requested_gap:g} "
        f"--seed {fit.seed}{_objective(fit)}{given} --out {name}"
    )


_TARGETS_FILE = "TARGETS.csv"


def _objective(fit: Fit) -> str:
    """The options that say what is to be small."""
    if fit.objective == "targets":
        return f" --targets {_targets(fit)}"
    return " --objective largest" if fit.objective == "largest" else ""


def _targets(fit: Fit) -> str | None:
    """The one target of all queries that have an error, or the name of a file."""
    targets = fit.problem.goal.targets
    if targets is None:
        return None
    public = is_public_query(fit.problem.workload, fit.problem.policy)
    alike = np.array_equal(np.isnan(targets), public) and np.unique(targets[~public]).size == 1
    return f"{targets[~public][0]:.17g}" if alike else _TARGETS_FILE


def _specs(fit: Fit) -> tuple[str | None, str | None]:
    """Return the spec strings of workload and policy; None for those that have none."""
    workload, graph = fit.problem.workload, fit.problem.policy
    queries = workload.spec if workload.title == workload.spec != "custom matrix" else None
    return queries, graph.spec if graph.title == graph.spec else None


def cite() -> Section:
    """Name the software and the article."""
    words = [f"The hdmm_bf developers. {_SOFTWARE}. Version {__version__}, Apache-2.0.", _ARTICLE]
    return Section(
        "cite", "How to cite", paragraph("Please cite the software and the paper it implements:") + bullets(words)
    )
