"""`hdmm-bf release` and `hdmm-bf ledger`: private answers, and what they have cost."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

from hdmm_bf._display import plain
from hdmm_bf.cli.show import as_json, count, emit, facts, number


@click.command(
    short_help="Answer the workload on data, with exact noise.",
    epilog="Example: hdmm-bf release ranges.bf --data counts.csv --epsilon 1 --delta 1e-6 --out answers.csv",
)
@click.argument("bundle")
@click.option("--data", "-d", metavar="FILE", help="Counts: .npy, or .csv with one number a cell or cell,count lines.")
@click.option("--epsilon", type=float, metavar="E", help="Privacy loss.")
@click.option("--delta", type=float, metavar="D", help="For Gaussian noise: probability that it is exceeded.")
@click.option("--rho", type=float, metavar="R", help="For Gaussian noise: zCDP instead of epsilon and delta.")
@click.option("--out", "-o", metavar="FILE", help="Answers: .csv, .parquet or .json.")
@click.option("--queries", metavar="W", help="Answer this workload, on the same domain, instead of the fitted one.")
@click.option("--estimate", metavar="FILE", help="Also write the estimated histogram.")
@click.option("--level", default=0.95, show_default=True, help="Coverage of the intervals.")
@click.option("--postprocess", metavar="STEPS", help="Of nonnegative, isotonic, integers; with commas between.")
@click.option("--ledger", metavar="FILE", help="Count the loss in this ledger; refuse past its total.")
@click.option("--total", metavar="E[,D]", help="Total of a new ledger: epsilon[,delta], or rho=R.")
@click.option("--data-id", metavar="NAME", help="Name of the data in the ledger; else a fingerprint of the counts.")
@click.option("--expect", metavar="DIGEST", help="Refuse a bundle with another digest than verify printed.")
@click.option("--dry-run", is_flag=True, help="Settle the noise, say what to expect, and stop before reading data.")
@as_json
def release(
    bundle: str,
    data: str | None,
    epsilon: float | None,
    delta: float | None,
    rho: float | None,
    out: str | None,
    queries: str | None,
    estimate: str | None,
    level: float,
    postprocess: str | None,
    ledger: str | None,
    total: str | None,
    data_id: str | None,
    expect: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Answer the workload of BUNDLE on data, private under the bundle's policy.

    The noise is settled and its privacy confirmed before the data are read.
    """
    from hdmm_bf import fitting
    from hdmm_bf import policy as policies
    from hdmm_bf.mechanisms.plan import plan

    if not dry_run and (data is None or out is None):
        raise click.UsageError("release needs --data FILE and --out FILE, or --dry-run.")
    made = fitting.load(bundle, expect=expect)
    settled = plan(made, epsilon=epsilon, delta=delta, rho=rho)
    steps = [step.strip() for step in postprocess.split(",")] if postprocess else []
    _check(made, level, steps, [out, estimate], [data, ledger], [bundle, queries])
    stated = _total(ledger, total, data_id)
    hidden = policies.hides(made.problem.policy)
    record = {"bundle": bundle, **made.summary(), "hides": hidden, **settled.summary()}
    if dry_run:
        _tell(record, settled, as_json, "Nothing was read or spent.")
        return
    assert data is not None
    assert out is not None
    asked = None if queries is None else fitting.as_workload(queries)
    files = _released(made, settled, data, (out, estimate), asked, level, steps, (ledger, stated, data_id))
    written = "Wrote " + ", ".join(files)
    _tell({**record, "files": files, "level": level, "ledger": ledger}, settled, as_json, written)


def _check(
    made: Any,
    level: float,
    steps: list[str],
    targets: list[str | None],
    others: list[str | None],
    inputs: list[str | None],
) -> None:
    """Check everything that can be checked before data are read."""
    from hdmm_bf.exporting import SUFFIXES, check_apart, check_target
    from hdmm_bf.mechanisms.intervals import check_level
    from hdmm_bf.mechanisms.postprocessing import check_steps

    check_level(level)
    check_steps(made.problem, steps)
    for target in filter(None, targets):
        check_target(target, SUFFIXES)
    places = [os.path.realpath(name) for name in (*targets, *others) if name is not None]
    if len(set(places)) < len(places):
        raise click.UsageError("--data, --out, --estimate and --ledger must be different files.")
    check_apart([*targets, others[1]], [others[0], *inputs])


