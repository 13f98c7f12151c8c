"""Tables in a line of words: `table age region; ranges age by region; total`."""

from __future__ import annotations

import difflib
import re
import shlex

from hdmm_bf._checks import fail
from hdmm_bf.workload.language import Tables, prefixes, ranges, table, total

_ADVICE = "Write it like 'table age region; ranges age by region; prefixes age; total'."
KINDS = ("table", "ranges", "prefixes", "total")


def is_words(text: str) -> bool:
    """Whether a text starts as a list of tables does: with the kind of a table, and then a blank, `;` or nothing.

    A first word that is nearly one, before a blank or `;`, counts as well: it is refused as what it was meant to be.
    """
    word, rest = re.match(r"\s*([a-z]*)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    if word in KINDS:
        return re.match(r"\s|;|$", rest) is not None
    return rest[:1] in (" ", ";") and bool(difflib.get_close_matches(word, KINDS, n=1, cutoff=0.7))


def parse_words(text: str) -> Tables:
    """Read tables that are separated by semicolons; names with blanks stand in quotes.

    Example:
        >>> print(parse_words("table age 'home region'; ranges age by sex; total"))
        age x home region + ranges of age by sex + total
    """
    made = [_one(words) for words in _items(text) if words]
    if not made:
        raise fail("tables", repr(text), "names no table", _ADVICE)
    return Tables(tuple(one for tables in made for one in tables.asked))


def _items(text: str) -> list[list[str]]:
    """Split into words, and these at semicolons outside quotes."""
    reader = shlex.shlex(text, posix=True, punctuation_chars=";")
    reader.whitespace_split, reader.commenters = True, ""
    items: list[list[str]] = [[]]
    try:
        for word in reader:
            if set(word) == {";"}:
                items.append([])
            else:
                items[-1].append(word)
    except ValueError:
        raise fail("tables", repr(text), "has a quote that is not closed", _ADVICE) from None
    return items


def _one(words: list[str]) -> Tables:
    kind, *names = words
    if kind not in KINDS:
        raise fail("tables", repr(kind), f"is none of {', '.join(KINDS)}", _ADVICE)
    if kind == "total":
        if names:
            raise fail("tables", f"total {' '.join(names)}", "a total has no attributes", _ADVICE)
        return total()
    if kind == "table":
        return table(*names)
    if len(names) != 1 and (len(names) < 3 or names[1] != "by"):
        raise fail("tables", " ".join(words), f"{kind} are of one attribute, by others", _ADVICE)
    return (ranges if kind == "ranges" else prefixes)(names[0], by=names[2:])
