"""Releases as files: a header that says what the numbers are, then one line a query or a cell."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hdmm_bf import __version__
from hdmm_bf.exporting.files import check_target, parquet_bytes, write_file
from hdmm_bf.mechanisms.postprocessing import Processed
from hdmm_bf.mechanisms.release import Release

SUFFIXES = (".csv", ".parquet", ".json")


def write_answers(out: Release, path: str | Path, *, level: float, processed: Processed | None = None) -> Path:
    """Write the answers with standard deviations and intervals as CSV, Parquet or JSON, by the file's suffix."""
    ends = out.interval(level)
    columns: dict[str, Any] = {
        "query": out.problem.workload.names(),
        "answer": out.answers,
        "stddev": out.stddev,
        "low": ends.low,
        "high": ends.high,
    }
    if processed is not None:
        columns["processed"] = processed.answers
    notes = {**_notes(out, processed), "interval": f"{100 * level:g} %, {out.interval_method()}"}
    return _write(path, columns, notes, {**out.summary(), "level": level})


def write_estimate(out: Release, path: str | Path, *, processed: Processed | None = None) -> Path:
    """Write the estimated histogram, one line a cell, as CSV, Parquet or JSON, by the file's suffix."""
    domain = out.problem.policy.domain
    deviations = out.plan.stddev * np.sqrt(np.diag(out.recovery.covariance))
    columns: dict[str, Any] = {
        "cell": [domain.describe(i) for i in range(domain.num_cells)],
        "estimate": out.estimate,
        "stddev": deviations,
    }
    if processed is not None:
        columns["processed"] = processed.estimate
    return _write(path, columns, _notes(out, processed), out.summary())


def _notes(out: Release, processed: Processed | None) -> dict[str, str]:
    """What a reader must know."""
    facts = out.summary()
    notes = {
        "made by": f"hdmm_bf {__version__}",
        "workload": facts["workload"],
        "policy": facts["policy"],
        "hidden": facts["hides"],
        "public": "; ".join(facts["discloses"]) or "nothing",
        "privacy": out.plan.promise,
        "noise": f"discrete {facts['noise']}, scale {facts['noise_scale']:.6g} on a grid of 2^-{facts['grid_bits']}",
        "rmse": f"{facts['rmse']:.6g} expected",
    }
    return notes if processed is None else {**notes, "post-processing": processed.label}


def _write(path: str | Path, columns: Mapping[str, Any], notes: Mapping[str, str], facts: Mapping[str, Any]) -> Path:
    """Write columns under notes for people; JSON also holds the same facts as plain values."""
    target = check_target(path, SUFFIXES)
    suffix = target.suffix.lower()
    if suffix == ".csv":
        return write_file(target, _csv(columns, notes))
    if suffix == ".parquet":
        return write_file(target, parquet_bytes(columns, notes))
    plain = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in columns.items()}
    return write_file(target, (json.dumps({"about": notes, **facts, **plain}) + "\n").encode())


def _csv(columns: Mapping[str, Any], notes: Mapping[str, str]) -> bytes:
    buffer = io.StringIO()
    buffer.writelines(f"# {key}: {value}\n" for key, value in notes.items())
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(_cells(column) for column in columns.values()), strict=True))
    return buffer.getvalue().encode()


def _cells(column: Any) -> list[str]:
    return [repr(value) for value in column.tolist()] if isinstance(column, np.ndarray) else list(column)
