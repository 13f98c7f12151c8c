"""Spec strings: `line:64`, `threshold:32x32:1`, `product:line:16,bounded:3`, or a path to a graph file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hdmm_bf import domain as domains
from hdmm_bf._checks import fail, nearest, unknown_name, written_whole
from hdmm_bf.domain import Domain
from hdmm_bf.policy import constructors, files, spanners
from hdmm_bf.policy.graph import Policy

_SIMPLE: dict[str, Callable[[Domain], Policy]] = {
    "unbounded": constructors.unbounded,
    "bounded": constructors.bounded,
    "line": constructors.line,
    "cycle": constructors.cycle,
    "star-tree": constructors.star_tree,
    "empty": constructors.empty,
}
_WITH_THRESHOLD: dict[str, Callable[[Domain, int], Policy]] = {
    "threshold": constructors.threshold,
    "h-theta": spanners.h_theta,
}
_FORMS = {
    **{name: f"{name}:64" for name in _SIMPLE},
    **{name: f"{name}:64:4" for name in _WITH_THRESHOLD},
    "sensitive": "sensitive:2x5x7:1,2",
    "product": "product:line:16,bounded:3",
}


def parse(text: str, *, domain: Domain | None = None) -> Policy:
    """Make a policy from a spec string or a path; `graph.csv:64` says that a file's graph has 64 cells.

    With a `domain` its names and labels are used, and the spec may leave out the size: `line`, `threshold:4`,
    `sensitive:age`, `product:line,bounded`.

    Guarantees:
        `parse(policy.spec)` gives the same edges, for every policy made from a spec string.
    """
    path, size = _path(text)
    if path is not None:
        return files.read(path, domain=domain if size is None else domains.written_on(size, domain))
    name, *arguments = text.strip().split(":")
    name = name.lower()
    if name not in _FORMS:
        raise unknown_name("policy.parse", "policy", text, _FORMS, files.SUFFIXES)
    if name == "product":
        return _product(":".join(arguments).split(","), domain)
    expected = 1 if name in _SIMPLE else 2
    if domain is not None and len(arguments) == expected - 1:
        arguments = [str(domain), *arguments]
    if len(arguments) != expected:
        raise fail(
            "policy.parse",
            repr(text),
            f"'{name}' takes {expected} argument{'s' if expected > 1 else ''}, got {len(arguments)}",
            f"Write it like {_FORMS[name]}.",
        )
    cells = domains.written_on(arguments[0], domain)
    if name in _SIMPLE:
        return _SIMPLE[name](cells)
    if name in _WITH_THRESHOLD:
        return _WITH_THRESHOLD[name](cells, _whole(text, arguments[1], _FORMS[name]))
    named = domain is not None
    return constructors.sensitive(cells, [_attribute(text, a, named) for a in arguments[1].split(",")])


def _product(parts: list[str], domain: Domain | None) -> Policy:
    """Give the parts their attributes of the domain, where there are as many."""
    if domain is None or len(parts) != domain.num_attributes:
        return constructors.product(*map(parse, parts), domain=domain)
    own = [constructors.attribute_domain(domain, i) for i in range(len(parts))]
    return constructors.product(*(parse(part, domain=d) for part, d in zip(parts, own, strict=True)), domain=domain)


def _attribute(text: str, argument: str, named: bool) -> str | int:
    """Read the number of an attribute, or its name where the domain has names."""
    number = written_whole(argument)
    return argument.strip() if named and number is None else _whole(text, argument, _FORMS["sensitive"])


def parse_for(domain: Domain, text: str) -> Policy:
    """Make a policy on a given domain from a spec without its size: `line`, `bounded`, `threshold:4`."""
    name, *rest = text.strip().lower().split(":")
    if name not in _SIMPLE and name not in _WITH_THRESHOLD:
        raise fail("policy", repr(text), f"unknown policy '{name}'", nearest(name, {**_SIMPLE, **_WITH_THRESHOLD}))
    made = parse(":".join([name, str(domain), *rest]))
    return Policy(domain, made.spec, made.meaning, made.stored, made.factors, made.notes)


def _whole(text: str, argument: str, form: str) -> int:
    number = written_whole(argument)
    if number is None:
        raise fail("policy.parse", repr(text), f"'{argument}' is not a whole number", f"Write it like {form}.")
    return number


def is_path(text: str) -> bool:
    """Whether a text is the path of a graph file, perhaps with its number of cells."""
    return _path(text)[0] is not None


def _path(text: str) -> tuple[Path | None, str | None]:
    """Recognise `graph.csv` and `graph.csv:64`."""
    if Path(text).suffix.lower() in files.SUFFIXES or ("/" in text and ":" not in text):
        return Path(text), None
    head, _, tail = text.rpartition(":")
    if Path(head).suffix.lower() in files.SUFFIXES:
        return Path(head), tail
    return None, None
