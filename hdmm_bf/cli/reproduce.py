"""`reproduce`: the paper's figures and tables, from a checkout of the source."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import click

from hdmm_bf.cli.show import as_json, count, emit


@click.command(short_help="Run the paper's figures and tables.", epilog="Example: hdmm-bf reproduce range_grid --smoke")
@click.argument("figures", nargs=-1, metavar="[FIGURE ...]")
@click.option("--smoke", is_flag=True, help="Small sizes and few runs: under two minutes for all.")
@click.option("--out", "-o", default="out/reproduce", show_default=True, metavar="DIR", help="CSVs and figures.")
@as_json
def reproduce(figures: tuple[str, ...], smoke: bool, out: str, as_json: bool) -> None:
    """Run the paper's figures and tables, all or by name, ours beside the paper's.

    A run that was stopped continues where it was. Data are read from the folder HDMM_BF_DATA; without them synthetic
    ones take their place, and every result says so.
    """
    known = _experiments()
    for name in figures:
        if name not in known.EXPERIMENTS:
            raise click.UsageError(f"{name!r} is no figure; known are {', '.join(known.EXPERIMENTS)}.")
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise click.UsageError(f"--out {out} is a file; name a folder.")
    with _progress() as show:
        told = known.reproduce(figures, folder, smoke=smoke, callback=show)
    if as_json:
        emit({"out": out, **told})
        return
    for name, facts in told["experiments"].items():
        click.echo(f"{name}: {count(facts['cells'], 'cell')}, {facts['seconds']:.0f} s, {', '.join(facts['files'])}")
    click.echo("claims: " + ", ".join(f"{amount} {verdict}" for verdict, amount in told["verdicts"].items()))
    click.echo(f"Wrote {os.path.normpath(folder / told['report'])}")


def _experiments() -> ModuleType:
    """The experiments live beside the package in the source, not in the installed one."""
    if importlib.util.find_spec("matplotlib") is None:
        raise click.UsageError("reproduce draws with matplotlib; install hdmm-bf[plot].")
    try:
        return importlib.import_module("experiments.reproduce")
    except ModuleNotFoundError as missing:
        if missing.name not in ("experiments", "experiments.reproduce"):
            raise
        sentence = "reproduce needs a checkout of the source; there, run: python -m hdmm_bf reproduce."
        raise click.UsageError(sentence) from None


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, int, int, str], None] | None]:
    """Show the experiment and the cell on standard error while it is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reproduce", total=None)

        def show(name: str, done: int, total: int, text: str) -> None:
            bar.update(task, description=f"{name}: {text[:60]}", completed=done, total=total)

        yield show
