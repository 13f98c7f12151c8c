"""`hdmm-bf init`: a commented problem file to start from."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import NamedTuple

import click

from hdmm_bf._display import plain
from hdmm_bf.cli.show import Choice, as_json, emit


class _Choice(NamedTuple):
    """What goes into the file; the defaults are the README's example."""

    domain: str | None = None
    workload: str = "all-range:64"
    policy: str = "threshold:64:4"
    noise: str = "gaussian"


@click.command(
    short_help="Write a problem file to start from.",
    epilog="Example: hdmm-bf init --workload all-range --policy threshold:1 --domain age:10,year:5",
)
@click.argument("file", default="problem.toml")
@click.option("--workload", "-w", metavar="W", help="Spec such as all-range:64, or a file.")
@click.option("--policy", "-g", metavar="G", help="Spec such as line:64, or a graph file.")
@click.option("--domain", metavar="D", help="Sizes, 32x32, or names with sizes, age:100,sex:2; specs may omit them.")
@click.option("--noise", type=Choice(["gaussian", "laplace", "norm"]), help="The default is gaussian.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@as_json
def init(
    file: str,
    workload: str | None,
    policy: str | None,
    domain: str | None,
    noise: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write a commented problem FILE (problem.toml) that `hdmm-bf fit FILE` runs.

    Without flags it asks on a terminal, and writes an example elsewhere.
    """
    from hdmm_bf.fit import problem_file
    from hdmm_bf.report.export import check_apart

    target = Path(file)
    if target.exists() and not force:
        raise click.UsageError(f"{file} exists; name another file, or use --force to overwrite it.")
    check_apart([target], [name for name in (workload, policy) if name and os.path.isfile(name)])
    if (workload is None) != (policy is None) or (workload is None and (domain or noise)):
        raise click.UsageError("init needs both --workload W and --policy G, or no flags at all.")
    if workload is not None and policy is not None:
        choice = _Choice(domain, workload, policy, noise or "gaussian")
    else:
        choice = _dialogue() if sys.stdin.isatty() and not as_json else _Choice()
    text = _text(choice, target)
    made = problem_file.from_text(text, target)  # refuses what would not fit, before anything is written
    _write(target, text)
    if as_json:
        emit({"file": file, "workload": made.workload.title, "policy": made.policy.title, "noise": made.noise})
    else:
        named = f"{made.workload.title} under {made.policy.title}"
        click.echo(f"Wrote {plain(file)}: {named}; run it with: hdmm-bf fit {plain(file)}")


def _dialogue() -> _Choice:
    default = _Choice()
    click.echo("Cells: sizes such as 64 or 32x32, or names with sizes such as age:100,sex:2.", err=True)
    domain = click.prompt("Domain", default="64", err=True)
    workload = click.prompt(
        "Workload (identity, prefix, all-range, marginals:2, a file)", default="all-range", err=True
    )
    table = "," in domain or "x" in domain
    known = "product:line,bounded with one an attribute" if table else "line"
    policy = click.prompt(f"Policy (unbounded, bounded, {known}, threshold:4, a file)", default="threshold:4", err=True)
    kinds = Choice(["gaussian", "laplace", "norm"])
    return _Choice(domain, workload, policy, click.prompt("Noise", type=kinds, default=default.noise, err=True))


def _text(choice: _Choice, target: Path) -> str:
    """Write the choice as TOML, with the keys that were not asked for as comments."""
    from hdmm_bf.policy.files import SUFFIXES as GRAPHS
    from hdmm_bf.workload.files import SUFFIXES as MATRICES

    workload, policy = _from(target, choice.workload, MATRICES), _from(target, choice.policy, GRAPHS)
    return f"""\
# A problem file of hdmm-bf. Run it with: hdmm-bf fit {json.dumps(target.name, ensure_ascii=False)}
# Paths are relative to this file; flags on the command line override it.

{_domain_text(choice.domain)}
[policy]                         # what must stay hidden; hdmm-bf explain says it in words
spec = {_quoted(policy)}
# file = "graph.csv"             # instead of spec: edges u,v, one a line, _ for "no record"
# attribute.age = "line"         # instead of spec: one policy an attribute; those left out are public

[workload]                       # the queries
spec = {_quoted(workload)}
# file = "W.npy"                 # instead of spec: any real matrix, one column a cell
# union = ["identity", "prefix"] # instead of spec: several workloads together
# weights = [1, 2]               # of the union: how much errors count; no answer changes

[fit]
noise = {_quoted(choice.noise)}
gap = 1e-3                       # stop when proven this close to the best possible
seed = 0
# family = "p-identity"          # search one family alone
# max_seconds = 60
# max_steps = 100                # the same result on every run
# workers = 2                    # Laplace noise: processes that search, one a core by default
out = {_quoted(target.stem + ".bf")}

# [release]                      # the budget for which fit tells the expected error
# epsilon = 1.0
# delta = 1e-6                   # for gaussian noise
"""


def _domain_text(domain: str | None) -> str:
    """Write sizes, or attributes with names, or only a hint."""
    if domain is None:
        return '# [domain]                       # names and sizes; specs may then omit their size\n# sizes = "8x8"\n'
    if ":" not in domain:
        return f"[domain]\nsizes = {_quoted(domain)}\n"
    lines = []
    for part in domain.split(","):
        name, _, size = part.strip().partition(":")
        if not size.isdecimal():
            raise click.UsageError(f"--domain {part!r} is no attribute; write age:100,sex:2 or 32x32.")
        lines.append(f"[[domain.attribute]]\nname = {_quoted(name)}\nsize = {int(size)}\n")
    return "\n".join([*lines]) + '# labels = ["F", "M"]            # instead of size: names of the values\n'


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _from(target: Path, spec: str, suffixes: tuple[str, ...]) -> str:
    """Write a path as it is seen from the folder of the file; leave other specs as they are."""
    from hdmm_bf.fit.problem_file import is_path

    if os.path.isabs(spec) or not is_path(spec, suffixes):
        return spec
    return os.path.relpath(spec, target.parent)


def _write(target: Path, text: str) -> None:
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"{target} cannot be written ({error.strerror}); name another file.") from None
