"""Policies from files: edge-list CSV, GraphML, node-link JSON, GeoJSON maps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree.ElementTree import ParseError

import numpy as np

from hdmm_bf._checks import csv_rows, fail, naming, nearest, readable_file, utf8_text, written_real, written_whole
from hdmm_bf._types import JsonObject
from hdmm_bf.domain import Domain, DomainLike, as_domain
from hdmm_bf.policy.constructors import from_edges
from hdmm_bf.policy.contiguity import Ring, from_geojson, is_geojson, outlines
from hdmm_bf.policy.graph import BOTTOM, Policy
from hdmm_bf.policy.interop import from_networkx
from hdmm_bf.policy.node_names import BOTTOM_NAME, FIRST_UNUSABLE, labels_of, unknown_label

if TYPE_CHECKING:
    import networkx as nx

SUFFIXES = (".csv", ".graphml", ".json", ".geojson")

_MALFORMED = (LookupError, TypeError, AttributeError, ValueError, RecursionError)
"""What networkx raises, besides its own exceptions, on files with the wrong contents."""


def read(path: str | Path, *, domain: DomainLike | None = None) -> Policy:
    """Read a policy graph from `.csv`, `.graphml`, `.json` or `.geojson`.

    Cells are the numbers 0, 1, ..., or the labels of a domain of one attribute that has them; `_` is BOTTOM. Without
    `domain` the cells run to the largest number seen. On a map (GeoJSON) districts are neighbours if they share a
    stretch of border, that is two of its points; without `domain` they are called by the property `name`.
    """
    file = readable_file("policy.read", path)
    suffix = file.suffix.lower()
    if suffix == ".csv":
        return _read_csv(file, domain)
    if suffix not in SUFFIXES:
        raise fail("policy.read", file, f"unknown kind of file '{suffix}'", nearest(suffix, SUFFIXES))
    if suffix == ".graphml":
        graph = _read_graphml(file)
    else:
        content = _json_content(file)
        if is_geojson(content):
            with naming(file):
                return from_geojson(content, file, None if domain is None else as_domain(domain))
        graph = _node_link(file, content)
    with naming(file):
        return from_networkx(graph, domain=domain, spec=str(file))


def read_outlines(path: str | Path, domain: Domain) -> list[list[Ring]]:
    """Read a map (GeoJSON): the rings of every district, by the number of its label in a domain of one attribute."""
    file = readable_file("policy.read", path)
    content = _json_content(file)
    if not is_geojson(content):
        raise fail("policy.read", file, "is no map", "Give GeoJSON, a FeatureCollection of polygons.")
    with naming(file):
        return outlines(content, file, domain)


def _read_csv(file: Path, domain: DomainLike | None) -> Policy:
    rows = csv_rows("policy.read", file)
    given = None if domain is None else as_domain(domain)
    labels = _used_labels(rows, labels_of(given))
    if rows and not any(_looks_like_vertex(entry, labels) for entry in rows[0][1]):
        rows = rows[1:]
    if not rows:
        raise fail("policy.read", file, "the file has no edges", "Write one edge `u,v` a line, or use empty:N.")
    ends = np.array([_edge(file, number, row, labels) for number, row in rows], dtype=np.int64)
    cells = given or as_domain(max(int(ends.max()) + 1, 1))
    u, v = ends.T
    for bad in np.flatnonzero((u == v) | (ends.max(axis=1) >= cells.num_cells))[:1]:
        with naming(f"{file}: line {rows[bad][0]}"):
            from_edges(u[[bad]], v[[bad]], cells)  # refuses this edge
    return from_edges(u, v, cells, spec=str(file))


def _used_labels(rows: list[tuple[int, list[str]]], labels: Sequence[str] | None) -> Sequence[str] | None:
    """Return the labels, unless the file calls all cells by numbers and no label is one."""
    if labels is None or any(written_whole(label) is not None for label in labels):
        return labels
    entries = [entry.strip() for _, row in rows[1:] or rows for entry in row]
    return None if all(e == BOTTOM_NAME or written_whole(e) is not None for e in entries) else labels


def _looks_like_vertex(entry: str, labels: Sequence[str] | None) -> bool:
    if labels is not None:
        return entry.strip() == BOTTOM_NAME or entry.strip() in labels
    return entry.strip() == BOTTOM_NAME or written_real(entry) is not None


def _edge(file: Path, number: int, row: list[str], labels: Sequence[str] | None) -> tuple[int, int]:
    if len(row) != 2:
        raise fail(
            "policy.read",
            f"{file}, line {number}",
            f"has {len(row)} columns, an edge has 2",
            f"Write `u,v`, with {BOTTOM_NAME} for BOTTOM.",
        )
    u, v = (_vertex(file, number, entry.strip(), labels) for entry in row)
    return u, v


def _vertex(file: Path, number: int, entry: str, labels: Sequence[str] | None) -> int:
    if entry == BOTTOM_NAME:
        return BOTTOM
    if labels is not None:
        if entry in labels:
            return labels.index(entry)
        raise unknown_label(f"{file}: line {number}: policy.read", entry, labels)
    cell = written_whole(entry)
    if cell is None or not 0 <= cell < FIRST_UNUSABLE:
        raise fail(
            "policy.read",
            f"{file}, line {number}: {entry!r}",
            "is not a cell",
            f"Use whole numbers from 0, or {BOTTOM_NAME} for BOTTOM.",
        )
    return cell


def _read_graphml(file: Path) -> nx.Graph:
    import networkx as nx

    utf8_text("policy.read", file)
    try:
        return nx.read_graphml(file)
    except (ParseError, nx.NetworkXException, KeyError) as error:
        reason = str(error)
    except _MALFORMED:
        reason = "a value is not of the type it is declared to have"
    raise fail("policy.read", file, f"not readable as GraphML ({reason})", "Write it with networkx.")


def _json_content(file: Path) -> JsonObject:
    text = utf8_text("policy.read", file)
    try:
        content: JsonObject = json.loads(text)
        return content
    except json.JSONDecodeError as error:
        raise _not_node_link(file, str(error)) from None
    except RecursionError:
        raise _not_node_link(file, "it is nested too deeply") from None
    except ValueError:
        raise _not_node_link(file, "a number has too many digits") from None


def _node_link(file: Path, content: JsonObject) -> nx.Graph:
    import networkx as nx

    edges = "edges" if isinstance(content, dict) and "edges" in content else "links"
    if not isinstance(content, dict) or not {"nodes", edges} <= set(content):
        raise _not_node_link(file, "it is no object with 'nodes' and 'edges'")
    try:
        return nx.node_link_graph(content, edges=edges)
    except (nx.NetworkXException, *_MALFORMED):
        raise _not_node_link(file, "a node needs an 'id', an edge a 'source' and a 'target'") from None


def _not_node_link(file: Path, reason: str) -> Exception:
    return fail("policy.read", file, f"not node-link JSON ({reason})", "Write it with networkx.node_link_data.")
