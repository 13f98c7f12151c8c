"""Releases as files: one line a query or a cell, and what the numbers are.

CSV holds the table alone, with the promise in a file beside it (`csvw`); Parquet and JSON hold both, Excel has a sheet
for it. On a domain whose attributes have names, lines say what a query asks by attribute; else by its name alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np

from hdmm_bf import __version__
from hdmm_bf._checks import fail
from hdmm_bf._display import plain, spreadsheet_cell
from hdmm_bf._types import AnyArray, JsonObject
from hdmm_bf.release.plan import Plan
from hdmm_bf.release.postprocess import Processed, processed_answers
from hdmm_bf.release.release import Release
from hdmm_bf.release.tables import numbers
from hdmm_bf.report.export.csvw import metadata, metadata_file
from hdmm_bf.report.export.excel import workbook
from hdmm_bf.report.export.files import check_target, parquet_bytes, write_file
from hdmm_bf.workload import Workload, identity
from hdmm_bf.workload.columns import NUMBERS, column_words

SUFFIXES = (".csv", ".parquet", ".json", ".xlsx")

_NEEDS_QUOTES = re.compile(r"""[",#]|^\s|\s$""")  # many readers take what follows '#' for a comment

Column: TypeAlias = list[str] | list[float] | list[int] | list[str | float | int | None]


def write_answers(
    out: Release,
    path: str | Path,
    *,
    level: float,
    processed: Processed | None = None,
    draws: int | None = None,
    queries: Workload | None = None,
    simultaneous: bool = False,
) -> Path:
    """Write the answers with standard deviations and intervals as CSV, Parquet, JSON or Excel, by the file's suffix.

    `queries` asks another workload than the fitted one, on the same domain; intervals that are `simultaneous` hold all
    at once. `draws` of noise give the processed numbers intervals of their own (`Processed.interval`). Where attributes
    have names, there is one column an attribute, or two where intervals of it are asked for, and `table` and
    `estimate`; else `query` and `answer`. A CSV file holds nothing else; what is promised is in
    `NAME.csv-metadata.json` beside it.
    """
    asked = out.problem.workload if queries is None else queries
    found, method = numbers(out, level, queries, simultaneous)
    said = asked.columns() if asked.domain.has_own_names and asked.layout is not None else None
    if said is None:
        columns: JsonObject = {"query": asked.names(), "answer": found.pop("estimate"), **found}
    else:
        columns = {**said, **found}
    if processed is not None:
        columns["processed"] = processed_answers(out, asked, processed.estimate)
    notes = {**_notes(out, processed), "queries": asked.title, "interval": f"{100 * level:g} %, {method}"}
    if processed is not None and draws is not None:
        columns["processed_low"], columns["processed_high"] = processed.interval(level, queries=asked, draws=draws)
        notes["processed interval"] = f"{100 * level:g} % each, by simulation of noise and steps, {draws} draws"
    facts = {**out.summary(), "queries": asked.title, "level": level, "simultaneous": simultaneous}
    if said is not None and Path(path).suffix.lower() == ".json":  # its columns stand among the facts: no attribute may
        columns = {"query": asked.names(), **{k: v for k, v in columns.items() if k in NUMBERS}}
        columns["answer"] = columns.pop("estimate")
        facts["columns"] = {key: [_plain(cell) for cell in cells] for key, cells in said.items()}
    words = {} if said is None else column_words(asked)
    if words:
        notes["columns"] = ". ".join(f"{name}: {meaning}" for name, meaning in words.items())
    return _write(path, columns, notes, facts, words)


def write_estimate(out: Release, path: str | Path, *, processed: Processed | None = None) -> Path:
    """Write the estimated histogram, one line a cell, as CSV, Parquet, JSON or Excel, by the file's suffix."""
    domain = out.problem.policy.domain
    out.recovery.check_estimate()
    deviations = np.sqrt(out.recovery.variances(identity(domain), out.plan))
    columns: dict[str, AnyArray | list[str]] = {
        "cell": [domain.describe(i) for i in range(domain.num_cells)],
        "estimate": out.estimate,
        "stddev": deviations,
    }
    if processed is not None:
        columns["processed"] = processed.estimate
    return _write(path, columns, _notes(out, processed), out.summary())


def _noise(settled: Plan) -> str:
    grid = "" if settled.noise == "norm" else f" on a grid of 2^-{settled.bits}"
    return f"{settled.law}, scale {settled.scale:.6g}{grid}"


def _notes(out: Release, processed: Processed | None) -> dict[str, str]:
    """What a reader must know."""
    facts = out.summary()
    notes = {
        "made by": f"hdmm_bf {__version__}",
        "workload": facts["workload"],
        "policy": facts["policy"],
        "hidden": facts["hides"],
        "people": facts["people"],
        "public": "; ".join(facts["discloses"]) or "nothing",
        "privacy": out.plan.promise,
        "noise": _noise(out.plan),
        "rmse": f"{facts['rmse']:.6g} expected",
    }
    return notes if processed is None else {**notes, "post-processing": processed.label}


def _write(
    path: str | Path,
    columns: Mapping[str, AnyArray | Column],
    notes: Mapping[str, str],
    facts: Mapping[str, object],
    words: Mapping[str, str] | None = None,
) -> Path:
    """Write columns, and notes for people; JSON also holds the same facts as plain values, CSV what columns mean.

    Guarantees:
        CSV, Parquet and JSON bring back the same numbers, bit by bit, and Excel 15 digits; a number that is not finite
        is never written. Parquet and JSON bring back the same names. In CSV and Excel, which people open as they are,
        control characters of names are escaped, and a name that a spreadsheet would take for a formula has an
        apostrophe before it.
    """
    target = check_target(path, SUFFIXES)
    suffix = target.suffix.lower()
    plain_columns = {key: _column(target, key, value) for key, value in columns.items()}
    notes = {key: _encodable(plain(value)) for key, value in notes.items()}
    if suffix == ".csv":
        beside = metadata_file(target)
        assert beside is not None
        written = write_file(target, _csv(plain_columns))
        write_file(beside, metadata(target.name, plain_columns, notes, words))
        return written
    if suffix == ".xlsx":
        return write_file(target, workbook(plain_columns, notes))
    if suffix == ".parquet":
        return write_file(target, parquet_bytes(plain_columns, notes))
    return write_file(target, (json.dumps({"about": notes, **facts, **plain_columns}, allow_nan=False) + "\n").encode())


def _column(target: Path, key: str, values: AnyArray | Column) -> Column:
    """Return a column of numbers, all finite, or of names as plain values."""
    if not isinstance(values, np.ndarray):
        return [_plain(value) for value in values]
    if not np.all(np.isfinite(values)):
        advice = "Rescale the workload so that its answers fit in 64-bit floating point."
        raise fail("export", repr(str(target)), f"{key} holds a number that is not finite", advice)
    return list(values.tolist())


def _plain(value: object) -> str | float | int | None:
    return _encodable(value) if isinstance(value, str) else value  # type: ignore[return-value]


def _encodable(text: str) -> str:
    """Escape lone surrogates, which no file can hold."""
    return text.encode("utf-8", "backslashreplace").decode()


def _csv(columns: Mapping[str, Column]) -> bytes:
    lines = [",".join(map(_field, row)) for row in ([*columns], *zip(*columns.values(), strict=True))]
    return ("\n".join(lines) + "\n").encode()


def _field(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return repr(value)
    name = spreadsheet_cell(value)
    return '"' + name.replace('"', '""') + '"' if _NEEDS_QUOTES.search(name) else name
