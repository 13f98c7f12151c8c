"""Policies from files: edge-list CSV, GraphML, node-link JSON."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from xml.etree.ElementTree import ParseError

import numpy as np

from hdmm_bf._checks import fail, nearest, readable_file, utf8_text
from hdmm_bf.domain import DomainLike
from hdmm_bf.policy.constructors import from_edges
from hdmm_bf.policy.graph import BOTTOM, Policy
from hdmm_bf.policy.interop import BOTTOM_NAME, from_networkx

SUFFIXES = (".csv", ".graphml", ".json")


def read(path: str | Path, *, domain: DomainLike | None = None) -> Policy:
    """Read a policy graph from `.csv`, `.graphml` or `.json`.

    Cells are the numbers 0, 1, ...; `_` is BOTTOM. Without `domain` the cells run to the largest number seen.
    """
    file = readable_file("policy.read", path)
    suffix = file.suffix.lower()
    if suffix == ".csv":
        return _read_csv(file, domain)
    if suffix == ".graphml":
        return _read_graphml(file, domain)
    if suffix == ".json":
        return _read_json(file, domain)
    raise fail("policy.read", file, f"unknown kind of file '{suffix}'", nearest(suffix, SUFFIXES))


def _read_csv(file: Path, domain: DomainLike | None) -> Policy:
    rows = [(i, row) for i, row in enumerate(csv.reader(io.StringIO(utf8_text("policy.read", file))), 1) if row]
    if rows and not any(_is_vertex(entry) for entry in rows[0][1]):
        rows = rows[1:]
    if not rows:
        raise fail("policy.read", file, "the file has no edges", "Write one edge `u,v` a line, or use empty:N.")
    ends = np.array([_edge(file, number, row) for number, row in rows], dtype=np.int64)
    made_for = domain if domain is not None else max(int(ends.max()) + 1, 1)
    return from_edges(ends[:, 0], ends[:, 1], made_for, spec=str(file))


def _is_vertex(entry: str) -> bool:
    text = entry.strip()
    return text == BOTTOM_NAME or (text.isascii() and text.lstrip("-").isdecimal())


def _edge(file: Path, number: int, row: list[str]) -> tuple[int, int]:
    if len(row) != 2:
        raise fail(
            "policy.read",
            f"{file}, line {number}",
            f"has {len(row)} columns, an edge has 2",
            f"Write `u,v`, with {BOTTOM_NAME} for BOTTOM.",
        )
    u, v = (_vertex(file, number, entry.strip()) for entry in row)
    return u, v


def _vertex(file: Path, number: int, entry: str) -> int:
    if entry == BOTTOM_NAME:
        return BOTTOM
    if not (entry.isascii() and entry.isdecimal() and len(entry) < 19):
        raise fail(
            "policy.read",
            f"{file}, line {number}: {entry!r}",
            "is not a cell",
            f"Use whole numbers from 0, or {BOTTOM_NAME} for BOTTOM.",
        )
    return int(entry)


def _read_graphml(file: Path, domain: DomainLike | None) -> Policy:
    import networkx as nx

    utf8_text("policy.read", file)
    try:
        graph = nx.read_graphml(file)
    except (ParseError, nx.NetworkXError, KeyError) as error:
        raise fail("policy.read", file, f"not readable as GraphML ({error})", "Write it with networkx.") from None
    return from_networkx(graph, domain=domain, spec=str(file))


def _read_json(file: Path, domain: DomainLike | None) -> Policy:
    import networkx as nx

    try:
        content = json.loads(utf8_text("policy.read", file))
        edges = "edges" if "edges" in content else "links"
        graph = nx.node_link_graph(content, edges=edges)
    except (json.JSONDecodeError, nx.NetworkXError, KeyError, TypeError, AttributeError) as error:
        advice = "Write it with networkx.node_link_data."
        raise fail("policy.read", file, f"not node-link JSON ({error})", advice) from None
    return from_networkx(graph, domain=domain, spec=str(file))
