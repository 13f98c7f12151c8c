"""Tables from SQL: `SELECT region, COUNT(*) FROM people WHERE age BETWEEN 20 AND 39 GROUP BY region`.

The statement is read, never run: it says which counts are to be published. What it can say is what a table can be:
counts, grouped by attributes, of the records that meet a condition on single attributes. Parsing is sqlglot's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hdmm_bf._checks import InputError, fail
from hdmm_bf._types import Number
from hdmm_bf.workload.conditions import Comparison, Condition, Value
from hdmm_bf.workload.language import Tables, table, total

_FORM = "Write it like SELECT region, COUNT(*) FROM people WHERE age BETWEEN 20 AND 39 GROUP BY region."
_PARTS = {"expressions", "from_", "from", "where", "group", "order", "kind", "hint"}
"""What a count may consist of; `order` says how rows are sorted, which changes no count."""


def sql(text: str, *, weight: Number = 1, stddev: Number | None = None, name: str | None = None) -> Tables:
    """Return the tables of counts that SQL asks for; several statements, or UNION ALL, are several tables.

    Args:
        text: the statements. COUNT(*) is the only number; conditions compare single attributes with constants and are
            joined by AND. A column that is selected and not grouped by must have a condition, which is what it shows.
        weight, stddev, name: as for `table`.

    Example:
        >>> import hdmm_bf as bf
        >>> people = bf.domain.of(age=range(18, 66), region=["north", "south"])
        >>> asked = bf.sql("SELECT region, COUNT(*) FROM people WHERE age BETWEEN 20 AND 39 GROUP BY region")
        >>> asked.on(people).query(1)
        {'table': 'region', 'age': (20, 39), 'region': 'south'}
    """
    made = [_table(select) for select in _selects(text)]
    first = Tables(tuple(one for tables in made for one in tables.asked))
    given = table("any", weight=weight, stddev=stddev).asked[0]  # refuses what is no weight and no deviation
    own = (replace(one, weight=given.weight, stddev=given.stddev, name=name or one.name) for one in first.asked)
    return Tables(tuple(own))


def _selects(text: str) -> list[Any]:
    try:
        import sqlglot
        from sqlglot import exp
    except ImportError:
        advice = "Install it with: pip install 'hdmm-bf[sql]'."
        raise fail("sql", "SQL", "needs the package sqlglot", advice) from None
    try:
        statements = [statement for statement in sqlglot.parse(text) if statement is not None]
    except sqlglot.errors.SqlglotError:
        raise fail("sql", repr(text), "is not readable as SQL", _FORM) from None
    found = [select for statement in statements for select in _joined(statement, exp)]
    if not found:
        raise fail("sql", repr(text), "holds no statement", _FORM)
    return found


def _joined(statement: Any, exp: Any) -> Iterable[Any]:
    """Return the SELECTs of a UNION ALL, or of a statement alone."""
    if isinstance(statement, exp.Union):
        if statement.args.get("distinct"):
            raise _not_a_count(statement, "UNION removes equal rows, which is no count", "Write UNION ALL.")
        yield from _joined(statement.left, exp)
        yield from _joined(statement.right, exp)
    elif isinstance(statement, exp.Select):
        yield statement
    else:
        raise _not_a_count(statement, "is no SELECT")


def _not_a_count(part: Any, problem: str, advice: str = _FORM) -> InputError:
    return fail("sql", part.sql(), problem, advice)


def _table(select: Any) -> Tables:
    from sqlglot import exp

    for part, value in select.args.items():
        if value and part not in _PARTS:
            word = part.rstrip("_").upper()
            raise _not_a_count(select, f"{word} is more than a count", f"Leave {word} out.")
    source = select.args.get("from_") or select.args.get("from")
    if source is None or not isinstance(source.this, exp.Table):
        raise _not_a_count(select, "counts the records of one table, by its name")
    grouped = _grouped(select, exp)
    conditions = _conditions(select.args.get("where"), exp)
    _check_shown(select, grouped, conditions, exp)
    return table(*grouped, where=conditions) if grouped else total(where=conditions)


def _grouped(select: Any, exp: Any) -> list[str]:
    group = select.args.get("group")
    if group is None:
        return []
    if any(value for key, value in group.args.items() if key != "expressions"):
        raise _not_a_count(group, "groups by more than columns", "Group by attributes of the domain.")
    wrong = next((e for e in group.expressions if not isinstance(e, exp.Column)), None)
    if wrong is not None:
        raise _not_a_count(wrong, "is no column to group by", "Group by attributes of the domain.")
    return [column.name for column in group.expressions]


def _check_shown(select: Any, grouped: list[str], conditions: dict[str, Condition], exp: Any) -> None:
    """Refuse what is selected beside one COUNT(*), grouped columns, and columns that a condition holds."""
    shown = [e.this if isinstance(e, exp.Alias) else e for e in select.expressions]
    other = next((e for e in shown if not isinstance(e, exp.Count | exp.Column)), None)
    if other is not None:
        raise _not_a_count(other, "is not a count", "Only COUNT(*) and columns can be selected.")
    counts = [e for e in shown if isinstance(e, exp.Count)]
    if len(counts) != 1:
        raise _not_a_count(select, f"has {len(counts)} counts, and one is needed", _FORM)
    if not isinstance(counts[0].this, exp.Star):
        advice = "Write COUNT(*), with what must hold of the records in WHERE."
        raise _not_a_count(counts[0], "does not count records", advice)
    for e in shown:
        if isinstance(e, exp.Column) and e.name not in grouped and e.name not in conditions:
            raise _not_a_count(e, "is selected and not grouped by", f"Add it to GROUP BY: ..., {e.name}.")


def _conditions(where: Any, exp: Any) -> dict[str, Condition]:
    found: dict[str, Condition] = {}
    for part in [] if where is None else where.this.flatten() if isinstance(where.this, exp.And) else [where.this]:
        name, condition = _condition(part.unnest(), exp)
        found[name] = condition if name not in found else _both(part, found[name], condition)
    return found


def _condition(part: Any, exp: Any) -> tuple[str, Condition]:
    """Return the column that a comparison is about, and what it says."""
    if isinstance(part, exp.Between):
        return _column(part.this, part, exp), Comparison(
            _number(part.args["low"], exp), _number(part.args["high"], exp)
        )
    if isinstance(part, exp.In) and not part.args.get("query"):
        return _column(part.this, part, exp), [_constant(value, exp) for value in part.expressions]
    if isinstance(part, exp.EQ | exp.GTE | exp.GT | exp.LTE | exp.LT):
        left, right, kind = part.this, part.expression, type(part)
        if isinstance(right, exp.Column):  # 20 <= age
            left, right = right, left
            kind = {exp.GTE: exp.LTE, exp.GT: exp.LT, exp.LTE: exp.GTE, exp.LT: exp.GT}.get(kind, kind)
        name = _column(left, part, exp)
        if kind is exp.EQ:
            return name, _constant(right, exp)
        if kind in (exp.GTE, exp.GT):
            return name, Comparison(low=_number(right, exp), above=kind is exp.GT)
        return name, Comparison(high=_number(right, exp), below=kind is exp.LT)
    advice = "Join comparisons of single columns with constants by AND: =, IN, BETWEEN, <, <=, >, >=."
    raise _not_a_count(part, "is a condition that a table cannot have", advice)


def _both(part: Any, one: Condition, other: Condition) -> Condition:
    """Put a lower and an upper limit of one column together."""
    if isinstance(one, Comparison) and isinstance(other, Comparison):
        if one.low is None and other.high is None:
            one, other = other, one
        if one.high is None and other.low is None:
            return replace(one, high=other.high, below=other.below)
    raise _not_a_count(part, "is a second condition on the same column", "Write one condition for each column.")


def _column(e: Any, part: Any, exp: Any) -> str:
    if not isinstance(e, exp.Column):
        raise _not_a_count(part, "compares no column", "Compare an attribute of the domain with a constant.")
    return str(e.name)


def _constant(e: Any, exp: Any) -> Value:
    if isinstance(e, exp.Literal) and e.is_string:
        return str(e.this)
    return _number(e, exp)


def _number(e: Any, exp: Any) -> Number:
    negative = isinstance(e, exp.Neg)
    literal = e.this if negative else e
    if not isinstance(literal, exp.Literal) or literal.is_string:
        raise _not_a_count(e, "is no number", "Compare with a number, or use = or IN with texts.")
    value = float(literal.this) * (-1 if negative else 1)
    return int(value) if value.is_integer() else value
