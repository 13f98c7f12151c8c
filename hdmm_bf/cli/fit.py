"""`hdmm-bf bound` and `hdmm-bf fit`: what is the best possible, and the strategy that comes close to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import click
from click.core import ParameterSource

from hdmm_bf._display import percent, plain
from hdmm_bf._types import JsonObject
from hdmm_bf.cli.requests import Command, inputs, problem_parameters, requested
from hdmm_bf.cli.show import BEGAN, INTERRUPTED, Choice, as_json, count, emit, facts, free_name, known, number, progress

if TYPE_CHECKING:
    from hdmm_bf._types import Noise
    from hdmm_bf.fit.comparison import Row
    from hdmm_bf.fit.fit import Fit
    from hdmm_bf.fit.problem_file import Request
    from hdmm_bf.objectives.limits import Interruption
    from hdmm_bf.strategies.search import TracePoint

_GAP = click.option("--gap", default=1e-3, show_default=True, help="Proven distance to stop at.")
_SECONDS = click.option(
    "--max-seconds",
    type=float,
    metavar="T",
    help="Be done by then [default: it depends].",
)
_BOUND_SECONDS = click.option("--max-seconds", type=float, metavar="T", help="Stop after this time [default: none].")
_NOISE = click.option(
    "--noise",
    type=Choice(["gaussian", "laplace", "norm", "auto"]),
    default="gaussian",
    metavar="N",
    help="gaussian [default], laplace, norm (pure epsilon), auto.",
)
_MATRIX_NOISE = click.option(
    "--noise",
    type=Choice(["gaussian", "laplace"]),
    default="gaussian",
    show_default=True,
    help="Gaussian: (epsilon, delta), optimal with proof. Laplace: pure epsilon.",
)
_EPSILON = click.option("--epsilon", type=float, metavar="E", help="Tell the error at this budget; auto: serve it.")
_DELTA = click.option("--delta", type=float, metavar="D", help="With it, for Gaussian noise.")
_OBJECTIVE = click.option(
    "--objective", type=Choice(["total", "largest", "targets"]), metavar="O", help="total [default], largest, targets."
)
_TARGETS = click.option("--targets", metavar="FILE", help="Standard deviations, one a query; or one number for all.")
_SEED = click.option("--seed", default=0, show_default=True, help="For random numbers.")
_STEPS = click.option("--max-steps", type=int, metavar="K", help="Stop after K steps, the same on every run.")
_WORKERS = click.option("--workers", type=int, metavar="N", help="Laplace: processes [default: one per core].")


class _Family(click.Option):
    """An option whose help lists the families, which are loaded only when it is read."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the option and the names of all families."""
        from hdmm_bf.strategies import registry

        return "--family F", f"Search one alone: {', '.join(registry.names())}."


def _effort(command: Command) -> Command:
    """Add --quick and --thorough, for how long a Laplace search goes on without a gain."""
    quick = click.option("--quick", "effort", flag_value="quick", help="Pure epsilon: one look at every family.")
    thorough = click.option("--thorough", "effort", flag_value="thorough", help="Pure epsilon: go on far longer.")
    normal = click.option("--normal", "effort", flag_value="normal", default=True, hidden=True)
    return quick(thorough(normal(command)))


