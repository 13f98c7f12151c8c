"""What the caller asks of a histogram, checked before any record is read: which column gives which attribute, and how.

A `Reading` is that answer for one attribute: labels, whole numbers from 0, or intervals between declared edges.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, final, get_args

from hdmm_bf._checks import InputError, fail, fits, nearest, written_whole
from hdmm_bf._types import Number
from hdmm_bf.domain import Domain
from hdmm_bf.domain.domain import rising_edges

Outside: TypeAlias = Literal["error", "clip", "drop"]
"""What becomes of records with a value that the domain does not have."""

WHERE = "histogram"
_CELL_BYTES = 24  # the number of the cell and its count as they arrive, and the result
_MOST_NAMES = 20  # as many column names a message lists


@final
@dataclass(frozen=True)
class Reading:
    """How one attribute is read: from the values of `column`, by `labels`, by `edges`, or as whole numbers.

    `other` is the number of the value under which everything else is counted, missing values included.
    """

    attribute: str
    column: str
    size: int
    labels: tuple[str, ...] | None
    edges: tuple[float, ...] | None
    other: int | None = None


def readings(
    domain: Domain,
    columns: Mapping[str, str],
    bins: Mapping[str, Sequence[Number]],
    outside: object,
    other: Mapping[str, str | int],
    *,
    dense: bool = True,
) -> list[Reading]:
    """Return one `Reading` an attribute, or say which part of the request cannot be met."""
    if outside not in get_args(Outside):
        advice = nearest(str(outside), get_args(Outside))
        raise fail(WHERE, f"outside={reprlib.repr(outside)}", "must be error, clip or drop", advice)
    if dense:
        fits(WHERE, f"domain {domain}", _CELL_BYTES * domain.num_cells, advice="Use fewer attributes or wider bins.")
    _named(domain, "columns", columns)
    _named(domain, "bins", bins)
    _named(domain, "other", other)
    made = [_reading(domain, i, columns, bins, other) for i in range(domain.num_attributes)]
    for reading in made:
        if outside == "clip" and reading.labels is not None:
            seen = f"outside='clip', attribute {reading.attribute!r}"
            advice = "Use outside='drop' or 'error', or add a label for all other values."
            raise fail(WHERE, seen, "labels have no order, so nothing can be clipped to them", advice)
    return made


def _named(domain: Domain, name: str, value: object) -> None:
    """Refuse options that are no dictionary, or speak of attributes that the domain does not have."""
    if not isinstance(value, Mapping):
        advice = f"Give a dictionary, for example {name}={{{domain.names[0]!r}: ...}}."
        raise fail(WHERE, f"{name}={reprlib.repr(value)}", "must be a dictionary by attribute", advice)
    for key in value:
        if key not in domain.names:
            problem = "the domain has no such attribute"
            raise fail(WHERE, f"{name} for {key!r}", problem, close_name(str(key), domain.names))


def _reading(
    domain: Domain,
    i: int,
    columns: Mapping[str, str],
    bins: Mapping[str, Sequence[Number]],
    other: Mapping[str, str | int],
) -> Reading:
    name = domain.names[i]
    column: object = columns.get(name, name)
    if not isinstance(column, str):
        seen, problem = f"attribute {name!r}, column {reprlib.repr(column)}", "a column's name must be a string"
        raise fail(WHERE, seen, problem, "Rename the column, or give its name in columns={...}.")
    given = bins.get(name, domain.bins[i])
    edges = None if given is None else rising_edges(name, given, domain.sizes[i], where=WHERE)
    home = _home(domain, i, other[name]) if name in other else None
    return Reading(name, column, domain.sizes[i], None if edges else _texts(name, domain.labels[i]), edges, home)


def _home(domain: Domain, i: int, value: str | int) -> int:
    """Return the number of the value that takes in all others, by its label or, where there is none, its number."""
    labels = domain.labels[i]
    if labels is not None and str(value) in labels:
        return labels.index(str(value))
    number = written_whole(str(value))
    if labels is None and number is not None and 0 <= number < domain.sizes[i]:
        return number
    seen, advice = f"other for {domain.names[i]!r}, {value!r}", close_name(str(value), labels or ())
    if labels is None:
        advice = f"Use a number from 0 to {domain.sizes[i] - 1}."
    raise fail(WHERE, seen, "is no value of the attribute", advice)


def _texts(name: str, labels: Sequence[object] | None) -> tuple[str, ...] | None:
    """Return labels as text, all different also then."""
    texts = None if labels is None else tuple(map(str, labels))
    if texts is not None and len(set(texts)) != len(texts):
        seen, problem = f"labels of {name!r}", "two labels are the same when written as text"
        raise fail(WHERE, seen, problem, "Give labels that differ as text.")
    return texts


def placed(made: list[Reading], names: Sequence[str], others: Sequence[str], *, from_text: bool) -> list[Reading]:
    """Return the readings with their columns found among a table's, or name the column that is missing or doubled.

    `others` are columns with the weights, or with the person, of every record. A domain of one attribute that was given
    no name reads the only column beside them, whatever that is called.
    """
    wanted = [*(reading.column for reading in made), *others]
    only = _only_column(made, names, others)
    if only is not None:
        return [_read_from(only, made[0], from_text=from_text)]
    if from_text and not set(wanted) & set(names):  # the first line may be a record: it is not repeated in a message
        seen, problem = f"column {wanted[0]!r}", "the first line names none of the columns asked for"
        raise fail(WHERE, seen, problem, "Write the names of the columns, between commas, into the first line.")
    for name in wanted:
        if list(names).count(name) != 1:
            raise _misplaced(name, names, from_text=from_text)
    return made


def _only_column(made: list[Reading], names: Sequence[str], others: Sequence[str]) -> str | None:
    """Return the only column beside others, if the only attribute goes by its default name and no column does."""
    rest = [name for name in names if name not in others]
    plain = len(made) == 1 and made[0].column == "a0" and "a0" not in names
    return rest[0] if plain and len(rest) == 1 and len(names) == len(rest) + len(others) else None


def _read_from(column: str, reading: Reading, *, from_text: bool) -> Reading:
    """Read from a column of any name; in a text file that name must not be a value, which would go uncounted."""
    if from_text and (column in (reading.labels or ()) or _is_number(column)):
        problem = "the first line is a value, not the name of the column"
        raise fail(WHERE, "a file of one column", problem, "Write the column's name into the first line.")
    return replace(reading, column=column)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _misplaced(name: str, names: Sequence[str], *, from_text: bool) -> InputError:
    if name in names:
        return fail(WHERE, f"column {name!r}", "the table has several columns of this name", "Rename one of them.")
    known = close_name(name, names, most=0 if from_text else _MOST_NAMES)  # a torn first line can hold records
    advice = f"{known} If it has another name, give columns={{'attribute': 'column'}}."
    return fail(WHERE, f"column {name!r}", "the table has no such column", advice)


def close_name(name: str, known: Iterable[object], *, most: int = _MOST_NAMES) -> str:
    """Suggest the nearest name; list them all only where they are at most so many."""
    words = [reprlib.repr(str(word))[1:-1] for word in known]
    advice = nearest(name, words) if words else "There are none."
    return f"There are {len(words)} others." if advice.startswith("Known") and len(words) > most else advice
