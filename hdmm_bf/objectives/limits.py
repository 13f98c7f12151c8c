"""When a search must end: a time limit that reaches into every descent, and Ctrl-C that is noted, not raised.

Long work asks `ending()` and comes to its end by itself, with the best it has. An exception at any instruction, which
is what Ctrl-C means otherwise, would lose a finished strategy while it is certified, and break into compiled code.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from types import FrameType
from typing import final

clock = time.perf_counter


@final
class Interruption:
    """Ctrl-C during one call.

    Attributes:
        noted: whether it was pressed.
        keeping: whether there is a result to keep: then the first Ctrl-C is noted, and the next one raised.
    """

    def __init__(self) -> None:
        self.noted, self.keeping = False, False

    def handle(self, _number: int, _frame: FrameType | None) -> None:
        """Note the signal, or raise where there is nothing to keep or the user insists."""
        raised = self.noted or not self.keeping
        self.noted = True
        if raised:
            raise KeyboardInterrupt


_ORIGIN: ContextVar[float | None] = ContextVar("origin", default=None)
_UNTIL: ContextVar[float] = ContextVar("until", default=math.inf)
_INTERRUPTION: ContextVar[Interruption | None] = ContextVar("interruption", default=None)


@contextlib.contextmanager
def noting_interruptions() -> Iterator[Interruption]:
    """Note Ctrl-C from the first call of `keep` on; inside another such block, that one's is used.

    Guarantees:
        The handler of the caller is put back. It is replaced only in the main thread, and only if it is Python's own.
    """
    outer = _INTERRUPTION.get()
    if outer is not None:
        yield outer
        return
    own = Interruption()
    token = _INTERRUPTION.set(own)
    replaced = threading.current_thread() is threading.main_thread()
    replaced = replaced and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if replaced:
        signal.signal(signal.SIGINT, own.handle)
    try:
        yield own
    finally:
        if replaced:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        _INTERRUPTION.reset(token)


def keep() -> None:
    """Say that there is a result now: the first Ctrl-C ends the search, and no longer the call."""
    own = _INTERRUPTION.get()
    if own is not None:
        own.keeping = True


@contextlib.contextmanager
def limited(until: float) -> Iterator[None]:
    """Let work inside end at a time on `now`, or at that of a limit around this one if it is earlier."""
    token = _UNTIL.set(min(until, _UNTIL.get()))
    try:
        yield
    finally:
        _UNTIL.reset(token)


@contextlib.contextmanager
def counting_from(time: float) -> Iterator[None]:
    """Let the limits of fits inside count from an earlier time: that at which a command was called."""
    token = _ORIGIN.set(time)
    try:
        yield
    finally:
        _ORIGIN.reset(token)


def origin() -> float:
    """Return the time from which a limit counts: now, if nothing else is said."""
    said = _ORIGIN.get()
    return now() if said is None else said


def now() -> float:
    """Read the clock."""
    return clock()


def time_left() -> float:
    """Return the seconds until the limit, infinite without one."""
    return _UNTIL.get() - now()


def time_is_up() -> bool:
    """Whether the time limit has passed."""
    return time_left() <= 0


def interrupted() -> bool:
    """Whether Ctrl-C was noted."""
    own = _INTERRUPTION.get()
    return own is not None and own.noted


def ending() -> bool:
    """Whether work must come to its end."""
    return interrupted() or time_is_up()
