"""How results look: numbers, tables of facts, progress on a terminal."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from hdmm_bf._display import percent, plain
from hdmm_bf._types import JsonObject

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from hdmm_bf.strategies.search import TracePoint

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")


def option_number(text: str | float) -> float:
    """Read the number of an option: no `1_0`, no spaces, no digits of other scripts, which Python would read."""
    value = plain_number(text) if isinstance(text, str) else text
    if value is None:
        raise click.BadParameter(f"{text!r} is not a valid float.")
    return value


def plain_number(text: str) -> float | None:
    """Read a number written in plain digits, or nan or inf; None for anything else."""
    digits = r"([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?"
    return float(text) if re.fullmatch(rf"[+-]?({digits}|nan|inf)", text, re.ASCII | re.IGNORECASE) else None


class Choice(click.Choice[str]):
    """One of several words; a mistyped one is answered with the nearest."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word, or refuse it."""
        from hdmm_bf._checks import nearest

        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            words = [str(choice) for choice in self.choices]
            self.fail(f"{value!r} is not one of {', '.join(words)}. {nearest(str(value), words)}", param, ctx)


def facts(rows: list[tuple[str, str]]) -> str:
    """Lay out names and values in two columns; whatever the values hold, each stays on its line."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}  {plain(value)}".rstrip() for name, value in rows)


def number(value: float) -> str:
    """Write a number with six significant digits."""
    return f"{value:.6g}"


def asked(workload: str, policy: str, num_queries: int) -> str:
    """Name what is answered and under which policy; the number of queries is told once."""
    told = count(num_queries, "query")
    return f"{workload} under {policy}" if workload.endswith(told) else f"{workload} under {policy}, {told}"


def count(amount: int, word: str) -> str:
    """Write `1 cell`, `2 cells`, `3 queries`."""
    plural = f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
    return f"{amount} {word if amount == 1 else plural}"


def free_name(stem: str, suffix: str) -> str:
    """Return a name in this folder that nothing has yet: stem.bf, stem-2.bf, ..."""
    names = itertools.chain([f"{stem}{suffix}"], (f"{stem}-{k}{suffix}" for k in itertools.count(2)))
    return next(name for name in names if not os.path.lexists(name))


def known(value: float) -> float | None:
    """Return a number that JSON can hold, None for one that is not known."""
    return value if math.isfinite(value) else None


def proven_bound(bound: float, error: float) -> float | None:
    """Return a bound, None for the 0 that stands for none: a bound of 0 is one only where all answers are public."""
    return bound if bound > 0 or not error > 0 else None


def with_bounds(record: JsonObject) -> JsonObject:
    """Return the facts about a fit with None in the place of bounds that are not proven."""
    names = [name for name in ("svd_bound", "lower_bound", "matrix_bound") if record[name] is not None]
    return {**record, **{name: proven_bound(record[name], record["unit_error"]) for name in names}}


BEGAN = time.perf_counter()
"""When the command was called: its time limit counts from here, the loading of the package included."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, whether or not there was a result to keep."""


def emit(record: JsonObject) -> None:
    """Print one JSON object."""
    click.echo(json.dumps(record))


@contextlib.contextmanager
def progress(title: str) -> Iterator[Callable[[TracePoint], None]]:
    """Show error, bound, gap, time and time left on standard error while it is a terminal; silent otherwise."""
    if not sys.stderr.isatty():
        yield lambda point: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), _left_column()
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=4) as bar:
        task = bar.add_task(f"{title} ...", total=None, ends=math.inf)

        def update(point: TracePoint) -> None:
            bar.update(task, description=step(title, point), ends=time.monotonic() + point.left)

        yield update


def step(title: str, point: TracePoint) -> str:
    """Say how far a search is."""
    if not point.bound > 0:
        return f"{title}: error {point.error:.6g}"
    return f"{title}: error {point.error:.6g}, bound {point.bound:.6g}, gap {percent(point.gap)}"


def remaining(seconds: float) -> str:
    """Say how much time is left; nothing when that is not known."""
    if not math.isfinite(seconds):
        return ""
    whole = max(0, round(seconds))
    return f"about {whole} s left" if whole < 120 else f"about {round(whole / 60)} min left"


def _left_column() -> ProgressColumn:
    """Return a column that counts the forecast of the last step down."""
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Left(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(remaining(task.fields["ends"] - time.monotonic()))

    return Left()
