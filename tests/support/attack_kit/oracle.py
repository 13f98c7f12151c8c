"""The exact privacy loss of a release, from the files of a bundle and the noise that was drawn.

Shares no code with the package. Files are read with json, zipfile and a small reader of .npy; whole numbers are Python
integers and losses are fractions, so nothing is rounded and nothing overflows. What a record's move along an edge of
the policy shifts is compared with the scale of the noise on it:

    Laplace   max over edges of  sum over rows |(A p_e)_row| / scale_row          at most epsilon
    Gaussian  max over edges of  sum over rows (A p_e)_row^2 / (2 scale_row^2)    at most rho

Tree norms add whole numbers z to the counts, with probabilities proportional to the product over the nodes v of
q_v^|z(v)|. A record's move changes by one the sums of the nodes above one of its ends and not above the other:

    Tree norm  max over edges of  sum over these nodes of -log q_v                at most epsilon

A row without noise must be invisible to every edge; one that is not makes the loss infinite.
"""

import ast
import io
import json
import math
import struct
import unicodedata
import zipfile
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np

BOTTOM = -1
EXACT = None
"""In the place of a scale: the row is published without noise."""

UNMEASURED = "not measured"
"""In the place of a scale: a row of precision zero, which is not published at all."""

MOST_ENTRIES = 2**22
"""Entries of a strategy written out; the forger makes small domains only."""


@dataclass
class Bundle:
    """What the files say, nothing more."""

    sizes: list
    noise: str
    kind: str
    edges: list
    rows: np.ndarray
    """Integers that noise is added to, as Python integers: rows over cells, or over edges for the kind "edge"."""
    precisions: list
    """One a row, as fractions; None is infinite. All 1 for written-out strategies."""
    blocks: list
    """Number of rows of every block, in order."""
    parents: list | None = None
    """For the kind "tree", whose rows are the cells: the parent of every node, -1 for a root."""
    groups: list | None = None
    """For a tree that holds in every public group: the cells of each, in the order of the tree and of the rows."""

    @property
    def num_cells(self):
        return math.prod(self.sizes)


# Files


def read(folder):
    """Return what a bundle says."""
    folder = Path(folder)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    sizes = [int(size) for size in manifest["domain"]["sizes"]]
    policy = archive(folder / "policy.npz")
    if (folder / "blocks.npz").exists() and "blocks.npz" in manifest["files"]:
        rows, precisions, counts = block_rows(archive(folder / "blocks.npz"), sizes)
        edges = product_edges([pairs(policy[f"edges{i}"]) for i in range(len(sizes))], sizes)
        return Bundle(sizes, manifest["noise"], "blocks", edges, rows, precisions, counts)
    if "tree.npz" in manifest["files"]:
        n, parents = math.prod(sizes), [int(p) for p in archive(folder / "tree.npz")["parents"]]
        rows = np.array([[int(i == j) for j in range(n)] for i in range(n)], dtype=object)
        edges = pairs(policy["edges"])
        return Bundle(sizes, manifest["noise"], "tree", edges, rows, [Fraction(1)] * n, [n], parents)
    if "grouped_tree.npz" in manifest["files"]:
        held, n = archive(folder / "grouped_tree.npz"), math.prod(sizes)
        edges = product_edges([pairs(policy[f"edges{i}"]) for i in range(len(sizes))], sizes)
        groups = group_cells(sizes, [int(axis) for axis in held["axes"]])
        order = [cell for cells in groups for cell in cells]
        rows = np.array([[int(cell == j) for j in range(n)] for cell in order], dtype=object)
        parents = [int(p) for p in held["parents"]]
        return Bundle(sizes, manifest["noise"], "tree", edges, rows, [Fraction(1)] * n, [n], parents, groups)
    held = archive(folder / "strategy.npz")
    rows = exact(held["integers"])
    kind = str(held["kind"])
    return Bundle(sizes, manifest["noise"], kind, pairs(policy["edges"]), rows, [Fraction(1)] * len(rows), [len(rows)])


def archive(path):
    """Return the arrays of an .npz file."""
    with zipfile.ZipFile(path) as held:
        return {name.removesuffix(".npy"): array(held.read(name)) for name in held.namelist()}