@click.command(epilog="Example: hdmm-bf bound --workload all-range:64 --policy threshold:64:4")
@problem_parameters
@_GAP
@_BOUND_SECONDS
@click.option("--epsilon", type=float, metavar="E", help="Bound every unbiased mechanism of pure epsilon, too.")
@click.option("--rho", type=float, metavar="R", help="The same for zero-concentrated privacy.")
@as_json
@click.pass_context
def bound(context: click.Context, /, as_json: bool, **_: object) -> None:
    """Prove how small the error of any strategy can be.

    Prints the paper's SVD bound and the tight bound, both for sensitivity 1 and without the privacy parameters.
    """
    from hdmm_bf.fit import run
    from hdmm_bf.strategies import limits as _limits

    asked = requested(context)
    workload, policy = asked.workload, asked.policy
    with _limits.noting_interruptions() as pressed, progress("bound") as show:
        made = run.bound(workload, policy, gap=asked.gap, max_seconds=asked.max_seconds, callback=show)
    floor = _unbiased(asked, made.lower)
    record = {
        "workload": workload.title,
        "policy": policy.title,
        "num_cells": workload.num_cells,
        "num_queries": workload.num_queries,
        "num_edges": policy.num_edges,
        "svd_bound": made.svd,
        "lower_bound": made.lower,
        "gap": known(float(made.gap)),
        "any_unbiased_rmse": floor,
    }
    if as_json:
        emit(record)
        context.exit(_code(pressed))
    ratio = made.lower / made.svd if made.svd > 0 else 1.0
    click.echo(f"{workload.title} under {policy.title}")
    rows = [("lower bound", f"{number(made.lower)}   the best that can be evaluated for this structure")]
    if math.isfinite(made.gap):
        rows = [("tight bound", f"{number(made.lower)}   attained by a Gaussian strategy to {percent(made.gap)}")]
    smaller = "the same" if math.isclose(ratio, 1.0, rel_tol=1e-6) else f"{number(ratio)} times smaller"
    rows.append(("SVD bound", f"{number(made.svd)}   {smaller}"))
    if floor is not None:
        told = ", ".join(f"{name} {value:g}" for name, value in asked.budget.items())
        rows.append(("any rmse", f"{number(floor)}   no unbiased mechanism is below, at {told}"))
    click.echo(facts(rows))
    if pressed.noted:
        click.echo("Interrupted: these are the bounds proven by then.")
    context.exit(_code(pressed))


@click.command(
    short_help="Search, certify and write a strategy.",
    epilog="Example: hdmm-bf fit -w all-range:64 -g threshold:64:4 --out ranges.bf",
)
@problem_parameters
@_NOISE
@click.option("--out", "-o", metavar="B", help="Write the bundle B, a folder.")
@click.option("--family", cls=_Family, metavar="F")
@_OBJECTIVE
@_TARGETS
@_SEED
@_SECONDS
@_effort
@_STEPS
@_WORKERS
@_GAP
@_EPSILON
@_DELTA
@click.option("--devices", type=int, metavar="N", help="Spread the search over N devices of JAX.")
@as_json
@click.pass_context
def fit(context: click.Context, /, as_json: bool, devices: int | None, **_: object) -> None:
    """Search for the strategy of least error, certify it, write it as a bundle.

    Takes --workload and --policy, or a problem FILE (see hdmm-bf init). Ctrl-C keeps the best so far, in B or in
    interrupted.bf, and exits with 130.
    """
    from hdmm_bf import policy as policies
    from hdmm_bf.fit import run
    from hdmm_bf.report.export import check_apart
    from hdmm_bf.strategies import limits as _limits

    if devices is not None:
        from hdmm_bf.parallel.devices import split_cpu

        split_cpu(devices)
    asked = requested(context)
    check_apart([asked.out], inputs(context, asked))
    with _limits.noting_interruptions() as pressed:
        with _limits.counting_from(BEGAN), progress("fit") as show:
            made = run.fit(
                asked.workload,
                asked.policy,
                gap=asked.gap,
                family=asked.family,
                callback=show,
                devices=devices,
                **asked.goal,
                **asked.search,
            )
            budget = dict(asked.budget) if made.noise == "gaussian" else {"epsilon": asked.budget.get("epsilon")}
        pressed.noted |= made.status == "interrupted"
        out = asked.out
        if out is None and pressed.noted:
            out = free_name("interrupted", ".bf")
        if out is not None:
            made.save(out)  # a first Ctrl-C while it is written is noted too
    rmse = made.rmse(**budget) if asked.budget else None
    if as_json:
        expected = {} if rmse is None else {"budget": budget, "rmse": rmse}
        emit({**made.summary(), "hides": policies.hides(made.problem.policy), "bundle": out, **expected})
        context.exit(_code(pressed))
    click.echo(describe(made))
    if rmse is not None:
        told = ", ".join(f"{name} {value:g}" for name, value in budget.items())
        click.echo(f"Expected rmse of an answer at {told}: {number(rmse)}")
    if out is not None:
        kept = "Interrupted: the best strategy so far is kept in" if pressed.noted else "Wrote"
        click.echo(f"{kept} {plain(out)}; check it with: hdmm-bf verify {plain(out)}")
    context.exit(_code(pressed))


