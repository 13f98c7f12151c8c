"""`[[publish]]` of a problem file: one table an entry, in the words of the language of tables."""

from __future__ import annotations

from typing import Any

from hdmm_bf import workload as workloads
from hdmm_bf._checks import fail
from hdmm_bf.workload import Tables
from hdmm_bf.workload.conditions import Condition

_KINDS = ("table", "ranges", "prefixes", "total", "sql")
_TAKEN = {
    "table": {"groups", "where", "weight", "stddev", "name"},
    "ranges": {"by", "groups", "where", "weight", "stddev", "name"},
    "prefixes": {"by", "groups", "where", "weight", "stddev", "name"},
    "total": {"where", "weight", "stddev", "name"},
    "sql": {"weight", "stddev", "name"},
}


def tables(entry: dict[str, Any]) -> Tables:
    """Return the table that an entry asks for."""
    given = [kind for kind in _KINDS if kind in entry]
    if len(given) != 1:
        problem = f"[[publish]] needs exactly one of {', '.join(_KINDS)}"
        raise fail("publish", " and ".join(given) or "no kind of table", problem, "Write one [[publish]] a table.")
    kind = given[0]
    options = {key: value for key, value in entry.items() if key != kind}
    surplus = sorted(set(options) - _TAKEN[kind])
    if surplus:
        advice = f"It takes {', '.join(sorted(_TAKEN[kind]))}."
        raise fail("publish", f"{surplus[0]} beside {kind}", "do not go together", advice)
    if "where" in options:
        options["where"] = {name: _condition(name, value) for name, value in options["where"].items()}
    if "groups" in options:
        options["groups"] = _with_intervals(options["groups"])
    make: Any = getattr(workloads, kind)
    if kind == "total":
        return make(**options)  # type: ignore[no-any-return]
    value = entry[kind]
    return make(*([value] if isinstance(value, str) else value), **options)  # type: ignore[no-any-return]


def _condition(name: str, value: Any) -> Condition:
    """Return a value, a list of values, or the interval that {from, to} says."""
    if not isinstance(value, dict):
        return value  # type: ignore[no-any-return]
    if set(value) != {"from", "to"}:
        raise fail("publish", f"where.{name} = {value!r}", "an interval has from and to", "Write {from = 20, to = 39}.")
    return value["from"], value["to"]


def _with_intervals(groups: Any) -> Any:
    """Return groups with the interval that {from, to} says wherever it stands."""
    if isinstance(groups, list):
        return [_with_intervals(member) for member in groups]
    if not isinstance(groups, dict):
        return groups
    if set(groups) == {"from", "to"} and not any(isinstance(end, list | dict) for end in groups.values()):
        return groups["from"], groups["to"]
    return {name: _with_intervals(members) for name, members in groups.items()}
