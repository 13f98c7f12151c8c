"""Tricks with the parts of sums of tree norms: their trees, attributes and graphs. Each says what it chose."""

from types import SimpleNamespace

import numpy as np

from tests.support.attack_kit import tree_tricks
from tests.support.attack_kit.measured_tricks import custom_name, pick

NAMES = "parents", "integers", "bits", "family", "axes", "along", "edges"
MOST_VALUES = 64
"""Of an attribute whose pairs are listed: an earlier trick may have made it huge."""


def count_of(draft):
    return int(draft.strategy["parts"])


def some_part(draft, rng):
    return int(rng.integers(count_of(draft)))


def attributes(draft):
    return len(draft.manifest["domain"]["sizes"])


def size_of(draft, i):
    size = draft.manifest["domain"]["sizes"][i]
    if not 0 < size <= MOST_VALUES:
        raise ValueError(size)
    return size


def leaves(draft, k):
    return int(np.prod([size_of(draft, i) for i in draft.strategy[f"p{k}_axes"].tolist()]))


def graph_of(draft, rng):
    """A part, and the attribute along which its noise flows."""
    k = some_part(draft, rng)
    along = int(draft.strategy[f"p{k}_along"])
    if along < 0:
        raise ValueError(along)
    return k, along


def in_a_part(trick):
    """A trick with a tree, done to that of one part."""

    def changed(draft, rng, others):
        k = some_part(draft, rng)
        held = {name: draft.strategy[f"p{k}_{name}"] for name in NAMES}
        own = SimpleNamespace(strategy=held, manifest={"domain": {"sizes": [leaves(draft, k)]}})
        said = trick(own, rng, others)
        draft.strategy.update({f"p{k}_{name}": array for name, array in held.items()})
        return f"p{k}{'' if said is None else f' {said}'}"

    changed.__name__ = trick.__name__
    return changed


# Trees


def random_tree(draft, rng, k, *, public):
    """Any tree over the values of a part's attributes, or several where no total is public."""
    parents, roots = [-1] * leaves(draft, k), list(range(leaves(draft, k)))
    while len(roots) > 1 and (public or rng.random() < 0.7):
        chosen = [roots.pop(int(rng.integers(len(roots)))) for _ in range(int(rng.integers(2, len(roots) + 1)))]
        for child in chosen:
            parents[child] = len(parents)
        roots.append(len(parents))
        parents.append(-1)
    if public and len(parents) == 1:
        parents = [1, -1]
    weights = rng.integers(1, 2 ** int(rng.integers(1, 20)), len(parents))
    weights = np.where((np.array(parents) < 0) & public, 0, weights)
    draft.strategy[f"p{k}_parents"], draft.strategy[f"p{k}_integers"] = np.array(parents), weights


def other_tree(draft, rng, others):
    k = some_part(draft, rng)
    random_tree(draft, rng, k, public=rng.random() < 0.3)
    return f"p{k}"


def part_bits(draft, rng, others):
    """Another grid for one part, or for all."""
    bits, k = pick(rng, [0, 1, 4, 30, 52, 60, 61, 255, 256, -1, 2**40]), some_part(draft, rng)
    for j in range(count_of(draft)) if rng.random() < 0.5 else [k]:
        draft.strategy[f"p{j}_bits"] = np.array(bits)
    return f"p{k} {bits}"


def uneven_parts(draft, rng, others):
    """One part is measured on another scale than the others."""
    k, factor = some_part(draft, rng), pick(rng, [2, 1000, 2**20, 2**40])
    draft.strategy[f"p{k}_integers"] = draft.strategy[f"p{k}_integers"] * factor
    return f"p{k} {factor}"


# What parts are on, and what they hide


def other_along(draft, rng, others):
    """Noise flows along another attribute, one that the tree is on, or none."""
    k, along = some_part(draft, rng), pick(rng, [-1, -1, 0, 1, 2, -2, 5, 2**40])
    draft.strategy[f"p{k}_along"] = np.array(along)
    if along == -1 and rng.random() < 0.7:
        draft.strategy[f"p{k}_edges"] = np.empty((0, 2), dtype=np.int64)
    return f"p{k} {along}"


