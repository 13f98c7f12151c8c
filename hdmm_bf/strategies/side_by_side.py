"""Several searches on as many threads, with results that come in turn whatever the clock says.

Threads share the compiled programs of JAX and start at once; the work is done outside the interpreter's lock, in
compiled code. Each search has a seed of its own, so they are restarts of one another.
"""

from __future__ import annotations

import itertools
import os
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import final

from hdmm_bf.error import Draft

_MOST_WORKERS = 4
"""Restarts beyond this many gain less than the depth that each loses."""

_AHEAD = 3
"""Steps that a search may be ahead."""


def default_workers() -> int:
    """Return how many searches run side by side: the cores allowed, at most 4, fewer if OMP_NUM_THREADS says so."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(cores, _MOST_WORKERS, int(asked) if asked.isdecimal() else cores))


def side_by_side(searches: Sequence[Iterator[Draft]]) -> Iterator[Draft]:
    """Yield the best of several endless searches after each step of each, in turn; each has a thread of its own.

    A search may be a few steps ahead of what was taken from it, so that it need not wait for a slower one.

    Guarantees:
        The sequence depends on the searches alone, not on which of them is faster. An error in a search is raised where
        its step would have been yielded, and when the sequence is closed the threads end after their current step.
    """
    lanes = [_Lane(search) for search in searches]
    best: Draft | None = None
    try:
        for lane in itertools.cycle(lanes):
            found = lane.take()
            best = found if best is None or found.error < best.error else best
            yield best
    finally:
        for lane in lanes:
            lane.stop()


@final
class _Lane:
    """One search on its thread, at most `_AHEAD` steps ahead."""

    def __init__(self, search: Iterator[Draft]) -> None:
        self._search, self._stopped = search, False
        self._room, self._steps = threading.Semaphore(_AHEAD), queue.SimpleQueue[Draft | BaseException]()
        threading.Thread(target=self._run, name="hdmm_bf restarts").start()

    def _run(self) -> None:
        while self._room.acquire() and not self._stopped:
            try:
                self._steps.put(next(self._search))
            except BaseException as error:  # noqa: BLE001  # raised again where the step is taken
                self._steps.put(error)
                return

    def take(self) -> Draft:
        """Return the next step, waiting for it if need be."""
        found = self._steps.get()
        if isinstance(found, BaseException):
            raise found
        self._room.release()
        return found

    def stop(self) -> None:
        """End the thread after its current step."""
        self._stopped = True
        self._room.release()
