"""Problem files: a domain, a policy, a workload and the options of a fit, in one TOML file that others can run again.

    [domain]                      # names and sizes; left out, the specs carry their sizes
    sizes = "32x32"               # or [[domain.attribute]] with name and size, labels, bins, or first and last
    [policy]
    attribute.a0 = "line"         # or spec = "threshold:4", or file = "graph.csv"
    [workload]
    spec = "all-range"            # or file = "W.npy", or union = ["identity", "marginals:1"] with weights = [1, 2]
    [[publish]]                   # instead of [workload], one a table: table = ["age", "region"], ranges = "age" with
    table = ["a0", "a1"]          # by, prefixes, total = true, or sql; with where, groups, weight, stddev, name
    [fit]                         # noise, gap, family, seed, max_seconds, max_steps, workers, out
    [objective]                   # kind = "largest"; or stddev = 5 or a list, or targets = "c.csv"; groups
    [release]                     # epsilon, delta, rho: the budget for which `fit` tells the expected error

Weights say how much the search minds errors, and change no answer. Paths are relative to the file. Every mistake names
the file and the line.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, final

from hdmm_bf import domain as domains
from hdmm_bf import policy as policies
from hdmm_bf import workload as workloads
from hdmm_bf._checks import fail, naming, nearest, utf8_text
from hdmm_bf._types import AnyNoise, Effort, JsonObject, RealVector
from hdmm_bf.domain import Domain, as_domain
from hdmm_bf.fit import publishing
from hdmm_bf.fit.options import DEFAULT_GAP, FAMILIES
from hdmm_bf.fit.problem_schema import ATTRIBUTE, INSTEAD, PUBLISH, SCHEMA, TABLES, Kind
from hdmm_bf.fit.target_files import read_targets
from hdmm_bf.policy import Policy
from hdmm_bf.policy import files as policy_files
from hdmm_bf.policy.attributes import policy_of
from hdmm_bf.release.privacy import noise_variance
from hdmm_bf.workload import Workload
from hdmm_bf.workload import files as workload_files

_PARTS = ("sizes", "names", "labels", "bins", "units")
Place = tuple[str | int, ...]
"""Where a value stands: ("fit", "gap"), ("domain", "attribute", 0, "name")."""

_HEADER = re.compile(r"(\[\[?)([^\[\]]+)\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_NAME = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Request:
    """What a problem file, or the command line, asks to be fitted.

    Attributes:
        out: the bundle to write, or None.
        objective, targets, groups: what is to be small, as for `fit`.
        budget: epsilon, delta, rho as far as they are given: the privacy for which errors are told.
    """

    workload: Workload
    policy: Policy
    noise: AnyNoise = "gaussian"
    gap: float = DEFAULT_GAP
    family: str | None = None
    seed: int = 0
    max_seconds: float | None = None
    max_steps: int | None = None
    workers: int | None = None
    effort: Effort = "normal"
    out: str | None = None
    objective: str = "total"
    targets: RealVector | float | Mapping[str, float] | None = None
    groups: Sequence[str] | None = None
    budget: Mapping[str, float] = field(default_factory=dict)

    @property
    def goal(self) -> JsonObject:
        """The arguments of `fit` that say what is to be small."""
        return {"objective": self.objective, "targets": self.targets, "groups": self.groups}

    @property
    def search(self) -> JsonObject:
        """The arguments of `fit` and `compare` that say how to search."""
        names = ("noise", "seed", "max_seconds", "max_steps", "workers", "effort")
        chosen = {name: getattr(self, name) for name in names}
        if self.noise != "auto":
            return chosen
        if self.budget.get("rho") is not None:
            raise fail("fit", "noise='auto' with rho", "compares noises at an epsilon", "Give epsilon and delta.")
        return {**{name: chosen[name] for name in names[:4]}, **self.budget}


def read(path: str | Path, **flags: Any) -> Request:
    """Read a problem file; `flags` (workload, policy and the keys of [fit]) take the place of what it says.

    Guarantees:
        A mistake in the file is an `InputError` that starts with the file and the line.
    """
    return from_text(utf8_text("problem file", path), Path(path), **flags)


def read_policy(path: str | Path) -> Policy:
    """Return the policy of a problem file, which need not say yet what is asked."""
    text = utf8_text("problem file", path)
    problem = _File(Path(path), text, _tables(text, Path(path)))
    _check_keys(problem)
    return _policy(problem, _domain(problem))


def from_text(text: str, file: Path, **flags: Any) -> Request:
    """Make a request of the text of a problem file, with paths relative to where `file` is or will be."""
    problem = _File(file, text, _tables(text, file))
    _check_keys(problem)
    domain = _domain(problem)
    policy = flags.pop("policy", None)
    workload = flags.pop("workload", None)
    made_policy = policies.parse(policy, domain=domain) if policy is not None else _policy(problem, domain)
    made_workload = workloads.parse(workload, domain=domain) if workload is not None else _workload(problem, domain)
    given = flags.pop("budget", None)
    goal: dict[str, str] = {name: flags.pop(name) for name in ("objective", "targets") if name in flags}
    options = {**_fit_options(problem, out=flags.get("out")), **flags}
    options |= goal_options(made_workload, goal) if goal else _goal(problem, made_workload)
    budget = given or {name: float(value) for name, value in problem.tables.get("release", {}).items()}
    if budget:
        with problem.at("release"):
            check_budget(options.get("noise", "gaussian"), budget)
    return Request(workload=made_workload, policy=made_policy, budget=budget, **options)


def goal_options(workload: Workload, given: Mapping[str, str]) -> dict[str, Any]:
    """Return the goal that flags ask for; targets are a number, or a file with one number for every query."""
    options: dict[str, Any] = {}
    if "targets" in given:
        options = {"objective": "targets", "targets": read_targets(given["targets"], workload)}
    return options | ({"objective": given["objective"]} if "objective" in given else {})


def _goal(problem: _File, workload: Workload) -> dict[str, Any]:
    table = problem.tables.get("objective", {})
    if not table:
        return {}
    with problem.at("objective"):
        if "stddev" in table and "targets" in table:
            raise fail("objective", "stddev and targets", "are two lists of targets", "Write one of them.")
        targets = table.get("stddev")
        if "targets" in table:
            targets = read_targets(str(problem.file.parent / table["targets"]), workload)
        kind = table.get("kind", "total" if targets is None else "targets")
        return {"objective": kind, "targets": targets, "groups": table.get("groups")}


def check_budget(noise: AnyNoise, budget: Mapping[str, float]) -> None:
    """Refuse privacy parameters that do not go together, or not with a noise."""
    if noise == "auto":
        noise = "gaussian" if "delta" in budget else "laplace"
    noise_variance(noise, **budget)


def _fit_options(problem: _File, *, out: str | None) -> JsonObject:
    """Return the options of [fit]; a file writes into its own folder only, unless the user names another place."""
    options = dict(problem.tables.get("fit", {}))
    for name in {"gap", "max_seconds"} & set(options):
        options[name] = float(options[name])
    if "out" in options and out is None:
        options["out"] = _own_place(problem, options["out"])
    return options


def _own_place(problem: _File, name: str) -> str:
    """Return where a file's `out` is; refused outside the file's folder, through links too."""
    folder = os.path.realpath(problem.file.parent)
    place = os.path.realpath(os.path.join(folder, name)) if "\0" not in name else ""
    if os.path.isabs(name) or not place.startswith(os.path.join(folder, "")):
        with problem.at("fit", "out"):
            advice = "Name a folder beside the file, or use --out on the command line."
            raise fail("fit", f"out = {name!r}", "is outside the folder of the problem file", advice)
    return str(problem.file.parent / name)


def is_path(text: str, suffixes: Iterable[str]) -> bool:
    """Whether a spec is a path, `graph.csv` or `graph.csv:64`, by its suffix or its slash."""
    return Path(text.split(":")[0]).suffix.lower() in suffixes or ("/" in text and ":" not in text)


class _File(NamedTuple):
    """A parsed file, and what is needed to say where a mistake is."""

    file: Path
    text: str
    tables: JsonObject

    def at(self, *place: str | int) -> AbstractContextManager[None]:
        """Name the file and the line of a key before what an error says."""
        return naming(f"{self.file}: line {line_of(self.text, place)}")

    def located(self, text: str, suffixes: Iterable[str]) -> str:
        """Make a path relative to the file; leave other specs as they are."""
        return os.path.join(self.file.parent, text) if is_path(text, suffixes) else text


def line_of(text: str, place: Place) -> int:
    """Return the line of a key, or of the innermost table around it that has one; 1 if none has."""
    lines = _lines(text)
    return next((lines[place[:end]] for end in range(len(place), 0, -1) if place[:end] in lines), 1)


def _lines(text: str) -> dict[Place, int]:
    """Find the first line of every table and key by scanning the text: tomllib does not keep them."""
    lines: dict[Place, int] = {}
    table: Place = ()
    seen: dict[Place, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        header, key = _HEADER.match(line.strip()), _KEY.match(line.strip())
        if header is not None:
            table = _names(header[2])
            lines.setdefault(table, number)
            if header[1] == "[[":
                seen[table] = seen.get(table, -1) + 1
                table = (*table, seen[table])
                lines.setdefault(table, number)
        elif key is not None:
            place = (*table, *_names(key[1]))
            for end in range(len(table) + 1, len(place) + 1):
                lines.setdefault(place[:end], number)
    return lines


def _names(text: str) -> Place:
    return tuple(name.strip("\"'") for name in _NAME.findall(text))


def _tables(text: str, file: Path) -> JsonObject:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        place = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)", str(error))
        rows = text.splitlines() or [""]
        number = int(place[1]) if place and place[1] else len(rows)
        reason = str(error)[: place.start()] if place else f"cannot be read ({str(error) or 'nested too deeply'})"
        with naming(f"{file}: line {number}"):
            shown = rows[min(number, len(rows)) - 1].strip() or "empty line"
            advice = 'Problem files are TOML: [table] lines and key = value lines, with texts in "quotes".'
            raise fail("toml", shown, reason, advice) from None


def _check_keys(problem: _File) -> None:
    """Refuse unknown tables and keys and values of the wrong kind, all before anything is built."""
    _check_table(problem, (), problem.tables, TABLES)
    for name in SCHEMA:
        _check_table(problem, (name,), problem.tables.get(name, {}), SCHEMA[name])
    for i, entry in enumerate(problem.tables.get("publish", [])):
        _check_table(problem, ("publish", i), entry, PUBLISH)
    for i, attribute in enumerate(problem.tables.get("domain", {}).get("attribute", [])):
        _check_table(problem, ("domain", "attribute", i), attribute, ATTRIBUTE)
    family = problem.tables.get("fit", {}).get("family")
    if family is not None:
        _check_family(problem, family)


def _check_table(problem: _File, place: Place, table: JsonObject, known: Mapping[str, Kind]) -> None:
    where = ".".join(map(str, place)) or "problem file"
    for key, value in table.items():
        with problem.at(*place, key):
            if key not in known:
                what = f"[{where}] has no such key" if place else "has no such table"
                advice = f"{nearest(key, known)} {INSTEAD.get(where, '')}".rstrip()
                raise fail(where, f"{key} = {value!r}" if place else f"[{key}]", what, advice)
            if not known[key].holds(value):
                written = f"{key} = {known[key].example}" if place else known[key].example
                raise fail(where, f"{key} = {value!r}", f"must be {known[key].words}", f"Write it like {written}.")


def _check_family(problem: _File, family: str) -> None:
    noise = problem.tables["fit"].get("noise", "gaussian")
    known = {name for names in FAMILIES.values() for name in names}
    if family not in known:
        with problem.at("fit", "family"):
            offered = sorted(known) if noise == "auto" else FAMILIES[noise]
            raise fail("fit", f"family = {family!r}", "is not a family", nearest(family, offered))


def _one_of(problem: _File, table: str, keys: tuple[str, ...]) -> str:
    """Return the one key of several that a table holds."""
    given = [key for key in keys if key in problem.tables.get(table, {})]
    if len(given) == 1:
        return given[0]
    with problem.at(table, *given[1:2]):
        seen = " and ".join(given) or ("an empty table" if table in problem.tables else "no such table")
        raise fail(table, seen, f"[{table}] needs exactly one of {', '.join(keys)}", "Write one of them.")


def _domain(problem: _File) -> Domain | None:
    if "domain" not in problem.tables:
        return None
    table = problem.tables["domain"]
    if _one_of(problem, "domain", ("sizes", "attribute")) == "sizes":
        with problem.at("domain", "sizes"):
            return as_domain(table["sizes"])
    attributes = [_attribute(problem, i, entry) for i, entry in enumerate(table["attribute"])]
    with problem.at("domain", "attribute"):
        parts = ([part for one in attributes for part in getattr(one, key)] for key in _PARTS)
        return Domain(*map(tuple, parts))


def _attribute(problem: _File, i: int, entry: JsonObject) -> Domain:
    """Return the domain of one attribute."""
    with problem.at("domain", "attribute", i):
        if "name" not in entry or not {"size", "labels", "bins", "first"} & set(entry):
            advice = 'Write it like name = "age" and size = 100, or labels = ["F", "M"], or bins = [0, 18, 65, 120].'
            raise fail("domain.attribute", entry, "needs a name, and a size, labels, bins, or first and last", advice)
        if ("first" in entry) != ("last" in entry):
            raise fail("domain.attribute", entry, "has one of first and last", "Give both, for example 18 and 99.")
        unit, labels = entry.get("unit"), entry.get("labels")
        if "first" in entry:
            made = domains.whole(entry["first"], entry["last"], unit=unit)
        elif "bins" in entry:
            made = domains.bins(entry["bins"], unit=unit, labels=labels)
        else:
            names = None if labels is None else tuple(labels)
            made = domains.Attribute(entry.get("size", len(names or ())), names, None, unit)
        if entry.get("size", made.size) != made.size:
            raise fail("domain.attribute", f"size = {entry['size']}", f"there are {made.size} values", "Leave it out.")
        return domains.of({entry["name"]: made})  # refuses labels that do not fit, on this line


def _policy(problem: _File, domain: Domain | None) -> Policy:
    key = _one_of(problem, "policy", ("spec", "file", "attribute"))
    value = problem.tables["policy"][key]
    if key == "attribute":
        return _policy_by_attribute(problem, domain, value)
    with problem.at("policy", key):
        if key == "file":
            return policies.read(problem.file.parent / value, domain=domain)
        return policies.parse(problem.located(value, policy_files.SUFFIXES), domain=domain)


def _policy_by_attribute(problem: _File, domain: Domain | None, entries: JsonObject) -> Policy:
    if domain is None:
        with problem.at("policy", "attribute"):
            raise fail("policy.attribute", ", ".join(entries), "needs the attributes", "Add a [domain] table.")
    made: dict[str, Policy] = {}
    for name, spec in entries.items():
        with problem.at("policy", "attribute", name):
            if not isinstance(spec, str):
                raise fail("policy.attribute", f"{name} = {spec!r}", "must be text", f'Write it like {name} = "line".')
            made[name] = policy_of(domain.only(name), problem.located(spec, policy_files.SUFFIXES))
    return policies.per_attribute(domain, made)


def _workload(problem: _File, domain: Domain | None) -> Workload:
    if "publish" in problem.tables:
        return _published(problem, domain)
    key = _one_of(problem, "workload", ("spec", "file", "union"))
    table = problem.tables["workload"]
    weights = table.get("weights")
    parts = table[key] if key == "union" else [table[key]]
    if weights is not None and (key != "union" or len(weights) != len(parts)):
        with problem.at("workload", "weights"):
            seen = f"{len(weights)} weights for {len(parts)} workloads"
            raise fail("workload", seen, "weights go with union, one for each", "Correct the list.")
    with problem.at("workload", key):
        made = [_one_workload(problem, part, domain, from_file=key == "file") for part in parts]
        if weights is not None:
            made = [w if k == 1 else workloads.weighted(w, k) for w, k in zip(made, weights, strict=True)]
        return workloads.union(*made) if key == "union" else made[0]


def _published(problem: _File, domain: Domain | None) -> Workload:
    """Return the workload of [[publish]], each entry of which is a table."""
    entries = problem.tables["publish"]
    for key, wrong, advice in (
        ("workload", "workload" in problem.tables, "Write what is asked either as [workload] or as [[publish]]."),
        ("publish", domain is None, "Add a [domain] table that names the attributes."),
    ):
        if wrong:
            with problem.at(key):
                raise fail("publish", f"{len(entries)} tables", "need attributes, and no other workload", advice)
    assert domain is not None
    made = []
    for i, entry in enumerate(entries):
        with problem.at("publish", i):
            made.append(publishing.tables(entry))
            made[-1].on(domain)  # refuses what the domain does not have, on this line
    return workloads.Tables(tuple(one for tables in made for one in tables.asked)).on(domain)


def _one_workload(problem: _File, text: str, domain: Domain | None, *, from_file: bool) -> Workload:
    if not from_file:
        return workloads.parse(problem.located(text, workload_files.SUFFIXES), domain=domain)
    made = workloads.read(problem.file.parent / text)
    return made if domain is None else Workload(made.matrix, domain, made.spec, made.namer)
