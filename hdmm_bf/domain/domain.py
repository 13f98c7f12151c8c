"""The domain: what a record can be.

A domain is a list of named attributes, each with a number of values; a *cell* is one combination of
values, and cells are numbered in row-major order (the last attribute moves fastest). A histogram over
the domain is a vector with one count a cell.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias, final, overload

import numpy as np

from hdmm_bf._checks import MAX_BITS, as_array, fail, listed, nearest, positive_int, written_whole
from hdmm_bf._types import AnyArray, Number

_SIZE_ADVICE = "Give one size for each attribute, for example 64 or 32x32."
_LABEL_ADVICE = "Give one name and one list of labels (or None) for each attribute."
_BIN_ADVICE = "Give rising numbers, one more than the attribute has values, for example [0, 18, 65, 120]."
_UNIT_ADVICE = 'Write them like units=("years", None).'
_LARGEST_INDEX = np.iinfo(np.int64).max


@final
@dataclass(frozen=True)
class Domain:
    """Named attributes with their sizes and, if wanted, labels of their values.

    Args:
        sizes: number of values of each attribute.
        names: one name an attribute; `a0, a1, ...` when left out.
        labels: for each attribute either None (values are called by their number) or one label a value.
        bins: for each attribute either None or the rising edges of the intervals that its values stand for, one more
            than it has values; an interval holds its lower edge and not its upper one, but the last holds both.
        units: for each attribute either None or what its numbers count, such as "years".

    Guarantees:
        `ravel` and `unravel` are inverse to each other and follow row-major order.
    """

    sizes: tuple[int, ...]
    names: tuple[str, ...] = ()
    labels: tuple[tuple[str, ...] | None, ...] = ()
    bins: tuple[tuple[float, ...] | None, ...] = ()
    units: tuple[str | None, ...] = ()
    _position: Mapping[str, int] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        given = listed("domain", "sizes", self.sizes, advice=_SIZE_ADVICE)
        sizes = tuple(positive_int("domain", "size", s, advice=_SIZE_ADVICE) for s in given)
        if not sizes:
            raise fail("domain", "sizes=()", "a domain needs at least one attribute", _SIZE_ADVICE)
        if math.prod(sizes).bit_length() > MAX_BITS:
            raise fail("domain", f"{len(sizes)} sizes", f"more than 2^{MAX_BITS} cells", "Use a smaller domain.")
        names = listed("domain", "names", self.names, advice=_LABEL_ADVICE) or default_names(len(sizes))
        labels = listed("domain", "labels", self.labels, advice=_LABEL_ADVICE) or (None,) * len(sizes)
        labels = tuple(v if v is None else listed("domain", "labels", v, advice=_LABEL_ADVICE) for v in labels)
        if len(names) != len(sizes) or len(labels) != len(sizes):
            raise fail(
                "domain",
                f"{len(sizes)} sizes, {len(names)} names, {len(labels)} lists of labels",
                "the numbers must agree",
                _LABEL_ADVICE,
            )
        if len(set(names)) != len(names):
            raise fail("domain", f"names={names}", "names must differ", "Rename the repeated attribute.")
        for name, size, values in zip(names, sizes, labels, strict=True):
            if values is not None and (len(values) != size or len(set(values)) != size):
                raise fail(
                    "domain",
                    f"{name}: {len(values)} labels, {len(set(values))} different, for {size} values",
                    "labels must be one for each value and all different",
                    "Correct the list of labels or the size.",
                )
        bins, units = self._checked_bins(names, sizes), self._checked_units(sizes)
        object.__setattr__(self, "bins", bins)
        object.__setattr__(self, "units", units)
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "_position", {name: i for i, name in enumerate(names)})

    def _checked_bins(self, names: tuple[str, ...], sizes: tuple[int, ...]) -> tuple[tuple[float, ...] | None, ...]:
        given = listed("domain", "bins", self.bins, advice=_BIN_ADVICE) or (None,) * len(sizes)
        if len(given) != len(sizes):
            seen = f"{len(given)} lists of bins"
            raise fail("domain", seen, f"there are {len(sizes)} attributes", "Give one list, or None, for each.")
        triples = zip(names, sizes, given, strict=True)
        return tuple(None if edges is None else rising_edges(name, edges, size) for name, size, edges in triples)

    def _checked_units(self, sizes: tuple[int, ...]) -> tuple[str | None, ...]:
        given = listed("domain", "units", self.units, advice=_UNIT_ADVICE) or (None,) * len(sizes)
        if len(given) != len(sizes) or not all(unit is None or isinstance(unit, str) for unit in given):
            raise fail("domain", f"units={given!r}", "must be one text, or None, for each attribute", _UNIT_ADVICE)
        return given

    @property
    def num_cells(self) -> int:
        """Number of cells, exact even beyond 2^63."""
        return math.prod(self.sizes)

    @property
    def num_attributes(self) -> int:
        """Number of attributes."""
        return len(self.sizes)

    def __str__(self) -> str:
        return "x".join(map(str, self.sizes))

    def attribute(self, name: str | int) -> int:
        """Return the position of an attribute given by name or by number."""
        if isinstance(name, str) and name in self._position:
            return self._position[name]
        if isinstance(name, int) and 0 <= name < self.num_attributes:
            return name
        raise fail(
            "domain.attribute",
            repr(name),
            f"the domain has the attributes {', '.join(self.names)}",
            nearest(name, self.names) if isinstance(name, str) else f"Use 0 to {self.num_attributes - 1}.",
        )

    def ravel(self, values: Sequence[int | AnyArray]) -> int | AnyArray:
        """Return the cell number of value numbers, one (scalar or array) for each attribute."""
        if len(values) != self.num_attributes:
            raise fail(
                "domain.ravel",
                f"{len(values)} coordinates",
                f"the domain has {self.num_attributes} attributes",
                "Give one coordinate for each.",
            )
        self.check_numbered("domain.ravel")
        arrays = [as_array("domain.ravel", name, v) for name, v in zip(self.names, values, strict=True)]
        for name, size, value, array in zip(self.names, self.sizes, values, arrays, strict=True):
            if array.dtype.kind not in "iu" or np.any(array < 0) or np.any(array >= size):
                raise fail(
                    "domain.ravel",
                    f"{name}={value!r}",
                    f"must be whole numbers from 0 to {size - 1}",
                    "Correct the value or enlarge the domain.",
                )
        shapes = [array.shape for array in arrays]
        try:
            np.broadcast_shapes(*shapes)
        except ValueError:
            seen = f"coordinates of shapes {', '.join(map(str, shapes))}"
            problem, advice = "the shapes must agree", "Give as many values of each attribute."
            raise fail("domain.ravel", seen, problem, advice) from None
        cells = np.ravel_multi_index(tuple(arrays), self.sizes)
        return int(cells) if np.ndim(cells) == 0 else cells

    @overload
    def unravel(self, cells: int) -> tuple[int, ...]: ...

    @overload
    def unravel(self, cells: AnyArray) -> tuple[AnyArray, ...]: ...

    def unravel(self, cells: int | AnyArray) -> tuple[int, ...] | tuple[AnyArray, ...]:
        """Return the value numbers of a cell, or of an array of cells, one for each attribute."""
        self.check_numbered("domain.unravel")
        array = as_array("domain.unravel", "cells", cells)
        if array.dtype.kind not in "iu" or np.any(array < 0) or np.any(array >= self.num_cells):
            raise fail(
                "domain.unravel",
                repr(cells),
                f"cells are whole numbers from 0 to {self.num_cells - 1}",
                "Correct the cell number.",
            )
        values = np.unravel_index(array, self.sizes)
        return tuple(int(v) for v in values) if array.ndim == 0 else values

    def check_numbered(self, where: str) -> None:
        """Refuse a domain with more cells than 64-bit numbers can tell apart."""
        if self.num_cells > _LARGEST_INDEX:
            raise fail(where, f"domain {self}", "has more than 2^63 cells, too many to number", "Use a smaller domain.")

    def cell(self, **values: int | str) -> int:
        """Return the cell with the given value (number or label) of every attribute, by name."""
        for name in values:
            self.attribute(name)
        missing = [name for name in self.names if name not in values]
        if missing:
            raise fail("domain.cell", f"{values}", f"no value for {', '.join(missing)}", "Name every attribute.")
        return int(self.ravel([self._value(i, values[name]) for i, name in enumerate(self.names)]))

    def _value(self, attribute: int, value: int | str) -> int:
        if not isinstance(value, str):
            return value
        labels = self.labels[attribute] or ()
        if value not in labels:
            raise fail(
                "domain.cell",
                f"{self.names[attribute]}={value!r}",
                "no such label",
                nearest(value, labels) if labels else "This attribute has no labels: use the value's number.",
            )
        return labels.index(value)

    def describe(self, cell: int) -> str:
        """Name a cell in words: `cell 5`, `(1, 3)`, or `age=30-39, sex=F` where there are labels."""
        values = self.unravel(cell)
        if any(known is not None for known in (*self.labels, *self.bins)):
            return ", ".join(f"{self.names[i]}={self.value_name(i, v)}" for i, v in enumerate(values))
        return f"cell {cell}" if self.num_attributes == 1 else f"({', '.join(map(str, values))})"

    def value_name(self, attribute: int, value: int) -> str:
        """Return the label of a value, or its interval, or its number when it has neither."""
        return self.interval_name(attribute, value, value)

    def interval_name(self, attribute: int, low: int, high: int) -> str:
        """Name the values from `low` to `high`: `20..29`, `young..old`, or `0 to 18` where the values are intervals."""
        labels, edges = self.labels[attribute], self.bins[attribute]
        if labels is None and edges is not None:
            return f"{edges[low]:.15g} to {edges[high + 1]:.15g}"
        first, last = (str(v) if labels is None else labels[v] for v in (low, high))
        return first if low == high else f"{first}..{last}"

    def only(self, attribute: str | int) -> Domain:
        """Return the domain of one attribute, with its name, labels, bins and unit."""
        i = self.attribute(attribute)
        return Domain((self.sizes[i],), (self.names[i],), (self.labels[i],), (self.bins[i],), (self.units[i],))

    @property
    def has_own_names(self) -> bool:
        """Whether somebody named the attributes: they are not called a0, a1, ..."""
        return self.names != default_names(self.num_attributes)


def default_names(num_attributes: int) -> tuple[str, ...]:
    """Return the names of attributes that nobody named."""
    return tuple(f"a{i}" for i in range(num_attributes))


def rising_edges(name: str, value: Sequence[Number], size: int, *, where: str = "domain") -> tuple[float, ...]:
    """Return the edges of an attribute's intervals as rising numbers; the first and the last may be infinite."""
    given = listed(where, f"bins of {name!r}", value, advice=_BIN_ADVICE)
    try:
        edges = tuple(float(edge) for edge in given if not isinstance(edge, str | bytes | bool))
    except (TypeError, ValueError, OverflowError):
        edges = ()
    rising = all(low < high for low, high in pairwise(edges)) and all(map(math.isfinite, edges[1:-1]))
    if len(edges) != len(given) or not rising:
        raise fail(where, f"bins of {name!r}, {reprlib.repr(given)}", "edges must be rising numbers", _BIN_ADVICE)
    if len(edges) != size + 1:
        seen = f"bins of {name!r}, {len(edges)} edges"
        raise fail(where, seen, f"{size} values of the attribute need {size + 1} edges", _BIN_ADVICE)
    return edges


def parse(text: str) -> Domain:
    """Read sizes written as `64` or `32x32`."""
    sizes = [written_whole(part) for part in text.lower().split("x")]
    known = tuple(size for size in sizes if size is not None and size >= 1)
    if len(known) != len(sizes):
        raise fail("domain.parse", repr(text), "sizes must be whole numbers of at least 1", _SIZE_ADVICE)
    return Domain(known)


def written_on(text: str, domain: Domain | None) -> Domain:
    """Read the sizes of a spec string, which must be those of the domain where one is given, and return that."""
    made = parse(text)
    if domain is None:
        return made
    if made.sizes != domain.sizes:
        raise fail("domain", repr(text), f"the domain is {domain}", "Leave the size out of the spec, or correct it.")
    return domain


DomainLike: TypeAlias = Domain | int | np.integer | str | Sequence[int]
"""A Domain, a number of cells, sizes, or a string of sizes such as "32x32"."""


def as_domain(value: DomainLike) -> Domain:
    """Accept a Domain, a number of cells, sizes, or a string of sizes."""
    if isinstance(value, Domain):
        return value
    if isinstance(value, str):
        return parse(value)
    if isinstance(value, int | np.integer):
        return Domain((int(value),))
    return Domain(listed("domain", "sizes", value, advice=_SIZE_ADVICE))
