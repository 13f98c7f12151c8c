"""Tricks of a forger: each changes a draft of a bundle in one way and says what it chose."""

import json

import numpy as np

SIZES = [-(2**63), 2**63 - 1, 2**62, -(2**62), 2**52, 2**52 - 1, 1 - 2**52, 2**51, 2**45, 2**32, 2**31 + 1, 1000, 1, 0]
PRECISIONS = [1e60, 1e-60, 1e61, np.inf, 0.0, -0.0, 5e-324, 1e-310, 1e308, -1.0, np.nan, 1e30, 1e-30, 1.0, 4.0, 1e6]
NUMBERS = [
    float("nan"),
    float("inf"),
    -float("inf"),
    None,
    "NaN",
    "0",
    -0.0,
    0,
    -1,
    1e-300,
    1e308,
    10**30,
    [],
    {},
    True,
]


def pick(rng, values):
    return values[int(rng.integers(len(values)))]


def place(rng, array):
    return tuple(int(rng.integers(size)) for size in array.shape)


def some_block(draft, rng):
    return int(rng.integers(int(draft.strategy["blocks"])))


def some_integers(draft, rng):
    """The name of an array of integers that noise is added to."""
    if not draft.has_blocks:
        return "integers"
    return f"b{some_block(draft, rng)}_f{int(rng.integers(len(draft.manifest['domain']['sizes'])))}"


def resized(sizes, names, labels):
    return {"sizes": sizes, "names": names, "labels": labels}


# The strategy


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


def inert_block(draft, rng, others):
    """A block that answers nothing, of huge factors and a zero one: infinity times zero in floating point."""
    sizes = draft.manifest["domain"]["sizes"]
    size, precision = pick(rng, [2**51, 2**52 - 1, 2**40, 1]), pick(rng, [1e60, 1e30, 1.0, np.inf])
    factors = [np.full((1, n), size, dtype=np.int64) for n in sizes]
    if rng.random() < 0.7:
        factors[int(rng.integers(len(sizes)))][:] = 0
    add_block(draft, factors, precision, pick(rng, [[], [], None, [0], [10**6]]))
    return f"{size} {precision}"


def spying_block(draft, rng, others):
    """A block that answers no query, so that its rows cost no error, and measures every cell."""
    factors = [np.eye(n, dtype=np.int64) * pick(rng, [1, 1000, 2**20]) for n in draft.manifest["domain"]["sizes"]]
    precision = pick(rng, [*PRECISIONS, 1e60])
    add_block(draft, factors, precision, [])
    return precision


def padded_domain(draft, rng, others):
    """Many attributes with one value and a block of factors as large as allowed that is zero on the last of them."""
    count, size = int(rng.integers(1, 22)), pick(rng, [1, 2**51, 2**51, 2**40])
    domain = draft.manifest["domain"]
    first = len(domain["sizes"])
    domain["sizes"] += [1] * count
    domain["labels"] += [None] * count
    domain["names"] += [f"more{i}" for i in range(count)]
    for b in range(int(draft.strategy["blocks"])):
        draft.strategy[f"b{b}_bits"] = np.append(draft.strategy[f"b{b}_bits"], [0] * count).astype(np.int64)
        held = draft.strategy[f"b{b}_precisions"]
        draft.strategy[f"b{b}_precisions"] = held.reshape(held.shape + (1,) * count)
        for i in range(first, first + count):
            draft.strategy[f"b{b}_f{i}"] = np.ones((1, 1), dtype=np.int64)
    for i in range(first, first + count):
        draft.policy[f"edges{i}"] = np.empty((0, 2), dtype=np.int64)
    own_workload(draft, pick(rng, ["identity", "prefix"]))
    huge = [alternating(n, size) if rng.random() < 0.7 else np.full((1, n), size) for n in domain["sizes"]]
    huge[-1] = np.zeros((int(rng.integers(1, 3)), 1), dtype=np.int64)
    add_block(draft, huge, pick(rng, [1e60, 1.0]), [])
    if rng.random() < 0.5:
        table = [np.eye(n, dtype=np.int64) for n in domain["sizes"]]
        add_block(draft, table, pick(rng, [1.0, 1e12]), [])
    return f"{count} {size}"


def alternating(n, size):
    """A row that every edge between neighbouring values sees."""
    row = np.full((1, n), size, dtype=np.int64)
    row[0, 1::2] *= -1
    return row


