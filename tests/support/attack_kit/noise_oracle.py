"""The exact privacy loss of sums of noise, from the files of a bundle and the noise that was drawn.

Shares no code with the package. What is published is x + sum_b (G_b1 (x) ... (x) G_bd) z_b, exactly, so a record's move
p is hidden by a block b whose noise takes it up: there are whole shifts s of z_b, none on a row without noise, with
(G_b1 (x) ... (x) G_bd) s = p. Where every factor R of a block has full column rank, which is decided in fractions, G is
its least-squares inverse and G R = I, so that s = R p; a factor S over edges has G = P S^+, and s is the column of the
edge moved along. The loss of a move is

    min over the blocks that can take it up of  sum over rows |s_row| / scale_row

and what a block says that it hides is not asked: it changes nothing of what is drawn.

A joined block adds N = y + sum_l K_l (z_l - T_l y) - K S y, layers l summing y over the attributes outside that they do
not keep. S are the totals that moves along the attributes it says it hides leave alone: sums over products of
components, without "no record", of those of them that are joined, for every value of the other joined attributes and of
those outside that it does not hide; there are none if a record can come or go along a hidden attribute outside. A move
p along any attribute with S p = 0 is y shifted by p and z_l by T_l p, whatever the gains K are: these are more blocks
of rows, y and every layer.
"""

import json
import math
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np

from tests.support.attack_kit import oracle
from tests.support.attack_kit.oracle import BOTTOM


@dataclass
class Sum(oracle.Bundle):
    """What the files say of a sum of noise; `rows` is empty: nothing is measured."""

    factors: list = field(default_factory=list)
    """For every block one factor an attribute, in Python integers."""
    over: list = field(default_factory=list)
    """For every block the attribute whose factor has a column for every edge, or -1."""
    lists: list = field(default_factory=list)
    """The edges of every attribute."""
    joined: list = field(default_factory=list)
    """For every joined block its axes, what it hides, and its layers: what each keeps, and T in Python integers."""


def read(folder):
    """Return what a bundle says if it is a sum of noise, else None."""
    folder = Path(folder)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    if "blocks.npz" not in manifest["files"]:
        return None
    held = oracle.archive(folder / "blocks.npz")
    if "b0_hides" not in held and "joined" not in held:
        return None
    sizes = [int(size) for size in manifest["domain"]["sizes"]]
    policy = oracle.archive(folder / "policy.npz")
    lists = [oracle.pairs(policy[f"edges{i}"]) for i in range(len(sizes))]
    numbers = range(int(held["blocks"]))
    factors = [[oracle.exact(held[f"b{b}_f{i}"]) for i in range(len(sizes))] for b in numbers]
    counts = [math.prod(len(factor) for factor in own) for own in factors]
    precisions = [p for b in numbers for p in precisions_of(held[f"b{b}_precisions"], factors[b])]
    edges, over = oracle.product_edges(lists, sizes), [int(held[f"b{b}_over"]) for b in numbers]
    joined = []
    for j in range(int(held["joined"]) if "joined" in held else 0):
        axes, hides, weights = (held[f"j{j}_{name}"].tolist() for name in ("axes", "hides", "weights"))
        names = [f"j{j}_l{number}" for number in range(int(held[f"j{j}_places"][2]))]
        layers = [(held[f"{name}_keeps"].tolist(), oracle.exact(held[f"{name}_rows"])) for name in names]
        joined.append((axes, hides, layers))
        others = math.prod(size for i, size in enumerate(sizes) if i not in axes)
        counts.append(len(weights) * others)
        precisions += [Fraction(w) for w in weights for _ in range(others)]
        for keeps, rows in layers:
            counts.append(len(rows) * math.prod(sizes[i] for i in keeps))
            precisions += [Fraction(1)] * counts[-1]
    own = {"factors": factors, "over": over, "lists": lists, "joined": joined}
    return Sum(sizes, manifest["noise"], "noise", edges, np.empty(0), precisions, counts, **own)


def precisions_of(held, factors):
    """Return one precision a row, None where it is infinite; rows of precision zero have no noise either."""
    written = np.broadcast_to(held, [len(factor) for factor in factors])
    return [None if p in (math.inf, 0.0) else Fraction(p) for p in written.ravel().tolist()]


def moves(bundle):
    """Yield every move of one record: the attribute, the number of its edge there, and the cell of the others."""
    for i, own in enumerate(bundle.lists):
        others = [range(size) if j != i else [None] for j, size in enumerate(bundle.sizes)]
        yield from ((i, e, rest) for rest in product(*others) for e in range(len(own)))