def other_axes(draft, rng, others):
    """The tree on other attributes; perhaps with as many leaves as they have values."""
    k, axes = some_part(draft, rng), pick(rng, [[0], [1], [2], [0, 1], [0, 2], [1, 2], [1, 0], [0, 0], [-1], [5], []])
    draft.strategy[f"p{k}_axes"] = np.array(axes, dtype=np.int64)
    if rng.random() < 0.7:
        random_tree(draft, rng, k, public=rng.random() < 0.2)
    return f"p{k} {axes}"


def tree_of_its_own(draft, rng, others):
    """Noise on the cells in the place of noise along an attribute, by a tree on it and perhaps on others."""
    k, along = graph_of(draft, rng)
    axes = sorted({along, *(i for i in range(attributes(draft)) if rng.random() < 0.2)})
    draft.strategy[f"p{k}_along"], draft.strategy[f"p{k}_axes"] = np.array(-1), np.array(axes)
    draft.strategy[f"p{k}_edges"] = np.empty((0, 2), dtype=np.int64)
    random_tree(draft, rng, k, public=rng.random() < 0.7)
    return f"p{k} {axes}"


def swapped_parts(draft, rng, others):
    """Two parts change places, or some of what they hold does."""
    one, other = (some_part(draft, rng) for _ in range(2))
    names = pick(rng, [NAMES, ("parents", "integers"), ("along",), ("edges",), ("along", "edges"), ("axes", "along")])
    for name in names:
        a, b = f"p{one}_{name}", f"p{other}_{name}"
        draft.strategy[a], draft.strategy[b] = draft.strategy[b], draft.strategy[a]
    return f"{one} and {other} {names}"


def dropped_part(draft, rng, others):
    """The last part goes, perhaps with the edges that it hides."""
    last = count_of(draft) - 1
    gone = {name: draft.strategy.pop(f"p{last}_{name}") for name in NAMES}
    draft.strategy["parts"] = np.array(last)
    if rng.random() < 0.5:
        draft.policy[f"edges{int(gone['along'])}"] = np.empty((0, 2), dtype=np.int64)
        custom_name(draft)


def doubled_part(draft, rng, others):
    """One more part, a copy of another, that hides the same, or another attribute."""
    k, count = some_part(draft, rng), count_of(draft)
    for name in NAMES:
        draft.strategy[f"p{count}_{name}"] = draft.strategy[f"p{k}_{name}"].copy()
    draft.strategy["parts"] = np.array(count + 1)
    if rng.random() < 0.5:
        draft.strategy[f"p{count}_along"] = np.array(int(rng.integers(attributes(draft))))
    if rng.random() < 0.5:
        draft.strategy[f"p{count}_integers"] = draft.strategy[f"p{count}_integers"] * 1000
    return k


def other_count(draft, rng, others):
    draft.strategy["parts"] = np.array(pick(rng, [0, -1, 1, 3, 64, 65, 2**40]))
    return draft.strategy["parts"]


# The graphs


def lost_edges(draft, rng, others):
    """Fewer edges in a graph: one, or all."""
    k, _ = graph_of(draft, rng)
    held = draft.strategy[f"p{k}_edges"]
    draft.strategy[f"p{k}_edges"] = np.delete(held, int(rng.integers(len(held))), 0) if rng.random() < 0.8 else held[:0]
    return f"p{k}"


def more_graph(draft, rng, others):
    """One more edge in a graph: a shorter way, one that is there already, one to itself or to nowhere."""
    k, along = graph_of(draft, rng)
    n, held = size_of(draft, along), draft.strategy[f"p{k}_edges"]
    odd = [[0, 0], [-1, -1], [-1, 0], [0, n], [0, -2], [2**62, 0], held[0].tolist(), held[0, ::-1].tolist()]
    new = pick(rng, odd) if rng.random() < 0.4 else [int(rng.integers(n)), int(rng.integers(-1, n))]
    draft.strategy[f"p{k}_edges"] = np.concatenate([held, [new]])
    return f"p{k} {new}"


