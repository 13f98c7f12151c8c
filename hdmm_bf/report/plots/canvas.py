"""How figures look: a narrow page that stays readable on a phone, colours that colour-blind people can tell apart."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdmm_bf import _display
from hdmm_bf._checks import fail

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
    from matplotlib.image import AxesImage as AxesImage
else:  # matplotlib is an extra, imported when something is drawn
    Axes = AxesImage = Figure = object

FIGURES = (".svg", ".png", ".pdf")
"""Kinds of file that a figure is written as."""

WIDTH = 4.4
"""Inches. On a phone of 390 pixels text of 10 points is then 11 pixels high; on a desk it is not huge."""

SMALL = 9
"""Points of the smallest text: 10 pixels on that phone."""

_LINE = 46
"""Characters of a title that fit into the width."""
_PAIR = 40
"""Characters of the two longest labels of a legend that fit side by side."""

# Okabe and Ito's colours.
BLUE, ORANGE, GREEN, VERMILION, PURPLE, GREY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#666666"

_STYLE: Any = {  # matplotlib's type is a list of all its settings
    "axes.grid": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "hdmm_bf",
    "text.usetex": False,
}
_OUTER = re.compile(r"^.*?(?=<svg)|<metadata>.*?</metadata>|\sxmlns(:\w+)?=\"[^\"]*\"|<!--.*?-->", re.DOTALL)
_IDENTIFIERS = re.compile(r"(\sid=\"|url\(#|href=\"#)")


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Draw with the settings of this package, and leave those of the caller as they were."""
    if importlib.util.find_spec("matplotlib") is None:
        raise fail("plots", "figure", "needs the package matplotlib", "Install it with: pip install 'hdmm-bf[plot]'.")
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        yield


def new_figure(question: str, *, height: float, note: str = "") -> Figure:
    """Return an empty figure with a question as its title and, under it, a smaller line of notes."""
    from matplotlib.figure import Figure as Made

    figure = Made(figsize=(WIDTH, height), layout="constrained")
    lines = [line for words in (question, note) for line in textwrap.wrap(words, _LINE)]
    figure.set_figheight(height + 0.18 * max(len(lines) - 2, 0))
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=11)
    return figure


def legend(figure: Figure) -> None:
    """Put the legend of all axes under the figure, in two columns where the labels are short."""
    labels = sorted((len(label) for axis in figure.axes for label in axis.get_legend_handles_labels()[1]), reverse=True)
    figure.legend(loc="outside lower left", ncols=2 if sum(labels[:2]) <= _PAIR else 1)


def plain(text: str) -> str:
    """Return text that matplotlib takes literally, foreign characters escaped: two dollars make a formula."""
    return _display.plain(text).replace("$", r"\$")


def shortened(name: str, most: int) -> str:
    """Return a name with at most so many characters, as matplotlib takes it literally."""
    return plain(name if len(name) <= most else f"{name[: most - 3]}...")


def as_svg(figure: Figure, *, name: str) -> str:
    """Return a figure as an SVG element to put into an HTML page.

    Args:
        figure: what to draw.
        name: put before every identifier, so that several pictures fit on one page.

    Guarantees:
        The same figure gives the same text; there is no date, no comment and no address in it.
    """
    with style():
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    bare = _OUTER.sub("", buffer.getvalue()).replace("xlink:href", "href").strip()
    return _IDENTIFIERS.sub(rf"\g<1>{name}-", bare)


def as_file(figure: Figure, path: str | Path) -> bytes:
    """Return a figure as the content of a file, of the kind that the suffix says: .svg, .png or .pdf."""
    kind = Path(path).suffix.lower().removeprefix(".")
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with style():
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, dpi=200, metadata=dates.get(kind))
    return buffer.getvalue()
