"""Spec strings: `all-range:64`, `marginals:2x5x7:2`, `random-range:4096:10000:seed=7`, or a path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hdmm_bf import domain as domains
from hdmm_bf._checks import fail, unknown_name, written_whole
from hdmm_bf.domain import Domain
from hdmm_bf.workload import constructors, files
from hdmm_bf.workload.queries import Workload

_SIMPLE: dict[str, Callable[[Domain], Workload]] = {
    "identity": constructors.identity,
    "prefix": constructors.prefix,
    "all-range": constructors.all_range,
}
_FORMS = {
    "identity": "identity:64",
    "prefix": "prefix:256",
    "all-range": "all-range:32x32",
    "random-range": "random-range:4096:10000:seed=7",
    "marginals": "marginals:2x5x7:2",
}


def parse(text: str, *, domain: Domain | None = None) -> Workload:
    """Make a workload from a spec string or from a path to a matrix.

    With a `domain` its names and labels are used, and the spec may leave out the size: `all-range`, `marginals:2`.

    Guarantees:
        `parse(workload.spec)` gives the same matrix, for every workload made from a spec string.
    """
    if Path(text).suffix.lower() in files.SUFFIXES or ("/" in text and ":" not in text):
        return _read(text, domain)
    name, *arguments = text.strip().split(":")
    name = name.lower()
    if name not in _FORMS:
        raise unknown_name("workload.parse", "workload", text, _FORMS, files.SUFFIXES)
    if domain is not None:
        arguments = _with_size(name, arguments, domain)
    if name in _SIMPLE:
        return _SIMPLE[name](_domain(text, name, arguments, 1, 1, domain))
    if name == "marginals":
        cells = _domain(text, name, arguments, 2, 2, domain)
        return constructors.marginals(cells, "all" if arguments[1] == "all" else _whole(text, arguments[1], name))
    cells = _domain(text, name, arguments, 2, 3, domain)
    seed = arguments[2].removeprefix("seed=") if len(arguments) == 3 else "0"
    return constructors.random_range(cells, _whole(text, arguments[1], name), seed=_whole(text, seed, name))


def _read(text: str, domain: Domain | None) -> Workload:
    made = files.read(text)
    return made if domain is None else Workload(made.matrix, domain, made.spec, made.namer)


def _with_size(name: str, arguments: list[str], domain: Domain) -> list[str]:
    """Fill in the size where a spec leaves it out: where it has one argument, not counting the seed, too few."""
    needed = 1 if name in _SIMPLE else 2
    given = sum(not argument.startswith("seed=") for argument in arguments)
    return [str(domain), *arguments] if given < needed else arguments


def _domain(text: str, name: str, arguments: list[str], least: int, most: int, given: Domain | None) -> Domain:
    if not least <= len(arguments) <= most:
        expected = f"{least}" if least == most else f"{least} or {most}"
        raise fail(
            "workload.parse",
            repr(text),
            f"'{name}' takes {expected} argument{'s' if most > 1 else ''}, got {len(arguments)}",
            f"Write it like {_FORMS[name]}.",
        )
    return domains.written_on(arguments[0], given)


def _whole(text: str, argument: str, name: str) -> int:
    number = written_whole(argument)
    if number is None:
        problem = f"'{argument}' is not a whole number"
        raise fail("workload.parse", repr(text), problem, f"Write it like {_FORMS[name]}.")
    return number
