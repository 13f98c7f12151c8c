"""Tables as plain records, for files: a workload made of tables is kept by what it asks, not by its matrix.

A record comes from a stranger: every type and range is checked, and the workload is made from the record alone, so
that what a query is called and what it asks cannot disagree.
"""

from __future__ import annotations

import math
from typing import Any, get_args

from hdmm_bf._checks import fail
from hdmm_bf.domain import Domain
from hdmm_bf.workload.layout import Axis, AxisKind, TableBlock, in_a_row
from hdmm_bf.workload.queries import Workload, from_tables

_ADVICE = "Write the bundle again."
_MOST_TABLES = 2**16
_KEYS = {"kind", "chosen", "groups"}


def table_records(workload: Workload) -> list[dict[str, Any]]:
    """Return the tables of a workload that is made of them, as plain values."""
    assert workload.layout is not None
    blocks = [block for block in workload.layout.blocks if isinstance(block, TableBlock)]
    assert len(blocks) == len(workload.layout.blocks)
    return [
        {
            "name": block.name,
            "axes": [_axis_record(axis) for axis in block.axes],
            "weight": block.weight,
            "stddev": block.stddev,
        }
        for block in blocks
    ]


def _axis_record(axis: Axis) -> dict[str, Any]:
    record: dict[str, Any] = {"kind": axis.kind}
    if axis.chosen is not None:
        record["chosen"] = list(axis.chosen)
    if axis.groups:
        record["groups"] = [[name, list(members)] for name, members in axis.groups]
    return record


def from_records(records: Any, domain: Domain) -> Workload:
    """Return the workload of tables that a file holds, or refuse the record."""
    if not isinstance(records, list) or not 0 < len(records) <= _MOST_TABLES:
        raise fail("tables", "tables", f"must be a list of 1 to {_MOST_TABLES} tables", _ADVICE)
    return from_tables([_block(record, domain) for record in records], domain)


def _block(record: Any, domain: Domain) -> TableBlock:
    if not isinstance(record, dict) or set(record) != {"name", "axes", "weight", "stddev"}:
        raise fail("tables", "a table", "must hold name, axes, weight and stddev", _ADVICE)
    name, axes, weight, stddev = (record[key] for key in ("name", "axes", "weight", "stddev"))
    if not isinstance(name, str) or not name.isprintable():
        raise fail("tables", "name", "must be printable text", _ADVICE)
    if not isinstance(axes, list) or len(axes) != domain.num_attributes:
        raise fail("tables", f"axes of {name!r}", "must be one for each attribute", _ADVICE)
    if not _is_positive(weight) or not (stddev is None or _is_positive(stddev)):
        raise fail("tables", f"weight={weight!r}, stddev={stddev!r}", "must be positive numbers", _ADVICE)
    made = (_axis(axis, size) for axis, size in zip(axes, domain.sizes, strict=True))
    return TableBlock(name, tuple(made), float(weight), None if stddev is None else float(stddev))


def _axis(record: Any, size: int) -> Axis:
    if not isinstance(record, dict) or not set(record) <= _KEYS or record.get("kind") not in get_args(AxisKind):
        raise fail("tables", "an axis", f"must hold a kind of {', '.join(get_args(AxisKind))}", _ADVICE)
    kind, chosen, groups = record["kind"], record.get("chosen"), record.get("groups")
    if (groups is not None) != (kind == "groups") or (groups is not None and chosen is not None):
        raise fail("tables", f"axis of {kind}", "groups, and nothing else, have groups", _ADVICE)
    if chosen is not None:
        _check_values(chosen, size)
        if kind != "values" and not in_a_row(chosen):
            raise fail("tables", f"axis of {kind}", "must speak of values that follow one another", _ADVICE)
    return Axis(kind, size, None if chosen is None else tuple(chosen), _groups(groups, size))


def _groups(groups: Any, size: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
    if groups is None:
        return ()
    pairs = isinstance(groups, list) and len(groups) > 0 and all(isinstance(g, list) and len(g) == 2 for g in groups)
    if not pairs or not all(isinstance(name, str) and name.isprintable() for name, _ in groups):
        raise fail("tables", "groups", "must be pairs of a name and its members", _ADVICE)
    for _, members in groups:
        _check_values(members, size)
    return tuple((name, tuple(members)) for name, members in groups)


def _check_values(values: Any, size: int) -> None:
    whole = isinstance(values, list) and all(isinstance(v, int) and not isinstance(v, bool) for v in values)
    if not whole or not values or not all(0 <= v < size for v in values) or sorted(set(values)) != values:
        raise fail("tables", "values", f"must be rising numbers from 0 to {size - 1}", _ADVICE)


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
