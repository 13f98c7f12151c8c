"""Tricks with joined blocks: what they join, hide and keep, weights, rows, gains, places. Each says what it chose."""

import numpy as np

from tests.support.attack_kit.measured_tricks import pick, place

AXES = [[], [0], [1], [2], [0, 1], [1, 0], [0, 0], [0, 2], [1, 2], [0, 1, 2], [3], [2, 3], [5], [-1], [2**40]]
SIZES = [0, 1, -1, 2, 1000, -(2**20), 2**30, 2**51, -(2**51), 2**52, 2**62, -(2**63)]


def some_joined(draft, rng):
    return int(rng.integers(int(draft.strategy["joined"])))


def names_of(draft, j, *ends):
    """The names of a block's arrays that end in one of some ways."""
    return [name for name in draft.strategy if name.startswith(f"j{j}_") and name.endswith(ends)]


def gains_of(draft, j):
    """The names of a block's gains: j0_l1_g0, or j0_t_g0."""
    return [name for name in names_of(draft, j, *"0123456789") if name.rsplit("_", 1)[1].startswith("g")]


def sizes_of(draft):
    return draft.manifest["domain"]["sizes"]


def some_of(rng, attributes, share=0.5):
    return [int(i) for i in attributes if rng.random() < share]


def attributes(those):
    return np.array(those, dtype=np.int64)


def fresh(draft, rng, j, axes, hides):
    """Arrays of the right shapes for a block that joins other attributes; the totals may be miscounted."""
    sizes, strategy = sizes_of(draft), draft.strategy
    for name in names_of(draft, j, ""):
        del strategy[name]
    outside, n = [i for i in range(len(sizes)) if i not in axes], int(np.prod([sizes[i] for i in axes]))
    layers = int(rng.integers(4))
    strategy[f"j{j}_axes"], strategy[f"j{j}_hides"] = attributes(axes), attributes(hides)
    strategy[f"j{j}_places"] = np.array([*rng.integers(0, 6, 2), layers])
    strategy[f"j{j}_weights"] = rng.integers(1, 9, n)
    for number in range(layers):
        keeps, p = some_of(rng, outside), int(rng.integers(3))
        strategy[f"j{j}_l{number}_keeps"] = attributes(keeps)
        strategy[f"j{j}_l{number}_rows"] = rng.integers(-9, 10, (p, n))
        fresh_gains(draft, rng, f"j{j}_l{number}", keeps, n, p)
    most = n // int(np.prod([sizes[i] for i in axes if i in hides]))
    kept = [i for i in outside if i not in hides]
    fresh_gains(draft, rng, f"j{j}_t", kept, n, most * int(rng.integers(4)), few=rng.random() < 0.3)


def fresh_gains(draft, rng, name, keeps, n, rows, *, few=False):
    """Gains on random subsets, none of them twice; none at all if so wished."""
    every = {tuple(some_of(rng, keeps)) for _ in range(int(rng.integers(3)))} | {tuple(keeps)}
    subsets = [] if few else sorted(every)
    draft.strategy[f"{name}_gains"] = np.array(len(subsets))
    for g, own in enumerate(subsets):
        draft.strategy[f"{name}_g{g}_keeps"] = attributes(own)
        draft.strategy[f"{name}_g{g}"] = rng.integers(-9, 10, (n, rows))


def other_axes(draft, rng, others):
    """A block says that it joins other attributes, with arrays as they were."""
    j, axes = some_joined(draft, rng), pick(rng, AXES)
    draft.strategy[f"j{j}_axes"] = attributes(axes)
    return f"j{j} {axes}"


def other_block(draft, rng, others):
    """A block that joins other attributes, and hides some inside or outside of it, with arrays that may fit."""
    j, d = some_joined(draft, rng), len(sizes_of(draft))
    axes = sorted(rng.permutation(d)[: int(rng.integers(1, d + 1))].tolist())
    hides = some_of(rng, range(d)) if rng.random() < 0.5 else draft.strategy[f"j{j}_hides"].tolist()
    fresh(draft, rng, j, axes, hides)
    return f"j{j} {axes} {hides}"


