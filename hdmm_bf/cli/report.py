"""`hdmm-bf report`: a bundle as one page to read, print and keep."""

from __future__ import annotations

import os

import click

from hdmm_bf._display import plain
from hdmm_bf.cli.show import as_json, emit, with_bounds


@click.command(
    short_help="Write a page with words and pictures.",
    epilog="Example: hdmm-bf report ranges.bf --out ranges.html",
)
@click.argument("bundle")
@click.option("--out", "-o", required=True, metavar="FILE", help="The page to write: FILE.html.")
@click.option("--release", "released", metavar="FILE", help="Show the table that a release wrote: .csv or .parquet.")
@click.option("--map", "geojson", metavar="FILE", help="Draw districts on this map, GeoJSON with their labels.")
@as_json
def report(bundle: str, out: str, released: str | None, geojson: str | None, as_json: bool) -> None:
    """Write one self-contained HTML page about BUNDLE: what is hidden, what is public, how good it is, with pictures.

    The page loads nothing from anywhere and can be mailed or printed. Needs matplotlib: pip install 'hdmm-bf[plot]'.
    """
    from hdmm_bf.fit import loading
    from hdmm_bf.report import SUFFIXES, write_report
    from hdmm_bf.report.export import check_apart, check_target

    check_target(out, SUFFIXES)
    check_apart([out], [bundle, released, geojson])
    made = loading.load(bundle)
    path = write_report(made, out, bundle=os.path.basename(os.path.normpath(bundle)), release=released, geojson=geojson)
    if as_json:
        emit({"bundle": bundle, "file": str(path), **with_bounds(made.summary())})
    else:
        click.echo(f"Wrote {plain(path)}")
