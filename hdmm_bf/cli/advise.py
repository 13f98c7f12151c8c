"""`hdmm-bf advise`: noises and policies side by side on one page, before anything is decided or spent."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import click

from hdmm_bf._display import plain
from hdmm_bf._types import Noise
from hdmm_bf.cli.fit import code
from hdmm_bf.cli.requests import inputs, problem_parameters, requested
from hdmm_bf.cli.search_options import OBJECTIVE, SEED, TARGETS
from hdmm_bf.cli.show import as_json, count, emit, option_number, progress

if TYPE_CHECKING:
    from hdmm_bf.fit.advice import Advice, TableError

_MOST_TABLES = 8
_WIDTH = 96
_NOISES: dict[Noise, str] = {
    "gaussian": "The loss is at most epsilon, except with a probability of about delta; many tables cost little more.",
    "laplace": "The loss is at most epsilon, always; noise on the answers of a strategy.",
    "norm": "The loss is at most epsilon, always; whole-number noise on the cells.",
}


@click.command(
    short_help="Set noises and policies side by side.",
    epilog="Example: hdmm-bf advise problem.toml --epsilon 1 --delta 1e-6 --plot advice.svg",
)
@problem_parameters
@click.option("--epsilon", type=option_number, metavar="E", help="Privacy loss, the same for all.")
@click.option("--delta", type=option_number, metavar="D", help="With it, Gaussian noise is among them.")
@click.option("--beside", multiple=True, metavar="G", help="Another policy to set beside; may be repeated.")
@OBJECTIVE
@TARGETS
@SEED
@click.option("--max-seconds", type=option_number, metavar="T", default=60.0, show_default=True, help="For all fits.")
@click.option("--plot", metavar="FILE", help="Draw the error over epsilon: .svg, .png or .pdf.")
@as_json
@click.pass_context
def advise(
    context: click.Context, /, as_json: bool, beside: tuple[str, ...], plot: str | None, max_seconds: float, **_: object
) -> None:
    """Fit quickly with every noise, under the given policy and under ordinary privacy, and lay it out on one page.

    Says the error of every published table, what each policy hides and what it makes public. Reads no data and
    spends nothing. The epsilon may stand under [release] in a problem FILE.
    """
    from hdmm_bf.fit import advice
    from hdmm_bf.report.export import check_apart, check_target
    from hdmm_bf.report.plots import FIGURES
    from hdmm_bf.strategies import limits as _limits

    context.params["noise"] = "auto"  # a budget for all noises
    asked = requested(context)
    if "epsilon" not in asked.budget:
        raise click.UsageError("advise needs --epsilon, and --delta for Gaussian noise.")
    if plot is not None:
        check_target(plot, FIGURES)
        check_apart([plot], inputs(context, asked))
    with _limits.noting_interruptions() as pressed, progress("advise") as show:
        made = advice.advise(
            asked.workload,
            asked.policy,
            epsilon=asked.budget["epsilon"],
            delta=asked.budget.get("delta"),
            beside=list(beside),
            max_seconds=max_seconds,
            seed=asked.seed,
            callback=show,
            **asked.goal,
        )
    if plot is not None:
        _draw(made, plot)
    if as_json:
        emit({**made.summary(), "plot": plot})
    else:
        click.echo("\n".join(_page(made)))
        if plot is not None:
            click.echo(f"Wrote {plain(plot)}")
    context.exit(code(pressed))


def _draw(made: Advice, path: str) -> None:
    """Write the picture."""
    from hdmm_bf.report import plots
    from hdmm_bf.report.export import write_file

    write_file(path, plots.as_file(plots.advice(made), path))


def _page(made: Advice) -> list[str]:
    """Lay out numbers first, then words."""
    told = f"epsilon {made.epsilon:g}" + ("" if made.delta is None else f", delta {made.delta:g}")
    lines = [f"{plain(made.workload.title)}, at {told}", ""]
    lines += ["Root mean squared error of a count / largest standard deviation, in records", ""]
    return [*lines, *_numbers(made), *_policies(made), *_noises(made), *_last(made)]


def _numbers(made: Advice) -> list[str]:
    """One small table for each published table: policies down, noises across."""
    noises = [noise for noise in _NOISES if any(one.noise == noise for one in made.candidates)]
    names = [words.name for words in made.policies]
    width = max(map(len, map(plain, names)))
    found = {(c.policy, c.noise): c.tables for c in made.candidates}
    first = made.candidates[0].tables
    lines = []
    for k, table in enumerate(first[:_MOST_TABLES]):
        wanted = "" if table.wanted is None else f", wanted: at most {table.wanted:g}"
        lines.append(f"{plain(table.table)} ({count(table.num_queries, 'count')}{wanted})")
        lines.append(f"  {'policy':<{width}}" + "".join(f"{noise:>20}" for noise in noises))
        for name in names:
            cells = [_cell(found[name, noise][k]) if (name, noise) in found else "-" for noise in noises]
            lines.append(f"  {plain(name):<{width}}" + "".join(f"{cell:>20}" for cell in cells))
        lines.append("")
    more = len(first) - _MOST_TABLES
    return [*lines, *([f"{count(more, 'more table')}: --json has all.", ""] if more > 0 else [])]


def _cell(table: TableError) -> str:
    worst = "-" if table.worst is None else f"{table.worst:.4g}"
    return f"{table.rmse:.4g} / {worst}"


def _policies(made: Advice) -> list[str]:
    lines = ["What each policy hides, and makes public"]
    for words in made.policies:
        said = f" ({plain(words.title)})" if words.name != words.title else ""
        lines.append(f"  {plain(words.name)}{said}")
        lines += _wrapped(words.hides, "    hidden  ")
        lines += _wrapped("; ".join(words.discloses) or "nothing, not even the number of records", "    public  ")
    return [*lines, ""]


def _noises(made: Advice) -> list[str]:
    lines = ["What each noise promises"]
    for noise in _NOISES:
        if any(one.noise == noise for one in made.candidates):
            lines += _wrapped(_NOISES[noise], f"  {noise:<10}")
    return [*lines, ""]


def _last(made: Advice) -> list[str]:
    """Say what is best under the given policy, what others cost, and what was left out."""
    best = made.best()
    lines = [f"Best under the given policy, by {made.goal}: {best.noise} noise, {best.asked:.4g}."]
    for words in made.policies[1:]:
        own = [one for one in made.candidates if one.policy == words.name]
        if own and best.asked > 0:
            times = own[0].asked / best.asked
            lines.append(f"Best under {plain(words.name)}: {own[0].noise} noise, {times:.3g} times that.")
    lines += _wrapped("The same epsilon promises different things under different policies: read what each hides.", "")
    reasons: dict[str, list[str]] = {}
    for one in made.left_out:
        reasons.setdefault(one.why, []).append(f"{one.noise} under {one.policy}")
    lines += [line for why, which in reasons.items() for line in _wrapped(f"{', '.join(which)}: {why}", "Left out: ")]
    return [*lines, f"Next: hdmm-bf fit with --noise {best.noise}, which searches longer, and writes a bundle."]


def _wrapped(words: str, first: str) -> list[str]:
    """Break a sentence into lines that stand under its first word."""
    return textwrap.wrap(plain(words), _WIDTH, initial_indent=first, subsequent_indent=" " * len(first))
