"""Tricks with the trees of tree norms: parents, weights, roots. Each says what it chose."""

import numpy as np

from tests.support.attack_kit.measured_tricks import custom_name, pick

WEIGHTS = [0, 1, 2, 3, 1000, 2**20, 2**30, 2**40, 2**51, 2**52 - 1, 2**52, -1, -(2**63), 2**62]
PARENTS = [-1, -2, 0, 1, 5, 6, 7, 10**6, 2**62, -(2**63)]


def some_node(draft, rng):
    return int(rng.integers(draft.strategy["parents"].size))


def other_parent(draft, rng, others):
    """Hang a node elsewhere: on a later one, on a cell, on itself, in a circle, on nothing."""
    node, nodes = some_node(draft, rng), draft.strategy["parents"].size
    parent = pick(rng, [*PARENTS, node, nodes - 1, nodes, *range(node + 1, nodes)])
    draft.strategy["parents"][node] = parent
    return f"{node} on {parent}"


def swapped_parents(draft, rng, others):
    """Two nodes change places: their edges become longer or shorter."""
    one, other = some_node(draft, rng), some_node(draft, rng)
    held = draft.strategy["parents"]
    held[[one, other]] = held[[other, one]]
    return f"{one} and {other}"


def other_weight(draft, rng, others):
    node, weight = some_node(draft, rng), pick(rng, WEIGHTS)
    draft.strategy["integers"][node] = weight
    return f"{node} {weight}"


def no_weights(draft, rng, others):
    """Weights of zero, for one level or for many nodes."""
    held = draft.strategy["integers"]
    held[rng.random(held.size) < pick(rng, [0.2, 0.5, 1.0])] = 0


def uneven_weights(draft, rng, others):
    held = draft.strategy["integers"]
    power = pick(rng, [2, 8, 20, 45])
    draft.strategy["integers"] = np.where(held > 0, 1 + rng.integers(0, 2**power, held.size), 0)
    return f"below 2^{power}"


def weighted_root(draft, rng, others):
    """A weight, or another one, at every root."""
    weight = pick(rng, WEIGHTS)
    draft.strategy["integers"][draft.strategy["parents"] < 0] = weight
    return weight


def more_roots(draft, rng, others):
    """Cut a tree in two."""
    node = some_node(draft, rng)
    draft.strategy["parents"][node] = -1
    return node


def one_root(draft, rng, others):
    """Hang all trees on a new node: components in one tree, and edges to "no record" through another root."""
    held, nodes = draft.strategy["parents"], draft.strategy["parents"].size
    draft.strategy["parents"] = np.append(np.where(held < 0, nodes, held), -1)
    weight = pick(rng, WEIGHTS[:6])
    draft.strategy["integers"] = np.append(draft.strategy["integers"], weight)
    return weight


def one_set(draft, rng, others):
    """All cells that are not by themselves on one node."""
    n = int(np.prod(draft.manifest["domain"]["sizes"]))
    draft.strategy["parents"] = np.append(np.full(n, n), -1)
    draft.strategy["integers"] = np.append(rng.integers(0, 3, n), pick(rng, [0, 1]))


def hidden_total(draft, rng, others):
    """One more edge to "no record": what was a public total is none."""
    draft.policy["edges"] = np.concatenate([draft.policy["edges"], [[int(rng.integers(5)), -1]]])
    custom_name(draft)
    draft.strategy["weights"] = np.append(draft.strategy["weights"], 1.0)


ALL = [
    *(other_parent, swapped_parents, other_weight, no_weights, uneven_weights, weighted_root, more_roots, one_root),
    *(one_set, hidden_total),
]


def other_axes(draft, rng, others):
    """The tree on other attributes, or on more of them, in another order, or on one that does not exist."""
    axes = pick(rng, [[0], [1], [2], [0, 1], [1, 0], [0, 0], [-1], [5], []])
    draft.strategy["axes"] = np.array(axes, dtype=np.int64)
    return axes


def other_sizes(draft, rng, others):
    """More or fewer groups, in the strategy or in all files."""
    place = int(rng.integers(draft.strategy["sizes"].size))
    size = pick(rng, [0, 1, 2, 3, 4, -1, 2**40])
    draft.strategy["sizes"][place] = size
    if rng.random() < 0.5:
        draft.manifest["domain"]["sizes"][place] = size
    return f"{place} {size}"


def edges_of_another(draft, rng, others):
    """Records that change their group."""
    name = pick(rng, sorted(draft.policy))
    edges = draft.policy[name]
    draft.policy[name] = np.concatenate([edges, [pick(rng, [[0, 1], [0, -1], [1, -1], [0, 2]])]]).astype(np.int64)
    custom_name(draft)
    return name


def swapped_edges(draft, rng, others):
    """The edges of one attribute on another."""
    one, other = (pick(rng, sorted(draft.policy)) for _ in range(2))
    draft.policy[one], draft.policy[other] = draft.policy[other], draft.policy[one]
    custom_name(draft)
    return f"{one} and {other}"


OF_GROUPS = [other_axes, other_sizes, edges_of_another, swapped_edges]
