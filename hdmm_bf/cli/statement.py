"""`hdmm-bf statement`: what a release promises, in plain words, for a regulator to read and check."""

from __future__ import annotations

import os

import click

from hdmm_bf._display import plain
from hdmm_bf.cli.show import as_json, emit, option_number

_SUFFIXES = (".md", ".txt")


@click.command(
    short_help="Write what is promised, for a regulator.",
    epilog="Example: hdmm-bf statement census.bf --epsilon 1 --delta 1e-6 --unit 'one person' --out statement.md",
)
@click.argument("bundle")
@click.option("--epsilon", type=option_number, metavar="E", help="Privacy loss.")
@click.option("--delta", type=option_number, metavar="D", help="For Gaussian noise: chance that it is exceeded.")
@click.option("--rho", type=option_number, metavar="R", help="For Gaussian noise: zCDP instead of both.")
@click.option("--unit", metavar="WORDS", help="What one record is, such as 'one person'.")
@click.option("--publisher", metavar="WORDS", help="Who answers for the publication.")
@click.option("--reason", metavar="WORDS", help="Why this epsilon.")
@click.option("--template", metavar="FILE", help="Fill in this text instead, with fields like $hidden.")
@click.option("--out", "-o", metavar="FILE", help="Write it to FILE.md or FILE.txt instead of printing it.")
@as_json
def statement(
    bundle: str,
    epsilon: float | None,
    delta: float | None,
    rho: float | None,
    unit: str | None,
    publisher: str | None,
    reason: str | None,
    template: str | None,
    out: str | None,
    as_json: bool,
) -> None:
    """Say in plain words what a release of BUNDLE promises a person, what it does not, and how to check it.

    What the software cannot know is a gap in square brackets, unless an option fills it in. Reads no data and spends
    nothing.
    """
    from hdmm_bf import report
    from hdmm_bf._checks import utf8_text
    from hdmm_bf.fit import loading
    from hdmm_bf.report.export import check_apart, check_target, write_file

    if out is not None:
        check_target(out, _SUFFIXES)
        check_apart([out], [bundle, template])
    own = None if template is None else utf8_text("statement", template)
    made = loading.load(bundle)
    text = report.statement(
        made,
        epsilon=epsilon,
        delta=delta,
        rho=rho,
        unit=unit,
        publisher=publisher,
        reason=reason,
        bundle=os.path.basename(os.path.normpath(bundle)),
        template=own,
    )
    if out is not None:
        write_file(out, text.encode())
    if as_json:
        emit({"bundle": bundle, "digest": made.digest, "file": out, "statement": text})
    else:
        click.echo(text.rstrip("\n") if out is None else f"Wrote {plain(out)}")