@click.command(
    short_help="Certify a strategy from anywhere.",
    epilog="Example: hdmm-bf certify -w all-range:64 -g threshold:64:4 --strategy A.npy --noise laplace --out mine.bf",
)
@problem_parameters
@click.option("--strategy", "-s", "file_of_strategy", required=True, metavar="A", help="Matrix: .npy .npz .csv .mtx.")
@_MATRIX_NOISE
@click.option("--out", "-o", metavar="B", help="Write the bundle B, a folder such as mine.bf.")
@_BOUND_SECONDS
@as_json
@click.pass_context
def certify(context: click.Context, /, as_json: bool, file_of_strategy: str, **_: object) -> None:
    """Put the strategy A on a grid, derive its sensitivity, error and bound, and write it as a bundle.

    A has one row per measurement and one column per cell; its scale does not matter. The bundle can be verified and
    released like one that was searched.
    """
    from hdmm_bf import policy as policies
    from hdmm_bf.fit import given
    from hdmm_bf.report.export import check_apart
    from hdmm_bf.workload.files import read_matrix

    asked = requested(context)
    check_apart([asked.out], [*inputs(context, asked), file_of_strategy])
    matrix = read_matrix(file_of_strategy)[1]
    noise = cast("Noise", asked.noise)  # gaussian or laplace
    made = given.certify(asked.workload, asked.policy, matrix, noise=noise, max_seconds=asked.max_seconds)
    if asked.out is not None:
        made.save(asked.out)
    if as_json:
        emit({**made.summary(), "hides": policies.hides(made.problem.policy), "bundle": asked.out})
        return
    click.echo(describe(made))
    if asked.out is not None:
        click.echo(f"Wrote {plain(asked.out)}; check it with: hdmm-bf verify {plain(asked.out)}")


def _code(pressed: Interruption) -> int:
    return INTERRUPTED if pressed.noted else 0


@click.command(
    short_help="Set the paper's and the classical mechanisms beside ours.",
    epilog="Example: hdmm-bf compare --workload all-range:64 --policy threshold:64:4 --noise laplace",
)
@problem_parameters
@_NOISE
@_SEED
@_SECONDS
@_effort
@_STEPS
@_WORKERS
@_OBJECTIVE
@_TARGETS
@click.option("--epsilon", type=float, metavar="E", help="Set all noises side by side at this budget.")
@_DELTA
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
        context.exit(_code(pressed))
    for line in lines:
        click.echo(line)
    if pressed.noted:
        click.echo("Interrupted: these are the mechanisms reached by then.")
    context.exit(_code(pressed))


def _mechanisms(rows: list[Row], made: Fit) -> tuple[list[str], JsonObject]:
    """Lay out mechanisms by their unit error, or by what they have of another objective."""
    records = [{**row._asdict(), "ratio_to_lower": known(row.ratio_to_lower)} for row in rows]
    summary = made.summary()
    bounds = {name: summary[name] for name in ("svd_bound", "lower_bound", "matrix_bound")}
    spec, bound = made.problem, made.matrix_bound
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
    proven = f"  {_shown(made.objective_bound or None):>10}" if goal else ""
    name, kind = ("matrix bound", "yardstick") if made.noise == "norm" else ("proven lower bound", "bound")
    lines.append(f"  {name:<{width}}  {bound:>12.6g}  {1:>8.4f}  {'-':>10}{proven}  {kind}")
    tight = made.bounds.svd / bound if bound > 0 else 1.0
    dash = f"  {'-':>10}" if goal else ""
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
    records = [{k: v for k, v in row._asdict().items() if k != "fit"} for row in rows]
    return lines, {"rows": records, "budget": budget, "objective": goal.kind, "any_unbiased_rmse": floor}


