"""From a fit to a page: the sections in their order, then one file that appears whole or not at all."""

from __future__ import annotations

from pathlib import Path

from hdmm_bf.fit import Fit
from hdmm_bf.report import pictures, sections, worst
from hdmm_bf.report.comparison import compared
from hdmm_bf.report.export import check_target, write_file
from hdmm_bf.report.page import page

SUFFIXES = (".html",)


def write_report(fit: Fit, path: str | Path, *, bundle: str | None = None) -> Path:
    """Write a self-contained HTML page about a fit: words, facts, pictures, comparison, how to cite and reproduce.

    Args:
        fit: what the page is about, from `fit` or `load`.
        path: a name that ends in .html.
        bundle: name of the bundle in the commands of the page.
    """
    target = check_target(path, SUFFIXES)
    return write_file(target, render(fit, bundle=bundle).encode())


def render(fit: Fit, *, bundle: str | None = None) -> str:
    """Return the page as text.

    Guarantees:
        A bundle gives the same page whenever it is loaded. Everything that comes from the fit is escaped, and the page
        loads nothing from anywhere.
    """
    others = compared(fit)
    parts = [
        sections.summary(fit),
        sections.public(fit),
        sections.facts(fit),
        pictures.policy(fit),
        pictures.strategy(fit),
        pictures.errors(fit, others),
        worst.section(fit),
        pictures.progress(fit),
        sections.comparison(fit, others),
        sections.reproduce(fit, bundle or "strategy.bf"),
        sections.cite(),
    ]
    return page(sections.title(fit), parts)
