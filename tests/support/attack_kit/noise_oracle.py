"""The exact privacy loss of sums of noise, from the files of a bundle and the noise that was drawn.

Shares no code with the package. What is published is x + sum_b (G_b1 (x) ... (x) G_bd) z_b, exactly, so a record's move
p is hidden by a block b whose noise takes it up: there are whole shifts s of z_b, none on a row without noise, with
(G_b1 (x) ... (x) G_bd) s = p. Where every factor R of a block has full column rank, which is decided in fractions, G is
its least-squares inverse and G R = I, so that s = R p; a factor S over edges has G = P S^+, and s is the column of the
edge moved along. The loss of a move is

    min over the blocks that can take it up of  sum over rows |s_row| / scale_row

and what a block says that it hides is not asked: it changes nothing of what is drawn.

A joined block adds N = Q (y + K_1 (z - T y) - K_2 S y) over its attributes, for every value of the others by itself; S
sums up the components, without "no record", of the attribute that it says it hides. A move p within its attributes with
S p = 0 is y shifted by p and z by T p, whatever K is: these are two more blocks of rows, y and z.
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
    """For every joined block its axes, the attribute whose components it keeps, and T in Python integers."""


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
        axes, weights, rows = held[f"j{j}_axes"].tolist(), held[f"j{j}_weights"], held[f"j{j}_rows"]
        others = math.prod(size for i, size in enumerate(sizes) if i not in axes)
        joined.append((axes, int(held[f"j{j}_places"][0]), oracle.exact(rows)))
        counts += [weights.size * others, len(rows) * others]
        precisions += [Fraction(w) for w in weights.tolist() for _ in range(others)]
        precisions += [Fraction(1)] * (len(rows) * others)
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
    """Return how y and z of a joined block are shifted by a move, or None where it cannot take it up."""
    i, e, rest = move
    axes, kept, rows = bundle.joined[j]
    if i not in axes:
        return None
    ends = [[end if k == i else rest[k] for k in range(len(bundle.sizes))] for end in bundle.lists[i][e]]
    signed = [(end, sign) for end, sign in zip(ends, (1, -1), strict=True) if end[i] != BOTTOM]
    totals = {}
    for end, sign in signed:  # every value of the other joined attributes has totals of its own
        where = component(bundle, kept, end[kept]), *(end[k] for k in axes if k != kept)
        totals[where] = totals.get(where, 0) + sign
    if any(total for where, total in totals.items() if where[0] is not None):
        return None
    apart = [k for k in range(len(bundle.sizes)) if k not in axes]
    others = math.prod(bundle.sizes[k] for k in apart)
    n = math.prod(bundle.sizes[k] for k in axes)
    y, z = [0] * (n * others), [0] * (len(rows) * others)
    for end, sign in signed:
        inside, outside = (number([end[k] for k in some], [bundle.sizes[k] for k in some]) for some in (axes, apart))
        y[inside * others + outside] += sign
        for row in range(len(rows)):
            z[row * others + outside] += sign * rows[row, inside]
    return y + z


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
    starts = [sum(bundle.blocks[:b]) for b in [*range(plain), *range(plain, len(bundle.blocks), 2)]]
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
