"""Releases as Excel files: one sheet a table, and one that says what is promised."""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hdmm_bf._checks import fail
from hdmm_bf._display import spreadsheet_cell
from hdmm_bf.workload import Workload

PROMISE = "promise"
MOST_ROWS = 2**20 - 1
"""Rows of a sheet below its heading."""
_LONGEST = 31
_FORBIDDEN = re.compile(r"[\[\]:*?/\\'\x00-\x1f]")


def check_excel() -> None:
    """Refuse where openpyxl is missing, before anything is spent."""
    if importlib.util.find_spec("openpyxl") is None:
        advice = "Install it with: pip install 'hdmm-bf[excel]'."
        raise fail("export", "format 'xlsx'", "needs the package openpyxl", advice)


def check_rows(name: str, workload: Workload) -> None:
    """Refuse a workload with more queries in one table than a sheet has rows."""
    blocks = () if workload.layout is None or not workload.domain.has_own_names else workload.layout.blocks
    most = max((block.num_queries for block in blocks), default=workload.num_queries)
    if most > MOST_ROWS:
        problem = f"a sheet holds {MOST_ROWS} rows, and a table has {most} queries"
        raise fail("export", repr(name), problem, "Use .parquet or .csv.")


def workbook(columns: Mapping[str, Sequence[Any]], notes: Mapping[str, str]) -> bytes:
    """Return an Excel file: columns with `table` among them are cut into one sheet a table.

    Numbers have the 15 digits that Excel keeps. Text that a spreadsheet would take for a formula has an apostrophe
    before it.
    """
    from openpyxl import Workbook

    book = Workbook(write_only=True)
    titles: list[str] = [PROMISE]
    for name, table in _tables(columns).items():
        titles.append(_title(name, titles))
        _sheet(book, titles[-1], [[*table], *zip(*table.values(), strict=True)])
    _sheet(book, PROMISE, [["what", "is said of it"], *notes.items()])
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def _sheet(book: Any, title: str, rows: Sequence[Sequence[Any]]) -> None:
    sheet = book.create_sheet(title)
    sheet.freeze_panes = "A2"
    for row in rows:
        sheet.append([spreadsheet_cell(cell) if isinstance(cell, str) else cell for cell in row])


def _tables(columns: Mapping[str, Sequence[Any]]) -> dict[str, dict[str, list[Any]]]:
    """Cut columns by the name of the table, and leave out what a table does not speak of."""
    if "table" not in columns:
        return {"answers": {name: list(cells) for name, cells in columns.items()}}
    found: dict[str, list[int]] = {}
    for i, name in enumerate(columns["table"]):
        found.setdefault(name, []).append(i)
    return {name: _table(columns, rows) for name, rows in found.items()}


def _table(columns: Mapping[str, Sequence[Any]], rows: Sequence[int]) -> dict[str, list[Any]]:
    own = {name: [cells[i] for i in rows] for name, cells in columns.items() if name != "table"}
    return {name: cells for name, cells in own.items() if any(cell is not None for cell in cells)}


def _title(name: str, taken: Sequence[str]) -> str:
    """Return a name that Excel takes for a sheet and that no other sheet has, in capitals or not."""
    plain = _FORBIDDEN.sub(" ", name).strip()[:_LONGEST] or "table"
    title, k = plain, 1
    while title.casefold() in {other.casefold() for other in taken}:
        k += 1
        title = f"{plain[: _LONGEST - len(str(k)) - 1]} {k}"
    return title