def turned_edges(draft, rng, others):
    """Edges the other way round, or in another order."""
    k, _ = graph_of(draft, rng)
    held = rng.permutation(draft.strategy[f"p{k}_edges"])
    turned = (rng.random(len(held)) < 0.5) & ((held[:, 1] >= 0) | (rng.random() < 0.2))
    held[turned] = held[turned, ::-1]
    draft.strategy[f"p{k}_edges"] = held
    return f"p{k}"


def other_ends(draft, rng, others):
    """Edges of other values, or to "no record"."""
    k, along = graph_of(draft, rng)
    held = draft.strategy[f"p{k}_edges"].copy()
    held[int(rng.integers(len(held))), int(rng.integers(2))] = int(rng.integers(-1, size_of(draft, along) + 1))
    draft.strategy[f"p{k}_edges"] = held
    return f"p{k}"


def other_graph(draft, rng, others):
    """Any connected graph, of long ways or short ones, with "no record" in it or without."""
    k, along = graph_of(draft, rng)
    draft.strategy[f"p{k}_edges"] = random_graph(rng, size_of(draft, along), bottom=rng.random() < 0.6)
    return f"p{k}"


def random_graph(rng, n, *, bottom):
    """A path through all values, a star, or a random tree, and perhaps more edges; BOTTOM stands second."""
    order = rng.permutation([*range(n), *([-1] if bottom else [])]).tolist()
    reach = pick(rng, [1, n + 1, None])
    found = []
    for place in range(1, len(order)):
        above = place - 1 if reach == 1 else 0 if reach else int(rng.integers(place))
        found.append((order[place], order[above]))
    every = [(a, b) for a in range(n) for b in range(-1 if bottom else 0, a)]
    found += [edge for edge in every if rng.random() < pick(rng, [0, 0, 0.3])]
    unique = {frozenset(edge): edge for edge in found}
    return np.array([(b, a) if a == -1 else (a, b) for a, b in unique.values()], dtype=np.int64).reshape(-1, 2)


# The policy, and the domain


def other_moves(draft, rng, others):
    """Any edges on one attribute of the policy; those to "no record" too."""
    i = int(rng.integers(attributes(draft)))
    n, share = size_of(draft, i), pick(rng, [0.0, 0.3, 0.7, 1.0])
    every = [(u, v) for u in range(n) for v in range(u + 1, n)] + [(u, -1) for u in range(n) if rng.random() < 0.5]
    held = sorted(edge for edge in every if rng.random() < share)
    draft.policy[f"edges{i}"] = np.array(held, dtype=np.int64).reshape(-1, 2)
    custom_name(draft)
    return f"edges{i} {held}"


def more_moves(draft, rng, others):
    """One more pair of values, or of a value and "no record", to hide."""
    i = int(rng.integers(attributes(draft)))
    n, held = size_of(draft, i), draft.policy[f"edges{i}"]
    known = {tuple(edge) for edge in held.tolist()}
    new = pick(rng, [(u, v) for u in range(n) for v in [-1, *range(u + 1, n)] if (u, v) not in known])
    draft.policy[f"edges{i}"] = np.concatenate([held.reshape(-1, 2), [new]]).astype(np.int64)
    custom_name(draft)
    return f"edges{i} {new}"


def moved_moves(draft, rng, others):
    """The edges of one attribute on another; perhaps the parts go with them."""
    one, other = rng.permutation(attributes(draft))[:2].tolist()
    a, b = f"edges{one}", f"edges{other}"
    draft.policy[a], draft.policy[b] = draft.policy[b], draft.policy[a]
    custom_name(draft)
    return f"{one} and {other}"


