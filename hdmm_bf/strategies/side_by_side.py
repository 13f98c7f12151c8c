"""Several searches on as many threads, with results that come in turn whatever the clock says.

Threads share the compiled programs of JAX and start at once; the work is done outside the interpreter's lock, in
compiled code. Each search has a seed of its own, so they are restarts of one another.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor

from hdmm_bf.error import Draft

_MOST_WORKERS = 4
"""Restarts beyond this many gain less than the depth that each loses."""


def default_workers() -> int:
    """Return how many searches run side by side: the cores allowed, at most 4, fewer if OMP_NUM_THREADS says so."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(cores, _MOST_WORKERS, int(asked) if asked.isdecimal() else cores))


def side_by_side(searches: Sequence[Iterator[Draft]], pool: Executor) -> Iterator[Draft]:
    """Yield the best of several endless searches after each step of each, in turn.

    Guarantees:
        The sequence depends on the searches alone, not on which of them is faster.
    """
    ahead = deque((search, pool.submit(next, search)) for search in searches)
    best: Draft | None = None
    while True:
        search, step = ahead.popleft()
        found = step.result()
        ahead.append((search, pool.submit(next, search)))
        best = found if best is None or found.error < best.error else best
        yield best
