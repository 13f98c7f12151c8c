"""From a fit to a page: the sections in their order, then one file that appears whole or not at all."""

from __future__ import annotations

from pathlib import Path

from hdmm_bf.fit import Fit
from hdmm_bf.report import pictures, sections, tables, worst
from hdmm_bf.report.comparison import compared
from hdmm_bf.report.export import check_target, write_file
from hdmm_bf.report.page import page
from hdmm_bf.report.released import read_release

SUFFIXES = (".html",)


def write_report(
    fit: Fit,
    path: str | Path,
    *,
    bundle: str | None = None,
    release: str | Path | None = None,
    geojson: str | Path | None = None,
) -> Path:
    """Write a self-contained HTML page about a fit: words, facts, pictures, comparison, how to cite and reproduce.

    Args:
        fit: what the page is about, from `fit` or `load`.
        path: a name that ends in .html.
        bundle: name of the bundle in the commands of the page.
        release: a file that a release of this fit wrote (CSV or Parquet), to be shown.
        geojson: a map whose districts are the values of one attribute, by their labels.
    """
    target = check_target(path, SUFFIXES)
    return write_file(target, render(fit, bundle=bundle, release=release, geojson=geojson).encode())


def render(
    fit: Fit, *, bundle: str | None = None, release: str | Path | None = None, geojson: str | Path | None = None
) -> str:
    """Return the page as text; arguments as for `write_report`.

    Guarantees:
        A bundle gives the same page whenever it is loaded. Everything that comes from the fit is escaped, and the page
        loads nothing from anywhere.
    """
    released = None if release is None else read_release(release, fit.problem.workload)
    districts = None if geojson is None else tables.read_map(str(geojson), fit.problem.policy.domain)
    others = compared(fit)
    parts = [
        sections.summary(fit),
        sections.public(fit),
        tables.errors(fit),
        None if released is None else tables.release(fit, released),
        None if districts is None else tables.on_map(fit, districts, released),
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
    return page(sections.title(fit), [part for part in parts if part is not None])