def one_block(draft, rng, others):
    """One joined block in the place of all: it hides every attribute, wherever it is, or all that have edges."""
    d = len(sizes_of(draft))
    axes = sorted(rng.permutation(d)[: int(rng.integers(1, d + 1))].tolist())
    hides = [i for i in range(d) if rng.random() < 0.3 or len(draft.policy[f"edges{i}"])]
    if "b0_hides" not in draft.strategy:
        draft.strategy["joined"] = np.array(1)
    fresh(draft, rng, 0, axes, hides)
    return f"{axes} {hides}"


def other_hidden(draft, rng, others):
    """The edges of other attributes are said to be hidden; the totals may be left out, as if there were none."""
    j, hides = some_joined(draft, rng), pick(rng, AXES)
    draft.strategy[f"j{j}_hides"] = attributes(hides)
    if rng.random() < 0.5:
        draft.strategy[f"j{j}_t_gains"] = np.array(0)
    return f"j{j} {hides}"


def more_hidden(draft, rng, others):
    """One attribute more is hidden, or one less, without totals; or it goes from one block to another."""
    j, i = some_joined(draft, rng), int(rng.integers(len(sizes_of(draft))))
    blocks = [j] if rng.random() < 0.5 else range(int(draft.strategy["joined"]))
    for k in blocks:
        hides = set(draft.strategy[f"j{k}_hides"].tolist()) ^ {i}
        draft.strategy[f"j{k}_hides"] = attributes(sorted(hides))
        draft.strategy[f"j{k}_t_gains"] = np.array(0)
    return f"j{list(blocks)} {i}"


def swapped_hidden(draft, rng, others):
    """Two blocks swap all arrays, or only what they hide."""
    ends = ("",) if rng.random() < 0.5 else ("_hides",)
    one, other = ({n.removeprefix(f"j{j}"): draft.strategy.pop(n) for n in names_of(draft, j, *ends)} for j in (0, 1))
    draft.strategy.update({f"j0{name}": held for name, held in other.items()})
    draft.strategy.update({f"j1{name}": held for name, held in one.items()})
    return ends


def numbers_of(draft, rng, j):
    """Weights, rows of a layer, or gains."""
    kinds = [[f"j{j}_weights"], names_of(draft, j, "_rows"), gains_of(draft, j)]
    return pick(rng, pick(rng, [kinds[0], *kinds]))


def one_number(draft, rng, others):
    """One number of an array is another one, of any size."""
    name, value = numbers_of(draft, rng, some_joined(draft, rng)), pick(rng, SIZES)
    held = draft.strategy[name]
    held[place(rng, held)] = value
    return f"{name} {value}"


def all_numbers(draft, rng, others):
    """All numbers of an array are scaled, or one and the same."""
    name, factor = numbers_of(draft, rng, some_joined(draft, rng)), pick(rng, SIZES)
    held = draft.strategy[name]
    with np.errstate(all="ignore"):
        draft.strategy[name] = held * factor if rng.random() < 0.5 else np.full_like(held, factor)
    return f"{name} {factor}"


def constant_rows(draft, rng, others):
    """Rows that moves hardly see, of any size."""
    name, value = pick(rng, names_of(draft, some_joined(draft, rng), "_rows")), pick(rng, [1000, 2**13, 2**30, 2**51])
    draft.strategy[name][:] = value
    return f"{name} {value}"


def other_keeps(draft, rng, others):
    """A layer, or gains, keep other attributes: some of those outside, or any; a layer's gains may follow it."""
    j = some_joined(draft, rng)
    name = pick(rng, names_of(draft, j, "_keeps"))
    outside = [i for i in range(len(sizes_of(draft))) if i not in draft.strategy[f"j{j}_axes"]]
    keeps = some_of(rng, outside) if rng.random() < 0.7 else pick(rng, AXES)
    draft.strategy[name] = attributes(keeps)
    if rng.random() < 0.5:
        gains = name.replace("_keeps", "_g0_keeps")
        if gains in draft.strategy:
            draft.strategy[gains] = attributes(keeps[: int(rng.integers(len(keeps) + 1))])
    return f"{name} {keeps}"