def _unbiased(asked: Request, lower: float) -> float | None:
    """Return the rmse that no unbiased mechanism is below at the budget of a request."""
    from hdmm_bf.bounds.unbiased import unbiased_error
    from hdmm_bf.fit.problem_file import check_budget

    if not asked.budget or asked.workload.is_weighted:
        return None
    check_budget("gaussian" if "rho" in asked.budget else "laplace", asked.budget)
    found = unbiased_error(lower, **asked.budget)
    return None if found is None else math.sqrt(found / asked.workload.num_queries)


_MEASURED = {"gaussian": "row", "laplace": "row", "norm": "set"}
"""What a strategy is made of."""


def _beside_matrices(record: JsonObject) -> str:
    """Say where a tree norm stands beside the bound that matrix mechanisms have."""
    if not record["matrix_bound"]:
        return f"by {record['family']}"
    ratio = record["unit_error"] / record["matrix_bound"]
    return f"{ratio:.4f} times the bound of matrix mechanisms, by {record['family']}"


def _bounds(record: JsonObject) -> list[tuple[str, str]]:
    if record["noise"] == "norm":
        return [("matrix bound", f"{number(record['matrix_bound'])}   a yardstick: it does not bind tree norms")]
    return [("lower bound", number(record["lower_bound"])), ("SVD bound", number(record["svd_bound"]))]


_GOALS = {
    "largest": "largest variance",
    "targets": "variance over squared target, largest",
    "own": "objective",
}


def _objective(made: Fit) -> list[tuple[str, str]]:
    """Say what was reached of an objective other than the total."""
    if made.objective == "total":
        return []
    bound, value = made.objective_bound, made.objective_value
    proven = "no bound is proven" if not bound else f"proven within {percent(value / bound - 1)} of the best possible"
    if bound and made.noise != "gaussian":
        proven = f"{value / bound:.4f} times the proven bound"
    return [("objective", f"{number(value)}   {_GOALS[made.objective]}; {proven}")]


def describe(made: Fit) -> str:
    """Say what a fit reached, for people."""
    from hdmm_bf import policy as policies

    record = made.summary()
    head = f"{record['workload']} under {record['policy']}, {record['noise']} noise"
    if record["noise"] == "norm":
        proven = _beside_matrices(record)
    elif record["gap"] is None:
        proven = f"by {record['family']}; no proven bound is available for this structure"
    elif record["noise"] == "gaussian":
        proven = f"proven within {percent(record['gap'])} of the best possible"
    else:
        proven = f"{record['ratio_to_lower']:.4f} times the proven bound, by {record['family']}"
    if record["objective"] != "total":
        proven = "the total over all queries, which was not what was made small"
    rows = [
        *_objective(made),
        ("unit error", f"{number(record['unit_error'])}   {proven}"),
        *_bounds(record),
        (
            "strategy",
            f"{count(record['num_rows'], _MEASURED[made.noise])}, sensitivity {number(record['sensitivity'])}",
        ),
        ("hidden", policies.hides(made.problem.policy)),
        ("public", "; ".join(record["discloses"]) or "nothing"),
        ("status", f"{made.sentence}"),
    ]
    if made.problem.workload.is_weighted:
        rows.insert(3, ("weights", "error and bounds count them; answers will be of the queries as written"))
    why = getattr(made, "why", "")
    if why:
        rows.insert(3, ("family", f"{record['family']}: {why}"))
    return f"{head}\n{facts(rows)}"
