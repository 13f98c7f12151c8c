"""How numbers and facts appear to people: in words, and as the HTML of notebooks and of the report."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

_ROUNDING = 1e-9
"""Smaller shares are zero but for rounding."""


def percent(share: float) -> str:
    """Write a share as a percentage of two digits, or more where they are whole."""
    if abs(share) < _ROUNDING:
        return "0 %"
    return f"{100 * share:.2g} %" if share < 1 else f"{100 * share:.0f} %"


def text(value: object) -> str:
    """Escape anything for HTML, also inside attributes."""
    return html.escape(str(value), quote=True)


def facts_table(rows: Sequence[tuple[str, str]]) -> str:
    """Return names and values as a table with a heading for every row."""
    lines = "".join(f'<tr><th scope="row">{text(name)}</th><td>{text(value)}</td></tr>' for name, value in rows)
    return f'<div class="wide"><table><tbody>{lines}</tbody></table></div>'


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows under a heading each column."""
    top = "".join(f'<th scope="col">{text(word)}</th>' for word in head)
    lines = "".join("<tr>" + "".join(f"<td>{text(value)}</td>" for value in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table>"


def card(kind: str, name: str, *parts: str) -> str:
    """Return what a notebook shows of one object: what it is, its name, and tables under it."""
    return f"<div><strong>{text(kind)}</strong> {text(name)}{''.join(parts)}</div>"
