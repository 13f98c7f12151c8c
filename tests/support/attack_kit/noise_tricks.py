"""Tricks with sums of noise: what blocks say they hide, their factors, rows without noise. Each says what it chose."""

import numpy as np

from tests.support.attack_kit.measured_tricks import custom_name, pick, place, some_block

MOST_VALUES = 64
"""Of an attribute whose pairs are listed: an earlier trick may have made it huge."""

HIDES = [[], [0], [1], [2], [0, 1], [1, 0], [0, 0], [0, 1, 2], [5], [-1], [2**40]]


def attributes(draft):
    return len(draft.manifest["domain"]["sizes"])


def own_arrays(draft, b):
    """The names of the arrays of a block, without its number."""
    start = f"b{b}_"
    return [name.removeprefix(start) for name in draft.strategy if name.startswith(start)]


def hidden_attribute(draft, b):
    return int(draft.strategy[f"b{b}_hides"][0])


def other_hides(draft, rng, others):
    """A block says that it hides something else: less, more, nothing, twice the same."""
    b, hides = some_block(draft, rng), pick(rng, HIDES)
    draft.strategy[f"b{b}_hides"] = np.array(hides, dtype=np.int64)
    return f"b{b} {hides}"


def every_hides(draft, rng, others):
    """New hides for all blocks: each attribute goes to one of them, with edges or without."""
    held = [[] for _ in range(int(draft.strategy["blocks"]))]
    for i in range(attributes(draft)):
        held[int(rng.integers(len(held)))].append(i)
    for b, hides in enumerate(held):
        draft.strategy[f"b{b}_hides"] = np.array(hides, dtype=np.int64)
    return held


def swapped_blocks(draft, rng, others):
    """Two blocks change places but for what they hide; or what they hide alone changes places."""
    names = ["hides"] if rng.random() < 0.3 else [n for n in own_arrays(draft, 0) if n not in ("hides", "over")]
    for name in names:
        one, other = draft.strategy[f"b0_{name}"], draft.strategy[f"b1_{name}"]
        draft.strategy[f"b0_{name}"], draft.strategy[f"b1_{name}"] = other, one
    return names


def dropped_block(draft, rng, others):
    """The last block goes; another one says that it hides its moves, or nobody does."""
    last = int(draft.strategy["blocks"]) - 1
    gone = {name: draft.strategy.pop(f"b{last}_{name}") for name in own_arrays(draft, last)}
    draft.strategy["blocks"] = np.array(last)
    if rng.random() < 0.7:
        draft.strategy["b0_hides"] = np.concatenate([draft.strategy["b0_hides"], gone["hides"]])
        if rng.random() < 0.7:
            draft.strategy["b0_precisions"] = np.ones([1] * attributes(draft))


def repeated_block(draft, rng, others):
    """One more block, a copy, that hides an attribute without edges or one that is hidden already."""
    count, b = int(draft.strategy["blocks"]), some_block(draft, rng)
    for name in own_arrays(draft, b):
        draft.strategy[f"b{count}_{name}"] = draft.strategy[f"b{b}_{name}"].copy()
    draft.strategy["blocks"] = np.array(count + 1)
    public = [i for i in range(attributes(draft)) if not len(draft.policy[f"edges{i}"])]
    draft.strategy[f"b{count}_hides"] = np.array([pick(rng, public or [0, 1])])
    if rng.random() < 0.5:
        draft.strategy[f"b{count}_precisions"][:] = pick(rng, [np.inf, 1e50, 1e-50])


def other_over(draft, rng, others):
    """Another attribute has a column for every edge, or none has."""
    b = some_block(draft, rng)
    over = pick(rng, [-1, 0, 1, 2, -2, 2**40])
    draft.strategy[f"b{b}_over"] = np.array(over)
    if over in range(attributes(draft)) and rng.random() < 0.7:
        edge_columns(draft, rng, b, over)
    return f"b{b} {over}"


def over_edges(draft, rng, others):
    """A factor over the edges of the attribute that its block hides."""
    b = some_block(draft, rng)
    i = hidden_attribute(draft, b)
    draft.strategy[f"b{b}_over"] = np.array(i)
    edge_columns(draft, rng, b, i)


def edge_columns(draft, rng, b, i):
    e = len(draft.policy[f"edges{i}"])
    rows = e + int(rng.integers(2))
    held = np.eye(rows, e, dtype=np.int64) * pick(rng, [1, 3, 1000])
    new_factor(draft, b, i, held + (rng.integers(-2, 3, size=held.shape) if rng.random() < 0.5 else 0))


def new_factor(draft, b, i, factor):
    """Put a factor in place, with precisions that fit: as they are along the other attributes."""
    draft.strategy[f"b{b}_f{i}"] = factor
    held = draft.strategy[f"b{b}_precisions"]
    draft.strategy[f"b{b}_precisions"] = np.take(held, [-1], axis=i)


def some_factor(draft, rng):
    return some_block(draft, rng), int(rng.integers(attributes(draft)))


