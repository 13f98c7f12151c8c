"""The language of tables: what is to be published, in the words of the attributes.

`table("age", "region") + ranges("age", by="region") + total()` is a list of tables; `on(domain)` makes the workload.
Tables know no sizes, so the same list can be asked of every domain that has the attributes. A workload made of tables
is a stack of Kronecker products and is never written out; each query knows its table and its values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, final

from hdmm_bf._checks import fail, listed
from hdmm_bf._types import Number
from hdmm_bf.domain import Domain, DomainLike, as_domain
from hdmm_bf.workload.conditions import Condition, Value, chosen_values
from hdmm_bf.workload.layout import Axis, TableBlock, in_a_row
from hdmm_bf.workload.queries import Workload, from_tables

AskedKind: TypeAlias = Literal["values", "prefixes", "ranges"]
Member: TypeAlias = Value | tuple[Value, Value]
Members: TypeAlias = tuple[Value, Value] | Sequence[Member]
"""Values and intervals in a list, or one interval, (first, last)."""
Groups: TypeAlias = Mapping[str, Members] | Mapping[str, Mapping[str, Members]]

_NAME_ADVICE = 'Write it like table("age", "region").'
_GROUP_ADVICE = 'Write it like groups={"A": ["d1", "d2"], "young": (20, 29)}, or groups={"region": {...}} by attribute.'
_INTERVAL_ADVICE = "Write an interval as (20, 29), or in a problem file as {from = 20, to = 29}."
_POSITIVE = "Give a positive number, or leave it out."


@final
@dataclass(frozen=True)
class Asked:
    """One table to be published, before the sizes of its attributes are known.

    Attributes:
        axes: attributes with what is asked of each; attributes left out are summed over.
        groups: by attribute, groups of values that take the place of its values.
        where: by attribute, a condition on the records that are counted.
        name: what the table is called.
        weight: how much the search minds its errors.
        stddev: the standard deviation that its answers should have at most, or None.
    """

    axes: tuple[tuple[str, AskedKind], ...]
    groups: tuple[tuple[str, tuple[tuple[str, tuple[Member, ...]], ...]], ...] = ()
    where: tuple[tuple[str, Condition], ...] = ()
    name: str = ""
    weight: float = 1.0
    stddev: float | None = None


@final
@dataclass(frozen=True)
class Tables:
    """Tables to be published; `+` puts two lists together, `on(domain)` makes the workload."""

    asked: tuple[Asked, ...]

    def __add__(self, other: Tables) -> Tables:
        return Tables(self.asked + other.asked) if isinstance(other, Tables) else NotImplemented

    def on(self, domain: DomainLike) -> Workload:
        """Return the workload of these tables on a domain; nothing is written out.

        Example:
            >>> import hdmm_bf as bf
            >>> people = bf.domain.of(age=20, region=12, sex=["F", "M"])
            >>> workload = (bf.table("age", "region") + bf.ranges("age", by="region")).on(people)
            >>> workload.num_queries, workload.query(300)
            (2760, {'table': 'ranges of age by region', 'age': (0, 5), 'region': 0})
        """
        cells = as_domain(domain)
        names = _distinct([one.name for one in self.asked])
        return from_tables([_block(one, name, cells) for one, name in zip(self.asked, names, strict=True)], cells)

    def __str__(self) -> str:
        return " + ".join(one.name for one in self.asked)


def _distinct(names: Sequence[str]) -> list[str]:
    """Number the names that stand several times."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


def _block(one: Asked, name: str, domain: Domain) -> TableBlock:
    kinds = {domain.attribute(attribute): kind for attribute, kind in one.axes}
    groups = {domain.attribute(attribute): members for attribute, members in one.groups}
    where = {domain.attribute(attribute): condition for attribute, condition in one.where}
    axes = (_axis(domain, i, kinds.get(i), groups.get(i), where.get(i)) for i in range(domain.num_attributes))
    return TableBlock(name, tuple(axes), one.weight, one.stddev)


