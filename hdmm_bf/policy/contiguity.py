"""Maps as policies: districts of a GeoJSON file are neighbours if they share a stretch of border.

Maps that were cut from one drawing repeat the points of a common border in both districts, so no geometry is needed:
two districts are neighbours if at least two vertices stand in both; one alone is a corner at which they touch. Where
borders were drawn apart they share none, and the graph has no edge; `notes` of the policy tells how many districts have
no neighbour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from hdmm_bf._checks import InputError, fail
from hdmm_bf.domain import Domain
from hdmm_bf.policy.constructors import from_edges
from hdmm_bf.policy.graph import Policy
from hdmm_bf.policy.node_names import label_numbers, labels_of, own_numbers

Ring: TypeAlias = list[tuple[float, float]]
"""The points of a closed border."""

_ADVICE = "Write a FeatureCollection of polygons, each with a property that is its label."
_PLACES = 9
"""Decimals of a coordinate that count: a tenth of a millimetre in degrees."""
_STRETCH = 2
"""Vertices that two districts have in common where they share more than a corner."""
_NAMES = ("name", "NAME", "label", "id")
"""Properties that districts are called by where no domain says their labels, in this order."""


def is_geojson(content: Any) -> bool:
    """Whether the content of a JSON file is a map."""
    return isinstance(content, dict) and content.get("type") == "FeatureCollection"


def from_geojson(content: dict[str, Any], file: Path, domain: Domain | None) -> Policy:
    """Return the policy that hides in which of two neighbouring districts a record is."""
    features = _features(content, file)
    names = _feature_names(features)
    cells, numbers = _cells(features, names, domain)
    points = [set(_points(f.get("geometry"), file)) for f in features]
    ends = [(numbers[names[i]], numbers[names[j]]) for i, j in _touching(points)]
    u, v = np.array(ends, dtype=np.int64).reshape(-1, 2).T
    made = from_edges(u, v, cells, spec=str(file))
    alone = cells.num_cells - len({end for pair in ends for end in pair})
    notes = (f"{alone} of {cells.num_cells} districts have no neighbour on the map",) if alone else ()
    return Policy(cells, made.spec, made.meaning, made.stored, notes=(*made.notes, *notes))


def outlines(content: dict[str, Any], file: Path, domain: Domain) -> list[list[Ring]]:
    """Return the rings of every district, by the number that its label has in a domain of one attribute.

    A district that is not on the map has none.
    """
    features = _features(content, file)
    names = _feature_names(features)
    _, numbers = _cells(features, names, domain)
    found: list[list[Ring]] = [[] for _ in range(domain.num_cells)]
    for name, feature in zip(names, features, strict=True):
        if numbers[name] >= domain.num_cells:
            problem = f"is number {numbers[name]}, and there are {domain.num_cells} values"
            raise fail("policy.read", f"district {name!r}", problem, _ADVICE)
        found[numbers[name]] = list(_rings(feature.get("geometry"), file))
    return found


def _features(content: dict[str, Any], file: Path) -> list[Any]:
    features = content.get("features")
    if not isinstance(features, list) or not features or not all(isinstance(f, dict) for f in features):
        raise _refused(file, "it has no list of features")
    return features


def _feature_names(features: list[Any]) -> list[Any]:
    """Return what features are called on the map: their identifiers where these differ, else their numbers."""
    names = [f.get("id", i) for i, f in enumerate(features)]
    return list(range(len(features))) if len(set(map(str, names))) < len(names) else names


def _cells(features: list[Any], names: list[Any], domain: Domain | None) -> tuple[Domain, dict[Any, int]]:
    """Return the domain, with the names on the map as labels where none is given, and the number of every feature."""
    known = {name: dict(f.get("properties") or {}) for name, f in zip(names, features, strict=True)}
    labels = labels_of(domain)
    if labels is not None:
        numbers = label_numbers("policy.read", names, labels, known)
        if domain is not None and numbers is not None:
            return domain, numbers
        problem = "no property of its features holds the labels of the domain"
        raise fail("policy.read", f"a map with {len(names)} features", problem, _ADVICE)
    if domain is not None:
        return domain, own_numbers("policy.read", names)
    called = [[str(known[name].get(key, "")) for name in names] for key in _NAMES]
    own = next((texts for texts in called if len(set(texts)) == len(texts) and all(texts)), None)
    made = Domain((len(names),)) if own is None else Domain((len(names),), ("district",), (tuple(own),))
    return made, {name: i for i, name in enumerate(names)}


def _points(geometry: Any, file: Path) -> Iterator[tuple[float, float]]:
    """Return the vertices of all rings of a polygon, or of several."""
    for ring in _rings(geometry, file):
        yield from ((round(x, _PLACES), round(y, _PLACES)) for x, y in ring)


def _rings(geometry: Any, file: Path) -> Iterator[Ring]:
    """Return the rings of a polygon, or of several."""
    kind = str(geometry.get("type")) if isinstance(geometry, dict) else ""
    depth = {"Polygon": 1, "MultiPolygon": 2}.get(kind)
    if depth is None:
        raise _refused(file, "a feature is no polygon")
    parts: list[Any] = [geometry.get("coordinates")]
    for _ in range(depth):
        if not all(isinstance(part, list) for part in parts):
            raise _refused(file, "a polygon is damaged")
        parts = [ring for rings in parts for ring in rings]
    for ring in parts:
        if not isinstance(ring, list) or not all(map(_is_point, ring)):
            raise _refused(file, "a polygon is damaged")
        yield [(float(point[0]), float(point[1])) for point in ring]


def _is_point(point: Any) -> bool:
    return isinstance(point, list) and len(point) >= 2 and all(isinstance(v, int | float) for v in point[:2])


def _touching(points: list[set[tuple[float, float]]]) -> list[tuple[int, int]]:
    """Return the pairs of districts with two vertices or more in common."""
    owners: dict[tuple[float, float], list[int]] = {}
    for i, own in enumerate(points):
        for point in own:
            owners.setdefault(point, []).append(i)
    shared = Counter((i, j) for at in owners.values() for k, i in enumerate(at) for j in at[k + 1 :])
    return sorted(pair for pair, count in shared.items() if count >= _STRETCH)


def _refused(file: Path, reason: str) -> InputError:
    return fail("policy.read", file, f"not readable as a map ({reason})", _ADVICE)
