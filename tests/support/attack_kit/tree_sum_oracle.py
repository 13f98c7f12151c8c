"""The exact privacy loss of sums of tree norms, from the files of a bundle and the noise that was drawn.

Shares no code with the package. What is published is x + sum_k N_k, exactly. The noise of a part without an attribute
of its own is on the cells: a tree for every value of the attributes that the tree is not on. That of a part along
attribute i is N = (M (x) I) phi, with one number phi, a slot, for every edge of the part's graph and every combination
of values of the other attributes. The column of M for an edge (a, b) is e_a - e_b, "no record" being nothing, less the
mean over every component of the attribute's policy that "no record" is not in.

A move p along attribute i is hidden by a part that takes it up: whole shifts y of its slots with M y = p, here those of
the shortest path in the graph, which is checked in fractions. Slots of several edges are drawn by themselves, and one
unit in a slot changes the sums of all nodes from there to the root by one, so that a move loses

    min over the parts that can take it up of  sum over slots, and nodes above each, of -log q_node

A part on the cells takes up a move between cells of one of its trees, at the cost of the path between them.
"""

import json
import math
from collections import deque
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np

from tests.support.attack_kit import noise_oracle, oracle
from tests.support.attack_kit.oracle import BOTTOM


@dataclass
class Part:
    """One tree, the attributes it is on, and the graph on the values of another along which its noise flows."""

    parents: list
    axes: list
    along: int | None
    graph: list


@dataclass
class TreeSum(oracle.Bundle):
    """What the files say of a sum of tree norms; `rows` is empty: nothing is measured."""

    parts: list = field(default_factory=list)
    lists: list = field(default_factory=list)
    """The edges of every attribute."""


def read(folder):
    """Return what a bundle says if it is a sum of tree norms, else None."""
    folder = Path(folder)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    if "tree_sum.npz" not in manifest["files"]:
        return None
    held, policy = (oracle.archive(folder / name) for name in ("tree_sum.npz", "policy.npz"))
    sizes = [int(size) for size in manifest["domain"]["sizes"]]
    assert held["sizes"].tolist() == sizes, "parts of another domain"
    lists = [oracle.pairs(policy[f"edges{i}"]) for i in range(len(sizes))]
    return of(sizes, lists, [part(held, k) for k in range(int(held["parts"]))], manifest["noise"])


def part(held, k):
    along = int(held[f"p{k}_along"])
    parents, axes = ([int(v) for v in held[f"p{k}_{name}"]] for name in ("parents", "axes"))
    return Part(parents, axes, None if along == -1 else along, [(int(a), int(b)) for a, b in held[f"p{k}_edges"]])


def of(sizes, lists, parts, noise="norm"):
    """Return a sum of parts on a domain, under a policy with one list of edges an attribute."""
    counts = [math.prod(slot_sizes(own, sizes)) for own in parts]
    precisions, edges = [Fraction(1)] * sum(counts), oracle.product_edges(lists, sizes)
    return TreeSum(sizes, noise, "tree sum", edges, np.empty(0), precisions, counts, parts=parts, lists=lists)


def slot_sizes(own, sizes):
    """How many slots a part has, by attributes."""
    return [len(own.graph) if i == own.along else size for i, size in enumerate(sizes)]


def leaf(own, sizes, cell):
    """The leaf of a part's tree for a cell, or a slot."""
    return oracle.cell_number([cell[i] for i in own.axes], [sizes[i] for i in own.axes])


def place(own, sizes, slot):
    """The number of a slot in what is drawn: tree after tree, in the order of the attributes that they are not on."""
    slots = slot_sizes(own, sizes)
    others = [i for i in range(len(sizes)) if i not in own.axes]
    tree = oracle.cell_number([slot[i] for i in others], [slots[i] for i in others])
    return tree * math.prod(sizes[i] for i in own.axes) + leaf(own, sizes, slot)


def path(graph, start, goal):
    """Return a shortest path in a graph by its edges, (number, +1 or -1 as it is passed); None where there is none."""
    found, queue = {start: []}, deque([start])
    while queue:
        here = queue.popleft()
        for e, (a, b) in enumerate(graph):
            for end, other, sign in ((a, b, 1), (b, a, -1)):
                if end == here and other not in found:
                    found[other] = [*found[here], (e, sign)]
                    queue.append(other)
    return found.get(goal)


def columns(bundle, i, graph):
    """Return the columns of M in fractions."""
    size = bundle.sizes[i]
    label = [noise_oracle.component(bundle, i, value) for value in range(size)]
    public = [[v for v in range(size) if label[v] == own] for own in set(label) - {None}]
    found = []
    for a, b in graph:
        assert all(end == BOTTOM or 0 <= end < size for end in (a, b)), "an edge of values that do not exist"
        column = [Fraction((value == a) - (value == b)) for value in range(size)]
        for inside in public:
            mean = sum(column[v] for v in inside) / len(inside)
            column = [entry - mean if v in inside else entry for v, entry in enumerate(column)]
        found.append(column)
    return found


