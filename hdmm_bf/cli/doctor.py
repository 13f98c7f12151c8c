"""`hdmm-bf doctor`: what is installed, what the machine has, and what sizes will fit."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

import click

from hdmm_bf._types import JsonObject
from hdmm_bf.cli.show import as_json, count, emit, facts

_NEEDED = ("numpy", "scipy", "jax", "jaxlib", "jaxtyping", "optax", "opendp", "networkx", "rich", "threadpoolctl")
_OPTIONAL = {"duckdb": "data", "narwhals": "data", "pyarrow": "data", "matplotlib": "plot"}
_SIZES = (1024, 4096, 8192)
_MEMORY_FILE = Path("/proc/meminfo")


@click.command(short_help="Say what is installed and what sizes fit.", epilog="Example: hdmm-bf doctor --json")
@as_json
def doctor(as_json: bool) -> None:
    """Say which versions are installed, what the machine has, and what sizes of dense fits its memory allows.

    The shell completes commands and options after: eval "$(_HDMM_BF_COMPLETE=bash_source hdmm-bf)"; zsh_source and
    fish_source are the same for zsh and fish.
    """
    record = _record()
    if as_json:
        emit(record)
    else:
        click.echo(_told(record))


def _record() -> JsonObject:
    from hdmm_bf import __version__

    memory = _memory()
    versions = {"python": platform.python_version(), "hdmm_bf": __version__}
    return {
        "versions": {**versions, **{name: _version(name) for name in (*_NEEDED, *_OPTIONAL)}},
        "missing": [name for name in _NEEDED if _version(name) is None],
        "platform": platform.platform(),
        "cores": _cores(),
        "memory": memory,
        "blas": _blas(),
        "jax": _jax(),
        "cache": _cache(),
        "dense_fits": _dense_fits(memory["available"]),
    }


def _cache() -> str | None:
    from hdmm_bf.cli import cache_folder

    return cache_folder()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cores() -> int:
    """Number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> dict[str, int | None]:
    """Total and available bytes, None where the system does not say."""
    try:
        rows = [line.split() for line in _MEMORY_FILE.read_text().splitlines()]
        sizes = {row[0]: int(row[1]) * 1024 for row in rows if len(row) == 3}
        return {"total": sizes["MemTotal:"], "available": sizes["MemAvailable:"]}
    except (OSError, KeyError, ValueError):
        return {"total": _pages("SC_PHYS_PAGES"), "available": _pages("SC_AVPHYS_PAGES")}


def _pages(name: str) -> int | None:
    try:
        return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _blas() -> list[JsonObject] | str:
    """The libraries that NumPy and SciPy calculate with, or why they are not known."""
    try:
        import scipy.linalg  # noqa: F401  # loads its BLAS
        from threadpoolctl import threadpool_info
    except ImportError as error:
        return f"not known: {error}"
    fields = ("user_api", "internal_api", "version", "num_threads")
    return [{name: _plain(found.get(name)) for name in fields} for found in threadpool_info()]


def _plain(value: object) -> str | int | None:
    """Leave out what is no text or number: SciPy registers a function as the version of its file reader."""
    return value if isinstance(value, str | int) else None


def _jax() -> JsonObject:
    try:
        import jax

        return {"backend": jax.default_backend(), "devices": [str(device) for device in jax.devices()]}
    except (ImportError, RuntimeError) as error:  # not installed, or a backend that does not start
        return {"backend": None, "devices": [], "problem": str(error).split("\n")[0]}


def _dense_fits(available: int | None) -> list[JsonObject]:
    """Predicted memory of dense fits beside what is available; empty where fitting cannot be imported."""
    try:
        from hdmm_bf.fit.memory import dense_bytes
    except ImportError:
        return []
    needs = {cells: dense_bytes(cells) for cells in _SIZES}
    return [
        {"cells": cells, "bytes": need, "fits": None if available is None else need <= available}
        for cells, need in needs.items()
    ]


def _told(record: JsonObject) -> str:
    rows = [(name, version or _lacking(name)) for name, version in record["versions"].items()]
    total, available = (_size(record["memory"][key]) for key in ("total", "available"))
    rows += [
        ("system", f"{record['platform']}, {count(record['cores'], 'core')}"),
        ("memory", f"{available} available of {total}"),
        *[("BLAS", line) for line in _blas_lines(record["blas"])],
        ("JAX", _jax_line(record["jax"])),
        (
            "compiled",
            record["cache"] or "not kept; with HDMM_BF_CACHE unset, the next start is quicker",
        ),
        *[("dense fit", _fit_line(entry)) for entry in record["dense_fits"]],
    ]
    lacking = ", ".join(record["missing"])
    last = f"Missing: {lacking}; install hdmm-bf again." if lacking else "Everything that is needed is installed."
    return f"{facts(rows)}\n{last}"


def _lacking(name: str) -> str:
    return f"not installed; optional, comes with hdmm-bf[{_OPTIONAL[name]}]" if name in _OPTIONAL else "MISSING"


def _size(num_bytes: int | None) -> str:
    from hdmm_bf._checks import readable_bytes

    return "an unknown amount" if num_bytes is None else readable_bytes(num_bytes)


def _blas_lines(blas: list[JsonObject] | str) -> list[str]:
    if isinstance(blas, str):
        return [blas]
    return [
        f"{b['internal_api']} {b['version'] or ''}".strip() + f", {count(b['num_threads'], 'thread')}" for b in blas
    ]


def _jax_line(jax: JsonObject) -> str:
    return f"{jax['backend']}: {', '.join(jax['devices'])}" if jax["backend"] else f"does not start: {jax['problem']}"


def _fit_line(entry: JsonObject) -> str:
    verdict = {True: "fits", False: "DOES NOT FIT in what is available", None: "cannot be judged here"}[entry["fits"]]
    return f"{entry['cells']} cells need {_size(entry['bytes'])}: {verdict}"
