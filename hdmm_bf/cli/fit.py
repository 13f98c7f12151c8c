"""`hdmm-bf bound` and `hdmm-bf fit`: what is the best possible, and the strategy that comes close to it."""

from __future__ import annotations

import math
from typing import Any

import click

from hdmm_bf.cli.show import as_json, count, emit, facts, number, percent, policy_option, progress, workload_option

_GAP = click.option("--gap", default=1e-3, show_default=True, help="Stop when proven this close to the best possible.")
_SECONDS = click.option(
    "--max-seconds", type=float, default=math.inf, help="Stop after this time with the best so far."
)


@click.command(epilog="Example: hdmm-bf bound --workload all-range:64 --policy threshold:64:4")
@workload_option()
@policy_option()
@_GAP
@_SECONDS
@as_json
def bound(workload: str, policy: str, gap: float, max_seconds: float, as_json: bool) -> None:
    """Prove how small the error of any strategy can be.

    Prints the paper's SVD bound and the tight bound, both for sensitivity 1 and without the privacy parameters.
    """
    from hdmm_bf import fitting

    problem = fitting.as_problem(workload, policy)
    with progress("bound") as show:
        made = fitting.bound(problem.workload, problem.policy, gap=gap, max_seconds=max_seconds, callback=show)
    record = {
        "workload": problem.workload.spec,
        "policy": problem.policy.spec,
        "num_cells": problem.workload.num_cells,
        "num_queries": problem.workload.num_queries,
        "num_edges": problem.policy.num_edges,
        "svd_bound": made.svd,
        "lower_bound": made.lower,
        "gap": float(made.gap),
    }
    if as_json:
        emit(record)
        return
    ratio = made.lower / made.svd if made.svd > 0 else 1.0
    click.echo(f"{problem.workload.spec} under {problem.policy.spec}")
    rows = [("tight bound", f"{number(made.lower)}   attained by a Gaussian strategy to {percent(made.gap)}")]
    rows.append(("SVD bound", f"{number(made.svd)}   {number(ratio)} times smaller"))
    click.echo(facts(rows))


@click.command(epilog="Example: hdmm-bf fit --workload all-range:64 --policy threshold:64:4 --out ranges.bf")
@workload_option()
@policy_option()
@click.option("--noise", type=click.Choice(["gaussian"]), default="gaussian", show_default=True)
@click.option("--out", "-o", metavar="B", help="Write the bundle B, a folder such as ranges.bf.")
@click.option("--seed", default=0, show_default=True, help="For families that draw random numbers.")
@_SECONDS
@_GAP
@as_json
def fit(
    workload: str,
    policy: str,
    noise: str,
    out: str | None,
    seed: int,
    max_seconds: float,
    gap: float,
    as_json: bool,
) -> None:
    """Search for the strategy of least expected error, certify it, and write it as a bundle.

    Ctrl-C stops the search and keeps the best strategy so far.
    """
    from hdmm_bf import fitting

    with progress("fit") as show:
        made = fitting.fit(
            workload,
            policy,
            noise=noise,  # type: ignore[arg-type]
            gap=gap,
            max_seconds=max_seconds,
            seed=seed,
            callback=show,
        )
    if out is not None:
        made.save(out)
    if as_json:
        emit({**made.summary(), "bundle": out})
        return
    click.echo(describe(made))
    if out is not None:
        click.echo(f"Wrote {out}; check it with: hdmm-bf verify {out}")


def describe(made: Any) -> str:
    """Say what a fit reached, for people."""
    record = made.summary()
    head = f"{record['workload']} under {record['policy']}, {record['noise']} noise"
    proven = f"proven within {percent(record['gap'])} of the best possible"
    rows = [
        ("unit error", f"{number(record['unit_error'])}   {proven}"),
        ("tight bound", number(record["lower_bound"])),
        ("SVD bound", number(record["svd_bound"])),
        ("strategy", f"{count(record['num_rows'], 'row')}, sensitivity {number(record['sensitivity'])}"),
        ("public", "; ".join(record["discloses"]) or "nothing"),
        ("status", f"{made.sentence}"),
    ]
    return f"{head}\n{facts(rows)}"
