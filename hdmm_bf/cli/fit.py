"""`hdmm-bf bound` and `hdmm-bf fit`: what is the best possible, and the strategy that comes close to it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import click

from hdmm_bf._display import percent, plain
from hdmm_bf._types import JsonObject
from hdmm_bf.cli.requests import inputs, problem_parameters, requested
from hdmm_bf.cli.search_options import (
    BOUND_SECONDS,
    DELTA,
    EPSILON,
    GAP,
    MATRIX_NOISE,
    NOISE,
    OBJECTIVE,
    SECONDS,
    SEED,
    STEPS,
    TARGETS,
    WORKERS,
    Family,
    effort,
)
from hdmm_bf.cli.show import (
    BEGAN,
    INTERRUPTED,
    as_json,
    count,
    emit,
    facts,
    free_name,
    known,
    number,
    progress,
    proven_bound,
    with_bounds,
)

if TYPE_CHECKING:
    from hdmm_bf._types import Noise
    from hdmm_bf.fit.fit import Fit
    from hdmm_bf.fit.problem_file import Request
    from hdmm_bf.objectives.limits import Interruption


@click.command(epilog="Example: hdmm-bf bound --workload all-range:64 --policy threshold:64:4")
@problem_parameters
@GAP
@BOUND_SECONDS
@click.option("--epsilon", type=float, metavar="E", help="Bound every unbiased mechanism of pure epsilon, too.")
@click.option("--rho", type=float, metavar="R", help="The same for zero-concentrated privacy.")
@as_json
@click.pass_context
def bound(context: click.Context, /, as_json: bool, **_: object) -> None:
    """Prove how small the error of any strategy can be.

    Prints the paper's SVD bound, the tight bound and a larger one for Laplace noise, for sensitivity 1 and without the
    privacy parameters.
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
        "svd_bound": proven_bound(made.svd, made.lower),
        "lower_bound": made.lower,
        "laplace_bound": made.laplace,
        "gap": known(float(made.gap)),
        "any_unbiased_rmse": floor,
    }
    if as_json:
        emit(record)
        context.exit(code(pressed))
    ratio = made.lower / made.svd if made.svd > 0 else 1.0
    click.echo(f"{workload.title} under {policy.title}")
    rows = [("lower bound", f"{number(made.lower)}   the best that can be evaluated for this structure")]
    if math.isfinite(made.gap):
        rows = [("tight bound", f"{number(made.lower)}   attained by a Gaussian strategy to {percent(made.gap)}")]
    if made.laplace is not None and made.laplace > made.lower:
        rows.append(("Laplace bound", f"{number(made.laplace)}   no strategy with Laplace noise is below"))
    smaller = "the same" if math.isclose(ratio, 1.0, rel_tol=1e-6) else f"{number(ratio)} times smaller"
    svd = proven_bound(made.svd, made.lower)
    rows.append(("SVD bound", _shown(None) if svd is None else f"{number(svd)}   {smaller}"))
    if floor is not None:
        told = ", ".join(f"{name} {value:g}" for name, value in asked.budget.items())
        rows.append(("any rmse", f"{number(floor)}   no unbiased mechanism is below, at {told}"))
    click.echo(facts(rows))
    if pressed.noted:
        click.echo("Interrupted: these are the bounds proven by then.")
    context.exit(code(pressed))


@click.command(
    short_help="Search, certify and write a strategy.",
    epilog="Example: hdmm-bf fit -w all-range:64 -g threshold:64:4 --out ranges.bf",
)
@problem_parameters
@NOISE
@click.option("--out", "-o", metavar="B", help="Write the bundle B, a folder.")
@click.option("--family", cls=Family, metavar="F")
@OBJECTIVE
@TARGETS
@SEED
@SECONDS
@effort
@STEPS
@WORKERS
@GAP
@EPSILON
@DELTA
@click.option("--devices", type=int, metavar="N", help="Spread the search over N devices of JAX.")
@as_json
@click.pass_context
def fit(context: click.Context, /, as_json: bool, devices: int | None, **_: object) -> None:
    """Search for the strategy of least error, certify it, write it as a bundle.

    Ctrl-C keeps the best so far, in B or in interrupted.bf, and exits with 130.
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
        emit({**with_bounds(made.summary()), "hides": policies.hides(made.problem.policy), "bundle": out, **expected})
        context.exit(code(pressed))
    click.echo(describe(made))
    if rmse is not None:
        told = ", ".join(f"{name} {value:g}" for name, value in budget.items())
        click.echo(f"Expected rmse of an answer at {told}: {number(rmse)}")
    if out is not None:
        kept = "Interrupted: the best strategy so far is kept in" if pressed.noted else "Wrote"
        click.echo(f"{kept} {plain(out)}; check it with: hdmm-bf verify {plain(out)}")
    context.exit(code(pressed))


@click.command(
    short_help="Certify a strategy from anywhere.",
    epilog="Example: hdmm-bf certify -w all-range:64 -g threshold:64:4 --strategy A.npy --noise laplace --out mine.bf",
)
@problem_parameters
@click.option("--strategy", "-s", "file_of_strategy", required=True, metavar="A", help="Matrix: .npy .npz .csv .mtx.")
@MATRIX_NOISE
@click.option("--out", "-o", metavar="B", help="Write the bundle B, a folder such as mine.bf.")
@BOUND_SECONDS
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
        emit({**with_bounds(made.summary()), "hides": policies.hides(made.problem.policy), "bundle": asked.out})
        return
    click.echo(describe(made))
    if asked.out is not None:
        click.echo(f"Wrote {plain(asked.out)}; check it with: hdmm-bf verify {plain(asked.out)}")


def code(pressed: Interruption) -> int:
    """Return the exit code of a command that may have been interrupted."""
    return INTERRUPTED if pressed.noted else 0


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
        return [("matrix bound", f"{_shown(record['matrix_bound'])}   a yardstick: it does not bind tree norms")]
    rows = [("lower bound", _shown(record["lower_bound"])), ("SVD bound", _shown(record["svd_bound"]))]
    if record["matrix_bound"] == record["lower_bound"]:
        return rows
    ratio = f"{record['unit_error'] / record['matrix_bound']:.4f} times; for strategies with any noise"
    return [
        ("lower bound", f"{_shown(record['lower_bound'])}   for Laplace noise"),
        ("matrix bound", f"{_shown(record['matrix_bound'])}   {ratio}"),
        rows[1],
    ]


def _shown(bound: float | None) -> str:
    return "none is proven for this structure" if bound is None else number(bound)


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

    record = with_bounds(made.summary())
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