def random_factor(draft, rng, others):
    b, i = some_factor(draft, rng)
    n = draft.strategy[f"b{b}_f{i}"].shape[1]
    size = pick(rng, [3, 1000, 2**20, 2**51])
    new_factor(draft, b, i, rng.integers(-size, size, size=(n + int(rng.integers(3)), n)))
    return f"b{b}_f{i} {size}"


def dependent_columns(draft, rng, others):
    """A factor without full column rank, or nearly so."""
    b, i = some_factor(draft, rng)
    held = draft.strategy[f"b{b}_f{i}"]
    if rng.random() < 0.3:
        new_factor(draft, b, i, held[: held.shape[1] - 1])
        return f"b{b}_f{i} thin"
    scale = pick(rng, [1, 2**20, 2**40, 2**50])
    held = held * scale
    held[:, -1] = held[:, 0]
    held[-1, -1] += pick(rng, [0, 1, 1, 7])
    draft.strategy[f"b{b}_f{i}"] = held
    return f"b{b}_f{i} {scale}"


def unrefinable_factor(draft, rng, others):
    """Moves cost little and the inverse cannot be refined: once, noise zero was published and all other refused."""
    b, i = some_factor(draft, rng)
    n, places = draft.strategy[f"b{b}_f{i}"].shape[1], int(rng.integers(18, 50))
    factor = np.eye(n, dtype=np.int64)
    factor[:2, :2] = [[2**places, 2**places - 1], [-(2**places), -(2**places) - 1]]
    new_factor(draft, b, i, factor)
    return f"b{b}_f{i} 2^{places}"


def without_noise(draft, rng, others):
    """Rows without noise: one, all of one row of a factor, or all of a block."""
    b = some_block(draft, rng)
    shape = [len(draft.strategy[f"b{b}_f{i}"]) for i in range(attributes(draft))]
    held = np.broadcast_to(draft.strategy[f"b{b}_precisions"], shape).copy()
    value, how = pick(rng, [np.inf, np.inf, 0.0]), pick(rng, ["one", "slice", "all"])
    if how == "one":
        held[place(rng, held)] = value
    elif how == "slice":
        axis = int(rng.integers(held.ndim))
        np.moveaxis(held, axis, 0)[int(rng.integers(shape[axis]))] = value
    else:
        held[:] = value
    draft.strategy[f"b{b}_precisions"] = held
    return f"b{b} {how} {value}"


def uneven_blocks(draft, rng, others):
    """One block is much more precise than the others."""
    b, factor = some_block(draft, rng), pick(rng, [1e-30, 1e-6, 1.0001, 1e6, 1e30])
    draft.strategy[f"b{b}_precisions"] = draft.strategy[f"b{b}_precisions"] * factor
    return f"b{b} {factor}"


def one_block_for_all(draft, rng, others):
    """Cells, all moves in one block, at some precision."""
    d, sizes = attributes(draft), draft.manifest["domain"]["sizes"]
    for b in range(int(draft.strategy["blocks"])):
        for name in own_arrays(draft, b):
            del draft.strategy[f"b{b}_{name}"]
    held = {f"f{i}": np.eye(n, dtype=np.int64) * pick(rng, [1, 1, 5]) for i, n in enumerate(sizes)}
    held |= {"hides": np.arange(d), "over": np.array(-1), "bits": np.zeros(d, dtype=np.int64)}
    held["precisions"] = np.full([1] * d, pick(rng, [1.0, 1e-9, 1e9, np.inf]))
    draft.strategy["blocks"] = np.array(1)
    draft.archives["blocks.npz"] |= {f"b0_{name}": array for name, array in held.items()}


def lost_hides(draft, rng, others):
    """Without what blocks hide it is a strategy of measured rows."""
    for b in range(int(draft.strategy["blocks"]) if rng.random() < 0.5 else 1):
        del draft.strategy[f"b{b}_hides"]


def more_edges(draft, rng, others):
    """One more pair of values, or of a value and "no record", to hide; with a column where columns are edges."""
    i = int(rng.integers(attributes(draft)))
    held, size = draft.policy[f"edges{i}"], min(draft.manifest["domain"]["sizes"][i], MOST_VALUES)
    known = {tuple(edge) for edge in held.tolist()}
    every = [(u, v) for u in range(size) for v in [-1, *range(u + 1, size)] if (u, v) not in known]
    new = pick(rng, every)
    draft.policy[f"edges{i}"] = np.concatenate([held.reshape(-1, 2), [new]]).astype(np.int64)
    custom_name(draft)
    for name in [name for name in draft.strategy if name.startswith("proof_")]:
        del draft.strategy[name]  # which has a weight for every edge
    for b in range(int(draft.strategy["blocks"])):
        if int(draft.strategy[f"b{b}_over"]) == i:
            edge_columns(draft, rng, b, i)
    return f"edges{i} {new}"


ALL = [
    *(other_hides, every_hides, swapped_blocks, dropped_block, repeated_block, other_over, over_edges, random_factor),
    *(dependent_columns, unrefinable_factor, unrefinable_factor, without_noise, without_noise, uneven_blocks),
    *(one_block_for_all, lost_hides, more_edges, more_edges),
]