def _released(
    made: Any,
    settled: Any,
    data: str,
    targets: tuple[str, str | None],
    asked: Any,
    level: float,
    steps: list[str],
    booking: tuple[str | None, dict[str, float], str | None],
) -> list[str]:
    """Read, spend, draw, write."""
    from hdmm_bf.exporting import write_answers, write_estimate
    from hdmm_bf.mechanisms.counts import read_counts
    from hdmm_bf.mechanisms.publish import publish
    from hdmm_bf.mechanisms.release import checked_counts

    out, estimate = targets
    x = checked_counts(made.problem, read_counts(data, made.problem.policy.domain))
    account = _account(booking, x)
    with _drawing(made.num_rows) as show:
        released = publish(settled, made, x, account=account, callback=show)
    processed = released.postprocess(*steps) if steps else None
    files = [str(write_answers(released, out, level=level, processed=processed, queries=asked))]
    if estimate is not None:
        files.append(str(write_estimate(released, estimate, processed=processed)))
    if account is not None:
        account.published(", ".join(files))
    return files


def _account(booking: tuple[str | None, dict[str, float], str | None], x: Any) -> Any:
    from hdmm_bf.mechanisms.ledger import Ledger, fingerprint

    path, total, name = booking
    return None if path is None else Ledger(path, **total).account(name if name is not None else fingerprint(x))


def _total(ledger: str | None, text: str | None, name: str | None) -> dict[str, float]:
    """Read `1`, `1,1e-6` or `rho=0.5`, the total of a ledger."""
    if ledger is None and (text is not None or name is not None):
        raise click.UsageError("--total and --data-id need --ledger FILE.")
    if text is None:
        return {}
    names = ["rho"] if text.startswith("rho=") else ["epsilon", "delta"]
    try:
        values = [float(part) for part in text.removeprefix("rho=").split(",")]
        return dict(zip(names, values, strict=len(names) == 1 or len(values) > 1))
    except ValueError:
        raise click.UsageError(f"--total {text!r} is no total; write 1 or 1,1e-6 or rho=0.5.") from None


def _tell(record: dict[str, Any], settled: Any, as_json: bool, last: str) -> None:
    if as_json:
        emit(record)
        return
    rows = [
        ("privacy", settled.promise),
        ("noise", f"discrete {settled.noise}, standard deviation {number(settled.stddev)} on the strategy's answers"),
        ("rmse", f"{number(settled.rmse)} expected of an answer"),
        ("hidden", record["hides"]),
        ("public", "; ".join(record["discloses"]) or "nothing"),
    ]
    click.echo(f"{record['workload']} under {record['policy']}, {count(record['num_queries'], 'query')}")
    click.echo(facts(rows))
    click.echo(plain(last))


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


@click.command(short_help="List what was spent on which data.", epilog="Example: hdmm-bf ledger spent.db")
@click.argument("file")
@as_json
def ledger(file: str, as_json: bool) -> None:
    """List what was spent on which data, and the total the ledger in FILE holds to."""
    from dataclasses import asdict

    from hdmm_bf.mechanisms.ledger import Ledger

    book = Ledger(file)
    entries = book.entries()
    if as_json:
        emit({"total": asdict(book.total), "entries": [asdict(entry) for entry in entries]})
        return
    click.echo(f"{file}: {book.total} for each set of data, {count(len(entries), 'release')}")
    for entry in entries:
        cost = f"epsilon {entry.epsilon}" if entry.epsilon is not None else f"rho {entry.rho}"
        cost += f", delta {entry.delta}" if entry.delta is not None else ""
        data = entry.data if len(entry.data) <= 23 else f"{entry.data[:23]}..."
        published = entry.published or "not known to be published"
        click.echo("  " + "  ".join(map(plain, (entry.at, data, entry.policy, cost, published))))