def array(content):
    """Return the array of an .npy file; nothing is ever unpickled."""
    stream = io.BytesIO(content)
    assert stream.read(6) == b"\x93NUMPY"
    major = stream.read(2)[0]
    form = "<H" if major == 1 else "<I"
    (length,) = struct.unpack(form, stream.read(struct.calcsize(form)))
    header = ast.literal_eval(stream.read(length).decode("utf8" if major == 3 else "latin1"))
    kind = np.dtype(header["descr"])
    assert not kind.hasobject
    flat = np.frombuffer(stream.read(), dtype=kind)
    order = "F" if header["fortran_order"] else "C"
    return flat[: math.prod(header["shape"])].reshape(header["shape"], order=order)


def exact(held):
    """Return an array of Python integers; numbers that are not whole are refused."""
    assert held.dtype.kind in "iu"
    assert held.ndim == 2
    out = np.empty(held.shape, dtype=object)
    for place in np.ndindex(held.shape):
        out[place] = int(held[place])
    return out


def pairs(held):
    """Return edges as pairs of Python integers."""
    ends = [(int(u), int(v)) for u, v in held]
    return [(v, u) if u == BOTTOM else (u, v) for u, v in ends]


# What is measured


def block_rows(held, sizes):
    """Write out the rows of all blocks: products of one row of every factor, in row-major order."""
    rows, precisions, counts = [], [], []
    for b in range(int(held["blocks"])):
        factors = [exact(held[f"b{b}_f{i}"]) for i in range(len(sizes))]
        shape = [len(factor) for factor in factors]
        assert math.prod(shape) * math.prod(sizes) <= MOST_ENTRIES, "too large to be written out"
        written = np.broadcast_to(held[f"b{b}_precisions"], shape)
        for place in np.ndindex(*shape):
            rows.append(outer([factor[j] for factor, j in zip(factors, place, strict=True)]))
            number = float(written[place])
            precisions.append(None if number == math.inf else Fraction(number))
        counts.append(math.prod(shape))
    return np.array(rows, dtype=object).reshape(len(rows), math.prod(sizes)), precisions, counts


def outer(parts):
    """Return the product of rows over the cells of a product domain, in Python integers."""
    out = [1]
    for part in parts:
        out = [a * int(b) for a in out for b in part]
    return out


def product_edges(lists, sizes):
    """Return the edges of the Cartesian product: an edge of one attribute, any cell of the others."""
    found = []
    for i, own in enumerate(lists):
        others = [range(size) if j != i else [None] for j, size in enumerate(sizes)]
        for rest in product(*others):
            for u, v in own:
                ends = [cell_number([end if j == i else c for j, c in enumerate(rest)], sizes) for end in (u, v)]
                found.append((ends[0], BOTTOM if v == BOTTOM else ends[1]))
    return found


def group_cells(sizes, axes):
    """Return the cells of every group: all values of the attributes of a tree, for one value of the others."""
    others = [i for i in range(len(sizes)) if i not in axes]
    found = []
    for rest in product(*(range(sizes[i]) for i in others)):
        values = [dict(zip(axes, own, strict=True)) for own in product(*(range(sizes[i]) for i in axes))]
        fixed = dict(zip(others, rest, strict=True))
        found.append([cell_number([(fixed | own)[i] for i in range(len(sizes))], sizes) for own in values])
    return found


def cell_number(cell, sizes):
    """Return the number of a cell in row-major order."""
    number = 0
    for value, size in zip(cell, sizes, strict=True):
        number = number * size + value
    return number


def shifts(bundle):
    """Yield every edge and what moving one record along it adds to the measured rows."""
    for e, (u, v) in enumerate(bundle.edges):
        assert u != v
        assert 0 <= u < bundle.num_cells
        assert -1 <= v < bundle.num_cells
        if bundle.kind == "edge":
            yield (u, v), list(bundle.rows[:, e])
        else:
            zero = [0] * len(bundle.rows)
            yield (
                (u, v),
                [a - b for a, b in zip(bundle.rows[:, u], zero if v == BOTTOM else bundle.rows[:, v], strict=True)],
            )


# The loss


def cost(noise, shift, scale):
    """Return the loss of one row: how well noise of that scale hides that shift."""
    if shift == 0 or scale is UNMEASURED:
        return Fraction(0)
    if scale is EXACT:
        return math.inf
    return (
        Fraction(abs(shift)) / Fraction(scale)
        if noise == "laplace"
        else Fraction(shift) ** 2 / (2 * Fraction(scale) ** 2)
    )


