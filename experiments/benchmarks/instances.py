"""Policies and workloads of the benchmark tables: named ones by spec, random ones by seed."""

from __future__ import annotations

import networkx as nx
import numpy as np

import hdmm_bf as bf

WORKLOADS = ("all-range", "prefix", "identity", "random 0/1")
POLICIES = (
    "unbounded",
    "bounded",
    "line",
    "threshold 4",
    "threshold 16",
    "cycle",
    "random tree",
    "random 3-regular",
    "two components",
)


def workload(name: str, n: int) -> bf.Workload:
    """Return a workload of the tables."""
    if name == "random 0/1":
        return bf.workload.from_matrix(np.random.default_rng(3).integers(0, 2, size=(2 * n, n)), spec=name)
    return bf.workload.parse(f"{name}:{n}")


def policy(name: str, n: int) -> bf.Policy:
    """Return a policy of the tables."""
    if name.startswith("threshold"):
        return bf.policy.threshold(n, int(name.split()[1]))
    if name == "random tree":
        rng = np.random.default_rng(7)
        return bf.policy.from_edges([int(rng.integers(0, i)) for i in range(1, n)], list(range(1, n)), n, spec=name)
    if name == "random 3-regular":
        return bf.policy.from_networkx(nx.random_regular_graph(3, n, seed=7), cells=list(range(n)), spec=name)
    if name == "two components":
        first = bf.policy.threshold(n // 2, 4).edges
        second = bf.policy.line(n - n // 2).edges + n // 2
        u, v = np.concatenate([first, second]).T
        return bf.policy.from_edges(u, v, n, spec=name)
    return bf.policy.parse(f"{name}:{n}")
