"""What a command is asked to work on: a problem file, flags, or a file with flags that override it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from hdmm_bf.fit.problem_file import Request

Command = TypeVar("Command", bound=Callable[..., object])

_BUDGET = ("epsilon", "delta", "rho")
_OPTIONS = ("noise", "gap", "family", "seed", "max_seconds", "max_steps", "workers", "effort", "out")
_GOAL = ("objective", "targets")


def problem_parameters(command: Command) -> Command:
    """Take a problem file as argument or as `--problem`, and a workload and a policy beside or instead of it."""
    for add in (
        click.option("--policy", "-g", metavar="G", help="Spec such as line:64, or a graph file."),
        click.option("--workload", "-w", metavar="W", help="Spec such as all-range:64, or a file."),
        click.option("--problem", metavar="FILE", help="Same as FILE (see hdmm-bf init); flags override it."),
        click.argument("file", required=False),
    ):
        command = add(command)
    return command


def requested(context: click.Context) -> Request:
    """Return what the command line asks for; without a file both the workload and the policy must be given."""
    _check(context)
    from hdmm_bf.fit import problem_file
    from hdmm_bf.problem import inputs

    asked = context.params
    file = asked["problem"] if asked["file"] is None else asked["file"]
    budget = {name: asked[name] for name in _BUDGET if asked.get(name) is not None}
    if file is not None:
        known = ("workload", "policy", *_OPTIONS, *_GOAL)
        given = {name: asked[name] for name in known if _is_given(context, name)}
        return problem_file.read(file, **given, **({"budget": budget} if budget else {}))
    options = {name: asked[name] for name in _OPTIONS if name in asked}
    workload, policy = inputs.as_workload(asked["workload"]), inputs.as_policy(asked["policy"])
    options |= problem_file.goal_options(workload, {name: asked[name] for name in _GOAL if asked.get(name) is not None})
    made = problem_file.Request(workload=workload, policy=policy, budget=budget, **options)
    if budget and "noise" in asked:
        problem_file.check_budget(made.noise, budget)
    return made


def inputs(context: click.Context, asked: Request) -> list[str]:
    """Return the files that a request may have been read from."""
    given = [context.params.get(name) for name in ("file", "problem", "workload", "policy")]
    named = [asked.workload.spec, asked.policy.spec, *(name.rpartition(":")[0] for name in given if name)]
    parts = [part for name in named for part in re.split(r"[(), ]+", name)]
    return [name for name in (*given, *named, *parts) if name and os.path.isfile(name)]


def _check(context: click.Context) -> None:
    """Refuse two files, and a missing option where there is none."""
    asked = context.params
    file, problem = asked["file"], asked["problem"]
    if file is not None and problem is not None:
        raise click.UsageError(f"{file} and --problem {problem} are two problem files; give one.")
    for parameter in context.command.params if file is None and problem is None else ():
        if parameter.name in ("workload", "policy") and asked[parameter.name] is None:
            raise click.MissingParameter(ctx=context, param=parameter)


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE
