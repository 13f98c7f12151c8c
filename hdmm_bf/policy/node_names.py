"""Names of nodes to numbers of cells: by the labels of the domain where it has them, else by whole numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from hdmm_bf._checks import InputError, fail, nearest, written_whole
from hdmm_bf.domain import Domain

BOTTOM_NAME = "_"
"""How BOTTOM is spelled in files and in networkx graphs."""

FIRST_UNUSABLE = 10**18  # cell numbers, and one more, must fit in 64 bits
_MOST_LISTED = 12


def labels_of(domain: Domain | None) -> tuple[str, ...] | None:
    """Return the labels of a domain of one attribute."""
    return None if domain is None or domain.num_attributes > 1 else domain.labels[0]


def label_numbers(
    where: str, nodes: Sequence[Hashable], labels: Sequence[str], known: Mapping[Hashable, Mapping[str, Any]]
) -> dict[Hashable, int] | None:
    """Return the numbers of nodes that are called by labels, by their name or by one property that all of them have.

    None if no node is called by a label, and the labels are no numbers, so that nodes may be called by cell numbers.
    """
    places = {label: i for i, label in enumerate(labels)}
    properties = sorted({key for values in known.values() for key in values})
    schemes: list[dict[Hashable, Any]] = [{node: node for node in nodes}]
    schemes += [{node: known.get(node, {}).get(key) for node in nodes} for key in properties]
    for scheme in schemes:
        if all(str(name) in places for name in scheme.values()):
            return _each_once(where, {node: places[str(name)] for node, name in scheme.items()})
    found = [sum(str(name) in places for name in scheme.values()) for scheme in schemes]
    numbered = any(written_whole(label) is not None for label in labels)
    if not numbered and max(found) == 0 and all(written_whole(str(node)) is not None for node in nodes):
        return None  # with a single label among the names, the others are misspelt and no numbers
    best = schemes[found.index(max(found))]
    raise unknown_label(where, next(str(name) for name in best.values() if str(name) not in places), labels)


def unknown_label(where: str, name: str, labels: Sequence[str]) -> InputError:
    """Answer a name that is no label; one that differs in capitals or spaces alone is told so."""
    alike = [label for label in labels if label.strip().casefold() == name.strip().casefold()]
    if alike:
        advice = f"The label is {alike[0]!r}: capitals and spaces count."
    else:
        advice = nearest(name, labels)
        short = advice.startswith("Did") or len(labels) <= _MOST_LISTED
        advice = advice if short else f"There are {len(labels)} labels, the first is {labels[0]!r}."
    return fail(where, f"node {name!r}", "is no label of the domain", advice)


def own_numbers(where: str, nodes: Sequence[Hashable]) -> dict[Hashable, int]:
    """Return the numbers of nodes that are called by cell numbers."""
    numbers: dict[Hashable, int] = {}
    for node in nodes:
        number = None if isinstance(node, bool) else written_whole(str(node))
        if number is None or not 0 <= number < FIRST_UNUSABLE:
            known = f"Name nodes 0, 1, ... and '{BOTTOM_NAME}' for BOTTOM, or by the labels of the domain,"
            advice = f"{known} or pass cells=[...]."
            raise fail(where, f"node {node!r}", "is not a cell number", advice)
        numbers[node] = number
    return _each_once(where, numbers)


def _each_once(where: str, numbers: dict[Hashable, int]) -> dict[Hashable, int]:
    if len(set(numbers.values())) != len(numbers):
        counted = Counter(numbers.values())
        alike = [node for node, number in numbers.items() if counted[number] > 1][:2]
        seen = f"nodes {' and '.join(map(repr, alike))}"
        raise fail(where, seen, "are the same cell number", "Give every cell one node.")
    return numbers
