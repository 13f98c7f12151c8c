"""The page around the sections: light and dark, for screens, phones and paper; nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hdmm_bf._display import text

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""What a browser may load for this page: nothing but what is in it."""

_CSS = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --paper: #ffffff; --line: #d0d7de; --code: #f3f5f7; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9aa4af; --paper: #12161c; --line: #38414b; --code: #1d242c; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 46rem; padding: 1.5rem 1.1rem 4rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0.5rem 0 0.3rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 0.5rem; } h3 { font-size: 1rem; margin: 1.2rem 0 0.3rem; }
nav { font-size: 0.9rem; } nav a { margin-right: 0.9rem; display: inline-block; }
a { color: inherit; }
figure { margin: 1rem 0; }
.card { background: #ffffff; border: 1px solid var(--line); border-radius: 0.4rem; padding: 0.7rem;
  text-align: center; }
.card svg { width: 100%; max-width: 31rem; height: auto; display: inline-block; }
figcaption, .soft { color: var(--soft); font-size: 0.92rem; } figcaption { margin-top: 0.4rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; overflow-wrap: break-word; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.7rem 0.3rem 0; border-bottom: 1px solid var(--line); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
th[scope=row] + td { overflow-wrap: anywhere; }
tr.own { font-weight: 600; }
pre { background: var(--code); padding: 0.7rem; border-radius: 0.4rem; white-space: pre-wrap; }
@media (max-width: 30rem) {
  body { padding: 1rem 0.6rem 3rem; } .card { padding: 0.3rem; } th, td { padding-right: 0.5rem; font-size: 0.92rem; }
}
@media print {
  :root { --ink: #000000; --soft: #333333; --paper: #ffffff; --line: #999999; --code: #f3f5f7; }
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  nav { display: none; } figure, table, pre { break-inside: avoid; } h2 { break-after: avoid; }
}
"""


class Section(NamedTuple):
    """A heading, its anchor, and HTML under it."""

    anchor: str
    heading: str
    body: str


def paragraph(words: str, kind: str = "") -> str:
    """Return words as an escaped paragraph."""
    return f'<p class="{kind}">{text(words)}</p>' if kind else f"<p>{text(words)}</p>"


def bullets(items: Iterable[str]) -> str:
    """Return words as an escaped list."""
    return "<ul>" + "".join(f"<li>{text(item)}</li>" for item in items) + "</ul>"


def picture(svg: str, alternative: str, caption: str) -> str:
    """Return a picture on a white card, with its content in words for those who do not see it."""
    labelled = svg.replace("<svg", f'<svg role="img" aria-label="{text(alternative)}"', 1)
    return f'<figure><div class="card">{labelled}</div><figcaption>{text(caption)}</figcaption></figure>'


def page(title: str, sections: Sequence[Section]) -> str:
    """Return the whole document."""
    links = "".join(f'<a href="#{s.anchor}">{text(s.heading)}</a>' for s in sections)
    body = "\n".join(
        f'<section aria-labelledby="{s.anchor}"><h2 id="{s.anchor}">{text(s.heading)}</h2>\n{s.body}</section>'
        for s in sections
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{text(title)}</title>
<style>{_CSS}</style>
</head>
<body>
<header><h1>{text(title)}</h1>
<nav aria-label="Sections">{links}</nav></header>
<main>
{body}
</main>
</body>
</html>
"""
