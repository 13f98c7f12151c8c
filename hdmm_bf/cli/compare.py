"""`hdmm-bf compare`: other mechanisms, or other noises, beside ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from hdmm_bf._display import plain
from hdmm_bf._types import JsonObject
from hdmm_bf.cli.fit import code
from hdmm_bf.cli.requests import problem_parameters, requested
from hdmm_bf.cli.search_options import DELTA, NOISE, OBJECTIVE, SECONDS, SEED, STEPS, TARGETS, WORKERS, effort
from hdmm_bf.cli.show import BEGAN, as_json, emit, known, number, progress, with_bounds

if TYPE_CHECKING:
    from hdmm_bf.fit.comparison import Row
    from hdmm_bf.fit.fit import Fit
    from hdmm_bf.fit.problem_file import Request
    from hdmm_bf.strategies.search import TracePoint


@click.command(
    short_help="Set the paper's and the classical mechanisms beside ours.",
    epilog="Example: hdmm-bf compare --workload all-range:64 --policy threshold:64:4 --noise laplace",
)
@problem_parameters
@NOISE
@SEED
@SECONDS
@effort
@STEPS
@WORKERS
@OBJECTIVE
@TARGETS
@click.option("--epsilon", type=float, metavar="E", help="Set all noises side by side at this budget.")
@DELTA
@as_json
@click.pass_context
def compare(context: click.Context, /, as_json: bool, **_: object) -> None:
    """Set the paper's and the classical mechanisms beside ours and the bounds.

    With --epsilon, and --delta for Gaussian noise, sets the noises side by side by the error of a release. The best for
    the objective comes first. The worst is the largest variance of a query, at sensitivity 1.
    """
    from hdmm_bf.fit import comparison
    from hdmm_bf.strategies import limits as _limits

    if context.params["epsilon"] is not None:  # a budget for all noises, not for the one of the options
        context.params["noise"] = "auto"
        context.set_parameter_source("noise", ParameterSource.COMMANDLINE)
    asked = requested(context)
    with _limits.noting_interruptions() as pressed, _limits.counting_from(BEGAN), progress("compare") as show:
        if "epsilon" in asked.budget:
            lines, record = _noises(asked, show)
        else:
            lines, record = _mechanisms(
                *comparison.compare(asked.workload, asked.policy, callback=show, **asked.goal, **asked.search)
            )
    if as_json:
        emit(record)
        context.exit(code(pressed))
    for line in lines:
        click.echo(line)
    if pressed.noted:
        click.echo("Interrupted: these are the mechanisms reached by then.")
    context.exit(code(pressed))


def _mechanisms(rows: list[Row], made: Fit) -> tuple[list[str], JsonObject]:
    """Lay out mechanisms by their unit error, or by what they have of another objective."""
    records = [{**row._asdict(), "ratio_to_lower": known(row.ratio_to_lower)} for row in rows]
    summary = with_bounds(made.summary())
    bounds = {name: summary[name] for name in ("svd_bound", "lower_bound", "matrix_bound")}
    spec, bound = made.problem, made.yardstick
    width = max(len("proven lower bound"), *(len(plain(row.name)) for row in rows))
    goal = made.objective != "total"
    lines = [
        f"{spec.workload.title} under {spec.policy.title}, {made.noise} noise",
        f"  {'mechanism':<{width}}  {'unit error':>12}  {'ratio':>8}  {'worst':>10}{_goal_column(goal)}  kind",
    ]
    for row in rows:
        ratio = "-" if known(row.ratio_to_lower) is None else f"{row.ratio_to_lower:.4f}"
        reached = f"  {_shown(row.objective_value):>10}" if goal else ""
        lines.append(
            f"  {plain(row.name):<{width}}  {row.unit_error:>12.6g}  {ratio:>8}  {_shown(row.worst_variance):>10}"
            f"{reached}  {row.kind}"
        )
    reached_bound = f"  {_shown(made.objective_bound or None):>10}" if goal else ""
    name, kind = ("matrix bound", "yardstick") if made.noise == "norm" else ("proven lower bound", "bound")
    if bounds["lower_bound"] is not None or bounds["matrix_bound"] is not None:
        lines.append(f"  {name:<{width}}  {bound:>12.6g}  {1:>8.4f}  {'-':>10}{reached_bound}  {kind}")
    dash = f"  {'-':>10}" if goal else ""
    if made.noise == "laplace" and made.matrix_bound < bound:
        share = made.matrix_bound / bound
        lines.append(f"  {'matrix bound':<{width}}  {made.matrix_bound:>12.6g}  {share:>8.4f}  {'-':>10}{dash}  {kind}")
    tight = made.bounds.svd / bound if bound > 0 else 1.0
    if bounds["svd_bound"] is not None:
        lines.append(f"  {'SVD bound':<{width}}  {made.bounds.svd:>12.6g}  {tight:>8.4f}  {'-':>10}{dash}  {kind}")
    return lines, {"rows": records, **bounds, "objective": made.objective, "objective_bound": made.objective_bound}


def _goal_column(goal: bool) -> str:
    return f"  {'objective':>10}" if goal else ""


def _shown(value: float | None) -> str:
    return "-" if value is None else number(value)


def _noises(asked: Request, show: Callable[[TracePoint], None]) -> tuple[list[str], JsonObject]:
    """Lay out noises by the error of a release."""
    from hdmm_bf.fit.noises import ASKED, compare_noises
    from hdmm_bf.problem import inputs
    from hdmm_bf.release.plan import plan

    problem, budget = inputs.problem(asked.workload, asked.policy, **asked.goal), dict(asked.budget)
    given = {name: getattr(asked, name) for name in ("seed", "max_seconds", "max_steps")}
    rows = compare_noises(problem, **budget, **given, callback=show)
    floor = plan(rows[-1].fit, epsilon=budget["epsilon"]).any_unbiased_rmse if "delta" not in budget else None
    told = ", ".join(f"{name} {value:g}" for name, value in budget.items())
    goal = problem.goal
    ranked = "" if goal.kind == "total" else f", by {ASKED[goal.name]}"
    lines = [
        f"{problem.workload.title} under {problem.policy.title}, at {told}{ranked}",
        f"  {'noise':<10}{'rmse':>12}{'worst':>12}{'' if not ranked else f'{goal.name:>13}'}  {'promise':<24}family",
    ]
    for row in rows:
        asks = "" if not ranked else f"{row.asked:>13.6g}"
        numbers = f"{row.rmse:>12.6g}{_shown(row.worst_stddev):>12}{asks}"
        lines.append(f"  {row.noise:<10}{numbers}  {row.promise:<24}{row.family}")
    if floor is not None:
        lines.append(f"  {'any':<10}{floor:>12.6g}  no unbiased mechanism with this promise is below")
    records = [{k: v for k, v in row._asdict().items() if k not in ("fit", "plan")} for row in rows]
    return lines, {"rows": records, "budget": budget, "objective": goal.kind, "any_unbiased_rmse": floor}
