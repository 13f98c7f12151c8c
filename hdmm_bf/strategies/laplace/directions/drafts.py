"""What searches for sums of noise hand over: sketches of loss 1, their error and their name."""

from __future__ import annotations

from typing import NamedTuple

from hdmm_bf.strategies.gaussian.sketch import JoinedSketch, Sketch

NAME = "directions"


class SumDraft(NamedTuple):
    """Sketches of loss 1, their unit error, and their name."""

    sketches: tuple[Sketch | JoinedSketch, ...]
    error: float
    name: str