def taken_up(bundle, b, move):
    """Return how a block's noise is shifted by a move, row by row; None where it cannot take it up."""
    i, e, rest = move
    if bundle.over[b] not in (-1, i) or not all(map(full_rank, bundle.factors[b])):
        return None
    u, v = bundle.lists[i][e]
    parts = []
    for k, factor in enumerate(bundle.factors[b]):
        wanted = bundle.sizes[k] if bundle.over[b] != k else len(bundle.lists[k])
        assert factor.shape[1] == wanted, "a factor that does not fit"
        if k != i:
            parts.append(factor[:, rest[k]])
        elif bundle.over[b] == i:
            parts.append(factor[:, e])
        else:
            parts.append(factor[:, u] - (0 if v == BOTTOM else factor[:, v]))
    return oracle.outer(parts)


def taken_up_together(bundle, j, move):
    """Return how y and all z of a joined block are shifted by a move, or None where it cannot take it up."""
    i, e, rest = move
    axes, hides, layers = bundle.joined[j]
    ends = [[end if k == i else rest[k] for k in range(len(bundle.sizes))] for end in bundle.lists[i][e]]
    signed = [(end, sign) for end, sign in zip(ends, (1, -1), strict=True) if end[i] != BOTTOM]
    totals = {}
    for end, sign in signed:
        where = total_of(bundle, axes, hides, end)
        totals[where] = totals.get(where, 0) + sign
    if any(total for where, total in totals.items() if where is not None):
        return None
    every = range(len(bundle.sizes))
    apart = [k for k in every if k not in axes]
    n = math.prod(bundle.sizes[k] for k in axes)
    tables = [(apart, [[int(row == value) for value in range(n)] for row in range(n)]), *layers]
    shift = []
    for keeps, rows in tables:
        assert set(keeps) <= set(apart), "a layer keeps what is joined"
        kept = math.prod(bundle.sizes[k] for k in keeps)
        own = [0] * (len(rows) * kept)
        for end, sign in signed:
            inside, held = (number([end[k] for k in some], [bundle.sizes[k] for k in some]) for some in (axes, keeps))
            for row, values in enumerate(rows):
                own[row * kept + held] += sign * values[inside]
        shift += own
    return shift


def total_of(bundle, axes, hides, cell):
    """Return which of the totals that a joined block keeps a cell is in; None where it is in none."""
    if any(v == BOTTOM for i in hides if i not in axes for _, v in bundle.lists[i]):
        return None
    where = []
    for i, value in enumerate(cell):
        if i not in hides:
            where.append(value)
        elif i in axes:
            where.append(component(bundle, i, value))
    return None if None in where else tuple(where)


def component(bundle, i, value):
    """Return the least value that edges of an attribute lead to; None where they lead to "no record"."""
    reached, before = {value}, set()
    while reached != before:
        before = set(reached)
        for u, v in bundle.lists[i]:
            if u in reached or v in reached:
                reached |= {u, v}
                if BOTTOM in reached:
                    return None
    return min(reached)


def number(values, sizes):
    """The place of values in row-major order."""
    place = 0
    for value, size in zip(values, sizes, strict=True):
        place = place * size + value
    return place


def full_rank(factor):
    """Whether no column of integers depends on the others, in fractions."""
    rows, (count, width) = [[Fraction(v) for v in row] for row in factor], factor.shape
    for column in range(width):
        pivot = next((j for j in range(column, count) if rows[j][column] != 0), None)
        if pivot is None:
            return False
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for row in rows[column + 1 :]:
            share = row[column] / rows[column][column]
            row[column:] = [a - share * b for a, b in zip(row[column:], rows[column][column:], strict=True)]
    return True


def shifts(bundle, scales):
    """Yield every edge, the least loss of a record moved along it, and the shifts of all noise that hide it."""
    assert len(scales) == sum(bundle.blocks)
    plain = len(bundle.factors)
    first = [
        *range(plain),
        *(plain + sum(1 + len(own[2]) for own in bundle.joined[:j]) for j in range(len(bundle.joined))),
    ]
    starts = [sum(bundle.blocks[:b]) for b in first]
    for edge, move in zip(bundle.edges, moves(bundle), strict=True):
        least = math.inf, None
        for b, start in enumerate(starts):
            shift = taken_up(bundle, b, move) if b < plain else taken_up_together(bundle, b - plain, move)
            if shift is None:
                continue
            own = scales[start : start + len(shift)]
            lost = sum((oracle.cost("laplace", s, scale) for s, scale in zip(shift, own, strict=True)), Fraction(0))
            if lost < least[0]:
                whole = [0] * start + shift + [0] * (len(scales) - start - len(shift))
                least = lost, whole
        yield edge, *least


def loss(bundle, scales):
    """Return the exact loss of a release whose rows had noise of these scales, and the edge that loses most."""
    assert bundle.noise == "laplace", "sums of noise have a pure epsilon"
    worst = (Fraction(0), None)
    for edge, lost, _ in shifts(bundle, scales):
        worst = max(worst, (lost, edge), key=lambda found: found[0])
    return worst
