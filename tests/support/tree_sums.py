"""Sums of tree norms written out over all cells and slots: shares nothing with the package but the records."""

import itertools
import math
from fractions import Fraction

import numpy as np

from tests.support.groups import written_out


def number_of(value, sizes):
    """The number of a cell in row-major order."""
    number = 0
    for v, size in zip(value, sizes, strict=True):
        number = number * size + v
    return number


def components_of(edges, size):
    """The components of a graph on the values of one attribute that do not hold BOTTOM."""
    parts = [{v} for v in range(size)]
    hidden = set()
    for u, v in np.asarray(edges).tolist():
        if v < 0:
            hidden.add(u)
            continue
        one = next(part for part in parts if u in part)
        other = next(part for part in parts if v in part)
        if one is not other:
            parts.remove(other)
            one |= other
    return [sorted(part) for part in parts if not part & hidden]


def flow_of(edges, own_edges, size):
    """M as fractions: a column for every edge, less the public totals that it disturbs, evenly."""
    columns = []
    for u, v in np.asarray(edges).tolist():
        column = [Fraction(int(k == u) - int(k == v)) for k in range(size)]
        for part in components_of(own_edges, size):
            total = sum(column[k] for k in part)
            for k in part:
                column[k] -= total / len(part)
        columns.append(column)
    return [[column[k] for column in columns] for k in range(size)]


def spread_of(part, policy, sizes):
    """From every slot to every cell what one unit adds, cells x slots, as fractions."""
    if part.along is None:
        n = math.prod(sizes)
        return [[Fraction(int(i == j)) for j in range(n)] for i in range(n)]
    i = part.along
    M = flow_of(part.edges, policy.factors[i].edges, sizes[i])
    slots = tuple(len(part.edges) if k == i else size for k, size in enumerate(sizes))
    found = [[Fraction(0)] * math.prod(slots) for _ in range(math.prod(sizes))]
    for slot in itertools.product(*(range(size) for size in slots)):
        for value in range(sizes[i]):
            cell = [value if k == i else own for k, own in enumerate(slot)]
            found[number_of(cell, sizes)][number_of(slot, slots)] = M[value][slot[i]]
    return found


def trees_of(strategy):
    """Every part's tree over all of its slots, one for every group."""
    return [written_out(part.grouped(strategy.sizes)) for part in strategy.parts]
