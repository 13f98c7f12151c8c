"""The same search in several processes, each with a seed of its own.

Restarts share nothing but the problem. A process has an interpreter of its own, where threads would take turns at one:
measured, two threads were 1.0 to 1.4 times as fast as one. The processes are started by name, so that nothing of the
caller's program runs in them, and each calculates on one thread.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Generic, Protocol, TypeAlias, TypeVar, final, runtime_checkable

from hdmm_bf.objectives import limits

_MOST_WORKERS = 4
_COMMAND = "from hdmm_bf.parallel.workers import serve; serve()"
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
_ONE_XLA_THREAD = "--xla_cpu_multi_thread_eigen=false"

_GLANCE = 0.2
"""Seconds between two looks at the limits while another process is waited for."""


@runtime_checkable
class Candidate(Protocol):
    """What a search yields: the less error the better."""

    @property
    def error(self) -> float:
        """How bad it is."""
        ...


C = TypeVar("C", bound=Candidate)

Message: TypeAlias = C | None | bool
"""A better candidate, None for a step without one, True at the end of the search, False if it ended by mistake."""


def default_workers() -> int:
    """Return how many searches run side by side: the cores allowed, at most 4, fewer if OMP_NUM_THREADS says so."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(cores, _MOST_WORKERS, int(asked) if asked.isdecimal() else cores))


@final
@dataclass(frozen=True)
class Job(Generic[C]):
    """A search for another process.

    Attributes:
        search: a function of a module, which the other process imports by its name; it yields candidates.
        arguments: its arguments by name; they are pickled.
        best: the best candidate known at the start: only better ones are sent back.
    """

    search: Callable[..., Iterator[C]]
    arguments: Mapping[str, object]
    best: C


def side_by_side(own: Iterator[C], jobs: Sequence[Job[C]], *, in_turn: bool, after: int = 0) -> Iterator[C]:
    """Yield every step of a search in this process and, between them, better candidates from other processes.

    Args:
        own: the search in this process.
        jobs: what the other processes search.
        in_turn: wait for a step of every other process after each of our own; else take what has come.
        after: steps of our own before the other processes are started.

    Guarantees:
        The steps of this process's own search are all there, in their order. In turn, the sequence depends on the
        searches alone, not on the clock. The other processes end with the sequence.
    """
    others: list[_Other[C]] = []
    try:
        for count, candidate in enumerate(own):
            if count == after:
                others.extend(map(_Other, jobs))
            yield candidate
            for other in others:
                yield from other.take(wait=in_turn)
        for other in others:
            while not other.ended and not limits.ending():
                yield from other.take(wait=True)
    finally:
        for other in others:
            other.end()


def serve() -> None:
    """Search what another process sends on standard input, and answer on standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    job: Job[Candidate] = pickle.load(sys.stdin.buffer)  # from the process that started this one
    with contextlib.suppress(BrokenPipeError):  # nobody listens any more
        _answer(job, sys.stdout.buffer)


def _answer(job: Job[Candidate], out: IO[bytes]) -> None:
    """Write the steps of a search as messages: in the other process, what `_Other` reads."""
    best = job.best
    for candidate in job.search(**job.arguments):
        better = candidate.error < best.error
        best = candidate if better else best
        _write(candidate if better else None, out)
    _write(True, out)


def _write(message: Message[Candidate], out: IO[bytes]) -> None:
    pickle.dump(message, out)
    out.flush()


@final
class _Other(Generic[C]):
    """One other process, and its messages that were not taken yet."""

    def __init__(self, job: Job[C]) -> None:
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
        self._messages: queue.SimpleQueue[Message[C]] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._talk, args=(job,), daemon=True)
        self._reader.start()
        self.ended = False

    def _talk(self, job: Job[C]) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        message: Message[C] = None
        try:
            with self._process.stdin as there:
                pickle.dump(job, there)
            while not isinstance(message, bool):
                message = pickle.load(self._process.stdout)  # from a process of our own
                self._messages.put(message)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            self._messages.put(False)

    def take(self, *, wait: bool) -> Iterator[C]:
        """Yield better candidates: those of the next step, waiting for it, or of all steps that have come."""
        while not self.ended and (wait or not self._messages.empty()):
            try:
                message = self._messages.get(timeout=_GLANCE)
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
        self._process.kill()  # nothing is lost with it: its candidates were sent
        self._process.wait()
        self._reader.join(timeout=10)
        assert self._process.stdout is not None
        self._process.stdout.close()