def other_sizes(draft, rng, others):
    """More or fewer values of an attribute, in the strategy or in all files."""
    place = int(rng.integers(draft.strategy["sizes"].size))
    size = pick(rng, [0, 1, 2, 3, 4, -1, 2**40])
    draft.strategy["sizes"][place] = size
    if rng.random() < 0.6:
        draft.manifest["domain"]["sizes"][place] = size
        own_queries(draft, rng)
    return f"{place} {size}"


def own_queries(draft, rng):
    """Queries that go with any sizes, from a file."""
    factors = [pick(rng, ["identity", "prefix", "all-range", "ones"]) for _ in range(attributes(draft))]
    draft.archives["workload.npz"] = {"weights": np.ones(1)} | {f"t0_f{i}": np.array(f) for i, f in enumerate(factors)}
    draft.manifest["workload"] = {"spec": "my queries", "file": True}
    custom_name(draft)
    return factors


def other_queries(draft, rng, others):
    """Other queries, of which some or all see nothing that moves."""
    return own_queries(draft, rng)


def lost_proof(draft, rng, others):
    """A proof that is not there, or is of nothing."""
    for name in [name for name in draft.strategy if name.startswith("proof_")]:
        if rng.random() < 0.5:
            del draft.strategy[name]
        else:
            draft.strategy[name] = draft.strategy[name] * pick(rng, [0, -1, 1e300, np.nan])


def any_sum(draft, rng, others):
    """Any policy on the domain and any parts that hide it: attributes by a tree of their own, or along a graph."""
    d, bits = attributes(draft), draft.strategy["p0_bits"]
    for name in [name for name in draft.strategy if name[:1] == "p" and name not in ("parts",)]:
        del draft.strategy[name]  # the proof as well
    if rng.random() < 0.5:
        sizes = rng.integers(1, 5, d)
        draft.strategy["sizes"], draft.manifest["domain"]["sizes"] = sizes, sizes.tolist()
    own_queries(draft, rng)
    empty, hidden = np.empty((0, 2), dtype=np.int64), int(rng.integers(2 * d))
    moved = []
    for i in range(d):
        graph = random_graph(rng, size_of(draft, i), bottom=i == hidden) if rng.random() < 0.8 else empty
        ends = [(min(e), max(e)) if -1 not in e else e for e in map(tuple, graph.tolist())]
        kept = sorted(edge for edge in ends if rng.random() < 0.8)
        draft.policy[f"edges{i}"] = np.array(kept, dtype=np.int64).reshape(-1, 2)
        moved += [i] if kept else []
    custom_name(draft)
    draft.strategy["parts"] = np.array(len(moved))
    for k, i in enumerate(moved):
        alone = d == 1 or rng.random() < 0.3
        outside = [j for j in range(d) if j != i]
        axes = [i] if alone else sorted(rng.permutation(outside)[: int(rng.integers(1, d))].tolist())
        graph = empty if alone else random_graph(rng, size_of(draft, i), bottom=i == hidden or rng.random() < 0.4)
        held = {"bits": bits, "family": np.array("any"), "axes": np.array(axes), "edges": graph}
        held["along"] = np.array(-1 if alone else i)
        draft.strategy.update({f"p{k}_{name}": array for name, array in held.items()})
        random_tree(draft, rng, k, public=alone and i != hidden)


OF_TREES = [in_a_part(trick) for trick in tree_tricks.ALL if trick is not tree_tricks.hidden_total]
OF_GRAPHS = [lost_edges, more_graph, turned_edges, other_ends, other_graph, other_graph]
ALL = [
    *OF_TREES,
    *OF_GRAPHS,
    *(other_tree, part_bits, uneven_parts, other_along, other_axes, tree_of_its_own, swapped_parts, dropped_part),
    *(doubled_part, other_count, other_moves, more_moves, moved_moves, other_sizes, other_queries, lost_proof),
    *[any_sum] * 4,
]
