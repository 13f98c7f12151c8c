"""Tricks with what is measured: integers, bits, precisions and blocks. Each says what it chose."""

import numpy as np

SIZES = [-(2**63), 2**63 - 1, 2**62, -(2**62), 2**52, 2**52 - 1, 1 - 2**52, 2**51, 2**45, 2**32, 2**31 + 1, 1000, 1, 0]
PRECISIONS = [1e60, 1e-60, 1e61, np.inf, 0.0, -0.0, 5e-324, 1e-310, 1e308, -1.0, np.nan, 1e30, 1e-30, 1.0, 4.0, 1e6]


def pick(rng, values):
    return values[int(rng.integers(len(values)))]


def place(rng, array):
    return tuple(int(rng.integers(size)) for size in array.shape)


def some_block(draft, rng):
    return int(rng.integers(int(draft.strategy["blocks"])))


def some_integers(draft, rng):
    """The name of an array of integers that noise is added to, or made of."""
    if draft.has_tree_sum:
        return f"p{int(rng.integers(int(draft.strategy['parts'])))}_integers"
    if not draft.has_blocks:
        return "integers"
    return f"b{some_block(draft, rng)}_f{int(rng.integers(len(draft.manifest['domain']['sizes'])))}"


# The strategy


def block_sizes(draft):
    """Return the sizes of the attributes of a bundle of blocks, unless an earlier trick has made them too large."""
    sizes = draft.manifest["domain"]["sizes"]
    if not draft.has_blocks or max(sizes) > 100:
        raise ValueError(sizes)
    return sizes


def scaled_integers(draft, rng, others):
    """The strategy is measured on another scale than it claims."""
    name, factor = some_integers(draft, rng), pick(rng, [1000, -1, 2, 7, 1 << 20])
    down = rng.random() < 0.5
    held = draft.strategy[name]
    draft.strategy[name] = held // factor if down else held * factor
    return f"{name} {'/' if down else '*'} {factor}"


def one_integer(draft, rng, others):
    name, size = some_integers(draft, rng), pick(rng, SIZES)
    draft.strategy[name][place(rng, draft.strategy[name])] = size
    return f"{name} {size}"


def all_integers(draft, rng, others):
    name, size = some_integers(draft, rng), pick(rng, SIZES)
    draft.strategy[name][:] = size
    return f"{name} {size}"


def integer_row(draft, rng, others):
    """One more row, as a copy or of random integers; or one less."""
    name = some_integers(draft, rng)
    held = draft.strategy[name]
    if rng.random() < 0.3:
        draft.strategy[name] = held[1:]
        return f"{name} less"
    row = rng.integers(-(2 ** int(rng.integers(1, 52))), 2**50, size=(1, held.shape[1]))
    draft.strategy[name] = np.concatenate([held, held[:1] if rng.random() < 0.5 else row])
    if draft.has_blocks:
        wide = f"{name.split('_')[0]}_precisions"
        axis = int(name.split("_f")[1])
        own = draft.strategy[wide]
        if own.shape[axis] > 1:
            draft.strategy[wide] = np.concatenate([own, np.take(own, [0], axis=axis)], axis=axis)
    return f"{name} more"


def other_bits(draft, rng, others):
    bits = pick(rng, [0, 1, 7, 16, 30, 44, 52, 62, 63, 500, 1000, 1001, 2**31, -1])
    if draft.has_blocks:
        name = f"b{some_block(draft, rng)}_bits"
        draft.strategy[name][int(rng.integers(draft.strategy[name].size))] = bits
    else:
        draft.strategy["bits"] = np.array(bits)
        draft.manifest["bits"] = draft.certificate["bits"] = bits
    return bits


def other_precisions(draft, rng, others):
    name, value = f"b{some_block(draft, rng)}_precisions", pick(rng, PRECISIONS)
    held = draft.strategy[name]
    if rng.random() < 0.5:
        held[:] = value
    else:
        held[place(rng, held)] = value
    return f"{name} {value}"


def all_precisions(draft, rng, others):
    value = pick(rng, PRECISIONS)
    for b in range(int(draft.strategy["blocks"])):
        draft.strategy[f"b{b}_precisions"][:] = value
    return value


def written_out_precisions(draft, rng, others):
    """A precision for every row, nearly equal, so that rows share a sampler or just do not."""
    b = some_block(draft, rng)
    shape = [len(draft.strategy[f"b{b}_f{i}"]) for i in range(draft.strategy[f"b{b}_precisions"].ndim)]
    held = np.broadcast_to(draft.strategy[f"b{b}_precisions"], shape).copy()
    spread = pick(rng, [1e-16, 1e-15, 1e-9, 1.0, 30.0])
    draft.strategy[f"b{b}_precisions"] = held * np.exp(spread * rng.normal(size=shape))
    return f"b{b} {spread}"


def add_block(draft, factors, precision, terms):
    b = int(draft.strategy["blocks"])
    draft.strategy["blocks"] = np.array(b + 1)
    draft.strategy[f"b{b}_bits"] = np.zeros(len(factors), dtype=np.int64)
    draft.strategy[f"b{b}_precisions"] = np.full([1] * len(factors), precision)
    if terms is not None:
        draft.strategy[f"b{b}_terms"] = np.array(terms, dtype=np.int64)
    for i, factor in enumerate(factors):
        draft.strategy[f"b{b}_f{i}"] = factor
    if draft.has_sum:
        draft.strategy.update({f"b{b}_hides": np.array([len(factors) - 1]), f"b{b}_over": np.array(-1)})


