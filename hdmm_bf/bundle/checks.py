"""What a bundle may hold: types, shapes and ranges of its files, and names that say what is there.

A bundle comes from a stranger. Every function here takes what was read and either returns it with a known type or
raises `InputError`; nothing outside the bundle is ever opened. A policy or workload that calls itself by a spec string
must be the one of that name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeGuard, get_args

import numpy as np
import scipy.sparse as sp

from hdmm_bf import policy as policies
from hdmm_bf import workload as workloads
from hdmm_bf._checks import MAX_BITS, InputError, fail, whole_numbers
from hdmm_bf._display import plain
from hdmm_bf._types import AnyArray, EdgeArray, Effort, JsonObject, Noise
from hdmm_bf.domain import Domain
from hdmm_bf.policy import Policy
from hdmm_bf.policy import naming as policy_naming
from hdmm_bf.problem.goal import Kind
from hdmm_bf.strategies.records import CellStrategy, EdgeStrategy, MatrixStrategy, TreeNorm
from hdmm_bf.strategies.search import SENTENCES
from hdmm_bf.workload import Workload
from hdmm_bf.workload import naming as workload_naming
from hdmm_bf.workload.queries import MatrixLike
from hdmm_bf.workload.records import from_records, table_records

WRITE_AGAIN = "Write the bundle again with `hdmm-bf fit ... --out`."
OTHER_FILES = frozenset({"policy.npz", "certificate.json"})
STRATEGY = "strategy.npz"
BLOCKS = "blocks.npz"
TREE = "tree.npz"
GROUPED_TREE = "grouped_tree.npz"
TREE_SUM = "tree_sum.npz"
WORKLOAD = "workload.npz"
OBJECTIVE = "objective.npz"
WEIGHTS = "weights"

MOST_BITS = 255
"""Binary places of a strategy. A release divides numbers of up to 2^500 twice by singular values that may be as small
as 2^-bits (`_normal_solve` of `release.exact`); 2^(500 + 2 * 255) is about the last number that floating point holds
with room for a sum. Searches end far below."""

_INTEGER_LIMIT = 2**52
_RECORDS: dict[str, dict[str, type]] = {
    "domain": {"sizes": list, "names": list, "labels": list},
    "workload": {"spec": str, "file": bool},
    "policy": {"spec": str, "meaning": str},
}
_WRITTEN_OUT = {record.kind: record for record in (CellStrategy, EdgeStrategy)}
_STRATEGY = {"kind", "family", "integers", "bits", "weights"}
_MOST_STEPS = 1000
_MOST_NAMES = 2**17
"""Queries whose names are stored; more are only numbered."""

_CSR = {"data", "indices", "indptr", "shape"}
_LOOKS_LIKE_SPEC = re.compile(r"\s*[\w-]+\s*:")


class BundleError(InputError):
    """A bundle that cannot be trusted: edited, truncated, mixed or not one."""


def refuse(folder: str | Path, name: str, problem: str) -> BundleError:
    """Compose the refusal of a file of a bundle."""
    return BundleError(str(fail("bundle.read", repr(str(folder)), f"{name} {problem}", WRITE_AGAIN)))


@contextmanager
def blaming(folder: str | Path, name: str) -> Iterator[None]:
    """Turn an `InputError` into a refusal that names the file it came from."""
    try:
        yield
    except InputError as error:
        raise error if isinstance(error, BundleError) else refuse(folder, name, f"is refused: {error}") from None


def check_manifest(manifest: JsonObject) -> None:
    """Check the type and range of everything in a manifest that is used and not derived again."""
    _want(manifest.get("noise") in get_args(Noise), "noise", "must be gaussian, laplace or norm", manifest)
    _want(_is_text(manifest.get("status")) and manifest["status"] in SENTENCES, "status", "is unknown", manifest)
    _want(_is_whole(manifest.get("seed")), "seed", "must be a whole number", manifest)
    _want(_is_positive(manifest.get("requested_gap")), "requested_gap", "must be a positive number", manifest)
    seconds = manifest.get("seconds")
    _want(_is_real(seconds) and seconds >= 0, "seconds", "must be a number, not negative", manifest)
    reached = manifest.get("reached")
    good = isinstance(reached, dict) and all(_is_text(k) and _is_real(v) and v >= 0 for k, v in reached.items())
    _want(good, "reached", "must hold names in printable text and numbers, none negative", manifest)
    _want(_is_text(manifest.get("why", "")), "why", "must be printable text", manifest)
    _want(_is_trace(manifest.get("trace", [])), "trace", "must hold seconds, errors and bounds of steps", manifest)
    _want(_are_options(manifest.get("options", {})), "options", "must be limits or a family", manifest)
    for key, types in _RECORDS.items():
        record = manifest.get(key)
        typed = isinstance(record, dict) and all(isinstance(record.get(k), t) for k, t in types.items())
        _want(typed, key, f"must hold {', '.join(types)}", manifest)
    for key in ("workload", "policy"):
        _want(_is_text(manifest[key]["spec"]), key, "must be called by printable text", manifest)
    files = manifest.get("files")
    kinds = BLOCKS, TREE, GROUPED_TREE, TREE_SUM
    held = next((name for name in kinds if isinstance(files, dict) and name in files), STRATEGY)
    objective = manifest.get("objective", "total")
    _want(objective in get_args(Kind), "objective", f"must be one of {', '.join(get_args(Kind))}", manifest)
    wanted = OTHER_FILES | {held} | ({WORKLOAD} if manifest["workload"]["file"] else set())
    wanted |= set() if objective == "total" else {OBJECTIVE}
    _want(isinstance(files, dict) and set(files) == wanted, "files", f"must be {', '.join(sorted(wanted))}", manifest)


def _want(good: bool, key: str, problem: str, manifest: JsonObject) -> None:
    if not good:
        seen = f"{key}={manifest[key]!r}" if key in manifest else f"no {key}"
        raise fail("manifest", seen, problem, WRITE_AGAIN)


def _is_trace(value: object) -> bool:
    """Whether these are steps of a search: finite numbers, none negative, and time goes on."""
    if not isinstance(value, list) or len(value) > _MOST_STEPS:
        return False
    if not all(isinstance(p, list) and len(p) == 3 and all(_is_real(v) and v >= 0 for v in p) for p in value):
        return False
    steps = np.array(value, dtype=np.float64).reshape(-1, 3)
    return bool(np.all(np.isfinite(steps)) and np.all(np.diff(steps[:, 0]) >= 0))


def _are_options(value: object) -> bool:
    known: dict[str, Callable[[object], bool]] = {
        "max_seconds": _is_positive,
        "max_steps": lambda v: _is_whole(v) and _is_positive(v),
        "workers": lambda v: _is_whole(v) and _is_positive(v),
        "family": _is_text,
        "effort": lambda v: v in get_args(Effort),
    }
    return isinstance(value, dict) and all(k in known and known[k](v) for k, v in value.items())


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.isprintable()


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= MAX_BITS


def _is_real(value: object) -> TypeGuard[float]:
    return _is_whole(value) or (isinstance(value, float) and math.isfinite(value))


def _is_positive(value: object) -> bool:
    return _is_real(value) and value > 0


def stored_domain(record: JsonObject) -> Domain:
    """Return the domain that a manifest describes."""
    names, labels = record["names"], record["labels"]
    lists = [names, *(values for values in labels if values is not None)]
    if not all(isinstance(values, list) and all(isinstance(v, str) for v in values) for values in lists):
        raise fail("domain", f"names={names!r}", "names and labels must be text", WRITE_AGAIN)
    if not all(_is_whole(size) for size in record["sizes"]):
        raise fail("domain", f"sizes={record['sizes']!r}", "sizes must be whole numbers", WRITE_AGAIN)
    held = tuple(v if v is None else tuple(v) for v in labels)
    return Domain(tuple(record["sizes"]), tuple(names), held, _stored_bins(record), _stored_units(record))


def _stored_bins(record: JsonObject) -> tuple[tuple[float, ...] | None, ...]:
    """Return the edges of intervals, where a manifest has any; infinite ones are texts there."""
    bins = record.get("bins", [])
    lists = [edges for edges in bins if edges is not None] if isinstance(bins, list) else [None]
    if not all(isinstance(edges, list) and all(_is_real(e) or e in ("inf", "-inf") for e in edges) for edges in lists):
        raise fail("domain", "bins", "must be lists of numbers", WRITE_AGAIN)
    return tuple(None if edges is None else tuple(map(float, edges)) for edges in bins)


def _stored_units(record: JsonObject) -> tuple[str | None, ...]:
    units = record.get("units", [])
    if not isinstance(units, list) or not all(unit is None or _is_text(unit) for unit in units):
        raise fail("domain", "units", "must be printable texts", WRITE_AGAIN)
    return tuple(units)


def stored_strategy(arrays: dict[str, AnyArray]) -> tuple[MatrixStrategy, AnyArray]:
    """Return the strategy and the edge weights, after checking the type and range of every array."""
    exactly(arrays, _STRATEGY)
    kind, family = text("kind", arrays["kind"]), text("family", arrays["family"])
    if kind not in _WRITTEN_OUT:
        raise fail("kind", repr(kind), "must be vertex or edge", WRITE_AGAIN)
    integers, bits, weights = arrays["integers"], arrays["bits"], arrays["weights"]
    typed("integers", integers, "i", 2)
    integers = integers.astype(np.int64)
    if not in_range(integers):
        raise fail("integers", f"of type {integers.dtype}", "must be below 2^52 in size", WRITE_AGAIN)
    typed("bits", bits, "iu", 0)
    if not 0 <= int(bits) <= MOST_BITS:
        raise fail("bits", int(bits), f"must be 0 to {MOST_BITS}", WRITE_AGAIN)
    _check_weights(weights)
    return _WRITTEN_OUT[kind](integers, int(bits), family), weights.astype(np.float64)


def stored_tree(arrays: dict[str, AnyArray]) -> tuple[TreeNorm, AnyArray]:
    """Return a tree norm and the edge weights of its yardstick, after checking the type and range of every array."""
    exactly(arrays, {"parents", "integers", "bits", "family", "weights"})
    weights = arrays["weights"]
    _check_weights(weights)
    return tree_of(arrays), weights.astype(np.float64)


def tree_of(arrays: dict[str, AnyArray]) -> TreeNorm:
    """Return a tree norm, after checking the type and range of its arrays."""
    parents, integers, bits = (arrays[name] for name in ("parents", "integers", "bits"))
    typed("parents", parents, "i", 1)
    typed("integers", integers, "i", 1)
    typed("bits", bits, "iu", 0)
    if parents.shape != integers.shape:
        raise fail("integers", f"{integers.size} weights", f"the tree has {parents.size} nodes", WRITE_AGAIN)
    if not in_range(integers.astype(np.int64)) or not 0 <= int(bits) <= MOST_BITS:
        raise fail("integers", f"with bits={int(bits)}", "must be below 2^52 in size", WRITE_AGAIN)
    family = text("family", arrays["family"])
    return TreeNorm(parents.astype(np.int64), integers.astype(np.int64), int(bits), family)


def in_range(integers: AnyArray) -> bool:
    """Whether all integers are below 2^52 in size; not by np.abs, which leaves -2^63 negative."""
    return not (np.any(integers <= -_INTEGER_LIMIT) or np.any(integers >= _INTEGER_LIMIT))


def _check_weights(weights: AnyArray) -> None:
    typed("weights", weights, "f", 1)
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(weights.astype(np.float64).sum())
    if not math.isfinite(total) or np.any(weights < 0) or (weights.size and not total > 0):
        raise fail("weights", f"with sum {total}", "must be finite, not negative and not all zero", WRITE_AGAIN)


def stored_edges(arrays: dict[str, AnyArray], num_cells: int) -> EdgeArray:
    """Return the edges of a policy in the order of the file; loops, repeats and unknown cells are refused."""
    exactly(arrays, {"edges"})
    edges = arrays["edges"]
    typed("edges", edges, "iu", 2)
    if edges.shape[1] != 2:
        raise fail("edges", f"of shape {edges.shape}", "an edge has two ends", WRITE_AGAIN)
    return ordered_edges(whole_numbers("policy.edges", "edges", edges).reshape(-1, 2), num_cells)


def ordered_edges(edges: EdgeArray, num_cells: int) -> EdgeArray:
    """Return edges in the order they have; loops, repeats, swapped ends and unknown cells are refused."""
    u, v = edges.T
    canonical = policies.from_edges(u, v, num_cells).edges
    held = np.stack([u, v], axis=1)
    if not np.array_equal(held[np.lexsort((v, u))], canonical):
        raise fail("edges", f"{len(held)} edges", "are repeated, or have their ends in the wrong order", WRITE_AGAIN)
    return held


def stored_matrix(arrays: dict[str, AnyArray]) -> MatrixLike:
    """Return the workload matrix, dense or CSR; its entries are checked when the workload is made."""
    if "W" in arrays:
        exactly(arrays, {"W"})
        return arrays["W"]
    exactly(arrays, _CSR)
    for name in ("indices", "indptr", "shape"):
        typed(name, arrays[name], "i", 1)
    typed("data", arrays["data"], "f", 1)
    shape, indptr = arrays["shape"].tolist(), arrays["indptr"]
    if len(shape) != 2 or min(shape) < 1 or indptr.size != shape[0] + 1:
        raise fail("workload", f"shape {shape}", f"does not go with {indptr.size} row pointers", WRITE_AGAIN)
    try:
        return sp.csr_array((arrays["data"], arrays["indices"], indptr), shape=tuple(shape))
    except (ValueError, OverflowError) as error:
        raise fail("workload", f"shape {shape}", f"its sparse form is damaged ({error})", WRITE_AGAIN) from None


def exactly(arrays: dict[str, AnyArray], names: Collection[str]) -> None:
    """Refuse a file that holds other arrays than these."""
    if set(arrays) != set(names):
        raise fail("arrays", ", ".join(sorted(arrays)), f"must be {', '.join(sorted(names))}", WRITE_AGAIN)


def typed(name: str, array: AnyArray, kinds: str, ndim: int) -> None:
    """Refuse an array of another type or number of dimensions."""
    if array.dtype.kind not in kinds or array.dtype.itemsize > 8 or array.ndim != ndim:
        seen = f"of type {array.dtype} with {array.ndim} dimensions"
        what = "real" if kinds == "f" else "whole"
        raise fail(name, seen, f"must be {what} numbers with {ndim} dimensions", WRITE_AGAIN)


def text(name: str, array: AnyArray | None) -> str:
    """Return printable text held in an array."""
    if array is None:
        raise fail(name, "missing", "must be printable text", WRITE_AGAIN)
    if array.dtype.kind != "U" or array.ndim != 0 or not str(array).isprintable():
        raise fail(name, f"of type {array.dtype}", "must be printable text", WRITE_AGAIN)
    return str(array)


def stored_policy(record: JsonObject, domain: Domain, edges: EdgeArray) -> Policy:
    """Return the policy, which must be the named one if it has a name, and hide what it says it hides."""
    named = named_policy(record["spec"], domain)
    if named is not None and not (named.num_edges == len(edges) and np.array_equal(named.edges, edges)):
        raise fail("policy", named.spec, "policy.npz does not hold the edges of that policy", WRITE_AGAIN)
    made = named or Policy(domain, record["spec"], _plain_meaning(edges, domain), edges)
    if record["meaning"] != made.meaning:
        problem = f"says that it hides {record['meaning']!r}, and hides {made.meaning!r}"
        raise fail("policy", made.spec, problem, WRITE_AGAIN)
    return made


def policy_record(policy: Policy) -> dict[str, str]:
    """Describe a policy so that `stored_policy` finds every word of it true.

    A graph without a spec string has the meaning that follows from its edges: other words could not be checked.
    """
    try:
        named = named_policy(policy.spec, policy.domain)
    except InputError:
        named = None
    same = named is not None and (named.spec, named.meaning) == (policy.spec, policy.meaning)
    if same and named is not None and np.array_equal(named.edges, policy.edges):
        return {"spec": policy.spec, "meaning": policy.meaning}
    return {"spec": described(policy.spec, "graph"), "meaning": _plain_meaning(policy.edges, policy.domain)}


def _plain_meaning(edges: EdgeArray, domain: Domain) -> str:
    u, v = edges.T
    return policies.from_edges(u, v, domain).meaning


def named_policy(spec: str, domain: Domain) -> Policy | None:
    """Return the policy that a spec string names, on the given domain; None if it is a path or a description."""
    return policy_naming.named(spec.strip(), domain) if _LOOKS_LIKE_SPEC.match(spec) else None


def named_workload(record: JsonObject, domain: Domain) -> Workload | None:
    """Return the workload that tables or a spec string make, None if it is a path or a description."""
    if "tables" in record:
        return replace(from_records(record["tables"], domain), spec=record["spec"])
    spec = record["spec"]
    return workload_naming.named(spec.strip(), domain) if _LOOKS_LIKE_SPEC.match(spec) else None


def workload_record(workload: Workload, what: str = "matrix") -> JsonObject:
    """Describe a workload: by its spec string or its tables if they make it again, else by words and a file."""
    if workload_naming.is_named(workload):
        return {"spec": workload.spec, "file": False}
    if workload.layout is not None and workload.layout.makes:
        return {"spec": described(workload.spec, "tables"), "file": False, "tables": table_records(workload)}
    return {"spec": described(workload.spec, what), "file": True}


def reweighted(workload: Workload, weights: AnyArray | None) -> Workload:
    """Return a workload with the weights that a file holds; they do not change its name."""
    if weights is None:
        return workload
    typed(WEIGHTS, weights, "f", 1)
    return replace(workloads.weighted(workload, weights), spec=workload.spec)


def described(spec: str, what: str) -> str:
    """Return words for something without a spec string that nobody takes for one."""
    text = plain(spec)
    return f"{what} ({text})" if _LOOKS_LIKE_SPEC.match(text) else text


def names_record(workload: Workload) -> dict[str, AnyArray]:
    """Return the names of queries that have their own, for a file; nothing where they are only numbered."""
    if workload.num_queries > _MOST_NAMES:
        return {}
    names = workload.names()
    if names == [f"query {i}" for i in range(len(names))]:
        return {}
    return {"names": np.array(["".join(c if c.isprintable() else repr(c)[1:-1] for c in name) for name in names])}


def stored_names(arrays: dict[str, AnyArray]) -> list[str] | None:
    """Take the names of queries, printable text, out of a workload's arrays; None where there are none."""
    names = arrays.pop("names", None)
    if names is None:
        return None
    if names.dtype.kind != "U" or names.ndim != 1 or not all(str(name).isprintable() for name in names):
        raise fail("workload", f"names of type {names.dtype}", "must be a list of printable texts", WRITE_AGAIN)
    return [str(name) for name in names]


def stored_workload(
    record: JsonObject, matrix: MatrixLike | None, domain: Domain, names: list[str] | None = None
) -> Workload:
    """Return the workload of a spec string, or of a matrix that does not call itself by one."""
    named = named_workload(record, domain)
    if (named is None) != record["file"]:
        problem = "a workload has either a spec string or a file"
        raise fail("workload", repr(record["spec"]), problem, WRITE_AGAIN)
    return named or workloads.from_matrix(matrix, domain=domain, names=names, spec=record["spec"])