def _axis(
    domain: Domain,
    i: int,
    kind: AskedKind | None,
    groups: tuple[tuple[str, tuple[Member, ...]], ...] | None,
    condition: Condition | None,
) -> Axis:
    size = domain.sizes[i]
    if groups is not None:
        return Axis("groups", size, groups=tuple((name, _values(domain, i, members)) for name, members in groups))
    if condition is None:
        return Axis(kind or "all", size)
    chosen = chosen_values("where", domain, i, condition)
    if kind == "values" or in_a_row(chosen):
        plain: Literal["values", "all"] = "values" if len(chosen) == 1 else "all"
        return Axis(kind or plain, size, chosen if len(chosen) < size else None)
    if kind is None:
        named = " or ".join(domain.value_name(i, v) for v in chosen)
        return Axis("groups", size, groups=((named, chosen),))
    problem = f"{kind} need values that follow one another"
    raise fail("where", f"{domain.names[i]}={list(condition)!r}", problem, "Give an interval, (first, last).")  # type: ignore[arg-type]


def _values(domain: Domain, i: int, members: Sequence[Member]) -> tuple[int, ...]:
    """Return the values of a group, in rising order."""
    return tuple(sorted({value for member in members for value in chosen_values("groups", domain, i, member)}))


def table(
    *attributes: str,
    groups: Groups | None = None,
    where: Mapping[str, Condition] | None = None,
    weight: Number = 1,
    stddev: Number | None = None,
    name: str | None = None,
) -> Tables:
    """Ask for the count of every combination of values of some attributes.

    Args:
        attributes: their names; all others are summed over.
        groups: named groups that take the place of an attribute's values, by attribute where the table has more than
            one: lists of values and intervals, or one interval, such as {"young": (20, 29), "old": [30, (35, 39)]};
            groups may overlap and may leave values out.
        where: by attribute, which records are counted: a value, a list of values, or (first, last). Of an attribute
            with intervals, (first, last) are edges.
        weight: how much the search minds errors of this table; no answer changes by it.
        stddev: the standard deviation that the answers should have at most.
        name: what the table is called; by default after its attributes.

    Example:
        >>> import hdmm_bf as bf
        >>> print(bf.table("age", "region") + bf.total())
        age x region + total
    """
    kinds = [(attribute, "values") for attribute in _names("table", attributes)]
    return _asked("table", kinds, groups, where, weight, stddev, name or " x ".join(attributes))


def ranges(
    attribute: str,
    *,
    by: str | Sequence[str] = (),
    groups: Groups | None = None,
    where: Mapping[str, Condition] | None = None,
    weight: Number = 1,
    stddev: Number | None = None,
    name: str | None = None,
) -> Tables:
    """Ask for the count of every range of values of an attribute, for every combination of values of `by`.

    Args:
        attribute: its name; ranges follow the order in which its values are declared.
        by: names of further attributes.
        groups: as for `table`, of the attributes in `by`.
        where, weight, stddev, name: as for `table`.
    """
    return _in_order("ranges", attribute, by, groups, where, weight, stddev, name)


def prefixes(
    attribute: str,
    *,
    by: str | Sequence[str] = (),
    groups: Groups | None = None,
    where: Mapping[str, Condition] | None = None,
    weight: Number = 1,
    stddev: Number | None = None,
    name: str | None = None,
) -> Tables:
    """Ask for the count of every range that starts at the first value of an attribute; arguments as for `ranges`."""
    return _in_order("prefixes", attribute, by, groups, where, weight, stddev, name)


def total(
    *,
    where: Mapping[str, Condition] | None = None,
    weight: Number = 1,
    stddev: Number | None = None,
    name: str | None = None,
) -> Tables:
    """Ask for the number of records, of all or of those `where` a condition holds; arguments as for `table`."""
    return _asked("total", [], None, where, weight, stddev, name or "total")