def inert_block(draft, rng, others):
    """A block that answers nothing, of huge factors and a zero one: infinity times zero in floating point."""
    sizes = block_sizes(draft)
    size, precision = pick(rng, [2**51, 2**52 - 1, 2**40, 1]), pick(rng, [1e60, 1e30, 1.0, np.inf])
    factors = [np.full((1, n), size, dtype=np.int64) for n in sizes]
    if rng.random() < 0.7:
        factors[int(rng.integers(len(sizes)))][:] = 0
    add_block(draft, factors, precision, pick(rng, [[], [], None, [0], [10**6]]))
    return f"{size} {precision}"


def spying_block(draft, rng, others):
    """A block that answers no query, so that its rows cost no error, and measures every cell."""
    factors = [np.eye(n, dtype=np.int64) * pick(rng, [1, 1000, 2**20]) for n in block_sizes(draft)]
    precision = pick(rng, [*PRECISIONS, 1e60])
    add_block(draft, factors, precision, [])
    return precision


def padded_domain(draft, rng, others):
    """Many attributes with one value and a block of factors as large as allowed that is zero on the last of them."""
    count, size = int(rng.integers(7, 22)), pick(rng, [2**40, 2**51, 2**51, 2**52 - 1])
    domain, first = draft.manifest["domain"], len(block_sizes(draft))
    domain["sizes"] += [1] * count
    domain["labels"] += [None] * count
    domain["names"] += [f"more{i}" for i in range(count)]
    draft.archives["blocks.npz"] = {"family": draft.strategy["family"], "blocks": np.array(0)}  # and no proof
    table = [np.eye(n, dtype=np.int64) for n in domain["sizes"]]
    add_block(draft, table, 1.0, None)
    for i in range(first, first + count):
        draft.policy[f"edges{i}"] = np.empty((0, 2), dtype=np.int64)
    own_workload(draft, *pick(rng, [["identity"], ["prefix"], ["prefix", "identity"], ["prefix", "identity"]]))
    huge = [alternating(n, size) if rng.random() < 0.7 else np.full((1, n), size) for n in domain["sizes"]]
    huge[-1] = np.zeros((int(rng.integers(1, 3)), 1), dtype=np.int64)
    add_block(draft, huge, pick(rng, [1e60, 1.0]), [])
    if rng.random() < 0.5:
        add_block(draft, table, pick(rng, [1.0, 1e12]), [])
    return f"{count} {size}"


def alternating(n, size):
    """A row that every edge between neighbouring values sees."""
    row = np.full((1, n), size, dtype=np.int64)
    row[0, 1::2] *= -1
    return row


def other_terms(draft, rng, others):
    terms = pick(rng, [[], [0], [0, 0], [-1], [10**9], [2**62], [1], [0, 1, 2]])
    draft.strategy[f"b{some_block(draft, rng)}_terms"] = np.array(terms, dtype=np.int64)
    return terms


def more_blocks_than_counted(draft, rng, others):
    draft.strategy["blocks"] = np.array(int(draft.strategy["blocks"]) + pick(rng, [-1, 1, 2**16, 2**40]))


def other_noise(draft, rng, others):
    name = "laplace" if draft.manifest["noise"] == "gaussian" else "gaussian"
    draft.manifest["noise"] = draft.certificate["noise"] = name


def other_kind(draft, rng, others):
    draft.strategy["kind"] = np.array("edge" if str(draft.strategy["kind"]) == "vertex" else "vertex")


def square_edge_strategy(draft, rng, others):
    """An edge strategy of random integers, perhaps without full rank."""
    e = len(draft.policy["edges"])
    held = rng.integers(-3, 4, size=(e + int(rng.integers(2)), e)) * (1 << int(rng.integers(0, 44)))
    if rng.random() < 0.5:
        held[:, -1] = held[:, 0] + (rng.random() < 0.5)
    draft.strategy.update(integers=held, kind=np.array("edge"))


# What goes with other blocks


def own_workload(draft, *factors):
    """Ask for products of queries, by a workload that is written out, and call the policy a custom one."""
    sizes = draft.manifest["domain"]["sizes"]
    held = {"weights": np.ones(len(factors))}
    held |= {f"t{k}_f{i}": np.array(factor) for k, factor in enumerate(factors) for i in range(len(sizes))}
    draft.archives["workload.npz"] = held
    draft.manifest["workload"] = {"spec": "my queries", "file": True}
    custom_name(draft)


def custom_name(draft):
    """Describe the policy by its edges, as the package does for graphs without a spec string."""
    if "edges" in draft.policy:
        meaning = f"on which side of any of the graph's {len(draft.policy['edges'])} edges one record is"
    else:
        names = draft.manifest["domain"]["names"]
        counts = [(name, len(draft.policy[f"edges{i}"])) for i, name in enumerate(names)]
        told = "on which side of any of the graph's {} edges one record is"
        hidden = [f"in attribute {name}, {told.format(count)}" for name, count in counts if count]
        meaning = "; or ".join(hidden) or "nothing: no attribute has a protected pair"
    draft.manifest["policy"] = {"spec": "my graph", "meaning": meaning}
