"""`hdmm-bf plan`: what a release will have, or the smallest budget at which it is good enough; no data, no spending."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from hdmm_bf._display import plain
from hdmm_bf._types import JsonObject
from hdmm_bf.cli.show import as_json, asked, count, emit, facts, number, option_number

if TYPE_CHECKING:
    from hdmm_bf._types import RealVector
    from hdmm_bf.fit.fit import Fit
    from hdmm_bf.fit.worst import Worst
    from hdmm_bf.release.plan import Plan


@click.command(
    short_help="Tell the error of a release, or the budget for an error.",
    epilog="Example: hdmm-bf plan ranges.bf --largest 5 --delta 1e-6",
)
@click.argument("bundle")
@click.option("--epsilon", type=option_number, metavar="E", help="Tell the error at this privacy loss.")
@click.option("--delta", type=option_number, metavar="D", help="For Gaussian noise: chance that it is exceeded.")
@click.option("--rho", type=option_number, metavar="R", help="For Gaussian noise: zCDP instead of both.")
@click.option("--per-person", type=click.IntRange(min=1), metavar="K", help="Promise to people of at most K records.")
@click.option("--targets", metavar="FILE", help="Standard deviations that queries may have; or one number for all.")
@click.option("--rmse", type=option_number, metavar="X", help="Root mean squared error that is wanted.")
@click.option("--largest", type=option_number, metavar="X", help="Standard deviation that no query may exceed.")
@as_json
def plan(
    bundle: str,
    epsilon: float | None,
    delta: float | None,
    rho: float | None,
    per_person: int | None,
    targets: str | None,
    rmse: float | None,
    largest: float | None,
    as_json: bool,
) -> None:
    """Tell what a release of BUNDLE will have, and name its worst queries.

    With --epsilon or --rho, the error of a release. With --targets, --rmse or --largest (and --delta for Gaussian
    noise), the smallest epsilon at which it is that good, and the queries that bind. Without any of them the targets
    that the bundle was made for are taken. Reads no data and spends nothing.
    """
    from hdmm_bf._checks import fail
    from hdmm_bf.fit import loading
    from hdmm_bf.fit.worst import worst_queries
    from hdmm_bf.release import plan as plans

    _check({"epsilon": epsilon, "rho": rho, "targets": targets, "rmse": rmse, "largest": largest})
    made = loading.load(bundle)
    allowed = made.problem.goal.targets if rmse is None else None
    searched = epsilon is None and rho is None
    if searched and made.unit_error == 0:
        raise fail("plan", bundle, "has public answers alone, without error", "No budget is needed: publish them.")
    if targets is not None or largest is not None:
        allowed = _allowed(made, targets, largest)
    if searched:
        epsilon = _smallest(made, allowed, rmse, delta, per_person)
    settled = plans.plan(made, epsilon=epsilon, delta=delta, rho=rho, per_person=per_person)
    worst = worst_queries(made, settled, targets=allowed)
    for sentence in settled.warnings:
        click.echo(f"hdmm-bf: warning: {sentence}", err=True)
    if as_json:
        emit(_record(bundle, made, settled, worst))
        return
    wanted = "" if not searched else f"a root mean squared error of {rmse:g}" if rmse is not None else "every target"
    click.echo(_told(made, settled, worst, wanted))


def _check(asked: JsonObject) -> None:
    """Refuse two questions at once."""
    given = [f"--{name}" for name, value in asked.items() if value is not None]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} are different questions; give one of them.")


def _allowed(made: Fit, targets: str | None, largest: float | None) -> RealVector | None:
    """Return the standard deviation that every query may have; NaN where none is asked."""
    from hdmm_bf.fit.target_files import read_targets
    from hdmm_bf.problem.goal import goal

    workload, policy = made.problem.workload, made.problem.policy
    stddev = largest if targets is None else read_targets(targets, workload)
    return goal(workload, policy, targets=stddev).targets


def _smallest(
    made: Fit, allowed: RealVector | None, rmse: float | None, delta: float | None, per_person: int | None
) -> float:
    """Return the smallest epsilon at which a release is as good as asked."""
    if rmse is None and allowed is None:
        raise click.UsageError("plan needs --epsilon or --rho, or one of --targets, --rmse and --largest.")
    return made.epsilon_for(rmse=rmse, stddev=allowed, delta=delta, per_person=per_person)


def _record(bundle: str, made: Fit, settled: Plan, worst: Worst | None) -> JsonObject:
    return {
        "bundle": bundle,
        "workload": made.problem.workload.title,
        "policy": made.problem.policy.title,
        "objective": made.objective,
        **settled.summary(),
        "promise": settled.promise,
        "num_queries": settled.num_queries,
        "binding": None if worst is None else worst.binding,
        "targets_met": None if worst is None else worst.met,
        "targets_asked": None if worst is None else worst.asked,
        "worst": [] if worst is None else [query._asdict() for query in worst.queries],
    }


def _told(made: Fit, settled: Plan, worst: Worst | None, wanted: str) -> str:
    from hdmm_bf import policy as policies

    workload, policy = made.problem.workload, made.problem.policy
    rows = [("privacy", settled.promise)]
    if wanted:
        assert settled.epsilon is not None
        beside = "" if settled.delta is None else f", with delta {settled.delta:g}, by mu {settled.mu:.6g} (GDP)"
        rows = [("epsilon", f"{_rounded_up(settled.epsilon)}{beside}: the smallest for {wanted}")]
    if settled.per_person is not None:
        rows.append(("people", policies.people(policy, settled.per_person)))
    rows.append(("rmse", f"{number(settled.rmse)} expected of an answer"))
    if settled.worst_stddev is not None:
        rows.append(("worst", f"{number(settled.worst_stddev)}, the largest standard deviation of an answer"))
    if settled.any_unbiased_rmse is not None:
        rows.append(("any rmse", f"{number(settled.any_unbiased_rmse)}   no unbiased mechanism is below"))
    if worst is not None and worst.met is not None:
        rows.append(("targets", f"{worst.met} of {worst.asked} met"))
    lines = [asked(workload.title, policy.title, settled.num_queries), facts(rows)]
    return "\n".join([*lines, *_listed(worst, binding=bool(wanted))])


def _rounded_up(value: float) -> str:
    """Write a number with six significant digits, none of them too small."""
    place = 10.0 ** (5 - math.floor(math.log10(value)))
    written = number(math.ceil(value * place) / place)
    return written if float(written) >= value else number(value + 1 / place)


def _listed(worst: Worst | None, *, binding: bool) -> list[str]:
    """Lay out the worst queries."""
    if worst is None:
        return ["There are too many queries to look at each."]
    if not worst.queries or worst.queries[0].stddev == 0:
        return ["Every answer is exact."]
    asked = worst.met is not None
    many = worst.binding != 1
    told = f"{count(worst.binding, 'query')} {'are' if many else 'is'} as bad as the worst, to a thousandth"
    if asked and binding:
        told = f"{count(worst.binding, 'query')} {'bind' if many else 'binds'}, at the target to a thousandth"
    first = f"{told}. The worst {len(worst.queries)}{', by stddev over target' if asked else ''}:"
    width = max(len("query"), *(len(plain(query.query)) for query in worst.queries))
    lines = [first, f"  {'query':<{width}}  {'stddev':>10}{'      target' if asked else ''}"]
    for query in worst.queries:
        target = f"{query.target:>12.6g}" if asked else ""
        lines.append(f"  {plain(query.query):<{width}}  {query.stddev:>10.6g}{target}")
    return lines