def other_gains(draft, rng, others):
    """Fewer gains than there are, more, or none."""
    name = pick(rng, names_of(draft, some_joined(draft, rng), "_gains"))
    count = pick(rng, [0, 0, 1, int(draft.strategy[name]) + 1, -1, 2**10 + 1, 2**40])
    draft.strategy[name] = np.array(count)
    return f"{name} {count}"


def other_places(draft, rng, others):
    """Other binary places of weights and rows, or of gains."""
    j, k, bits = some_joined(draft, rng), int(rng.integers(2)), pick(rng, [0, 1, 20, 30, 31, 52, 53, 62, 63, -1])
    draft.strategy[f"j{j}_places"][k] = bits
    return f"j{j} {k} {bits}"


def other_layers(draft, rng, others):
    """Layers are left out at the end, or all; or there are said to be more."""
    j = some_joined(draft, rng)
    count = pick(rng, [0, int(draft.strategy[f"j{j}_places"][2]) - 1, 1, 2, 5, -1, 2**11, 2**40])
    draft.strategy[f"j{j}_places"][2] = count
    return f"j{j} {count}"


def swapped_layers(draft, rng, others):
    """Layers of a block swap their arrays, or one becomes that of another block."""
    j = some_joined(draft, rng)
    ends = pick(rng, ["_keeps", "_rows", "_g0", "_g0_keeps", "_gains"])
    one, other = pick(rng, names_of(draft, j, ends)), pick(rng, names_of(draft, some_joined(draft, rng), ends))
    draft.strategy[one], draft.strategy[other] = draft.strategy[other].copy(), draft.strategy[one].copy()
    return f"{one} {other}"


def fewer(draft, rng, others):
    """An array loses rows or columns: all, or one."""
    j = some_joined(draft, rng)
    kinds = ["axes", "hides", "places", "weights", "keeps"]
    every = [*names_of(draft, j, *(f"_{kind}" for kind in kinds)), *names_of(draft, j, "_rows"), *gains_of(draft, j)]
    name, last = pick(rng, every), pick(rng, [-1, 0])
    held = draft.strategy[name]
    axis = int(rng.integers(held.ndim))
    draft.strategy[name] = np.moveaxis(np.moveaxis(held, axis, 0)[:last], 0, axis)
    return f"{name} {axis} {last}"


def no_rows(draft, rng, others):
    """A layer without rows, and gains that go with it."""
    name = pick(rng, names_of(draft, some_joined(draft, rng), "_rows"))
    draft.strategy[name] = draft.strategy[name][:0]
    for own in (own for own in draft.strategy if own.startswith(name.replace("_rows", "_g")) and own[-1].isdigit()):
        draft.strategy[own] = draft.strategy[own][:, :0]
    return name


def other_count(draft, rng, others):
    """More or fewer blocks than there are; or one more, a copy or another one, that hides some attributes."""
    count = int(draft.strategy["joined"])
    if rng.random() < 0.5:
        wrong = pick(rng, [0, 1, count + 1, -1, 65, 2**40])
        draft.strategy["joined"] = np.array(wrong)
        return wrong
    axes = [0, 2] if rng.random() < 0.5 else [0, 1, 2]
    draft.strategy["joined"] = np.array(count + 1)
    fresh(draft, rng, count, axes, some_of(rng, range(len(sizes_of(draft)))))
    return axes


ALL = [
    *(other_axes, other_block, other_block, other_block, one_block, one_block, other_hidden, more_hidden),
    *(swapped_hidden, one_number, one_number, all_numbers, constant_rows, other_keeps, other_keeps, other_gains),
    *(other_places, other_layers, swapped_layers, fewer, no_rows, other_count, other_count),
]