def steps(bundle, own, i, edge):
    """Return the shifts of the slots of a part's graph that make a move along its attribute; None where none do."""
    passed = path(own.graph, *edge)
    if passed is None:
        return None
    M, wanted = columns(bundle, i, own.graph), [(v == edge[0]) - (v == edge[1]) for v in range(bundle.sizes[i])]
    made = [sum((sign * M[e][v] for e, sign in passed), Fraction(0)) for v in range(bundle.sizes[i])]
    return passed if made == wanted else None


def taken_up(bundle, own, i, edge, rest):
    """Return the shifts of a part's noise that make a move, {slot: shift}; None where it cannot take it up."""

    def at(value):
        return tuple(value if j == i else v for j, v in enumerate(rest))

    if own.along is None:
        signed = zip(edge, (1, -1), strict=True)
        return {at(v): sign for v, sign in signed if v != BOTTOM} if i in own.axes else None
    if own.along != i or i in own.axes:
        return None
    passed = steps(bundle, own, i, edge)
    return None if passed is None else {at(e): sign for e, sign in passed}


def cost(bundle, own, shift, ratios, fixed):
    """Return what shifts of a part's noise lose: in every tree that some are in, all nodes whose sums they change."""
    others = [i for i in range(len(bundle.sizes)) if i not in own.axes]
    changed = {}
    for slot, amount in shift.items():
        sums = changed.setdefault(tuple(slot[i] for i in others), {})
        for node in oracle.above(own.parents, leaf(own, bundle.sizes, slot)):
            sums[node] = sums.get(node, 0) + amount
    number = Fraction(1)
    for node, amount in (entry for sums in changed.values() for entry in sums.items()):
        if amount and node in fixed:
            return math.inf
        number *= Fraction(ratios[node]) ** abs(amount)
    return oracle.minus_log(number)


def shifts(bundle, drawn):
    """Yield every edge, the least loss of a record moved along it, and the shifts of all noise that hide it.

    `drawn` has the ratios of every part's tree, and its roots of sum zero; it is empty where nothing was drawn.
    """
    starts, known = [sum(bundle.blocks[:k]) for k in range(len(bundle.parts))], {}
    for edge, (i, e, rest) in zip(bundle.edges, noise_oracle.moves(bundle), strict=True):
        least = math.inf, None
        for own, start, (ratios, fixed) in zip(bundle.parts, starts, drawn, strict=True) if drawn else ():
            shift = taken_up(bundle, own, i, bundle.lists[i][e], rest)
            if shift is None:
                continue
            same = start, i, e, tuple(rest[j] for j in own.axes if j != i)
            if same not in known:
                known[same] = cost(bundle, own, shift, ratios, fixed)
            if known[same] < least[0]:
                whole = [0] * sum(bundle.blocks)
                for slot, amount in shift.items():
                    whole[start + place(own, bundle.sizes, slot)] = amount
                least = known[same], whole
        yield edge, *least


def loss(bundle, drawn):
    """Return the exact loss of a release whose noise was drawn with these ratios, and the edge that loses most."""
    assert bundle.noise == "norm", "sums of tree norms have a pure epsilon"
    for own, (ratios, fixed) in zip(bundle.parts, drawn, strict=True) if drawn else ():
        assert len(ratios) == len(own.parents)
        assert all(0 < q <= 1 for q in ratios), "a ratio that is none"
        assert all(own.parents[root] == -1 for root in fixed)
    worst = (Fraction(0), None)
    for edge, lost, _ in shifts(bundle, drawn):
        worst = max(worst, (lost, edge), key=lambda found: found[0])
    return worst


def noisy_counts(bundle, x, values):
    """Return x + sum_k N_k in fractions, from all numbers that were drawn, part by part."""
    found, start = [Fraction(count) for count in x], 0
    for own, count in zip(bundle.parts, bundle.blocks, strict=True):
        M = None if own.along is None else columns(bundle, own.along, own.graph)
        for slot in product(*map(range, slot_sizes(own, bundle.sizes))):
            drawn = values[start + place(own, bundle.sizes, slot)]
            for value in [None] if M is None else range(bundle.sizes[own.along]):
                cell = slot if M is None else [value if j == own.along else v for j, v in enumerate(slot)]
                found[oracle.cell_number(cell, bundle.sizes)] += drawn * (1 if M is None else M[slot[own.along]][value])
        start += count
    return found
