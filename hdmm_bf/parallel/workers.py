"""The same search in several processes, each with a seed of its own.

Restarts share nothing but the problem. A process has an interpreter of its own, where threads would take turns at one:
measured, two threads were 1.0 to 1.4 times as fast as one. The processes are started by name, so that nothing of the
caller's program runs in them, and each calculates on one thread.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import IO, NamedTuple, TypeAlias, final

from hdmm_bf.objectives import limits
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.drafts import Draft

_MOST_WORKERS = 4
_COMMAND = "from hdmm_bf.strategies.laplace.portfolio import serve; serve()"
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
_ONE_XLA_THREAD = "--xla_cpu_multi_thread_eigen=false"

_GLANCE = 0.2
"""Seconds between two looks at the limits while another process is waited for."""

Message: TypeAlias = Draft | None | bool
"""A better strategy, None for a step that found none, True at the end of the search, False if it ended by mistake."""


def default_workers() -> int:
    """Return how many searches run side by side: the cores allowed, at most 4, fewer if OMP_NUM_THREADS says so."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(cores, _MOST_WORKERS, int(asked) if asked.isdecimal() else cores))


class Job(NamedTuple):
    """What another process searches, from the best strategy known at its start."""

    problem: Problem
    seed: int
    family: str | None
    best: Draft


def side_by_side(own: Iterator[Draft], jobs: Sequence[Job], *, in_turn: bool) -> Iterator[Draft]:
    """Yield every step of a search in this process and, between them, better strategies from other processes.

    Args:
        own: the search in this process.
        jobs: what the other processes search.
        in_turn: wait for a step of every other process after each of our own; else take what has come.

    Guarantees:
        The steps of this process's own search are all there, in their order. In turn, the sequence depends on the
        searches alone, not on the clock. The other processes end with the sequence.
    """
    others: list[_Other] = []
    try:
        others.extend(map(_Other, jobs))
        for found in own:
            yield found
            for other in others:
                yield from other.take(wait=in_turn)
        for other in others:
            while not other.ended and not limits.ending():
                yield from other.take(wait=True)
    finally:
        for other in others:
            other.end()


def answer(steps: Iterator[Draft], best: Draft, out: IO[bytes]) -> None:
    """Write the steps of a search as messages: in the other process, what `_Other` reads."""
    for found in steps:
        better = found.error < best.error
        best = found if better else best
        _write(found if better else None, out)
    _write(True, out)


def _write(message: Message, out: IO[bytes]) -> None:
    pickle.dump(message, out)
    out.flush()


@final
class _Other:
    """One other process, and what it has found that was not taken yet."""

    def __init__(self, job: Job) -> None:
        plain = Problem(replace(job.problem.workload, namer=str), job.problem.policy)  # names are not searched
        flags = f"{os.environ.get('XLA_FLAGS', '')} {_ONE_XLA_THREAD}".strip()
        paths = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_ONE_THREAD, "XLA_FLAGS": flags, "PYTHONPATH": paths},
            start_new_session=True,  # Ctrl-C is for the process that was called
        )
        self._found: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._talk, args=(job._replace(problem=plain),), daemon=True)
        self._reader.start()
        self.ended = False

    def _talk(self, job: Job) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        message: Message = None
        try:
            with self._process.stdin as there:
                pickle.dump(job, there)
            while not isinstance(message, bool):
                message = pickle.load(self._process.stdout)  # from a process of our own
                self._found.put(message)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            self._found.put(False)

    def take(self, *, wait: bool) -> Iterator[Draft]:
        """Yield better strategies: those of the next step, waiting for it, or of all steps that have come."""
        while not self.ended and (wait or not self._found.empty()):
            try:
                message = self._found.get(timeout=_GLANCE)
            except queue.Empty:
                if limits.ending():
                    return
                continue
            if isinstance(message, bool):
                self.ended = True
                if not message:
                    warnings.warn("A search in another process ended before its time.", RuntimeWarning, stacklevel=2)
            elif message is not None:
                yield message
            if wait:
                return

    def end(self) -> None:
        """Stop the process and the thread that listens to it."""
        self.ended = True
        self._process.kill()  # nothing is lost with it: what it found was sent
        self._process.wait()
        self._reader.join(timeout=10)
        assert self._process.stdout is not None
        self._process.stdout.close()
