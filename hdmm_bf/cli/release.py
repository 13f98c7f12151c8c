"""`hdmm-bf release`: private answers, checked in every way that needs no data before data are read or privacy spent."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hdmm_bf._display import plain
from hdmm_bf._types import JsonObject
from hdmm_bf.cli.booking import Booking, booking_options
from hdmm_bf.cli.show import Choice, as_json, asked, emit, facts, number, option_number, with_bounds

if TYPE_CHECKING:
    from hdmm_bf.fit.fit import Fit
    from hdmm_bf.release.calibration import Accounting
    from hdmm_bf.release.plan import Plan
    from hdmm_bf.workload import Workload


@click.command(
    short_help="Answer the workload on data, with exact noise.",
    epilog="Example: hdmm-bf release ranges.bf -d counts.csv --rho 0.02 -o answers.csv",
)
@click.argument("bundle")
@click.option("--data", "-d", metavar="FILE", help="Records or counts: .csv .parquet .npy ...")
@click.option("--missing", type=Choice(["zero"]), metavar="zero", help="Cells that a list leaves out are empty.")
@click.option("--other", multiple=True, metavar="A=V", help="Undeclared values of A count as V.")
@click.option("--outside", type=Choice(["drop", "clip"]), hidden=True, help="Drop undeclared values, or clip.")
@click.option("--per-person", type=click.IntRange(min=1), metavar="K", help="Promise to people of at most K records.")
@click.option("--person", metavar="COLUMN", help="Keep K records of each person in this column.")
@click.option("--seed", type=int, hidden=True, metavar="S", help="Makes the choice of kept records repeatable.")
@click.option("--epsilon", type=option_number, metavar="E", help="Privacy loss.")
@click.option("--delta", type=option_number, metavar="D", help="For Gaussian noise: chance that it is exceeded.")
@click.option("--rho", type=option_number, metavar="R", help="For Gaussian noise: zCDP instead of both.")
@click.option(
    "--accounting",
    type=Choice(["analytic", "zcdp"]),
    default="analytic",
    metavar="A",
    hidden=True,
    help="For Gaussian noise: analytic, or zcdp.",
)
@click.option("--out", "-o", metavar="FILE", help="Answers: .csv, .parquet, .json or .xlsx.")
@click.option("--queries", metavar="W", help="Answer these instead: a spec, or 'table age; total'.")
@click.option("--estimate", metavar="FILE", help="Also write the estimated histogram.")
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
@click.option(
    "--level", type=option_number, metavar="P", default=0.95, show_default=True, help="Coverage of the intervals."
)
@click.option("--simultaneous", is_flag=True, help="Intervals hold all at once, not each by itself.")
@click.option("--postprocess", metavar="STEPS", help="Of nonnegative,isotonic,integers.")
@click.option("--draws", type=click.IntRange(min=1), metavar="N", help="With intervals of these, from N simulations.")
@booking_options
@click.option("--expect", metavar="DIGEST", help="Refuse a bundle with another digest.")
@click.option("--dry-run", is_flag=True, help="Say what to expect; read and spend nothing.")
@as_json
def release(
    bundle: str,
    data: str | None,
    missing: str | None,
    other: tuple[str, ...],
    outside: str | None,
    per_person: int | None,
    person: str | None,
    seed: int | None,
    epsilon: float | None,
    delta: float | None,
    rho: float | None,
    accounting: Accounting,
    out: str | None,
    queries: str | None,
    estimate: str | None,
    overwrite: bool,
    level: float,
    simultaneous: bool,
    postprocess: str | None,
    draws: int | None,
    booking: Booking | None,
    expect: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Answer BUNDLE's workload privately; noise is settled before data are read."""
    from hdmm_bf import policy as policies
    from hdmm_bf.fit import loading
    from hdmm_bf.problem import inputs
    from hdmm_bf.release.intervals import check_level
    from hdmm_bf.release.plan import plan
    from hdmm_bf.release.postprocess import check_draws
    from hdmm_bf.release.rehearsal import rehearse
    from hdmm_bf.report.export import check_rows

    if not dry_run and (data is None or out is None):
        raise click.UsageError("release needs --data FILE and --out FILE, or --dry-run.")
    reading = _reading(missing, other, outside) | _whose(person, per_person, seed)
    if draws is not None and postprocess is None:
        raise click.UsageError("--draws simulates intervals of processed numbers; it needs --postprocess STEPS.")
    if booking is not None:
        booking.check_name()
    made = loading.load(bundle, expect=expect)
    settled = plan(made, epsilon=epsilon, delta=delta, rho=rho, accounting=accounting, per_person=per_person)
    steps = [step.strip() for step in postprocess.split(",")] if postprocess else []
    asked = None if queries is None else inputs.as_queries(queries, made.problem.policy.domain)
    _check_files([out, estimate], [data, booking and booking.path], [bundle, queries], overwrite=overwrite)
    check_level(level)
    if draws is not None:
        check_draws(level, draws)
    if out is not None and out.lower().endswith(".xlsx"):
        check_rows(out, asked or made.problem.workload)
    rehearse(settled, made, queries=asked, steps=steps, estimate=estimate is not None)
    graph = made.problem.policy
    words = {"hides": policies.hides(graph), "people": policies.people(graph, per_person), "person": person}
    words["answers"] = None if asked is None else asked.title
    record = {"bundle": bundle, **with_bounds(made.summary()), **words, **settled.summary()}
    for sentence in settled.warnings:
        click.echo(f"hdmm-bf: warning: {sentence}", err=True)
    if dry_run:
        _tell(record, settled, as_json, ["Nothing was read or spent."])
        return
    assert data is not None
    assert out is not None
    if booking is not None:
        booking.check()
    intervals: JsonObject = {"level": level, "simultaneous": simultaneous, "draws": draws}
    files = _released(made, settled, (data, reading), (out, estimate), asked, intervals, steps, booking)
    beside = [f"What is promised: {name}" for name in _beside(files)]
    written = [f"Wrote {', '.join(files)}", *beside, *(booking.news() if booking is not None else [])]
    left = {} if booking is None else booking.left()
    record |= {"files": files, "level": level, "simultaneous": simultaneous, "ledger": booking and booking.path, **left}
    _tell(record, settled, as_json, written)


