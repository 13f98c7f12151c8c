"""What a problem file may hold: its tables, their keys, and what every value must be."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple, TypeGuard, get_args

from hdmm_bf._types import Effort, Noise

_LARGEST = sys.float_info.max
_NOISES = (*get_args(Noise), "auto")


class Kind(NamedTuple):
    """What a value must be, in words, as a test, and as an example."""

    words: str
    holds: Callable[[object], bool]
    example: str


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST


def _is_edge(value: object) -> bool:
    return _is_number(value) or value in (float("inf"), float("-inf"))


def _is_positive(value: object) -> bool:
    return _is_number(value) and value > 0


def _is_list(value: object, holds: Callable[[object], bool]) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(map(holds, value))


def _is_sizes(value: object) -> bool:
    return _is_text(value) or _is_whole(value, 1) or _is_list(value, lambda size: _is_whole(size, 1))


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def _is_stddev(value: object) -> bool:
    """One for all, or a list or a table of them, where NaN asks for none."""
    many = list(value.values()) if isinstance(value, dict) else value
    return _is_positive(value) or _is_list(many, lambda one: _is_positive(one) or one != one)


_TABLE = Kind("a table", _is_table, "")
_POSITIVE = Kind("a positive number", _is_positive, "0.5")
_SPEC = Kind("text", _is_text, '"all-range:64"')
_LABELS = Kind("a list of texts", lambda v: _is_list(v, _is_text), '["F", "M"]')
SCHEMA: dict[str, dict[str, Kind]] = {
    "domain": {
        "sizes": Kind("sizes of at least 1", _is_sizes, '"32x32" or [32, 32]'),
        "attribute": Kind("a list of tables", lambda v: _is_list(v, _is_table), '[{name = "age", size = 100}]'),
    },
    "policy": {
        "spec": Kind("text", _is_text, '"threshold:64:4"'),
        "file": Kind("text", _is_text, '"graph.csv"'),
        "attribute": Kind("a table of policies by attribute", _is_table, '{age = "line"}'),
    },
    "workload": {
        "spec": _SPEC,
        "file": Kind("text", _is_text, '"W.npy"'),
        "union": Kind("a list of texts", lambda v: _is_list(v, _is_text), '["identity:64", "prefix:64"]'),
        "weights": Kind("a list of positive numbers", lambda v: _is_list(v, _is_positive), "[1, 2.5]"),
    },
    "fit": {
        "noise": Kind("gaussian, laplace, norm or auto", lambda v: v in _NOISES, '"gaussian"'),
        "gap": _POSITIVE._replace(example="1e-3"),
        "family": Kind("text", _is_text, '"p-identity"'),
        "seed": Kind("a whole number of at least 0", lambda v: _is_whole(v, 0), "0"),
        "max_seconds": _POSITIVE._replace(example="60"),
        "max_steps": Kind("a whole number of at least 1", lambda v: _is_whole(v, 1), "100"),
        "workers": Kind("a whole number of at least 1", lambda v: _is_whole(v, 1), "2"),
        "effort": Kind("quick, normal or thorough", lambda v: v in get_args(Effort), '"quick"'),
        "out": Kind("text", _is_text, '"ranges.bf"'),
    },
    "objective": {
        "kind": Kind("total, largest or targets", lambda v: v in ("total", "largest", "targets"), '"largest"'),
        "stddev": Kind("a positive number, a list of them (nan asks for none), or a table", _is_stddev, "5.0"),
        "targets": Kind("text", _is_text, '"targets.csv"'),
        "groups": _LABELS._replace(example='["table", "range"]'),
    },
    "release": {
        "epsilon": _POSITIVE._replace(example="1.0"),
        "delta": _POSITIVE._replace(example="1e-6"),
        "rho": _POSITIVE,
    },
}
ATTRIBUTE = {
    "name": Kind("text", _is_text, '"age"'),
    "size": Kind("a whole number of at least 1", lambda v: _is_whole(v, 1), "100"),
    "labels": _LABELS,
    "first": Kind("a whole number", lambda v: _is_whole(v, -(2**62)), "18"),
    "last": Kind("a whole number", lambda v: _is_whole(v, -(2**62)), "99"),
    "bins": Kind("a list of rising numbers", lambda v: _is_list(v, _is_edge), "[0, 18, 65, 120]"),
    "unit": Kind("text", _is_text, '"years"'),
}
PUBLISH = {
    "table": Kind("names of attributes", lambda v: _is_text(v) or _is_list(v, _is_text), '["age", "region"]'),
    "ranges": Kind("the name of an attribute", _is_text, '"age"'),
    "prefixes": Kind("the name of an attribute", _is_text, '"age"'),
    "total": Kind("true", lambda v: v is True, "true"),
    "sql": Kind("text", _is_text, '"SELECT region, COUNT(*) FROM people GROUP BY region"'),
    "by": Kind("names of attributes", lambda v: _is_text(v) or _is_list(v, _is_text), '["region"]'),
    "groups": Kind("a table of groups", _is_table, '{"province A" = ["d1", "d2"]}'),
    "where": Kind("a table of conditions by attribute", _is_table, '{age = {from = 20, to = 39}, sex = "F"}'),
    "weight": _POSITIVE._replace(example="2"),
    "stddev": _POSITIVE._replace(example="10"),
    "name": Kind("text", _is_text, '"ages by region"'),
}
"""Keys of [[publish]], each of which is one table."""

TABLES = {name: _TABLE._replace(example=f"[{name}]") for name in SCHEMA} | {
    "publish": Kind("a list of tables", lambda v: _is_list(v, _is_table), "[[publish]]")
}

INSTEAD = {
    "domain": "An attribute is written as [[domain.attribute]] with its name and size, labels, bins, or ends.",
    "policy": 'Policies of attributes are written as attribute = {age = "threshold 2", sex = "public"}.',
}
"""What those who write attributes as keys of a table are told."""
