"""Tree norms within public groups, written out over all cells: shares nothing with the package but the records."""

import itertools
import math

import numpy as np

from hdmm_bf.strategies.records import TreeNorm


def cells_of_groups(sizes, axes):
    """For every value of the other attributes the numbers of its cells, in the order of the tree's leaves."""
    others = [i for i in range(len(sizes)) if i not in axes]
    found = []
    for rest in itertools.product(*(range(sizes[i]) for i in others)):
        group = []
        for own in itertools.product(*(range(sizes[i]) for i in axes)):
            value = [0] * len(sizes)
            for i, v in [*zip(others, rest, strict=True), *zip(axes, own, strict=True)]:
                value[i] = v
            number = 0
            for v, size in zip(value, sizes, strict=True):
                number = number * size + v
            group.append(number)
        found.append(group)
    return found


def written_out(strategy):
    """One tree for every group, over all cells of the domain."""
    tree, n = strategy.tree, math.prod(strategy.sizes)
    leaves, nodes = tree.num_cells, tree.parents.size
    groups = cells_of_groups(strategy.sizes, strategy.axes)
    parents, integers = [-1] * n, [0] * n
    for g, cells in enumerate(groups):
        place = [*cells, *(n + g * (nodes - leaves) + k for k in range(nodes - leaves))]
        parents += [-1] * (nodes - leaves)
        integers += [0] * (nodes - leaves)
        for node in range(nodes):
            integers[place[node]] = int(tree.integers[node])
            above = int(tree.parents[node])
            parents[place[node]] = -1 if above < 0 else place[above]
    return TreeNorm(np.array(parents, dtype=np.int64), np.array(integers, dtype=np.int64), tree.bits, tree.family)
