"""What stands beside a CSV file: its columns and what is promised, as metadata of the W3C's CSV on the Web.

The CSV itself then holds nothing but the table, and every reader can read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SUFFIX = "-metadata.json"
"""After the whole name of the CSV file, as the standard has it: `answers.csv-metadata.json`."""

_WORDS = {
    "table": "name of the table",
    "query": "what is counted",
    "answer": "unbiased answer, with noise",
    "estimate": "unbiased estimate, with noise",
    "stddev": "standard deviation of the noise in it",
    "low": "lower end of the interval",
    "high": "upper end of the interval",
    "processed": "the same after post-processing, which has a bias",
    "processed_low": "lower end of the interval around the processed number, by simulation",
    "processed_high": "upper end of the interval around the processed number, by simulation",
}


def metadata_file(target: Path) -> Path | None:
    """Return the file of metadata beside a CSV file; other formats hold their own."""
    return target.with_name(target.name + SUFFIX) if target.suffix.lower() == ".csv" else None


def metadata(
    name: str, columns: Mapping[str, Sequence[Any]], notes: Mapping[str, str], words: Mapping[str, str] | None = None
) -> bytes:
    """Describe the columns of a CSV file, those of attributes by `words`, and under `notes` what a reader must know."""
    said = {**(words or {}), **_WORDS}
    record = {
        "@context": ["http://www.w3.org/ns/csvw", {"@language": "en"}],
        "url": name,
        "dc:title": notes.get("queries", notes.get("workload", "")),
        "dialect": {"header": True, "encoding": "utf-8"},
        "tableSchema": {"columns": [_column(key, cells, said.get(key)) for key, cells in columns.items()]},
        "notes": [dict(notes)],
    }
    return (json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _column(name: str, cells: Sequence[Any], words: str | None) -> dict[str, Any]:
    known = [cell for cell in cells if cell is not None]
    kinds = {bool: "boolean", int: "integer", float: "double"}
    kind = "string" if not known else kinds.get(type(known[0]), "string")
    if kind == "integer" and any(isinstance(cell, float) for cell in known):
        kind = "double"
    said = {} if words is None else {"dc:description": words}
    return {"titles": name, "datatype": kind, "required": len(known) == len(cells), **said}
