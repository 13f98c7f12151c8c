"""What a cluster of accelerators would reach: the spread Gaussian search by calculation.

Nothing here is measured on an accelerator. The counts are those of the code (`parallel/roots`, `parallel/sharded`)
and of XLA's account of its memory; the rates are the makers'.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from experiments.benchmarks.measure import Part, Table

DOUBLE = 8
ROOT_STEPS, STEPS, ROUNDINGS, INVERSE_STEPS = 10, 10, 3, 5
"""A typical search: iterations a root (8 to 13 seen), steps, of which so many are rounded, iterations an inverse."""

PRODUCTS = STEPS * (3 * ROOT_STEPS + 6) + ROUNDINGS * (6 + 2 * INVERSE_STEPS)
"""Matrix products of a search: three an iteration; two each for S, X, the residual, the curvature and the moved X."""

MATRICES = 22
"""Matrices, each spread, that the devices hold at the peak: 19 by XLA's account, the best X, and two to be safe."""

EFFICIENCY = 0.7
"""Share of the peak that a large product of doubles is taken to reach."""

HOST_FLOPS, HOST_BYTES = 1e12, 1e12
"""A host with 1 Tflop/s of doubles and 1 TB of memory, for what is not spread."""

HOST_WORK, HOST_MATRICES = 12, 10
"""Flops over n^3 and matrices over n^2 on the host: factors of V, the strategy and the certificate's eigenvalues."""


@dataclass(frozen=True)
class Accelerator:
    """Peak rates of one device: doubles by its matrix units, and one direction of its links."""

    name: str
    flops: float
    memory: float
    link: float
    network: float
    a_node: int


A100 = Accelerator("A100 80 GB", 19.5e12, 80e9, 300e9, 25e9, 8)
H100 = Accelerator("H100 SXM", 66.9e12, 80e9, 450e9, 50e9, 8)


def ring(device: Accelerator, count: int) -> float:
    """Bytes a second around the ring: its slowest hop, which leaves a node as soon as there are two."""
    return device.link if count <= device.a_node else device.network


def largest(device: Accelerator, count: int) -> int:
    """The most cells whose matrices fit, on nine tenths of the memory."""
    return math.isqrt(int(0.9 * device.memory * count / (MATRICES * DOUBLE)))


def product_seconds(device: Accelerator, count: int, n: int) -> tuple[float, float]:
    """Seconds of one product for computing and for passing a matrix around, one after the other."""
    return 2 * n**3 / (count * device.flops * EFFICIENCY), DOUBLE * n**2 * (count - 1) / count / ring(device, count)


def balance(device: Accelerator, rate: float, n: int) -> float:
    """Number of devices at which passing takes as long as computing: n rate / (4 flops)."""
    return n * rate / (4 * device.flops * EFFICIENCY)


def host_seconds(n: int) -> float:
    """Seconds of what the host does alone."""
    return HOST_WORK * n**3 / HOST_FLOPS


def by_memory() -> Table:
    """The largest domains, and how long a search takes on them."""
    rows = []
    for device in (A100, H100):
        for count in (1, 8, 64, 512):
            n = largest(device, count)
            computing, passing = (PRODUCTS * seconds for seconds in product_seconds(device, count, n))
            host = HOST_MATRICES * DOUBLE * n**2
            rows.append([device.name, str(count), str(n), *map(time, (computing, passing, computing + passing))])
            rows[-1] += [time(host_seconds(n)), f"{host / 1e12:.2f}"]
    return Table(["device", "number", "cells", "computing", "passing", "search", "host alone", "host TB"], rows)


def by_number(n: int) -> Table:
    """One size on more and more devices."""
    rows = []
    for count in (1, 2, 4, 8, 16, 64, 256):
        computing, passing = (PRODUCTS * seconds for seconds in product_seconds(H100, count, n))
        memory = MATRICES * DOUBLE * n**2 / count / 1e9
        share = PRODUCTS * product_seconds(H100, 1, n)[0] / count / (computing + passing)
        held = f"{memory:.1f}" if n <= largest(H100, count) else f"{memory:.1f}, too much"
        rows.append([str(count), held, *map(time, (computing, passing, computing + passing)), f"{share:.0%}"])
    return Table(["H100", "GB a device", "computing", "passing", "search", "efficiency"], rows)


def time(seconds: float) -> str:
    """Write seconds for people."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


SIZE = 32768


def report(*, quick: bool = False) -> list[Part]:
    """Return both tables and what follows from them; nothing is measured, so it is quick."""
    node, far = balance(H100, H100.link, SIZE), balance(H100, H100.network, SIZE)
    least = time(PRODUCTS * DOUBLE * SIZE**2 / H100.network)
    host = math.isqrt(int(HOST_BYTES / (HOST_MATRICES * DOUBLE)))
    return [
        f"A search is taken as {PRODUCTS} products of n x n matrices, {2 * PRODUCTS} n^3 flops, with {MATRICES}\n"
        f"matrices spread over the devices; the host, with {HOST_FLOPS / 1e12:g} Tflop/s, does {HOST_WORK} n^3\n"
        "flops of its own. The largest domain that fits the devices, and a search on it:",
        by_memory(),
        f"{SIZE} cells on more and more H100:",
        by_number(SIZE),
        f"* Passing takes as long as computing at {node:.0f} devices by NVLink alone, and at {far:.1f} where the\n"
        "  ring leaves a node.\n"
        f"* Past that, more devices bring memory, not time: at {SIZE} cells a search passes for {least} at least.\n"
        f"* A host of {HOST_BYTES / 1e12:.0f} TB holds its {HOST_MATRICES} matrices up to {host} cells, and works\n"
        f"  {time(host_seconds(host))} on them.",
    ]