def loss(bundle, scales):
    """Return the exact loss of a release whose rows had noise of these scales, and the edge that loses most."""
    assert len(scales) == len(bundle.rows)
    worst = (Fraction(0), None)
    for edge, shift in shifts(bundle):
        total = sum((cost(bundle.noise, s, scale) for s, scale in zip(shift, scales, strict=True)), Fraction(0))
        worst = max(worst, (total, edge), key=lambda found: found[0])
    return worst


def tree_loss(bundle, ratios, fixed):
    """Return the loss of noise on a tree with these ratios and roots of sum zero, and the edge that loses most."""
    assert len(ratios) == len(bundle.parents)
    assert all(0 < q <= 1 for q in ratios), "a ratio that is none"
    assert all(bundle.parents[root] == -1 for root in fixed)
    worst = (Fraction(0), None)
    for u, v in bundle.edges:
        ends = leaves(bundle, u, v)
        if ends is None:
            return math.inf, (u, v)
        changed = above(bundle.parents, ends[0]) ^ above(bundle.parents, ends[1])
        lost = math.inf if changed & set(fixed) else minus_log(math.prod(Fraction(ratios[node]) for node in changed))
        worst = max(worst, (lost, (u, v)), key=lambda found: found[0])
    return worst


def leaves(bundle, u, v):
    """Return the leaves of the tree at the ends of an edge; None where it leads from one group to another."""
    if bundle.groups is None:
        return u, v
    (own,) = (cells for cells in bundle.groups if u in cells)
    if v == BOTTOM:
        return own.index(u), BOTTOM
    return (own.index(u), own.index(v)) if v in own else None


def above(parents, node):
    """Return a cell and all nodes above it; none for "no record"."""
    found = set()
    while node != BOTTOM:
        assert node not in found, "a circle"
        found.add(node)
        node = parents[node]
    return found


def minus_log(number):
    """Return -log of a positive fraction, rounded up in the fiftieth digit."""
    with localcontext() as context:
        context.prec = 60
        log = Decimal(number.numerator).ln() - Decimal(number.denominator).ln()
    return Fraction(-log) + Fraction(1, 10**50)


def neighbour(counts, edge):
    """Return the counts after one record went along an edge."""
    moved = list(counts)
    moved[edge[0]] += 1
    if edge[1] != BOTTOM:
        moved[edge[1]] -= 1
    return moved


# Names

LOOKALIKES = {
    **dict.fromkeys(
        "\u2236\ua789\u02d0\u05c3\u0703\u0589\ufe55\u1804\u205a\ufe30\uff1a\u2982\u0903\u0a83\u1803\u16ec", ":"
    ),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212\u2796\ufe58\u06d4\u2043", "-"),
    **dict.fromkeys("\u00d7\u2715\u2a2f\u0445\u03c7", "x"),
    **dict.fromkeys("\u0456\u0131\u2170\u03b9", "i"),
    **dict.fromkeys("\u0435\u212e", "e"),
    **dict.fromkeys("\u043e\u03bf\u0585", "o"),
    **dict.fromkeys("\u0430\u03b1\u0251", "a"),
    **dict.fromkeys("\u0441\u03f2", "c"),
    **dict.fromkeys("\u0440\u03c1", "p"),
    **dict.fromkeys("\u0455", "s"),
    **dict.fromkeys("\u04cf\u01c0\u2223", "l"),
    **dict.fromkeys("\u057d", "u"),
    **dict.fromkeys("\u2024\u00b7\u2027\u30fb\u22c5\u0387\u2219", "."),
}


def folded(name):
    """Return a name as a hurried reader sees it: compatibility forms, lookalikes and blanks folded away."""
    text = unicodedata.normalize("NFKC", name)
    text = "".join(LOOKALIKES.get(c, c) for c in text)
    blank = {"\u2800", "\u3164", "\u115f", "\u1160", "\u00ad", "\u034f"}
    kept = [c for c in text if not c.isspace() and c not in blank and unicodedata.category(c) not in ("Cf", "Mn", "Cc")]
    return "".join(kept).lower().strip("\"'`.,;!?()[]<>{}|/*_~-+=")