def own_workload(draft, factor="identity"):
    """Ask for one product of queries, by a workload that is written out, and call the policy a custom one."""
    sizes = draft.manifest["domain"]["sizes"]
    held = {"weights": np.ones(1)} | {f"t0_f{i}": np.array(factor) for i in range(len(sizes))}
    draft.archives["workload.npz"] = held
    draft.manifest["workload"] = {"spec": "my queries", "file": True}
    custom_name(draft)


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
    draft.strategy |= {"integers": held, "kind": np.array("edge")}


# The shape and type of arrays


def some_array(draft, rng):
    archive = pick(rng, sorted(draft.archives))
    return archive, pick(rng, sorted(draft.archives[archive]))


def other_type(draft, rng, others):
    archive, name = some_array(draft, rng)
    kind = pick(rng, ["<u8", "<f8", ">i8", "<i4", "<i1", "|O", "<c16", "?", "<f2", "<U5", "S3", ">f8", "<m8[s]"])
    draft.archives[archive][name] = draft.archives[archive][name].astype(kind)
    return f"{name} {kind}"


def other_shape(draft, rng, others):
    archive, name = some_array(draft, rng)
    held = draft.archives[archive][name]
    shapes = [held.T, held.ravel(), held[None], held[:0], np.asfortranarray(held), np.array(0), held[..., None]]
    draft.archives[archive][name] = pick(rng, shapes)
    return name


def lost_array(draft, rng, others):
    archive, name = some_array(draft, rng)
    del draft.archives[archive][name]
    return name


def repeated_member(draft, rng, others):
    """A second array of the same name, scaled: which one counts?"""
    archive, name = some_array(draft, rng)
    held = draft.archives[archive][name]
    draft.members[archive] = [(name, held * 1000 if held.dtype.kind in "if" else held)]
    return name


def more_arrays(draft, rng, others):
    draft.strategy[pick(rng, ["integers ", "b0_f0x", "pickle", "proof_x", "b99_f0"])] = np.ones(2)


# The policy


def custom_name(draft):
    """Describe the policy by its edges, as the package does for graphs without a spec string."""
    if not draft.has_blocks:
        meaning = f"on which side of any of the graph's {len(draft.policy['edges'])} edges one record is"
    else:
        names = draft.manifest["domain"]["names"]
        counts = [(name, len(draft.policy[f"edges{i}"])) for i, name in enumerate(names)]
        told = "on which side of any of the graph's {} edges one record is"
        hidden = [f"in attribute {name}, {told.format(count)}" for name, count in counts if count]
        meaning = "; or ".join(hidden) or "nothing: no attribute has a protected pair"
    draft.manifest["policy"] = {"spec": "my graph", "meaning": meaning}


def fewer_edges(draft, rng, others):
    """A weaker policy, under the old name or its own."""
    name = pick(rng, sorted(draft.policy))
    draft.policy[name] = draft.policy[name][1:]
    if "weights" in draft.strategy:
        draft.strategy["weights"] = draft.strategy["weights"][1:]
    if rng.random() < 0.6:
        custom_name(draft)


def odd_edges(draft, rng, others):
    name = pick(rng, sorted(draft.policy))
    odd = pick(rng, [[0, 0], [-1, -1], [-1, 0], [0, 10**6], [2**62, 0], [1, 0], [0, -2], [0, 1]])
    draft.policy[name] = np.concatenate([draft.policy[name], [odd]])
    if rng.random() < 0.5:
        custom_name(draft)
    return odd


def shuffled_edges(draft, rng, others):
    name = pick(rng, sorted(draft.policy))
    draft.policy[name] = rng.permutation(draft.policy[name])
    if rng.random() < 0.7:
        custom_name(draft)


def two_bottoms(draft, rng, others):
    """Make "no record" a neighbour in several attributes."""
    for name in draft.policy:
        draft.policy[name] = np.array([[0, -1], [1, -1]])[: int(rng.integers(1, 3))]
    custom_name(draft)


def swapped_policy(draft, rng, others):
    from tests.attack_kit.forge import opened

    other = opened(pick(rng, others))
    draft.archives["policy.npz"] = other.policy
    if rng.random() < 0.5:
        draft.manifest["policy"] = other.manifest["policy"]


