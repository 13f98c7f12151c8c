"""Tricks with joined blocks: what they join and hide, weights, rows, gains, binary places. Each says what it chose."""

import numpy as np

from tests.support.attack_kit.measured_tricks import pick, place

AXES = [[], [0], [1], [2], [0, 1], [1, 0], [0, 0], [0, 2], [1, 2], [0, 1, 2], [5], [-1], [2**40]]
SIZES = [0, 1, -1, 2, 1000, -(2**20), 2**30, 2**51, -(2**51), 2**52, 2**62, -(2**63)]


def some_joined(draft, rng):
    return int(rng.integers(int(draft.strategy["joined"])))


def sizes_of(draft):
    return draft.manifest["domain"]["sizes"]


def fresh(draft, rng, j, axes, hides):
    """Arrays of the right shapes for a block that joins other attributes; the totals may be miscounted."""
    n = int(np.prod([sizes_of(draft)[i] for i in axes]))
    p, most = int(rng.integers(3)), n // sizes_of(draft)[hides]
    totals = most * int(rng.integers(0, 4))
    draft.strategy[f"j{j}_axes"] = np.array(axes, dtype=np.int64)
    draft.strategy[f"j{j}_places"] = np.array([hides, *rng.integers(0, 6, 2)])
    draft.strategy[f"j{j}_weights"] = rng.integers(1, 9, n)
    draft.strategy[f"j{j}_rows"] = rng.integers(-9, 10, (p, n))
    draft.strategy[f"j{j}_gains"] = rng.integers(-9, 10, (n, p + totals))


def other_axes(draft, rng, others):
    """A block says that it joins other attributes, with arrays as they were."""
    j, axes = some_joined(draft, rng), pick(rng, AXES)
    draft.strategy[f"j{j}_axes"] = np.array(axes, dtype=np.int64)
    return f"j{j} {axes}"


def other_block(draft, rng, others):
    """A block that joins other attributes, and hides one of them, with arrays that may fit."""
    j, d = some_joined(draft, rng), len(sizes_of(draft))
    axes = sorted(rng.permutation(d)[: int(rng.integers(1, d + 1))].tolist())
    hides = pick(rng, axes)
    fresh(draft, rng, j, axes, hides)
    return f"j{j} {axes} {hides}"


def other_hidden(draft, rng, others):
    """The edges of another attribute are said to be hidden."""
    j, hides = some_joined(draft, rng), pick(rng, [0, 1, 2, 3, -1, 62, 2**40])
    draft.strategy[f"j{j}_places"][0] = hides
    return f"j{j} {hides}"


def swapped_hidden(draft, rng, others):
    """Two blocks swap all arrays, or only what they hide."""
    names = ["places"] if rng.random() < 0.5 else ["axes", "weights", "rows", "gains"]
    for name in names:
        one, other = draft.strategy[f"j0_{name}"], draft.strategy[f"j1_{name}"]
        draft.strategy[f"j0_{name}"], draft.strategy[f"j1_{name}"] = other, one
    return names


def one_number(draft, rng, others):
    """One number of an array is another one, of any size."""
    j, name = some_joined(draft, rng), pick(rng, ["weights", "weights", "rows", "gains"])
    held, value = draft.strategy[f"j{j}_{name}"], pick(rng, SIZES)
    held[place(rng, held)] = value
    return f"j{j}_{name} {value}"


def all_numbers(draft, rng, others):
    """All numbers of an array are scaled, or one and the same."""
    j, name = some_joined(draft, rng), pick(rng, ["weights", "rows", "gains"])
    factor = pick(rng, SIZES)
    held = draft.strategy[f"j{j}_{name}"]
    with np.errstate(all="ignore"):
        draft.strategy[f"j{j}_{name}"] = held * factor if rng.random() < 0.5 else np.full_like(held, factor)
    return f"j{j}_{name} {factor}"


def constant_rows(draft, rng, others):
    """Rows that moves hardly see, of any size."""
    j, value = some_joined(draft, rng), pick(rng, [1000, 2**13, 2**30, 2**51])
    draft.strategy[f"j{j}_rows"][:] = value
    return f"j{j} {value}"


def other_places(draft, rng, others):
    """Other binary places of weights and rows, or of gains."""
    j, k, bits = some_joined(draft, rng), int(rng.integers(1, 3)), pick(rng, [0, 1, 20, 30, 31, 52, 53, 62, 63, -1])
    draft.strategy[f"j{j}_places"][k] = bits
    return f"j{j} {k} {bits}"


def fewer(draft, rng, others):
    """An array loses rows or columns: all, or one."""
    j, name = some_joined(draft, rng), pick(rng, ["rows", "gains", "weights", "axes", "places"])
    held, last = draft.strategy[f"j{j}_{name}"], pick(rng, [-1, 0])
    axis = int(rng.integers(held.ndim))
    draft.strategy[f"j{j}_{name}"] = np.moveaxis(np.moveaxis(held, axis, 0)[:last], 0, axis)
    return f"j{j}_{name} {axis} {last}"


def no_rows(draft, rng, others):
    """A block without rows, and the gains that go with it."""
    j = some_joined(draft, rng)
    p = len(draft.strategy[f"j{j}_rows"])
    draft.strategy[f"j{j}_rows"] = draft.strategy[f"j{j}_rows"][:0]
    draft.strategy[f"j{j}_gains"] = draft.strategy[f"j{j}_gains"][:, p:]
    return f"j{j}"


def other_count(draft, rng, others):
    """More or fewer blocks than there are; or one more, a copy or another one, that hides an attribute."""
    count = int(draft.strategy["joined"])
    if rng.random() < 0.5:
        wrong = pick(rng, [0, 1, count + 1, -1, 65, 2**40])
        draft.strategy["joined"] = np.array(wrong)
        return wrong
    axes = [0, 2] if rng.random() < 0.5 else [0, 1, 2]
    draft.strategy["joined"] = np.array(count + 1)
    fresh(draft, rng, count, axes, pick(rng, axes))
    return axes


ALL = [
    *(other_axes, other_block, other_block, other_block, other_hidden, swapped_hidden, one_number, one_number),
    *(all_numbers, constant_rows, other_places, fewer, no_rows, other_count, other_count),
]
