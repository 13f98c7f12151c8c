"""The policy's own norm beside the best tree norm and Laplace strategy: ratios of the unit error to the dual bound.

The ball of the flow norm is the hull of all +-p_e, the smallest that the policy allows: ||z|| is the cost of the
cheapest flow along policy edges that makes z, and noise with density exp(-epsilon ||z||) is a K-norm mechanism (Hardt
and Talwar, 2010). No exact sampler is known to us, so nothing is published with it: Markov chains evaluate it on small
domains, to show what a better norm than a tree's could gain. The dual bound, 1 here, binds the Laplace strategies alone
(`SVD` is the paper's bound); whatever is unbiased has at least 0.5 as epsilon goes to 0. `±` is one standard error of
the flow norm, `of tree` its share of the tree norm's error, `s` the seconds of its chains.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import networkx as nx
import numpy as np
from numpy.typing import NDArray

import hdmm_bf as bf
from experiments.benchmarks.measure import Part, Table, timed

RealArray: TypeAlias = NDArray[np.float64]
IndexArray: TypeAlias = NDArray[np.int64]

ROWS = [
    ("all-range:12", "threshold:12:3"),
    ("all-range:24", "threshold:24:4"),
    ("all-range:12", "cycle:12"),
    ("all-range:4x4", "threshold:4x4:1"),
    ("all-range:6x6", "threshold:6x6:1"),
]
QUICK = [("all-range:8", "threshold:8:2")]
SECONDS = 30.0
"""Most time for each of the two searches."""


class Chains(NamedTuple):
    """How many Markov chains run side by side, how long, and how many of the first steps are not counted."""

    chains: int = 400
    steps: int = 2000
    burn_in: int = 500


class Layer(NamedTuple):
    """One more cell: which potentials of the open cells go on to which, sorted by where they go, and its own."""

    sources: IndexArray
    starts: IndexArray
    own: RealArray


def layers(policy: bf.Policy) -> list[Layer]:
    """Return how the potentials of the cells, in order, can go on; those of cells with edges to come are remembered.

    By duality ||z|| is the largest sum of y_i z_i over whole-number potentials y that differ by at most one along every
    edge. Extreme ones differ by exactly one on edges that join all cells, so on all edges where cycles are even.
    """
    graph = nx.Graph(policy.edges.tolist())
    steps = {-1, 1} if nx.is_bipartite(graph) else {-1, 0, 1}
    states: dict[tuple[int, ...], int] = {(0,): 0}
    open_cells, made = [0], []
    for cell in range(1, policy.num_cells):
        later = [c for c in (*open_cells, cell) if any(other > cell for other in graph[c])]
        place = {c: i for i, c in enumerate(open_cells)}
        near = [place[c] for c in graph[cell] if c < cell]
        found: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for state, source in states.items():
            for y in set.intersection(*({state[i] + step for step in steps} for i in near)):
                onward = tuple((*state, y)[place.get(c, -1)] for c in later)
                found.setdefault(onward, []).append((source, y))
        sources, own = np.array([pair for pairs in found.values() for pair in pairs]).T
        starts = np.cumsum([0, *map(len, found.values())])[:-1]
        made.append(Layer(sources, starts, own[:, None].astype(np.float64)))
        states, open_cells = {state: i for i, state in enumerate(found)}, later
    return made


def flow_norm(known: Sequence[Layer], Z: RealArray) -> RealArray:
    """Return the flow norm of every row of Z; rows must have sum zero, and the first cell has potential zero."""
    best = np.zeros((1, len(Z)))
    for z, (sources, starts, own) in zip(Z.T[1:], known, strict=True):
        best = np.maximum.reduceat(best[sources] + own * z, starts, axis=0)
    return np.asarray(best[0])


def flow_unit_error(problem: bf.Problem, length: Chains, *, seed: int) -> tuple[float, float]:
    """Return epsilon^2 E[z^T V z] / 2 under exp(-epsilon ||z||), with its standard error.

    z = r u with r ~ Gamma(d) independent of u = z / ||z||, so it is d (d + 1) / 2 E[u^T V u]. Metropolis on exp(-||z||)
    moves every chain by normal steps of the covariance that the chains have in the burn-in; every chain is a batch.
    """
    random, policy, W = np.random.default_rng(seed), problem.policy, problem.workload.matrix
    assert policy.components.sizes.size == 1, "one component, no edge to 'no record'"
    known, d, V = layers(policy), policy.num_cells - 1, W.dense().T @ W.dense()
    Z = random.normal(size=(length.chains, d + 1))
    Z -= Z.mean(axis=1, keepdims=True)
    norms = flow_norm(known, Z)
    Z, norms = Z * (d / norms)[:, None], np.full(length.chains, float(d))
    total = np.zeros(length.chains)
    for step in range(length.steps):
        if step % 50 == 0 and step <= length.burn_in // 2:
            root = 2.4 / np.sqrt(d * len(Z)) * np.linalg.qr(Z - Z.mean(axis=0), mode="r")
        there = Z + random.normal(size=Z.shape) @ root
        costs = flow_norm(known, there)
        moves = random.exponential(size=len(Z)) > costs - norms
        Z[moves], norms[moves] = there[moves], costs[moves]
        if step >= length.burn_in:
            total += np.einsum("ci,ij,cj->c", Z, V, Z, optimize=True) / norms**2
    errors = d * (d + 1) / 2 * total / (length.steps - length.burn_in)
    return float(errors.mean()), float(errors.std(ddof=1) / len(Z) ** 0.5)


def row(case: tuple[str, str], length: Chains, seconds: float) -> list[str]:
    """Set the flow norm beside the best known of the others."""
    bounds = bf.bound(*case, gap=1e-4)
    laplace = bf.fit(*case, noise="laplace", workers=1, max_seconds=seconds).unit_error / bounds.lower
    tree = bf.fit(*case, noise="norm", workers=1, max_seconds=seconds)
    norm = tree.unit_error / bounds.lower
    run = timed(lambda: flow_unit_error(bf.problem(*case), length, seed=7))
    flow, margin = (value / bounds.lower for value in run.result)
    cells = [*case, f"{bounds.svd / bounds.lower:.3f}", f"{laplace:.3f}", f"{norm:.3f}", tree.family]
    cells += [f"{flow:.3f}", f"{margin:.3f}", f"{flow / norm:.2f}", f"{run.wall:.0f}"]
    print(" ".join(cells), file=sys.stderr, flush=True)
    return cells


def report(*, quick: bool = False) -> list[Part]:
    """Return the table. Quick: one small instance."""
    headers = ["workload", "policy", "SVD", "Laplace", "tree norm", "tree", "flow norm", "±", "of tree", "s"]
    length = Chains(200, 600, 200) if quick else Chains()
    return [Table(headers, [row(case, length, 6.0 if quick else SECONDS) for case in (QUICK if quick else ROWS)])]