def disguised_name(draft, rng, others):
    """Another policy under a name that looks like a spec string."""
    spec = draft.manifest["policy"]["spec"]
    fewer_edges(draft, rng, others)
    custom_name(draft)
    change = pick(
        rng,
        [
            lambda s: s.replace(":", "\u2236"),
            lambda s: s.replace(":", "\uff1a"),
            lambda s: s.replace(":", "\ua789"),
            lambda s: "\u2800" + s,
            lambda s: "\u00b7" + s,
            lambda s: s[0] + "\u00ad" + s[1:],
            lambda s: s[0] + "\u2800" + s[1:],
            lambda s: "".join(chr(ord(c) + 0xFEE0) if c.isalpha() else c for c in s),
            lambda s: s.replace("e", "\u0435").replace("i", "\u0456"),
            lambda s: s.replace(":", ": "),
            lambda s: s.replace(":", " :"),
            lambda s: f" {s}",
            lambda s: f"({s}",
            lambda s: f'"{s}"',
            lambda s: s.upper(),
            lambda s: s + "\u200b",
        ],
    )
    draft.manifest["policy"]["spec"] = change(spec)
    return ascii(change(spec))


# The domain


def other_domain(draft, rng, others):
    domain = draft.manifest["domain"]
    sizes = domain["sizes"]
    change = pick(
        rng,
        [
            lambda: resized(sizes[::-1], domain["names"], domain["labels"]),
            lambda: resized([int(np.prod(sizes))], ["cell"], [None]),
            lambda: resized([*sizes, 1], [*domain["names"], "more"], [*domain["labels"], None]),
            lambda: resized([*sizes, 2], [*domain["names"], "more"], [*domain["labels"], None]),
            lambda: resized([10**9, *sizes[1:]], domain["names"], domain["labels"]),
            lambda: resized(sizes, [f"{n}; or anything" for n in domain["names"]], domain["labels"]),
        ],
    )
    draft.manifest["domain"] = change()


# Claims and JSON


def lied_sensitivity(draft, rng, others):
    lie = str(max(1, int(draft.certificate["sensitivity_exact"]) // 10**6))
    draft.certificate["sensitivity_exact"] = draft.manifest["sensitivity_exact"] = lie
    draft.certificate["sensitivity"] = draft.manifest["sensitivity"] = draft.certificate["sensitivity"] / 1000


def odd_claim(draft, rng, others):
    record = pick(rng, [draft.manifest, draft.certificate])
    key, value = pick(rng, sorted(record)), pick(rng, NUMBERS)
    record[key] = value
    return f"{key} {value}"


def odd_json(draft, rng, others):
    piece = pick(
        rng,
        [
            ('"seed":', '"seed": NaN, "seed":'),
            ('"noise":', '"noise": "laplace", "noise":'),
            ('"schema":', f'"deep": {"[" * 50_000}{"]" * 50_000}, "schema":'),
            ('"schema":', f'"big": {"9" * 5000}, "schema":'),
            ('"schema":', '"x": Infinity, "schema":'),
            ('"bits":', '"bits": 1e400, "old":'),
            ("{", "\ufeff{"),
            ('"policy": {', '"policy": {"spec": "bounded:6", '),
            ('"sensitivity_exact": "', '"sensitivity_exact": "0'),
        ],
    )
    draft.pieces.append(piece)
    return piece[1][:40]


def odd_weights(draft, rng, others):
    value = pick(rng, [np.nan, np.inf, -1.0, 5e-324, 1e308, 0.0, -0.0])
    draft.strategy["weights"][:] = value
    return value


# Files


def swapped_file(draft, rng, others):
    other = pick(rng, others)
    name = pick(rng, sorted(other))
    draft.raw[name] = other[name]
    return name


def linked_file(draft, rng, others):
    draft.links[pick(rng, ["policy.npz", "certificate.json", "manifest.json"])] = True


def no_archive(draft, rng, others):
    draft.raw[pick(rng, sorted(draft.archives))] = pick(rng, [b"", b"PK\x05\x06" + bytes(18), json.dumps({}).encode()])


SUBTLE = [
    *(scaled_integers, one_integer, all_integers, integer_row, other_bits, other_precisions, all_precisions),
    *(written_out_precisions, inert_block, spying_block, padded_domain, other_terms, other_noise, square_edge_strategy),
    *(fewer_edges, shuffled_edges, two_bottoms, disguised_name, odd_weights, repeated_member),
]
ALL = [
    *SUBTLE,
    *(more_blocks_than_counted, other_kind, other_type, other_shape, lost_array, more_arrays, odd_edges),
    *(swapped_policy, other_domain, lied_sensitivity, odd_claim, odd_json, swapped_file, linked_file, no_archive),
]
