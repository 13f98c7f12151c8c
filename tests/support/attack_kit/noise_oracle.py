"""The exact privacy loss of sums of noise, from the files of a bundle and the noise that was drawn.

Shares no code with the package. What is published is x + sum_b (G_b1 (x) ... (x) G_bd) z_b, exactly, so a record's move
p is hidden by a block b whose noise takes it up: there are whole shifts s of z_b, none on a row without noise, with
(G_b1 (x) ... (x) G_bd) s = p. Where every factor R of a block has full column rank, which is decided in fractions, G is
its least-squares inverse and G R = I, so that s = R p; a factor S over edges has G = P S^+, and s is the column of the
edge moved along. The loss of a move is

    min over the blocks that can take it up of  sum over rows |s_row| / scale_row

and what a block says that it hides is not asked: it changes nothing of what is drawn.
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


def read(folder):
    """Return what a bundle says if it is a sum of noise, else None."""
    folder = Path(folder)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    if "blocks.npz" not in manifest["files"]:
        return None
    held = oracle.archive(folder / "blocks.npz")
    if "b0_hides" not in held:
        return None
    sizes = [int(size) for size in manifest["domain"]["sizes"]]
    policy = oracle.archive(folder / "policy.npz")
    lists = [oracle.pairs(policy[f"edges{i}"]) for i in range(len(sizes))]
    numbers = range(int(held["blocks"]))
    factors = [[oracle.exact(held[f"b{b}_f{i}"]) for i in range(len(sizes))] for b in numbers]
    counts = [math.prod(len(factor) for factor in own) for own in factors]
    precisions = [p for b in numbers for p in precisions_of(held[f"b{b}_precisions"], factors[b])]
    edges, over = oracle.product_edges(lists, sizes), [int(held[f"b{b}_over"]) for b in numbers]
    return Sum(sizes, manifest["noise"], "noise", edges, np.empty(0), precisions, counts, None, factors, over, lists)


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
    starts = [sum(bundle.blocks[:b]) for b in range(len(bundle.blocks))]
    for edge, move in zip(bundle.edges, moves(bundle), strict=True):
        least = math.inf, None
        for b, start in enumerate(starts):
            shift = taken_up(bundle, b, move)
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
