"""Attributes as people write them: a number of values, a list of labels, whole numbers, or intervals with a unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

from hdmm_bf._checks import fail, listed, positive_int, whole_number
from hdmm_bf._types import Number
from hdmm_bf.domain.domain import Domain, rising_edges

_ADVICE = 'Write it like age=100, sex=["F", "M"], year=range(2015, 2026) or pay=bins([0, 1000, 2000]).'


@final
@dataclass(frozen=True)
class Attribute:
    """What one attribute of a record can be: a number of values, with labels, intervals and a unit where known."""

    size: int
    labels: tuple[str, ...] | None = None
    bins: tuple[float, ...] | None = None
    unit: str | None = None


AttributeLike: TypeAlias = Attribute | int | range | Sequence[str]


def bins(edges: Sequence[Number], *, unit: str | None = None, labels: Sequence[str] | None = None) -> Attribute:
    """Return an attribute of numbers that are counted by intervals.

    Args:
        edges: rising numbers, one more than there are intervals; an interval holds its lower edge and not its upper
            one, but the last holds both. The first and the last may be infinite.
        unit: what the numbers count, such as "years".
        labels: names of the intervals, if they have any.

    Example:
        >>> import hdmm_bf as bf
        >>> bf.domain.bins([0, 18, 65, 120], unit="years").size
        3
    """
    given = listed("domain.bins", "edges", edges, advice=_ADVICE)
    size = positive_int("domain.bins", "number of intervals", len(given) - 1, advice="Give at least two edges.")
    names = None if labels is None else listed("domain.bins", "labels", labels, advice=_ADVICE)
    return Attribute(size, names, rising_edges("edges", given, size, where="domain.bins"), unit)


def whole(first: int, last: int, *, unit: str | None = None) -> Attribute:
    """Return an attribute of the whole numbers from `first` to `last`, both included.

    Example:
        >>> import hdmm_bf as bf
        >>> bf.domain.whole(18, 37, unit="years").size
        20
    """
    start = whole_number("domain.whole", "first", first, least=-(2**62), advice="Give a whole number.")
    stop = whole_number("domain.whole", "last", last, least=start, advice="Give the larger number second.")
    return Attribute(stop - start + 1, tuple(map(str, range(start, stop + 1))), None, unit)


def of(attributes: Mapping[str, AttributeLike] | None = None, /, **named: AttributeLike) -> Domain:
    """Return a domain from its attributes, in the order they are given.

    Args:
        attributes: by name; for names that Python does not take as keywords.
        named: each a number of values, a list of labels, a `range` of whole numbers, or `bins` or `whole`.

    Example:
        >>> import hdmm_bf as bf
        >>> people = bf.domain.of(age=bf.domain.bins(range(0, 101, 5), unit="years"), sex=["F", "M"])
        >>> people.sizes, people.describe(3)
        ((20, 2), 'age=5 to 10, sex=M')
    """
    given = {**(attributes or {}), **named}
    if not given:
        raise fail("domain.of", "no attributes", "a domain needs at least one", _ADVICE)
    made = [_attribute(name, value) for name, value in given.items()]
    return Domain(
        tuple(a.size for a in made),
        tuple(given),
        tuple(a.labels for a in made),
        tuple(a.bins for a in made),
        tuple(a.unit for a in made),
    )


def _attribute(name: str, value: AttributeLike) -> Attribute:
    if isinstance(value, Attribute):
        return value
    if isinstance(value, range):
        if value.step != 1 or not value:
            advice = "Use a range of step 1, or bins(range(...)) for intervals."
            raise fail("domain.of", f"{name}={value!r}", "is not a run of whole numbers", advice)
        return whole(value.start, value.stop - 1)
    if isinstance(value, int):
        return Attribute(positive_int("domain.of", name, value, advice=_ADVICE))
    labels = listed("domain.of", name, value, advice=_ADVICE)
    wrong = next((label for label in labels if not isinstance(label, str)), None)
    if wrong is not None:
        raise fail("domain.of", f"{name} with the label {wrong!r}", "labels are texts", _ADVICE)
    return Attribute(len(labels), labels)