def _reading(missing: str | None, other: tuple[str, ...], outside: str | None) -> JsonObject:
    """Return how the data are read."""
    pairs = [text.partition("=") for text in other]
    for name, mark, value in pairs:
        if not (name.strip() and mark and value.strip()):
            said = f"--other {name}{mark}{value} is no attribute=value"
            raise click.UsageError(f"{said}; write --other region=elsewhere.")
    homes = {name.strip(): value.strip() for name, _, value in pairs}
    if len(homes) < len(pairs):
        raise click.UsageError("--other names an attribute twice; give each one home.")
    return {"missing": missing or "refuse", "outside": outside or "error", "other": homes}


def _whose(person: str | None, per_person: int | None, seed: int | None) -> JsonObject:
    """Return how records beyond the bound of a person are left out; nothing is where no column names people."""
    if person is not None and per_person is None:
        raise click.UsageError("--person needs --per-person K: how many records of one person are kept.")
    if seed is not None and person is None:
        raise click.UsageError("--seed is of the choice among a person's records; it needs --person COLUMN.")
    return {"person": person, "per_person": per_person, "seed": seed}


def _check_files(
    targets: list[str | None], others: list[str | None], inputs: list[str | None], *, overwrite: bool
) -> None:
    """Refuse files that could not be written, or that would be lost."""
    from hdmm_bf._checks import fail
    from hdmm_bf.report.export import SUFFIXES, check_apart, check_target, metadata_file

    outputs = [target for target in targets if target is not None]
    for target in outputs:
        check_target(target, SUFFIXES)
    beside = [str(file) for target in outputs if (file := metadata_file(Path(target))) is not None]
    outputs, targets = [*outputs, *beside], [*targets, *beside]
    places = [os.path.realpath(name) for name in (*targets, *others) if name is not None]
    if len(set(places)) < len(places):
        raise click.UsageError("--data, --out, --estimate and --ledger must be different files.")
    check_apart([*targets, others[1]], [others[0], *inputs])
    for target in outputs:
        if os.path.lexists(target) and not overwrite:
            advice = "It may be a release that was paid for: choose another name, or add --overwrite."
            raise fail("release", repr(target), "exists", advice)


def _released(
    made: Fit,
    settled: Plan,
    source: tuple[str, JsonObject],
    targets: tuple[str, str | None],
    asked: Workload | None,
    intervals: JsonObject,
    steps: list[str],
    booking: Booking | None,
) -> list[str]:
    """Read, spend, draw, write."""
    from hdmm_bf.data.sources import read_data
    from hdmm_bf.release.publish import publish
    from hdmm_bf.report.export import write_answers, write_estimate

    out, estimate = targets
    data, reading = source
    x = read_data(data, made.problem.policy.domain, **reading)
    made.recovery.read(x)  # refuses what is no histogram before the ledger is opened; `publish` reads it again
    account = None if booking is None else booking.account()
    with _drawing(made.num_rows) as show:
        released = publish(settled, made, x, account=account, callback=show)
    processed = released.postprocess(*steps) if steps else None
    answers: JsonObject = {**intervals, "processed": processed, "queries": asked}
    files = [str(write_answers(released, out, **(answers | {"draws": None})))]
    if estimate is not None:
        files.append(str(write_estimate(released, estimate, processed=processed)))
    if intervals["draws"] is not None:  # after what was paid for is safe
        write_answers(released, out, **answers)
    if account is not None:
        account.published(", ".join(files))
    return files


def _beside(files: list[str]) -> list[str]:
    """Return the files of metadata beside CSV files."""
    from hdmm_bf.report.export import metadata_file

    return [str(file) for name in files if (file := metadata_file(Path(name))) is not None]


def _tell(record: JsonObject, settled: Plan, as_json: bool, last: list[str]) -> None:
    if as_json:
        emit(record)
        return
    rows = [
        ("privacy", settled.promise),
        ("noise", _noise(settled)),
        ("rmse", f"{number(settled.rmse)} expected of an answer{_worst(settled)}"),
        ("hidden", record["hides"]),
        ("public", "; ".join(record["discloses"]) or "nothing"),
    ]
    if record["answers"] is not None:
        rows.insert(3, ("answers", f"{record['answers']}, instead; each has its standard deviation in the file"))
    if settled.per_person is not None:
        rows.insert(-1, ("people", record["people"]))
    if record["person"] is not None:
        whose = (
            f"at most {settled.per_person} of each person in column {record['person']}, the others left out by chance"
        )
        rows.insert(-1, ("records", whose))
    click.echo(asked(record["workload"], record["policy"], record["num_queries"]))
    click.echo(facts(rows))
    for line in last:
        click.echo(plain(line))


def _worst(settled: Plan) -> str:
    worst = settled.worst_stddev
    return "" if worst is None else f"; the worst has a standard deviation of {number(worst)}"


def _noise(settled: Plan) -> str:
    if settled.noise == "norm":
        return settled.law
    return f"{settled.law}, standard deviation {number(settled.stddev)} on the strategy's answers"


@contextlib.contextmanager
def _drawing(size: int) -> Iterator[Callable[[int], None] | None]:
    """Show how much noise is drawn, on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("drawing noise", total=size)
        yield lambda done: bar.update(task, completed=done)
