"""How numbers and facts appear to people: in words, and as the HTML of notebooks and of the report.

Names and words that came from a file may hold anything: line breaks, commands to a terminal, marks that reverse the
direction of writing, letters that nobody sees. `plain` escapes all of it; `quoted`, `text` and `spreadsheet_cell` are
for the places where that is not enough.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Sequence

_ROUNDING = 1e-9
"""Smaller shares are zero but for rounding."""

LONGEST_LINE = 2000
"""Characters of a line that are shown."""
_LONGEST_NAME = 200
_TAIL = 90
_MOST_MARKS = 4
"""Combining marks on one letter; no writing needs more, and a flood of them covers the lines around it."""

_WORDS = re.compile(r"[\w%./+-]{1,40}( [\w%./+-]{1,40}){0,2}")
_SAFE = re.compile(r"[ -~]*")
_WIDE = re.compile(" {4,}")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
_BREAKING = frozenset({"Cc", "Cs", "Zl", "Zp"})
_IGNORED = (
    *((0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2800, 0x2800), (0x3164, 0x3164)),
    *((0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0x16FE4, 0x16FE4), (0x1D159, 0x1D159), (0xE0000, 0xE0FFF)),
)
"""Letters, marks and symbols that Unicode counts as printable and fonts leave blank."""
_FORMULA = re.compile(r"\s*[=+\-@\uFF1D\uFF0B\uFF0D\uFF20]")


def plain(words: object, *, most: int = LONGEST_LINE) -> str:
    """Escape what could pass for something else on a terminal, and leave out the middle of very long texts.

    Guarantees:
        The result is one line without control characters, invisible characters, wide gaps and piles of marks. What is
        plain already stays as it is.
    """
    line = _shortened(str(words), most)
    if not _SAFE.fullmatch(line):
        line = "".join(_escaped(c) if hidden else c for c, hidden in zip(line, _hidden(line), strict=True))
    return _shortened(_WIDE.sub(lambda gap: " " + r"\x20" * (len(gap[0]) - 1), line), most)


def _shortened(line: str, most: int) -> str:
    return line if len(line) <= most else f"{line[: most - _TAIL - 10]} ... {line[-_TAIL:]}"


def _hidden(line: str) -> Iterable[bool]:
    marks = _MOST_MARKS  # a mark without a letter before it would sit on what we print there
    for c in line:
        marks = marks + 1 if unicodedata.category(c) in ("Mn", "Me", "Mc") else 0
        yield marks > _MOST_MARKS or is_hidden(c)


def is_hidden(c: str) -> bool:
    """Whether a character has no ink of its own: control, format, private, unassigned, or blank; a space is none."""
    if c == " ":
        return False
    return unicodedata.category(c) in _HIDDEN or any(first <= ord(c) <= last for first, last in _IGNORED)


def _escaped(c: str) -> str:
    code = ord(c)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def quoted(name: object) -> str:
    """Put a name that came from a file in quotes that it cannot close."""
    line = str(name)
    if len(line) > _LONGEST_NAME:
        line = f"{line[: _LONGEST_NAME - 40]} ... {line[-30:]}"
    return '"' + plain(line.replace("\\", r"\\").replace('"', r"\"")) + '"'


def word(name: str) -> str:
    """Return a name for use inside a sentence: as it is if it is one to three plain words, else in quotes."""
    return name if _WORDS.fullmatch(name) and plain(name) == name else quoted(name)


def spreadsheet_cell(name: str) -> str:
    """Keep a name on one line, with an apostrophe before it if a spreadsheet would take it for a formula."""
    line = "".join(_escaped(c) if unicodedata.category(c) in _BREAKING else c for c in name)
    return f"'{line}" if _FORMULA.match(line) else line


def percent(share: float) -> str:
    """Write a share as a percentage of two digits, or more where they are whole."""
    if abs(share) < _ROUNDING:
        return "0 %"
    return f"{100 * share:.2g} %" if share < 1 else f"{100 * share:.0f} %"


def text(value: object) -> str:
    """Escape anything for HTML, also inside attributes, after what `plain` escapes."""
    return html.escape(plain(value), quote=True)


def facts_table(rows: Sequence[tuple[str, str]]) -> str:
    """Return names and values as a table with a heading for every row."""
    lines = "".join(f'<tr><th scope="row">{text(name)}</th><td>{text(value)}</td></tr>' for name, value in rows)
    return f'<div class="wide"><table><tbody>{lines}</tbody></table></div>'


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows under a heading each column."""
    top = "".join(f'<th scope="col">{text(word)}</th>' for word in head)
    lines = "".join("<tr>" + "".join(f"<td>{text(value)}</td>" for value in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table>"


def card(kind: str, name: str, *parts: str) -> str:
    """Return what a notebook shows of one object: what it is, its name, and tables under it."""
    return f"<div><strong>{text(kind)}</strong> {text(name)}{''.join(parts)}</div>"
