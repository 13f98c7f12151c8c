"""Values and conditions as people write them, to the numbers of an attribute's values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

from hdmm_bf._checks import InputError, fail, nearest, written_whole
from hdmm_bf._types import Number
from hdmm_bf.domain import Domain

Value: TypeAlias = str | Number


@final
@dataclass(frozen=True)
class Comparison:
    """Numbers from `low` to `high`, each end left out where it says so; None where there is no limit.

    Unlike (first, last) it means what SQL means by it: an attribute with intervals can answer it only if no interval
    is cut.
    """

    low: Number | None = None
    high: Number | None = None
    above: bool = False
    below: bool = False


Condition: TypeAlias = Value | tuple[Value, Value] | Sequence[Value] | Comparison
"""One value, (first, last) for an interval, a list of values, or a comparison of numbers."""

_MOST_SHOWN = 5


def value_number(where: str, domain: Domain, attribute: int, value: Value) -> int:
    """Return the number of a value, given by its label or, where values have no labels, by its number."""
    labels, size = domain.labels[attribute], domain.sizes[attribute]
    text = str(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _no_value(where, domain, attribute, value)
    if labels is not None and text in labels:
        return labels.index(text)
    if labels is None and domain.bins[attribute] is None and isinstance(value, int) and 0 <= value < size:
        return value
    raise _no_value(where, domain, attribute, value)


def _no_value(where: str, domain: Domain, attribute: int, value: object) -> InputError:
    labels, edges = domain.labels[attribute], domain.bins[attribute]
    seen = f"{domain.names[attribute]}={value!r}"
    if labels is None and edges is None:
        last = domain.sizes[attribute] - 1
        return fail(where, seen, f"values are the whole numbers 0 to {last}", "Correct the number.")
    if labels is None:
        advice = "Say an interval from one edge to another, such as (0, 18)."
        return fail(where, seen, "values are intervals and have no labels", advice)
    return fail(where, seen, "no such label", _close_label(str(value), labels))


def _close_label(text: str, labels: Sequence[str]) -> str:
    """Say which label is meant; where only capitals or spaces differ, say so."""
    alike = [label for label in labels if label.strip().casefold() == text.strip().casefold()]
    if alike:
        return f"The label is {alike[0]!r}: capitals and spaces count."
    if all(written_whole(label) is not None for label in labels):
        return f"Labels go from {labels[0]} to {labels[-1]}."
    advice = nearest(text, labels)
    return advice if advice.startswith("Did") or len(labels) <= _MOST_SHOWN else f"There are {len(labels)} labels."


def interval(where: str, domain: Domain, attribute: int, first: Value, last: Value) -> tuple[int, int]:
    """Return the first and the last value of an interval; of an attribute with bins it goes from edge to edge."""
    edges = domain.bins[attribute]
    name = domain.names[attribute]
    if edges is not None and not isinstance(first, str) and not isinstance(last, str):
        low, high = _edge(where, name, edges, first), _edge(where, name, edges, last) - 1
    else:
        low, high = (value_number(where, domain, attribute, v) for v in (first, last))
    if low > high:
        raise fail(where, f"{name}=({first!r}, {last!r})", "is empty", "Give the lower end first.")
    return low, high


def _edge(where: str, name: str, edges: Sequence[float], value: Number) -> int:
    if value in edges:
        return edges.index(value)
    near = [*[edge for edge in edges if edge < value][-1:], *[edge for edge in edges if edge > value][:1]]
    shown = " and ".join(f"{edge:g}" for edge in near)
    raise fail(where, f"{name}={value!r}", "is no edge of its intervals", f"The nearest: {shown}.")


def chosen_values(where: str, domain: Domain, attribute: int, condition: Condition) -> tuple[int, ...]:
    """Return the values that meet a condition, in rising order."""
    if isinstance(condition, Comparison):
        return _compared(where, domain, attribute, condition)
    if isinstance(condition, tuple):
        if len(condition) != 2:
            seen = f"{domain.names[attribute]}={condition!r}"
            raise fail(where, seen, "an interval has two ends", "Use a list for single values.")
        low, high = interval(where, domain, attribute, *condition)
        return tuple(range(low, high + 1))
    if isinstance(condition, str) or not isinstance(condition, Sequence):
        return (value_number(where, domain, attribute, condition),)
    found = sorted({value_number(where, domain, attribute, value) for value in condition})
    if not found:
        raise fail(where, f"{domain.names[attribute]}=[]", "leaves no value", "List at least one.")
    return tuple(found)


def _compared(where: str, domain: Domain, attribute: int, condition: Comparison) -> tuple[int, ...]:
    edges = domain.bins[attribute]
    found = (
        _whole_values(where, domain, attribute, condition)
        if edges is None
        else _whole_bins(where, domain, attribute, condition)
    )
    if not found:
        raise fail(where, f"{domain.names[attribute]}", "no value of the domain meets the condition", "Widen it.")
    return found


def _whole_values(where: str, domain: Domain, attribute: int, condition: Comparison) -> tuple[int, ...]:
    labels = domain.labels[attribute]
    numbers = list(range(domain.sizes[attribute])) if labels is None else [written_whole(label) for label in labels]
    if any(number is None for number in numbers):
        problem = "labels that are no numbers have no order"
        raise fail(where, f"a comparison of {domain.names[attribute]}", problem, "Use = or IN, with the labels.")
    return tuple(i for i, number in enumerate(numbers) if number is not None and _meets(number, condition))


def _meets(number: Number, condition: Comparison) -> bool:
    low, high = condition.low, condition.high
    over = low is None or (number > low if condition.above else number >= low)
    return over and (high is None or (number < high if condition.below else number <= high))


def _whole_bins(where: str, domain: Domain, attribute: int, condition: Comparison) -> tuple[int, ...]:
    """Return the intervals inside a comparison, none of which it may cut; the last one holds its upper edge."""
    edges, name = domain.bins[attribute] or (), domain.names[attribute]
    low, high = condition.low, condition.high
    first = 0 if low is None or low < edges[0] else _edge(where, name, edges, low)
    last = len(edges) - 1 if high is None or high > edges[-1] else _edge(where, name, edges, high)
    cut_below = condition.above and low == edges[first]
    cut_above = high == edges[last] and condition.below == (last == len(edges) - 1)
    if cut_below or cut_above:
        whole = f"{name} >= {edges[first]:g}" + (f" AND {name} < {edges[last]:g}" if last < len(edges) - 1 else "")
        problem = "cuts an interval, which holds its lower edge and not its upper one"
        raise fail(where, f"the condition on {name}", problem, f"Write {whole}.")
    return tuple(range(first, last))
