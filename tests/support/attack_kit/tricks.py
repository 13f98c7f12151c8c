"""Tricks of a forger: each changes a draft of a bundle in one way and says what it chose."""

import json

import numpy as np

from tests.support.attack_kit import measured_tricks as measured
from tests.support.attack_kit.measured_tricks import custom_name, pick

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


def resized(sizes, names, labels):
    return {"sizes": sizes, "names": names, "labels": labels}


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
    from tests.support.attack_kit.forge import opened

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


def odd_pairs(draft, rng, others):
    """Pairs of edges that prove a bound: shares that are more than there is, other edges, a pair less or more."""
    if "partners" not in draft.strategy:
        draft.strategy |= {"partners": np.array([[0, 1]]), "shares": np.array([0.1])}
        return "made up"
    name = pick(rng, ["partners", "shares"])
    value = pick(rng, [-1, 0, 1, 10**6] if name == "partners" else [np.nan, np.inf, -1e-3, 0.0, 1.0, 1e300])
    if rng.random() < 0.2:
        draft.strategy[name] = draft.strategy[name][1:]
    else:
        draft.strategy[name][0] = value
    return name, value


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


MEASURED = [
    *(measured.scaled_integers, measured.one_integer, measured.all_integers, measured.integer_row, measured.other_bits),
    *(measured.other_precisions, measured.all_precisions, measured.written_out_precisions, measured.inert_block),
    *(measured.spying_block, measured.other_terms, measured.other_noise, measured.square_edge_strategy),
]
SUBTLE = [
    *MEASURED,
    *[measured.padded_domain] * 4,  # the attack that worked
    *[disguised_name] * 3,
    *(fewer_edges, shuffled_edges, two_bottoms, odd_weights, odd_pairs, repeated_member),
]
ALL = [
    *SUBTLE,
    *(measured.more_blocks_than_counted, measured.other_kind, other_type, other_shape, lost_array, more_arrays),
    *(odd_edges, swapped_policy, other_domain, lied_sensitivity, odd_claim, odd_json, swapped_file, linked_file),
    no_archive,
]