def _in_order(
    kind: Literal["ranges", "prefixes"],
    attribute: str,
    by: str | Sequence[str],
    groups: Groups | None,
    where: Mapping[str, Condition] | None,
    weight: Number,
    stddev: Number | None,
    name: str | None,
) -> Tables:
    others = _names(kind, (by,) if isinstance(by, str) else by, least=0)
    axes = [*((kind_of, kind) for kind_of in _names(kind, (attribute,))), *((other, "values") for other in others)]
    known = f"{kind} of {attribute}" + (f" by {' x '.join(others)}" if others else "")
    return _asked(kind, axes, groups, where, weight, stddev, name or known)


def _names(where: str, attributes: Any, *, least: int = 1) -> tuple[str, ...]:
    names = listed(where, "attributes", attributes, advice=_NAME_ADVICE)
    if len(names) < least or not all(isinstance(name, str) for name in names):
        raise fail(where, f"attributes={names!r}", "must be names of attributes", _NAME_ADVICE)
    return names


def _asked(
    where: str,
    axes: Sequence[tuple[str, str]],
    groups: Groups | None,
    conditions: Mapping[str, Condition] | None,
    weight: Number,
    stddev: Number | None,
    name: str,
) -> Tables:
    attributes = [attribute for attribute, _ in axes]
    if len(set(attributes)) < len(attributes):
        raise fail(where, f"attributes={attributes}", "an attribute is named twice", "Name each once.")
    for said, number in (("weight", weight), ("stddev", stddev)):
        if number is not None and not _is_positive(number):
            raise fail(where, f"{said}={number!r}", "must be a positive number", _POSITIVE)
    if conditions is not None and not isinstance(conditions, Mapping):
        raise fail(where, f"where={conditions!r}", "must be a dictionary", 'Write it like where={"age": (20, 39)}.')
    made = Asked(tuple(axes), _grouped(where, attributes, groups), (), str(name), float(weight))  # type: ignore[arg-type]
    held = tuple((key, tuple(v) if isinstance(v, tuple) else v) for key, v in (conditions or {}).items())
    both = {attribute for attribute, _ in made.groups} & {attribute for attribute, _ in held}
    if both:
        raise fail(where, f"where and groups of {min(both)!r}", "an attribute has one of them", "Leave out groups.")
    return Tables((replace(made, where=held, stddev=None if stddev is None else float(stddev)),))


def _is_positive(number: object) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and 0 < number < math.inf


def _grouped(where: str, attributes: Sequence[str], groups: Groups | None) -> Any:
    """Return groups by attribute; a table of one attribute need not say which."""
    if groups is None:
        return ()
    if not isinstance(groups, Mapping) or not groups:
        raise fail(where, f"groups={groups!r}", "must be a dictionary with something in it", _GROUP_ADVICE)
    by_attribute = all(isinstance(members, Mapping) for members in groups.values())
    if not by_attribute and len(attributes) != 1:
        seen = f"groups {', '.join(map(repr, groups))}"
        raise fail(where, seen, f"of which of the {len(attributes)} attributes is not said", _GROUP_ADVICE)
    given: Mapping[str, Any] = groups if by_attribute else {attributes[0]: groups}
    for attribute in given:
        if attribute not in attributes:
            raise fail(where, f"groups of {attribute!r}", "the table has no such attribute", _GROUP_ADVICE)
    return tuple((attribute, _members(where, attribute, named)) for attribute, named in given.items())


def _members(where: str, attribute: str, named: Mapping[str, Any]) -> tuple[tuple[str, tuple[Member, ...]], ...]:
    """Return the members of every group; a tuple is an interval here as it is in `where`."""
    found = []
    for name, members in named.items():
        seen = f"group {name!r} of {attribute!r}"
        values = (members,) if isinstance(members, tuple) else listed(where, seen, members, advice=_GROUP_ADVICE)
        if not values:
            raise fail(where, seen, "has no member", "List at least one value.")
        if any(isinstance(value, list) for value in values):
            raise fail(where, seen, "has a list for a member", _INTERVAL_ADVICE)
        found.append((str(name), values))
    return tuple(found)
