"""Policies in a ledger: what releases under several of them promise together, edge by edge.

A release that is private under one policy loses, on a pair of values that is no edge there, as many times its loss as
the pair is steps apart; and everything if the pair is not connected, because totals of components are public.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import final

import numpy as np
from jaxtyping import Int64
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from hdmm_bf._checks import InputError, fail
from hdmm_bf._linalg import ROUNDING
from hdmm_bf._types import EdgeArray
from hdmm_bf.policy import Policy
from hdmm_bf.policy.naming import SPEC
from hdmm_bf.release.ledger.losses import Balance, Entry, Total, balance, left_epsilon, left_mu

_MOST_EDGES = 2**20
_MOST_WORK = 2**28
COMMON = "only pairs that all policies protect are counted"
_ADVICE = (
    "Release under the same policy; or say common_pairs=True (--common-pairs), and the total holds only for pairs of "
    "values that all of them protect."
)


@final
@dataclass(frozen=True, eq=False)
class Graph:
    """The edges of a policy, and what they are known by."""

    digest: str
    num_cells: int
    edges: EdgeArray

    @staticmethod
    def of(policy: Policy) -> Graph | None:
        """Return the graph of a policy; None if it is too large."""
        if policy.num_edges > _MOST_EDGES:
            return None
        edges = np.sort(policy.edges.astype(np.int64), axis=1)
        edges = np.unique(edges, axis=0).reshape(-1, 2)
        hashed = hashlib.sha256(f"{policy.num_cells} cells\n".encode())
        hashed.update(np.ascontiguousarray(edges, dtype="<i8").tobytes())
        return Graph(hashed.hexdigest(), policy.num_cells, edges)

    def written(self) -> bytes:
        """Return the edges for the file."""
        return zlib.compress(np.ascontiguousarray(self.edges, dtype="<i8").tobytes())

    @staticmethod
    def read(digest: str, num_cells: int, stored: bytes) -> Graph | None:
        """Return the graph of a row of the file, or None if it is not the one that its digest names."""
        try:
            edges = np.frombuffer(zlib.decompress(stored), dtype="<i8").astype(np.int64).reshape(-1, 2)
        except (zlib.error, ValueError):
            return None
        hashed = hashlib.sha256(f"{num_cells} cells\n".encode())
        hashed.update(np.ascontiguousarray(edges, dtype="<i8").tobytes())
        inside = edges.size == 0 or (edges.min() >= -1 and edges.max() < num_cells)
        return Graph(digest, num_cells, edges) if inside and hashed.hexdigest() == digest else None

    def distances(self, edges: EdgeArray) -> Int64[np.ndarray, " e"]:
        """Return how many steps apart the ends of pairs are; -1 where they are not connected."""
        n = self.num_cells
        u, v = (np.where(ends < 0, n, ends) for ends in self.edges.T)  # "no record" is the last vertex
        matrix = csr_array((np.ones(u.size), (u, v)), shape=(n + 1, n + 1))
        starts, place = np.unique(np.where(edges[:, 0] < 0, n, edges[:, 0]), return_inverse=True)
        if starts.size * (self.edges.size + n) > _MOST_WORK:
            raise fail("ledger", f"policies on {n} cells", "are too large to be compared edge by edge", _ADVICE)
        steps = dijkstra(matrix, directed=False, indices=starts, unweighted=True)
        found = steps[place, np.where(edges[:, 1] < 0, n, edges[:, 1])]
        return np.where(np.isinf(found), -1, found).astype(np.int64)


def views(entries: list[Entry], graphs: dict[str, Graph]) -> list[list[Entry]]:
    """Return the losses as different kinds of policy edges see them; one view where there is one policy.

    Guarantees:
        Every edge of every policy sees, in one of the views, at most the losses that are listed there. Policies whose
        graphs are not known, and edges that a policy does not connect, are refused.
    """
    paid = [entry for entry in entries if entry.noise != "public"]
    named = [_key(entry, number) for number, entry in enumerate(paid)]
    keys = list(dict.fromkeys(named))
    if len(keys) <= 1 or any(COMMON in (entry.remark or "") for entry in paid):
        return [paid]
    digests = {key: entry.digest for key, entry in zip(named, paid, strict=True) if entry.digest is not None}
    titles = {key: entry.policy for key, entry in zip(named, paid, strict=True)}
    known = [(titles[key], graphs.get(digests.get(key, ""))) for key in keys]
    if any(graph is None for _, graph in known) or len({graph.num_cells for _, graph in known if graph}) > 1:
        names = ", ".join(repr(title) for title, _ in known)
        problem = "are several policies whose graphs are not all known, so no pair can be promised a total"
        raise fail("ledger", f"releases under {names}", problem, _ADVICE)
    edges = np.unique(np.concatenate([graph.edges for _, graph in known if graph]), axis=0)
    steps = np.stack([graph.distances(edges) for _, graph in known if graph])
    for (title, _), own in zip(known, steps, strict=True):
        if np.any(own < 0):
            problem = f"tells totals that others protect: {int(np.sum(own < 0))} of their pairs are not connected in it"
            raise fail("ledger", f"a release under {title!r}", problem, _ADVICE)
    places = [keys.index(key) for key in named]
    return [[_scaled(e, int(column[k])) for e, k in zip(paid, places, strict=True)] for column in _largest(steps)]


def _key(entry: Entry, number: int) -> str:
    """What tells policies apart: a spec string makes its edges, other titles do not, and need a digest."""
    if SPEC.fullmatch(entry.policy):
        return entry.policy
    return f"unknown {number}" if entry.digest is None else entry.digest


def _largest(steps: Int64[np.ndarray, "p e"]) -> Int64[np.ndarray, "k p"]:
    """Return the columns that no other is at least as large as."""
    columns = np.unique(steps, axis=1).T
    above = [np.any(np.all(columns >= own, axis=1) & np.any(columns > own, axis=1)) for own in columns]
    return np.asarray(columns[~np.array(above)])


def _scaled(entry: Entry, steps: int) -> Entry:
    """A loss over several edges: epsilon and mu times, rho square times as much; delta has no such rule."""
    if steps == 1:
        return entry

    def times(value: str | None, factor: int) -> str | None:
        return None if value is None else str(Fraction(value) * factor)

    pure = entry.noise in ("laplace", "norm")
    epsilon = times(entry.epsilon, steps) if pure else None
    return replace(entry, epsilon=epsilon, delta=None, rho=times(entry.rho, steps * steps), mu=times(entry.mu, steps))


def balance_of(total: Total, account: str, entries: list[Entry], graphs: dict[str, Graph]) -> Balance:
    """Add up the entries of one account: the most that an edge has lost, and what is left on every edge.

    Entries under policies that cannot be compared, as ledgers of earlier versions have them, are added up for the pairs
    that all of them protect.
    """
    try:
        seen = views(entries, graphs)
    except InputError:
        seen = [entries]
    first, *others = [balance(total, account, view) for view in seen]
    worst = first
    for other in others:
        left = min(worst.left_epsilon, other.left_epsilon), min(worst.left_rho, other.left_rho)
        spent = worst if worst.rho >= other.rho else other
        worst = replace(spent, left_epsilon=left[0], left_rho=left[1], left_plain=None)
    names = tuple(dict.fromkeys([account, *(entry.data for entry in entries)]))
    return replace(worst, names=names, num_releases=len(entries))


def left_mu_under(total: Total, entries: list[Entry], graphs: dict[str, Graph], policy: Policy) -> float:
    """Return the largest mu that a next Gaussian release under a policy could have."""
    asked = Entry("", "", policy.title, "gaussian", None, None, "1", None, None, "1")
    found = _with_next(entries, graphs, policy, asked)
    return min(left_mu(total, before) / float(Fraction(own.mu or 1)) for before, own in found)


def left_epsilon_under(
    total: Total, entries: list[Entry], graphs: dict[str, Graph], policy: Policy, steps: float = 1.0
) -> float:
    """Return the largest epsilon that a next release of pure noise under a policy could have; see `left_epsilon`."""
    asked = Entry("", "", policy.title, "laplace", "1", None, None, None)
    found = [(before, Fraction(own.epsilon or 1)) for before, own in _with_next(entries, graphs, policy, asked)]
    rest = [(left_epsilon(total, before, steps * float(far)), far) for before, far in found]
    return min(left if far == 1 else float(Fraction(left) / far) * (1 - ROUNDING) for left, far in rest)


def _with_next(
    entries: list[Entry], graphs: dict[str, Graph], policy: Policy, asked: Entry
) -> list[tuple[list[Entry], Entry]]:
    """Return, as kinds of edges see them, the losses so far and a next one of size 1 under a policy."""
    graph = Graph.of(policy)
    known = graphs if graph is None else {**graphs, graph.digest: graph}
    own = replace(asked, digest=graph.digest if graph else None)
    return [(view[:-1], view[-1]) for view in views([*entries, own], known)]
