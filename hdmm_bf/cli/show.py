"""How results look: numbers, tables of facts, progress on a terminal."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")


def facts(rows: list[tuple[str, str]]) -> str:
    """Lay out names and values in two columns."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}  {value}".rstrip() for name, value in rows)


def number(value: float) -> str:
    """Write a number with six significant digits."""
    return f"{value:.6g}"


def percent(share: float) -> str:
    """Write a small share as a percentage."""
    return f"{100 * share:.2g} %"


def count(amount: int, word: str) -> str:
    """Write `1 cell`, `2 cells`, `3 queries`."""
    plural = f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
    return f"{amount} {word if amount == 1 else plural}"


def emit(record: dict[str, Any]) -> None:
    """Print one JSON object."""
    click.echo(json.dumps(record))


@contextlib.contextmanager
def progress(title: str) -> Iterator[Callable[[Any], None]]:
    """Show error, bound, gap and time on standard error while it is a terminal; silent otherwise."""
    if not sys.stderr.isatty():
        yield lambda point: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(f"{title} ...") as status:

        def update(point: Any) -> None:
            status.update(
                f"{title}: error {point.error:.6g}, bound {point.bound:.6g}, "
                f"gap {percent(point.gap)}, {point.seconds:.0f} s"
            )

        yield update
